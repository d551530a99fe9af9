//! The routes that the published client uses.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::Guard;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Extension, FromRequestParts, Query as UrlQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use runwhere_model::{BillingModel, GpuCount, Lang, Stock, parse_decimal};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answers::{Answers, Given, Question};
use super::beside::beside;
use super::compression::compressed;
use super::laid::LaidRows;
use super::richer::{has, validator};
use crate::catalogue::{Audience, Catalogue};
use crate::quote::{Policy, Query, TaskType};
use crate::request::{
    ListRequest, MAX_LIMIT, MAX_TOP_N, MOST_HOURS, Problem, RequestError, known_once,
};
use crate::rows::QuoteReply;
use crate::service::{PriceService, model_named};

/// Bytes of a quote that fit the first packets of a connection: compressing less saves no time, and costs ten
/// times what the quote does.
const LARGE_QUOTE: u64 = 14 * 1024;

/// A quote is a handful of fields.
const MAX_BODY: usize = 64 * 1024;

/// `GET /api/v1/comparison/summary`, `GET /api/v1/offers`.
pub(super) fn lists(service: Arc<PriceService>) -> Router {
    Router::new()
        .route("/api/v1/comparison/summary", get(summary))
        .route("/api/v1/offers", get(offers))
        .with_state(service)
}

/// `POST /api/v1/comparison/quote`.
pub(super) fn quotes(service: Arc<PriceService>) -> Router {
    let asked = Asked { service, answers: Answers::default(), laid: LaidRows::default() };
    Router::new().route("/api/v1/comparison/quote", post(quote)).with_state(Arc::new(asked))
}

/// What quotes are answered from.
#[derive(Debug)]
struct Asked {
    service: Arc<PriceService>,
    answers: Answers,
    laid: LaidRows,
}

/// An answer with its validator, or 304 where the caller has it.
fn validated(headers: &HeaderMap, tag: &str, answer: impl FnOnce() -> Response) -> Response {
    let value = HeaderValue::from_str(tag);
    let mut response = match has(headers, tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => answer(),
    };
    if let (Ok(value), true) = (value, response.status() != StatusCode::BAD_REQUEST) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

async fn summary(
    State(service): State<Arc<PriceService>>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
) -> Response {
    let audience = audience_of(audience);
    let question = format!("summary {audience:?}");
    let tag = validator(service.catalogue().state_id(), &question, service.now());
    beside(move || validated(&headers, &tag, || Json(service.summary(audience)).into_response()))
        .await
}

async fn offers(
    State(service): State<Arc<PriceService>>,
    audience: Option<Extension<Audience>>,
    headers: HeaderMap,
    UrlQuery(parameters): UrlQuery<Vec<(String, String)>>,
) -> Response {
    let lang = lang_of(&headers);
    let audience = audience_of(audience);
    let question = format!("offers {audience:?} {lang:?} {parameters:?}");
    let tag = validator(service.catalogue().state_id(), &question, service.now());
    beside(move || {
        validated(&headers, &tag, || {
            let page = list_request(&parameters)
                .and_then(|request| service.list(&request, audience, lang));
            match page {
                Ok(page) => Json(page).into_response(),
                Err(error) => refuse(StatusCode::BAD_REQUEST, &error, lang),
            }
        })
    })
    .await
}

/// Who asks, in which language, and which encodings are understood, without a copy of all headers.
struct Caller {
    lang: Lang,
    audience: Audience,
    encodings: Option<HeaderValue>,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let audience = parts.extensions.get::<Audience>().copied().unwrap_or_default();
        let encodings = parts.headers.get(header::ACCEPT_ENCODING).cloned();
        Ok(Self { lang: lang_of(&parts.headers), audience, encodings })
    }
}

async fn quote(
    State(asked): State<Arc<Asked>>,
    Caller { lang, audience, encodings }: Caller,
    body: Body,
) -> Response {
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        let error = RequestError::new("body", Problem::TooLarge);
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, &error, lang);
    };
    let reply = match asked.quote((lang, audience, body)) {
        Ok(reply) => reply,
        Err(long) => beside(long).await,
    };
    match encodings.filter(|_| reply.size_hint().lower() > LARGE_QUOTE) {
        Some(encodings) => Box::pin(compressed(encodings, reply)).await,
        None => reply,
    }
}

/// What takes a processor or a disk a while.
type Long = Box<dyn FnOnce() -> Response + Send>;

impl Asked {
    /// The answer to a question, or what is to be done for it. In no future: its many fields would have to be
    /// moved, and kept in memory, with each of the futures around it.
    fn quote(self: Arc<Self>, question: Question) -> Result<Response, Long> {
        let (lang, audience, body) = &question;
        let (catalogue, as_of) = (self.service.present(), self.service.quote_instant());
        let held = match self.answers.get(catalogue.state_id(), as_of, &question) {
            Given::Before(reply) => return Ok(json_bytes(reply)),
            Given::Not => true,
            Given::Full => false,
        };
        let (gpu_model, mut query) = match quote_request(body) {
            Ok(asked) => asked,
            Err(error) => return Ok(refuse(StatusCode::BAD_REQUEST, &error, *lang)),
        };
        query.audience = *audience;
        // The first quote of a state writes it down, and a question about all models looks at all.
        let long = gpu_model.is_none() || !self.service.is_kept(&catalogue);
        let named = model_named(gpu_model.as_deref()).map(|gpu| query.gpu = gpu);
        let answer = move |asked: &Self, catalogue: &Catalogue| {
            asked.service.keep_for_quotes(catalogue);
            let reply = match named {
                Ok(()) => asked.laid.reply(catalogue, &query, question.0, as_of),
                Err(meant) => {
                    let reply = QuoteReply::unknown_model(catalogue.snapshot_id(), as_of, meant);
                    Bytes::from(serde_json::to_vec(&reply).unwrap_or_default())
                }
            };
            if held {
                asked.answers.put(catalogue.state_id(), as_of, &question, &reply);
            }
            json_bytes(reply)
        };
        if !long {
            return Ok(answer(&self, &catalogue));
        }
        let catalogue = Guard::into_inner(catalogue);
        Err(Box::new(move || answer(&self, &catalogue)))
    }
}

fn json_bytes(body: Bytes) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

pub(super) async fn method_not_allowed(headers: HeaderMap) -> Response {
    let message = match lang_of(&headers) {
        Lang::Zh => "该地址不支持此请求方法",
        Lang::En => "this address does not serve this method",
    };
    envelope(StatusCode::METHOD_NOT_ALLOWED, message, serde_json::json!({}))
}

pub(super) fn audience_of(audience: Option<Extension<Audience>>) -> Audience {
    audience.map_or(Audience::Public, |Extension(audience)| audience)
}

pub(super) fn refuse(status: StatusCode, error: &RequestError, lang: Lang) -> Response {
    envelope(status, &error.text(lang), serde_json::json!({ "field": error.field }))
}

pub(super) fn envelope(status: StatusCode, message: &str, detail: serde_json::Value) -> Response {
    let body = serde_json::json!({
        "code": status.as_u16(),
        "message": message,
        "detail": detail,
    });
    (status, Json(body)).into_response()
}

/// The first language of `Accept-Language` in which there are sentences; Chinese if there is none.
pub(super) fn lang_of(headers: &HeaderMap) -> Lang {
    let Some(accepted) = headers.get(header::ACCEPT_LANGUAGE).and_then(|v| v.to_str().ok()) else {
        return Lang::default();
    };
    let mut wanted: Vec<(Decimal, Lang)> = accepted
        .split(',')
        .filter_map(|part| {
            let (tag, weight) = part.split_once(';').unwrap_or((part, ""));
            let weight = match weight.trim().strip_prefix("q=") {
                Some(weight) => parse_decimal(weight.trim()).ok()?,
                None => Decimal::ONE,
            };
            Some((weight, Lang::from_tag(tag)?))
        })
        .filter(|(weight, _)| *weight > Decimal::ZERO)
        .collect();
    wanted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    wanted.first().map_or(Lang::default(), |(_, lang)| *lang)
}

/// What the list can be narrowed by.
pub(super) const FILTERS: &[&str] = &[
    "gpu_model",
    "gpu_count",
    "provider",
    "region",
    "zone",
    "country",
    "billing_model",
    "max_price",
    "stock",
    "min_memory_mib",
    "max_age_seconds",
    "fresh",
    "is_active",
    "launchable",
    "all_forms",
    "limit",
    "offset",
];

fn list_request(parameters: &[(String, String)]) -> Result<ListRequest, RequestError> {
    known_once(parameters, FILTERS)?;
    let mut request = ListRequest::default();
    for (name, value) in parameters {
        let text = || (!value.trim().is_empty()).then(|| value.trim().to_owned());
        let whole = |field: &'static str, min: usize, max: usize| {
            value.parse::<usize>().ok().filter(|number| (min..=max).contains(number)).ok_or(
                RequestError::new(field, Problem::Whole { min: min as u64, max: max as u64 }),
            )
        };
        match name.as_str() {
            "gpu_model" => request.gpu_model = text(),
            "provider" => request.provider = text(),
            "region" => request.region = text(),
            "billing_model" => {
                request.billing_model = match text() {
                    None => None,
                    Some(text) => Some(text.parse::<BillingModel>().map_err(|_| {
                        RequestError::new("billing_model", Problem::OneOf("on_demand, spot"))
                    })?),
                };
            }
            "zone" => request.zone = text(),
            "country" => request.country = text(),
            "gpu_count" => {
                let count = text().map(|text| text.parse::<GpuCount>()).transpose();
                let problem = Problem::Whole { min: 1, max: 4096 };
                request.gpu_count = count.map_err(|_| RequestError::new("gpu_count", problem))?;
            }
            "max_price" => {
                let positive = |text: String| {
                    let price = parse_decimal(&text).ok().filter(|price| *price > Decimal::ZERO);
                    price.ok_or(RequestError::new("max_price", Problem::PositiveDecimal))
                };
                request.max_price = text().map(positive).transpose()?;
            }
            "stock" => {
                request.stock = match text().as_deref() {
                    None => None,
                    Some("in_stock") => Some(Stock::Available),
                    Some("low") => Some(Stock::Low),
                    Some("sold_out") => Some(Stock::SoldOut),
                    Some("unstated") => Some(Stock::Unstated),
                    Some(_) => {
                        let words = Problem::OneOf("in_stock, low, sold_out, unstated");
                        return Err(RequestError::new("stock", words));
                    }
                };
            }
            "min_memory_mib" => {
                let least = whole("min_memory_mib", 0, u32::MAX as usize)?;
                request.min_memory_mib = Some(least as u64);
            }
            "max_age_seconds" => {
                let most = whole("max_age_seconds", 0, u32::MAX as usize)?;
                request.max_age_seconds = i64::try_from(most).ok();
            }
            "fresh" => request.fresh_only = flag("fresh", value)?,
            "all_forms" => request.all_forms = flag("all_forms", value)?,
            "is_active" => request.active = flag("is_active", value)?,
            "launchable" => request.launchable_only = flag("launchable", value)?,
            "limit" => request.limit = whole("limit", 1, MAX_LIMIT)?,
            "offset" => request.offset = whole("offset", 0, u32::MAX as usize)?,
            other => return Err(RequestError::unknown(other, FILTERS)),
        }
    }
    Ok(request)
}

pub(super) fn flag(field: &'static str, value: &str) -> Result<bool, RequestError> {
    match value {
        "true" | "True" | "1" => Ok(true),
        "false" | "False" | "0" => Ok(false),
        _ => Err(RequestError::new(field, Problem::TrueOrFalse)),
    }
}

/// What a question can say.
const QUESTION: &[&str] = &[
    "gpu_model",
    "gpu_count",
    "task_type",
    "spot_allowed",
    "max_hourly_price",
    "top_n",
    "provider",
    "region",
    "zone",
    "country",
    "min_memory_mib",
    "min_vcpus",
    "fresh_only",
    "policy",
    "prefer_regions",
    "hours",
    "disk_gib",
];

/// The fields as raw text: numbers are read by our own parser, never through a float.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuoteBody<'a> {
    #[serde(borrow, default)]
    gpu_model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    gpu_count: Option<&'a RawValue>,
    #[serde(borrow, default)]
    task_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    spot_allowed: Option<&'a RawValue>,
    #[serde(borrow, default)]
    max_hourly_price: Option<&'a RawValue>,
    #[serde(borrow, default)]
    top_n: Option<&'a RawValue>,
    #[serde(borrow, default)]
    provider: Option<&'a RawValue>,
    #[serde(borrow, default)]
    region: Option<&'a RawValue>,
    #[serde(borrow, default)]
    zone: Option<&'a RawValue>,
    #[serde(borrow, default)]
    country: Option<&'a RawValue>,
    #[serde(borrow, default)]
    min_memory_mib: Option<&'a RawValue>,
    #[serde(borrow, default)]
    min_vcpus: Option<&'a RawValue>,
    #[serde(borrow, default)]
    fresh_only: Option<&'a RawValue>,
    #[serde(borrow, default)]
    policy: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prefer_regions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    hours: Option<&'a RawValue>,
    #[serde(borrow, default)]
    disk_gib: Option<&'a RawValue>,
}

fn quote_request(body: &[u8]) -> Result<(Option<Cow<'_, str>>, Query), RequestError> {
    // A derived structure would also be read from an array.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(RequestError::new("body", Problem::NotAnObject));
    }
    let body: QuoteBody<'_> = serde_json::from_slice(body).map_err(|error| {
        let said = error.to_string();
        let unknown = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, "));
        match unknown {
            Some((name, _)) => RequestError::unknown(name, QUESTION),
            None if said.starts_with("duplicate field") => {
                RequestError::new("body", Problem::Twice)
            }
            None => RequestError::new("body", Problem::NotAnObject),
        }
    })?;
    let mut query = Query::new(None, 1);
    query.gpu_count = number("gpu_count", body.gpu_count, 1, 4096)?.unwrap_or(1);
    query.task_type = match text("task_type", body.task_type)?.as_deref() {
        None | Some("training" | "compute" | "batch") => TaskType::Training,
        Some("inference") => TaskType::Inference,
        Some("notebook") => TaskType::Notebook,
        Some(_) => {
            let words = Problem::OneOf("training, inference, notebook");
            return Err(RequestError::new("task_type", words));
        }
    };
    let flag = |field: &'static str, raw: Option<&RawValue>| match raw.map(RawValue::get) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(RequestError::new(field, Problem::TrueOrFalse)),
    };
    query.spot_allowed = flag("spot_allowed", body.spot_allowed)?.unwrap_or(true);
    query.fresh_only = flag("fresh_only", body.fresh_only)?.unwrap_or(false);
    query.policy = match text("policy", body.policy)?.as_deref() {
        None | Some("price") => Policy::Price,
        Some("reclaim") => Policy::Reclaim,
        Some(_) => return Err(RequestError::new("policy", Problem::OneOf("price, reclaim"))),
    };
    if let Some(raw) = body.prefer_regions {
        let regions: Option<Vec<String>> = serde_json::from_str(raw.get()).ok();
        let few = regions.filter(|regions| regions.len() <= 20);
        query.prefer_regions = few.ok_or(RequestError::new("prefer_regions", Problem::Text))?;
    }
    let owned = |field, raw| text(field, raw).map(|text| text.map(Cow::into_owned));
    query.zone = owned("zone", body.zone)?;
    query.country = owned("country", body.country)?;
    query.min_memory_mib =
        number("min_memory_mib", body.min_memory_mib, 1, u32::MAX)?.map(u64::from);
    query.min_vcpus = number("min_vcpus", body.min_vcpus, 1, u32::MAX)?;
    query.disk_gib = number("disk_gib", body.disk_gib, 1, 1 << 20)?;
    query.hours = match body.hours {
        None => None,
        Some(raw) => Some(
            decimal(raw)
                .filter(|hours| *hours > Decimal::ZERO && *hours <= Decimal::from(MOST_HOURS))
                .ok_or(RequestError::new("hours", Problem::PositiveDecimal))?,
        ),
    };
    query.max_hourly_price = match body.max_hourly_price {
        None => None,
        Some(raw) => Some(
            decimal(raw)
                .filter(|price| *price > Decimal::ZERO)
                .ok_or(RequestError::new("max_hourly_price", Problem::PositiveDecimal))?,
        ),
    };
    // More than there is sense in asking for is not an error of the one who asks.
    let top_n = number("top_n", body.top_n, 1, u32::MAX)?.unwrap_or(5);
    query.top_n = (top_n as usize).min(MAX_TOP_N);
    query.provider = owned("provider", body.provider)?;
    query.region = owned("region", body.region)?;
    Ok((text("gpu_model", body.gpu_model)?, query))
}

fn text<'a>(
    field: &'static str,
    raw: Option<&'a RawValue>,
) -> Result<Option<Cow<'a, str>>, RequestError> {
    let Some(raw) = raw else { return Ok(None) };
    let text = words(raw).map(|text| match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    });
    let text = text.filter(|text| !text.is_empty());
    text.map(Some).ok_or(RequestError::new(field, Problem::Text))
}

/// A JSON text. Nearly every one stands there as it is, without escapes: it was read as JSON before.
fn words(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    match inner.contains('\\') {
        false => Some(Cow::Borrowed(inner)),
        true => serde_json::from_str(raw.get()).ok().map(Cow::Owned),
    }
}

fn number(
    field: &'static str,
    raw: Option<&RawValue>,
    min: u32,
    max: u32,
) -> Result<Option<u32>, RequestError> {
    let Some(raw) = raw else { return Ok(None) };
    let number: Option<u32> = raw.get().parse().ok().filter(|n| (min..=max).contains(n));
    let problem = Problem::Whole { min: min.into(), max: max.into() };
    number.map(Some).ok_or(RequestError::new(field, problem))
}

/// A JSON number, or the same written as text.
fn decimal(raw: &RawValue) -> Option<Decimal> {
    let text = raw.get();
    match text.starts_with('"') {
        true => parse_decimal(words(raw)?.trim()).ok(),
        false => parse_decimal(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::document::openapi;
    use proptest::prelude::*;

    #[test]
    fn the_names_that_errors_list_are_those_that_are_read() {
        let error = serde_json::from_str::<QuoteBody<'_>>(r#"{"x":1}"#).err().unwrap().to_string();
        let listed = error.split_once("expected").unwrap().1.split('`').skip(1).step_by(2);
        assert!(listed.eq(QUESTION.iter().copied()), "{error}");

        let document = openapi();
        let parameters = &document["paths"]["/api/v1/offers"]["get"]["parameters"];
        let named = parameters.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        let mut named: Vec<&str> = named.collect();
        let mut filters = FILTERS.to_vec();
        named.sort_unstable();
        filters.sort_unstable();
        assert_eq!(named, filters);
        for name in FILTERS {
            let asked = list_request(&[((*name).to_owned(), String::new())]);
            let unknown = |error: &RequestError| matches!(error.problem, Problem::Unknown(_));
            assert!(!asked.as_ref().is_err_and(unknown), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_body_and_no_parameter_panics(
            body in prop_oneof![
                "\\PC{0,60}".prop_map(String::into_bytes),
                "\\{\"(gpu_count|top_n|max_hourly_price|gpu_model)\":[-+0-9eE.\"\\[\\]{}a]{0,12}\\}"
                    .prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..60),
            ],
            name in "(limit|offset|is_active|billing_model|gpu_model)",
            value in "\\PC{0,20}",
            accepted in "[a-z;=,.0-9 -]{0,30}",
        ) {
            let _ = quote_request(&body);
            let _ = list_request(&[(name, value)]);
            let mut headers = HeaderMap::new();
            if let Ok(value) = accepted.parse() {
                headers.insert(header::ACCEPT_LANGUAGE, value);
            }
            lang_of(&headers);
        }
    }
}
