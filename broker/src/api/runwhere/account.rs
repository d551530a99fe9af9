//! `/api/v1/auth/me` and `/api/v1/usage`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use runwhere_engine::{Permission, UsageSegment};
use runwhere_model::{LeaseId, Money, ProjectId, cost::round_for_display};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::json;

use crate::api::problem::Problem;
use crate::api::state::{Api, Signed};
use crate::store::SegmentQuery;

const PAGE: u32 = 1000;
const MICROS_PER_HOUR: u64 = 3_600_000_000;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/api/v1/auth/me", get(me)).route("/api/v1/usage", get(usage))
}

async fn me(State(api): State<Arc<Api>>, signed: Signed) -> Result<Response, Problem> {
    let caller = signed.0;
    let principal = api.parts.store.principal(&caller.principal).await?;
    let name = principal.map(|principal| principal.name);
    let body = json!({
        "id": caller.principal.to_string(),
        "username": name,
        "phone": null,
        "current_org_id": caller.workspace.to_string(),
        "workspace": caller.workspace.to_string(),
        "project": caller.project.to_string(),
        "key_id": caller.key.to_string(),
        "permissions": caller.permissions,
    });
    Ok(Json(body).into_response())
}

#[derive(Deserialize)]
pub(crate) struct DateParameters {
    from_date: Option<String>,
    to_date: Option<String>,
}

/// A span of whole UTC days, both ends included.
pub(crate) fn days(
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(Option<Date>, Option<Date>), Problem> {
    let date = |field: &str, text: Option<&str>| match text.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text.parse::<Date>().map(Some).map_err(|_| {
            Problem::invalid(
                format!("{field} 必须是 YYYY-MM-DD"),
                format!("{field} is a date such as 2026-07-01"),
            )
        }),
    };
    let (from, to) = (date("from", from)?, date("to", to)?);
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        return Err(Problem::invalid("起始日期晚于结束日期", "the first day is after the last"));
    }
    Ok((from, to))
}

/// The first instant of a day, or of the day after it.
pub(crate) fn midnight(day: Date, after: bool) -> Result<Timestamp, Problem> {
    let bad = |_| Problem::invalid("日期超出范围", "the date is out of range");
    let day = if after { day.checked_add(1.day()).map_err(bad)? } else { day };
    TimeZone::UTC.to_timestamp(day.to_datetime(Time::midnight())).map_err(bad)
}

async fn usage(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Query(wanted): Query<DateParameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::BillingRead)?;
    let today = TimeZone::UTC.to_datetime(api.parts.clock.now()).date();
    let (from, to) = days(wanted.from_date.as_deref(), wanted.to_date.as_deref())?;
    let to = to.unwrap_or(today);
    let from = from.unwrap_or_else(|| to.first_of_month());
    let span = (midnight(from, false)?, midnight(to, true)?);
    let Used { by_model, cost } = used(&api, &caller.project, span).await?;
    let total = by_model.values().try_fold(Decimal::ZERO, |sum, hours| sum.checked_add(*hours));
    let total = total.ok_or_else(|| Problem::internal("GPU hours overflow"))?;
    let gpu_usage: Vec<_> = by_model
        .iter()
        .map(|(model, hours)| json!({ "gpu_type": model, "gpu_hours": places(*hours) }))
        .collect();
    let cost: Vec<_> = cost
        .iter()
        .map(|sum| {
            json!({
                "currency": sum.currency.code(),
                "amount": sum.amount.normalize().to_string(),
            })
        })
        .collect();
    let project = api.parts.store.project(&caller.project).await?;
    let limit = project.and_then(|project| project.quota.hard_limit);
    let in_use = api.parts.jobs.gpus_in_use(&caller).await?;
    let body = json!({
        "period": { "from_date": from.to_string(), "to_date": to.to_string(), "timezone": "UTC" },
        "summary": { "total_gpu_hours": places(total) },
        "gpu_usage": gpu_usage,
        "cost": cost,
        "quota": [{ "resource_type": "training", "current": in_use, "limit": limit }],
        "plan": "self-hosted",
        "platform_bill": null,
        "cloud_bill_note": null,
    });
    Ok(Json(body).into_response())
}

/// What was used within a span.
#[derive(Default)]
struct Used {
    /// Hours of GPUs by model.
    by_model: BTreeMap<String, Decimal>,
    /// Exact amounts, one for each currency.
    cost: Vec<Money>,
}

/// Adds up the recorded segments of a span.
async fn used(
    api: &Api,
    project: &ProjectId,
    (from, to): (Timestamp, Timestamp),
) -> Result<Used, Problem> {
    let mut leases: HashMap<LeaseId, (String, Decimal)> = HashMap::new();
    let mut used = Used::default();
    let mut query =
        SegmentQuery { from: Some(from), to: Some(to), limit: PAGE, ..SegmentQuery::default() };
    loop {
        let page = api.parts.store.segments(project, &query).await?;
        for (position, segment) in &page {
            query.after = Some(*position);
            if !leases.contains_key(&segment.lease) {
                let lease = api.parts.store.lease(&segment.lease).await?;
                let gpus = lease.map_or((String::from("?"), Decimal::ONE), |lease| {
                    let (numerator, denominator) = lease.gpu_count.parts();
                    let count = Decimal::from(numerator) / Decimal::from(denominator);
                    let model = lease.gpu_model.map_or("?", |model| model.as_str());
                    (model.to_owned(), count)
                });
                leases.insert(segment.lease.clone(), gpus);
            }
            let Some((model, count)) = leases.get(&segment.lease) else { continue };
            if segment.start < from || segment.start >= to {
                continue;
            }
            match used.cost.iter_mut().find(|sum| sum.currency == segment.amount.currency) {
                Some(sum) => {
                    *sum = sum
                        .checked_add(segment.amount)
                        .map_err(|error| Problem::internal(error.to_string()))?;
                }
                None => used.cost.push(segment.amount),
            }
            let hours = Decimal::from(billed(segment)) / Decimal::from(MICROS_PER_HOUR);
            let hours = hours.checked_mul(*count).unwrap_or_default();
            let sum = used.by_model.entry(model.clone()).or_default();
            *sum = sum.saturating_add(hours);
        }
        if page.len() < PAGE as usize {
            used.cost.sort_by(|a, b| a.currency.code().cmp(b.currency.code()));
            return Ok(used);
        }
    }
}

/// Billed microseconds of a segment, taken for those of its first instant: segments do not cross an
/// hour, so only rounding up to the provider's granularity can pass the end of a day.
fn billed(segment: &UsageSegment) -> u64 {
    segment.billed_to_micros.saturating_sub(segment.billed_from_micros)
}

fn places(hours: Decimal) -> String {
    round_for_display(hours, 4).to_string()
}
