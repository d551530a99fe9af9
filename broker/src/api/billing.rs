//! `/api/v1/billing/*`: the ledger's readers.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::header::{
    ACCEPT, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use runwhere_engine::{Permission, UsageSegment};
use runwhere_model::JobId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::Problem;
use super::runwhere::account::{days, midnight};
use super::state::{Api, Signed};
use crate::store::SegmentQuery;

const DEFAULT_LIMIT: u32 = 200;
const MAX_LIMIT: u32 = 1000;
const NEXT_CURSOR: HeaderName = HeaderName::from_static("x-next-cursor");

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/api/v1/billing/segments", get(segments))
}

#[derive(Deserialize)]
struct Parameters {
    from: Option<String>,
    to: Option<String>,
    job_id: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
    format: Option<String>,
}

async fn segments(
    State(api): State<Arc<Api>>,
    signed: Signed,
    headers: HeaderMap,
    Query(wanted): Query<Parameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::BillingRead)?;
    let job = match wanted.job_id.filter(|id| !id.is_empty()) {
        Some(id) => Some(
            JobId::new(id)
                .map_err(|_| Problem::invalid("job_id 无效", "the job_id is not valid"))?,
        ),
        None => None,
    };
    let limit = match wanted.limit.as_deref().filter(|text| !text.is_empty()) {
        None => DEFAULT_LIMIT,
        Some(text) => text
            .parse::<u32>()
            .ok()
            .filter(|limit| (1..=MAX_LIMIT).contains(limit))
            .ok_or_else(|| {
                Problem::invalid("limit 必须在 1 到 1000 之间", "limit is a number from 1 to 1000")
            })?,
    };
    let after = match wanted.cursor.as_deref().filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(
            text.parse().map_err(|_| Problem::invalid("cursor 无效", "the cursor is not valid"))?,
        ),
    };
    let query = SegmentQuery {
        from: instant("from", wanted.from.as_deref(), false)?,
        to: instant("to", wanted.to.as_deref(), true)?,
        job,
        limit,
        after,
    };
    let page = api.parts.store.segments(&caller.project, &query).await?;
    // The place to go on from is told also at the end: more will be recorded there.
    let next = page.last().map(|(position, _)| *position).or(after).map(|at| at.to_string());
    let has_more = page.len() == limit as usize;
    let pretended = pretended(&api, &page).await?;
    let wants_csv = match wanted.format.as_deref() {
        Some("csv") => true,
        Some("json") => false,
        None => headers.get(ACCEPT).is_some_and(|kind| kind.as_bytes().starts_with(b"text/csv")),
        Some(_) => {
            return Err(Problem::invalid("format 只能是 json 或 csv", "format is json or csv"));
        }
    };
    if wants_csv {
        return Ok(csv(&page, &pretended, next));
    }
    let data: Vec<_> = page.iter().map(|(_, segment)| row(segment, &pretended)).collect();
    Ok(Json(json!({ "data": data, "next_cursor": next, "has_more": has_more })).into_response())
}

/// An instant, or a UTC day: its beginning, or its end.
fn instant(field: &str, text: Option<&str>, after: bool) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    // A plus sign in a query is a blank.
    if let Ok(at) = text.replace(' ', "+").parse::<Timestamp>() {
        return Ok(Some(at));
    }
    match days(Some(text), None) {
        Ok((Some(day), _)) => midnight(day, after).map(Some),
        Ok((None, _)) => Ok(None),
        Err(_) => Err(Problem::invalid(
            format!("{field} 必须是 YYYY-MM-DD 或 RFC 3339 时间"),
            format!("{field} is a date such as 2026-07-01 or an RFC 3339 time"),
        )),
    }
}

/// The jobs of a page whose GPUs were pretended: nobody is charged for those.
async fn pretended(api: &Api, page: &[(u64, UsageSegment)]) -> Result<HashSet<JobId>, Problem> {
    let (mut seen, mut pretended) = (HashSet::new(), HashSet::new());
    for (_, segment) in page {
        if !seen.insert(&segment.job) {
            continue;
        }
        let view = api.parts.store.job(&segment.project, &segment.job).await?;
        if view.is_some_and(|view| view.job.spec.gpu_pretended) {
            pretended.insert(segment.job.clone());
        }
    }
    Ok(pretended)
}

const COLUMNS: [&str; 20] = [
    "id",
    "job_id",
    "trial_id",
    "lease_id",
    "node_id",
    "provider",
    "offer_key",
    "start",
    "end",
    "billed_from_seconds",
    "billed_seconds",
    "price_per_hour",
    "currency",
    "amount",
    "estimated",
    "price_snapshot",
    "project_id",
    "pretended",
    "corrects",
    "usage_record",
];

fn row(segment: &UsageSegment, pretended: &HashSet<JobId>) -> Value {
    json!({
        "id": segment.id,
        "job_id": segment.job.to_string(),
        "trial_id": segment.trial.to_string(),
        "lease_id": segment.lease.to_string(),
        "node_id": segment.node.as_ref().map(ToString::to_string),
        "provider": segment.offer.provider.to_string(),
        "offer_key": segment.offer.to_string(),
        "start": segment.start.to_string(),
        "end": segment.end.to_string(),
        "billed_from_seconds":
            seconds(i64::try_from(segment.billed_from_micros).unwrap_or(i64::MAX)),
        "billed_seconds": seconds(segment.billed_micros()),
        "price_per_hour": segment.price.amount.normalize().to_string(),
        "currency": segment.amount.currency.code(),
        "amount": segment.amount.amount.to_string(),
        "estimated": segment.estimated,
        "price_snapshot": segment.price_snapshot,
        "project_id": segment.project.to_string(),
        "pretended": pretended.contains(&segment.job),
        "corrects": segment.corrects,
        "usage_record": segment.usage_record,
    })
}

/// Microseconds as an exact decimal number of seconds.
fn seconds(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

fn csv(page: &[(u64, UsageSegment)], pretended: &HashSet<JobId>, next: Option<String>) -> Response {
    let mut text = COLUMNS.join(",");
    text.push_str("\r\n");
    for (_, segment) in page {
        let row = row(segment, pretended);
        for (index, column) in COLUMNS.iter().enumerate() {
            let value = match &row[*column] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{}", cell(&value));
        }
        text.push_str("\r\n");
    }
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    let name = HeaderValue::from_static("attachment; filename=\"segments.csv\"");
    headers.insert(CONTENT_DISPOSITION, name);
    let next = next.and_then(|next| HeaderValue::from_str(&next).ok());
    headers.extend(next.map(|next| (NEXT_CURSOR, next)));
    response
}

/// A cell that no spreadsheet takes for a formula; plain numbers stay numbers.
fn cell(value: &str) -> String {
    let number = value.strip_prefix('-').unwrap_or(value);
    let number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let formula = value.starts_with(['=', '+', '-', '@', '\t', '\r']) && !number;
    let guarded = if formula { format!("'{value}") } else { value.to_owned() };
    match guarded.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", guarded.replace('"', "\"\"")),
        false => guarded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_neither_formulas_nor_broken() {
        for (value, want) in [
            ("=1+1", "'=1+1"),
            ("-2.50", "-2.50"),
            ("-cmd", "'-cmd"),
            ("@x,y", "\"'@x,y\""),
            ("a\"b", "\"a\"\"b\""),
            ("plain", "plain"),
            ("", ""),
        ] {
            assert_eq!(cell(value), want);
        }
    }

    #[test]
    fn microseconds_are_exact_seconds() {
        assert_eq!(seconds(187_000_001), "187.000001");
        assert_eq!(seconds(5), "0.000005");
        assert_eq!(seconds(-61_000_001), "-61.000001");
    }
}
