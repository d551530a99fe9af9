//! Routes beyond the published contract, below `/api/v1/prices`.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, Path, Query as UrlQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use runwhere_model::{Lang, OfferKey, ProviderId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::beside::beside;
use super::contract::{audience_of, envelope, flag, lang_of, refuse as refused};
use super::document::openapi;
use super::{Operator, Served};
use crate::canonical::QuoteRef;
use crate::catalogue::Audience;
use crate::history::Change;
use crate::request::known_once;
use crate::rows::{OfferRow, QuoteReply};

/// Rows per page at most.
const MOST: usize = 1000;

pub(super) fn routes(served: Served) -> Router {
    Router::new()
        .route("/api/v1/prices/sources", get(sources))
        .route("/api/v1/prices/quotes/{id}", get(quote_again))
        .route("/api/v1/prices/offer", get(offer))
        .route("/api/v1/prices/changes", get(changes))
        .route("/api/v1/prices/states", get(states))
        .route("/api/v1/prices/diff", get(diff))
        .route("/api/v1/prices/fx", get(fx))
        .route("/api/v1/prices/quarantine", get(quarantine))
        .route("/api/v1/prices/quarantine/decide", post(decide))
        .route("/api/v1/prices/refresh", post(refresh))
        .route("/api/v1/prices/accept-next", post(accept_next))
        .route("/api/v1/prices/openapi.json", get(|| async { Json(openapi()) }))
        .with_state(served)
}

type Parameters = UrlQuery<Vec<(String, String)>>;

fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = parameters.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
}

/// Parameters of these names only, each once.
fn only(
    parameters: &[(String, String)],
    known: &'static [&'static str],
    lang: Lang,
) -> Result<(), Box<Response>> {
    known_once(parameters, known)
        .map_err(|error| Box::new(refused(StatusCode::BAD_REQUEST, &error, lang)))
}

fn refuse(status: StatusCode, lang: Lang, zh: &str, en: &str, detail: Value) -> Response {
    let message = if lang == Lang::Zh { zh } else { en };
    envelope(status, message, detail)
}

async fn sources(
    State(served): State<Served>,
    headers: HeaderMap,
    UrlQuery(parameters): Parameters,
) -> Response {
    let lang = lang_of(&headers);
    if let Err(refusal) = only(&parameters, &["strict"], lang) {
        return *refusal;
    }
    let strict = match parameter(&parameters, "strict").map(|value| flag("strict", value)) {
        None => false,
        Some(Ok(strict)) => strict,
        Some(Err(error)) => {
            return refused(StatusCode::BAD_REQUEST, &error, lang);
        }
    };
    let catalogue = served.service.catalogue();
    let items = match &served.refresher {
        Some(refresher) => refresher.status(),
        None => Vec::new(),
    };
    let bad = |status: &str| !matches!(status, "ok" | "bundled");
    let troubled = items.iter().any(|source| bad(&source.status) || source.stale);
    let status = match strict && troubled {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    };
    let body = json!({
        "items": items,
        "snapshot_id": catalogue.snapshot_id(),
        "state_id": catalogue.state_id(),
        "offers": catalogue.len(),
    });
    (status, Json(body)).into_response()
}

async fn quote_again(
    State(served): State<Served>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let lang = lang_of(&headers);
    let Some(quote) = QuoteRef::parse(&id) else {
        let (zh, en) = ("不是有效的报价编号", "this is not the id of a quote");
        return refuse(StatusCode::BAD_REQUEST, lang, zh, en, json!({"field": "id"}));
    };
    if quote.query.audience == Audience::Member && audience_of(audience) == Audience::Public {
        let (zh, en) =
            ("该报价含账号价格，需要登录", "this quote has account prices and needs a token");
        return refuse(StatusCode::UNAUTHORIZED, lang, zh, en, json!({}));
    }
    let service = Arc::clone(&served.service);
    match beside(move || service.replay(&quote)).await {
        Some(quote) => Json(QuoteReply::new(&quote, lang)).into_response(),
        None => {
            let zh = "该报价的价格快照已不再保留，请重新询价";
            let en = "the prices of this quote are no longer kept; ask again";
            refuse(StatusCode::GONE, lang, zh, en, json!({"reason": "state_gone"}))
        }
    }
}

async fn offer(
    State(served): State<Served>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
    UrlQuery(parameters): Parameters,
) -> Response {
    let lang = lang_of(&headers);
    if let Err(refusal) = only(&parameters, &["offer"], lang) {
        return *refusal;
    }
    let name = parameter(&parameters, "offer").unwrap_or("");
    let service = &served.service;
    let visible = |entry: &crate::Entry| crate::Catalogue::visible(entry, audience_of(audience));
    match service.resolve(name) {
        Ok(assessed) if visible(&assessed.entry) => {
            let row = OfferRow::new(&assessed, service.now(), lang);
            let reasons = crate::quote::reasons(&assessed);
            let text = crate::reason::join(&reasons, lang);
            Json(json!({"offer": row, "reasons": reasons, "reason": text})).into_response()
        }
        Ok(_) => {
            let (zh, en) = ("账号价格需要登录", "account prices need a token");
            refuse(StatusCode::UNAUTHORIZED, lang, zh, en, json!({}))
        }
        Err(error) => unresolved(lang, &error),
    }
}

/// Why a name is no offer's.
fn unresolved(lang: Lang, error: &crate::ResolveError) -> Response {
    let status = match error {
        crate::ResolveError::Malformed(_) => StatusCode::BAD_REQUEST,
        crate::ResolveError::Ambiguous { .. } => StatusCode::CONFLICT,
        crate::ResolveError::Withdrawn { .. } => StatusCode::GONE,
        crate::ResolveError::Unknown(_) => StatusCode::NOT_FOUND,
    };
    let message = crate::rows::plain(&error.text(lang)).into_owned();
    envelope(status, &message, json!({"field": "offer"}))
}

fn paged<T>(all: Vec<T>, parameters: &[(String, String)]) -> Result<(Vec<T>, Value), &'static str> {
    let number = |name: &'static str, usual: usize, least: usize, most: usize| match parameter(
        parameters, name,
    ) {
        None => Ok(usual),
        Some(text) => {
            text.parse::<usize>().ok().filter(|number| (least..=most).contains(number)).ok_or(name)
        }
    };
    let limit = number("limit", 100, 1, MOST)?;
    let offset = number("offset", 0, 0, u32::MAX as usize)?;
    let total = all.len();
    let page = all.into_iter().skip(offset).take(limit).collect();
    Ok((page, json!({"total": total, "limit": limit, "offset": offset})))
}

fn change_page(
    changes: Vec<Change>,
    parameters: &[(String, String)],
    lang: Lang,
    more: Value,
) -> Response {
    match paged(changes, parameters) {
        Ok((items, mut body)) => {
            body["items"] = json!(items);
            if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
                body.extend(more);
            }
            Json(body).into_response()
        }
        Err(field) => {
            let (zh, en) = ("超出范围", "is out of range");
            let (zh, en) = (format!("{field}：{zh}"), format!("{field}: {en}"));
            refuse(StatusCode::BAD_REQUEST, lang, &zh, &en, json!({"field": field}))
        }
    }
}

async fn changes(
    State(served): State<Served>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
    UrlQuery(parameters): Parameters,
) -> Response {
    let lang = lang_of(&headers);
    if let Err(refusal) = only(&parameters, &["offer", "provider", "limit", "offset"], lang) {
        return *refusal;
    }
    // An offer that is gone may have changes; it is known by its key only.
    let named = |name: &str| match name.parse::<OfferKey>() {
        Ok(key) => Ok(key),
        Err(_) => served.service.resolve(name).map(|found| found.entry.offer.key.clone()),
    };
    let key = match parameter(&parameters, "offer").map(named).transpose() {
        Ok(key) => key,
        Err(error) => return unresolved(lang, &error),
    };
    let provider = match (&key, parameter(&parameters, "provider")) {
        (Some(key), _) => Some(key.provider.clone()),
        (None, id) => id.and_then(|id| ProviderId::new(id).ok()),
    };
    let Some(provider) = provider else {
        let zh = "offer 或 provider：请填写其中之一";
        let en = "offer or provider: one of them is needed";
        return refuse(StatusCode::BAD_REQUEST, lang, zh, en, json!({"field": "provider"}));
    };
    let account = served.service.catalogue().shard(&provider).is_some_and(|shard| {
        shard.rows().iter().any(|row| row.kind == runwhere_model::PriceKind::Account)
    });
    if account && audience_of(audience) == Audience::Public {
        let (zh, en) = ("账号价格需要登录", "account prices need a token");
        return refuse(StatusCode::UNAUTHORIZED, lang, zh, en, json!({}));
    }
    let service = Arc::clone(&served.service);
    match beside(move || service.changes(&provider)).await {
        Ok(mut all) => {
            if let Some(key) = key {
                all.retain(|change| change.offer_key == key);
            }
            all.reverse();
            change_page(all, &parameters, lang, json!({}))
        }
        Err(error) => unreadable(lang, &error),
    }
}

fn unreadable(lang: Lang, error: &std::io::Error) -> Response {
    tracing::error!(%error, "Kept prices cannot be read");
    let (zh, en) = ("保存的价格无法读取", "the kept prices cannot be read");
    refuse(StatusCode::INTERNAL_SERVER_ERROR, lang, zh, en, json!({}))
}

async fn states(State(served): State<Served>, headers: HeaderMap) -> Response {
    let service = Arc::clone(&served.service);
    match beside(move || service.states()).await {
        Ok(states) => {
            let items: Vec<Value> = states
                .into_iter()
                .map(|(id, kept_at)| json!({"state_id": id, "kept_at": kept_at}))
                .collect();
            let current = served.service.catalogue().state_id().to_owned();
            Json(json!({"items": items, "current": current})).into_response()
        }
        Err(error) => unreadable(lang_of(&headers), &error),
    }
}

async fn diff(
    State(served): State<Served>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
    UrlQuery(parameters): Parameters,
) -> Response {
    let lang = lang_of(&headers);
    if let Err(refusal) = only(&parameters, &["from", "to", "limit", "offset"], lang) {
        return *refusal;
    }
    let service = Arc::clone(&served.service);
    let named = ["from", "to"].map(|name| parameter(&parameters, name).map(str::to_owned));
    let states = beside(move || {
        let [from, to] = named;
        let to = to.map_or_else(|| Some(service.catalogue()), |id| service.state(&id))?;
        Some((service.state(&from?)?, to))
    });
    let Some((from, to)) = states.await else {
        let zh = "from、to：没有这样的价格快照，可用 /api/v1/prices/states 查看";
        let en = "from, to: no such state of prices is kept; /api/v1/prices/states lists them";
        return refuse(StatusCode::NOT_FOUND, lang, zh, en, json!({"field": "from"}));
    };
    let listed = audience_of(audience) == Audience::Public;
    let (of, since) = (Arc::clone(&to), Arc::clone(&from));
    let changes = beside(move || {
        let mut changes = of.changes_since(&since);
        if listed {
            let public = |change: &Change| {
                let kind = |catalogue: &crate::Catalogue| {
                    catalogue.get(&change.offer_key).map(|entry| entry.offer.price.kind)
                };
                kind(&of).or_else(|| kind(&since)) != Some(runwhere_model::PriceKind::Account)
            };
            changes.retain(public);
        }
        changes
    })
    .await;
    let ends = json!({"from": from.state_id(), "to": to.state_id()});
    change_page(changes, &parameters, lang, ends)
}

async fn fx(State(served): State<Served>) -> Response {
    let catalogue = served.service.catalogue();
    let now = served.service.now();
    let items: Vec<Value> = catalogue.fx().listed(now);
    Json(json!({"items": items, "max_age_days": catalogue.fx().max_age_days()})).into_response()
}

async fn quarantine(
    State(served): State<Served>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
) -> Response {
    if audience_of(audience) == Audience::Public {
        let (zh, en) = ("需要登录", "this needs a token");
        return refuse(StatusCode::UNAUTHORIZED, lang_of(&headers), zh, en, json!({}));
    }
    let items = served.refresher.as_ref().map_or_else(Vec::new, |refresher| refresher.waiting());
    Json(json!({"items": items})).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    offer_key: OfferKey,
    accept: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    #[serde(default)]
    provider: Option<ProviderId>,
}

/// The refresher, for callers who may decide.
fn operated(
    served: &Served,
    operator: Option<Extension<Operator>>,
    lang: Lang,
) -> Result<&Arc<crate::Refresher>, Box<Response>> {
    if operator.is_none() {
        let zh = "价格由所有项目共用，只有本服务的管理员（default 项目的 admin 令牌）可以决定；价格服务单独运行时，请在那台机器上用 runwhere price 操作";
        let en = "prices are shared by all projects: only an admin of the project default decides; where prices are served alone, use runwhere price there";
        return Err(Box::new(refuse(StatusCode::FORBIDDEN, lang, zh, en, json!({}))));
    }
    served.refresher.as_ref().ok_or_else(|| {
        let (zh, en) = ("没有配置价格来源", "no price source is configured");
        Box::new(refuse(StatusCode::CONFLICT, lang, zh, en, json!({})))
    })
}

/// The refresher and what is asked of it.
fn asked<'a, T: serde::de::DeserializeOwned>(
    served: &'a Served,
    operator: Option<Extension<Operator>>,
    bytes: &Bytes,
    lang: Lang,
) -> Result<(&'a Arc<crate::Refresher>, T), Box<Response>> {
    Ok((operated(served, operator, lang)?, body(bytes, lang)?))
}

fn body<T: serde::de::DeserializeOwned>(bytes: &Bytes, lang: Lang) -> Result<T, Box<Response>> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| {
        let (zh, en) = (format!("请求体无效：{error}"), format!("the body is not valid: {error}"));
        Box::new(refuse(StatusCode::BAD_REQUEST, lang, &zh, &en, json!({"field": "body"})))
    })
}

async fn decide(
    State(served): State<Served>,
    operator: Option<Extension<Operator>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let lang = lang_of(&headers);
    let (refresher, decision) = match asked::<Decision>(&served, operator, &bytes, lang) {
        Ok((refresher, decision)) => (Arc::clone(refresher), decision),
        Err(response) => return *response,
    };
    let Decision { offer_key, accept } = decision;
    let key = offer_key.clone();
    match beside(move || refresher.decide(&key, accept)).await {
        Ok(()) => Json(json!({"offer_key": offer_key, "accepted": accept})).into_response(),
        Err(crate::RefreshError::NotKept(error)) => {
            tracing::error!(%error, "A decision about a price cannot be kept");
            let zh = "决定已生效，但无法写入磁盘，重启后会丢失";
            let en =
                "the decision holds, but cannot be written to the disk: it is lost at a restart";
            refuse(StatusCode::INTERNAL_SERVER_ERROR, lang, zh, en, json!({}))
        }
        Err(error) => {
            let zh = "没有等待处理的价格";
            let en = crate::rows::plain(&error.to_string()).into_owned();
            refuse(StatusCode::NOT_FOUND, lang, zh, &en, json!({"field": "offer_key"}))
        }
    }
}

async fn refresh(
    State(served): State<Served>,
    operator: Option<Extension<Operator>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let lang = lang_of(&headers);
    let (refresher, which) = match asked::<Which>(&served, operator, &bytes, lang) {
        Ok(asked) => asked,
        Err(response) => return *response,
    };
    let outcomes = match which.provider {
        None => refresher.refresh_all().await,
        Some(provider) => match refresher.refresh(&provider).await {
            Ok(outcome) => vec![(provider, outcome)],
            Err(error) => {
                let zh = format!("没有名为 {provider} 的价格来源");
                let en = crate::rows::plain(&error.to_string()).into_owned();
                let detail = json!({"field": "provider"});
                return refuse(StatusCode::NOT_FOUND, lang, &zh, &en, detail);
            }
        },
    };
    let items: Vec<Value> = outcomes
        .iter()
        .map(|(provider, outcome)| json!({"provider": provider, "outcome": outcome}))
        .collect();
    Json(json!({"items": items, "sources": refresher.status()})).into_response()
}

async fn accept_next(
    State(served): State<Served>,
    operator: Option<Extension<Operator>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let lang = lang_of(&headers);
    let (refresher, which) = match asked::<Which>(&served, operator, &bytes, lang) {
        Ok(asked) => asked,
        Err(response) => return *response,
    };
    let known = which.provider.filter(|provider| refresher.accept_next(provider).is_ok());
    match known {
        Some(provider) => Json(json!({"provider": provider, "accepts": "next"})).into_response(),
        None => {
            let (zh, en) = ("provider：没有这样的价格来源", "provider: no such price source");
            refuse(StatusCode::NOT_FOUND, lang, zh, en, json!({"field": "provider"}))
        }
    }
}

/// A weak validator of an answer that depends on the prices, the question and, for ages, the minute.
pub(super) fn validator(state_id: &str, question: &str, now: jiff::Timestamp) -> String {
    let mut hash = crc32fast::Hasher::new();
    hash.update(question.as_bytes());
    let minute = now.as_second().div_euclid(60);
    format!("W/\"{}-{minute}-{:08x}\"", &state_id[..16.min(state_id.len())], hash.finalize())
}

/// Whether the caller has that answer already.
pub(super) fn has(headers: &HeaderMap, validator: &str) -> bool {
    let sent = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    sent.is_some_and(|sent| sent.split(',').any(|tag| tag.trim() == validator))
}
