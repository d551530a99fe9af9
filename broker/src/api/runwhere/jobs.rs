//! `/api/v1/jobs`: submit, list, describe, stop, resume, delete, logs.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use runwhere_agent::protocol::LogStream;
use runwhere_engine::Permission;
use runwhere_model::{Currency, HourlyPrice, JobId, Lang, SyncId, TrialId, parse_decimal};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::service::{JobReport, ListQuery, Refusal, ResumeRequest, SubmitRequest, Submitted};
use super::wire;
use crate::accounts::Caller;
use crate::api::body::{self, Fields};
use crate::api::download;
use crate::api::problem::Problem;
use crate::api::state::{Api, Signed};
use crate::api::text::{Words, language_of, plain};
use crate::logs::{Cursor, LogError, TailLimits};

const QUOTA_WARNING: HeaderName = HeaderName::from_static("x-runw-quota-warning");
const DEFAULT_TAIL: usize = 200;
const MAX_TAIL: usize = 5000;
/// Most bytes of text in one answer with log lines.
const MAX_LOG_TEXT: usize = 8 << 20;
const MAX_PAGE: u32 = 500;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/api/v1/jobs", get(list))
        .route("/api/v1/jobs/submit", post(submit))
        .route("/api/v1/jobs/{target}", get(describe).delete(delete))
        .route("/api/v1/jobs/{target}/stop", post(stop))
        .route("/api/v1/jobs/{target}/resume", post(resume))
        .route("/api/v1/jobs/{target}/logs", get(logs))
        .route("/api/v1/jobs/{target}/logs/raw", get(raw_log))
        .route("/api/v1/inference/deploy", post(inference))
        .route("/api/v1/notebooks/start", post(notebook))
}

async fn submit(
    State(api): State<Arc<Api>>,
    signed: Signed,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::TrainingRun)?;
    let body = body::read(body, body::SMALL).await?;
    let fields = Fields::read(&body)?;
    let text = |field| Ok::<_, Problem>(fields.text(field)?.filter(|text| !text.is_empty()));
    let sync = match text("sync_id")? {
        Some(id) => Some(SyncId::new(id).map_err(|_| {
            Problem::invalid("字段 sync_id 无效", "the field sync_id is not valid")
        })?),
        None => None,
    };
    let (offer_key, offer_code) = (text("offer_key")?, text("gpu_offer")?);
    if offer_key.is_some() && offer_code.is_some() {
        return Err(Problem::invalid(
            "offer_key 与 gpu_offer 只能填一个",
            "give either offer_key or gpu_offer, not both",
        ));
    }
    let request = SubmitRequest {
        yaml: fields.required("yaml_content")?,
        offer_key,
        offer_code,
        overage_confirmed: fields.flag("overage_confirmed")?,
        idempotency_key: idempotency_key(&headers)?,
        sync,
        max_price: max_price(text("max_price_per_hour")?)?,
        request_sha256: request_hash("submit", &fields_hash(&body)?),
    };
    let submitted = api.parts.jobs.submit(&caller, request).await?;
    accepted(&api, submitted, false, language_of(&headers))
}

async fn resume(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::TrainingRun)?;
    let body = body::read(body, body::SMALL).await?;
    let fields = Fields::read(&body)?;
    let request = ResumeRequest {
        request_sha256: request_hash(&format!("resume {target}"), &fields_hash(&body)?),
        target,
        from_step: fields.whole("from_step")?,
        max_price: max_price(fields.text("max_price_per_hour")?.filter(|text| !text.is_empty()))?,
        overage_confirmed: fields.flag("overage_confirmed")?,
        idempotency_key: idempotency_key(&headers)?,
    };
    let submitted = api.parts.jobs.resume(&caller, request).await?;
    accepted(&api, submitted, true, language_of(&headers))
}

fn accepted(
    api: &Api,
    submitted: Submitted,
    resumed: bool,
    lang: Lang,
) -> Result<Response, Problem> {
    let report = &submitted.report;
    let job = &report.view.job;
    let mut map = Map::new();
    let id = job.id.to_string();
    if resumed {
        map.insert("new_job_id".to_owned(), id.clone().into());
        let from = job.resumed.as_ref().map(|from| from.job.to_string());
        map.insert("resumed_job_id".to_owned(), from.into());
    }
    map.insert("logs_url".to_owned(), format!("/api/v1/jobs/{id}/logs").into());
    map.insert("job_id".to_owned(), id.clone().into());
    map.insert("id".to_owned(), id.into());
    map.insert("name".to_owned(), job.name.clone().into());
    map.insert("job_type".to_owned(), job.kind.as_str().into());
    map.insert("status".to_owned(), wire::status(report).into());
    let account = if submitted.byoa { "byoa" } else { "platform" };
    map.insert("account_type".to_owned(), account.into());
    map.insert("estimated_start_seconds".to_owned(), submitted.estimated_start_seconds.into());
    map.insert("offer_key".to_owned(), job.spec.offer.to_string().into());
    map.insert("sync_id".to_owned(), job.spec.sync.as_ref().map(ToString::to_string).into());
    map.insert("repeated".to_owned(), submitted.repeated.into());
    let warnings: Vec<_> =
        submitted.warnings.iter().map(|warning| plain(warning.say(lang))).collect();
    map.insert("warnings".to_owned(), warnings.into());
    let price = wire::price(report);
    let in_cny = api.parts.rates.to_cny(price.per_hour());
    wire::put_original(&mut map, price, in_cny.as_ref());
    let number = in_cny.map(|cny| wire::shown(cny.amount));
    let mut response = json_text(wire::with_number(map, "price_per_hour", number));
    if let Some(warning) = &submitted.quota_warning {
        let header = HeaderValue::from_str(&ascii_json(&plain(warning.say(lang))));
        response.headers_mut().extend(header.ok().map(|value| (QUOTA_WARNING, value)));
    }
    Ok(response)
}

#[derive(Deserialize)]
struct ListParameters {
    status: Option<String>,
    job_type: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

async fn list(
    State(api): State<Arc<Api>>,
    signed: Signed,
    headers: HeaderMap,
    Query(wanted): Query<ListParameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let state = given(wanted.status).map(|word| {
        wire::state_of_word(word.trim()).ok_or_else(|| {
            Problem::invalid(
                "status 只能是 pending、running、succeeded、failed、stopped",
                "status is one of pending, running, succeeded, failed, stopped",
            )
        })
    });
    let kind = given(wanted.job_type).map(|word| {
        wire::kind_of_word(word.trim()).ok_or_else(|| {
            Problem::invalid(
                "job_type 只能是 Training、Inference、Notebook",
                "job_type is one of Training, Inference, Notebook",
            )
        })
    });
    let limit = given(wanted.limit).map(|text| {
        text.parse::<u32>().ok().filter(|limit| (1..=MAX_PAGE).contains(limit)).ok_or_else(|| {
            Problem::invalid("limit 必须在 1 到 500 之间", "limit is a number from 1 to 500")
        })
    });
    let after = given(wanted.cursor).map(|text| {
        JobId::new(text).map_err(|_| Problem::invalid("cursor 无效", "the cursor is not valid"))
    });
    let query = ListQuery {
        state: state.transpose()?,
        kind: kind.transpose()?,
        limit: limit.transpose()?,
        after: after.transpose()?,
    };
    let page = api.parts.jobs.jobs(&caller, &query).await?;
    let lang = language_of(&headers);
    let rates = api.parts.rates.as_ref();
    let data: Vec<_> = page.jobs.iter().map(|job| wire::job(job, rates, lang)).collect();
    let next = page.next.map(|id| id.to_string());
    Ok(Json(json!({ "data": data, "next_cursor": next })).into_response())
}

async fn describe(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let report = api.parts.jobs.job(&caller, &target).await?;
    Ok(shown(&api, &report, &headers))
}

async fn stop(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::TrainingStop)?;
    let report = api.parts.jobs.stop(&caller, &target).await?;
    Ok(shown(&api, &report, &headers))
}

fn shown(api: &Api, report: &JobReport, headers: &HeaderMap) -> Response {
    let job = wire::job(report, api.parts.rates.as_ref(), language_of(headers));
    Json(Value::Object(job)).into_response()
}

#[derive(Deserialize)]
struct DeleteParameters {
    force: Option<String>,
}

async fn delete(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    Query(wanted): Query<DeleteParameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::TrainingStop)?;
    let force = match wanted.force.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "false" | "0" | "no") => false,
        Some("true" | "1" | "yes") => true,
        Some(_) => {
            return Err(Problem::invalid("force 只能是 true 或 false", "force is true or false"));
        }
    };
    let deleted = api.parts.jobs.delete(&caller, &target, force).await?;
    let ids: Vec<_> = deleted.jobs.iter().map(ToString::to_string).collect();
    let body = json!({
        "status": "deleted",
        "job_id": ids.first(),
        "deleted": ids,
        "stopping": deleted.stopping,
    });
    Ok(Json(body).into_response())
}

#[derive(Deserialize)]
struct LogParameters {
    tail: Option<String>,
    after: Option<String>,
    stream: Option<String>,
}

async fn logs(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    headers: HeaderMap,
    Query(wanted): Query<LogParameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let lang = language_of(&headers);
    let tail = tail_of(wanted.tail.as_deref())?.unwrap_or(DEFAULT_TAIL);
    let (report, trial) = first_trial(&api, &caller, &target).await?;
    let ended = wire::has_ended(&report);
    if let Some(after) = wanted.after {
        let page = page(&api, &trial, &after, tail, ended, lang).await?;
        return Ok(Json(page).into_response());
    }
    let limits = TailLimits { lines: tail, bytes: MAX_LOG_TEXT, ended };
    let tail = api.parts.logs.tail(&trial, limits, lang).await?;
    let lines: Vec<_> = tail.lines.iter().map(|line| line.text.as_str()).collect();
    let cursor = tail.cursor.to_string();
    let body = json!({
        "lines": lines, "cursor": cursor, "truncated": tail.truncated, "ended": ended,
    });
    Ok(Json(body).into_response())
}

/// Lines after a cursor, at most about `limit`.
async fn page(
    api: &Api,
    trial: &TrialId,
    after: &str,
    limit: usize,
    ended: bool,
    lang: Lang,
) -> Result<Value, Problem> {
    // An empty cursor is the beginning, so that a client can page through a whole log.
    let cursor = match after {
        "" => Cursor::default(),
        after => after.parse().map_err(|_| bad_cursor())?,
    };
    let mut follower = api.parts.logs.follow(trial, cursor, lang).await?;
    let (mut lines, mut bytes, mut more) = (Vec::new(), 0, true);
    while lines.len() < limit && bytes < MAX_LOG_TEXT {
        match follower.next().await {
            Ok(Some(fresh)) => {
                bytes += fresh.iter().map(|line| line.text.len()).sum::<usize>();
                lines.extend(fresh);
            }
            Ok(None) => {
                more = false;
                break;
            }
            Err(LogError::Damaged(_)) if lines.is_empty() => return Err(bad_cursor()),
            Err(error) => return Err(error.into()),
        }
    }
    if !more && (ended || follower.is_sealed()) {
        lines.extend(follower.flush());
    }
    let mut next = follower.cursor();
    if lines.len() > limit {
        lines.truncate(limit);
        more = true;
        next = lines.last().map_or(next, |line| line.cursor);
    }
    let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
    let cursor = next.to_string();
    Ok(json!({ "lines": texts, "cursor": cursor, "truncated": more, "ended": ended && !more }))
}

/// The bytes of one stream, exactly as the program wrote them.
async fn raw_log(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    Query(wanted): Query<LogParameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let stream = match wanted.stream.as_deref() {
        None | Some("stdout") => LogStream::Stdout,
        Some("stderr") => LogStream::Stderr,
        Some("system") => LogStream::System,
        Some(_) => {
            return Err(Problem::invalid(
                "stream 只能是 stdout、stderr、system",
                "stream is one of stdout, stderr, system",
            ));
        }
    };
    let (_, trial) = first_trial(&api, &caller, &target).await?;
    let export = api.parts.logs.export(&trial, stream).await?;
    let size = export.size();
    let pieces = stream::try_unfold(export, |mut export| async move {
        Ok::<_, LogError>(export.next().await?.map(|bytes| (bytes, export)))
    });
    Ok(download::attachment(Body::from_stream(pieces), size))
}

/// The trial whose log a job's log is.
pub(crate) async fn first_trial(
    api: &Api,
    caller: &Caller,
    target: &str,
) -> Result<(JobReport, TrialId), Problem> {
    let report = api.parts.jobs.job(caller, target).await?;
    let trial = report.view.trials.first().map(|(trial, _)| trial.id.clone());
    let trial = trial.ok_or_else(|| Problem::internal("a job without a trial"))?;
    Ok((report, trial))
}

pub(crate) fn tail_of(text: Option<&str>) -> Result<Option<usize>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let tail = text.parse::<usize>().ok().filter(|tail| (1..=MAX_TAIL).contains(tail));
    let tail = tail.ok_or_else(|| {
        Problem::invalid("tail 必须在 1 到 5000 之间", "tail is a number from 1 to 5000")
    })?;
    Ok(Some(tail))
}

pub(crate) fn bad_cursor() -> Problem {
    Problem::invalid(
        "日志游标无效，请使用之前返回的 cursor",
        "not a log cursor: use one as an earlier answer gave it",
    )
}

async fn inference(_: Signed) -> Problem {
    not_served("Inference")
}

async fn notebook(_: Signed) -> Problem {
    not_served("Notebook")
}

fn not_served(kind: &str) -> Problem {
    Refusal::NotServed {
        message: Words::new(
            format!("暂不支持 kind: {kind}"),
            format!("kind: {kind} is not served yet"),
        ),
        suggestion: Some(Words::new("目前请使用 kind: Training", "use kind: Training for now")),
    }
    .into()
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let good = key.to_str().ok().filter(|key| (1..=128).contains(&key.len()));
    match good {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            Words::new(
                "Idempotency-Key 必须是 1 到 128 个可见 ASCII 字符",
                "an Idempotency-Key has 1 to 128 visible ASCII characters",
            ),
        )),
    }
}

/// What the request says, whatever the order of its fields. The answer to a quota question is no
/// part of it: the same request comes again with it.
fn fields_hash(body: &[u8]) -> Result<String, Problem> {
    let mut value: Value = if body.is_empty() { json!({}) } else { body::typed(body)? };
    if let Some(map) = value.as_object_mut() {
        map.remove("overage_confirmed");
        map.retain(|_, value| !value.is_null());
    }
    Ok(value.to_string())
}

fn request_hash(verb: &str, fields: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(verb.as_bytes());
    hasher.update([0]);
    hasher.update(fields.as_bytes());
    hex::encode(hasher.finalize())
}

/// `36.44` or `5 USD`.
fn max_price(text: Option<String>) -> Result<Option<HourlyPrice>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let (amount, currency) = text.trim().split_once(' ').unwrap_or((text.trim(), "CNY"));
    let amount = parse_decimal(amount).ok().filter(|amount| amount.is_sign_positive());
    let currency = currency.trim().parse::<Currency>().ok();
    match (amount, currency) {
        (Some(amount), Some(currency)) => Ok(Some(HourlyPrice { amount, currency })),
        _ => Err(Problem::invalid(
            "max_price_per_hour 必须是字符串，例如 36.44 或 5 USD",
            "max_price_per_hour is a text such as 36.44 or 5 USD",
        )),
    }
}

/// A JSON text as a response.
pub(crate) fn json_text(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// `{"message": …}` in ASCII only, for a header.
fn ascii_json(message: &str) -> String {
    let mut text = String::new();
    for unit in json!({ "message": message }).to_string().encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => text.push(char::from(byte)),
            Ok(_) | Err(_) => text.push_str(&format!("\\u{unit:04x}")),
        }
    }
    text
}
