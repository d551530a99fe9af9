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
use serde_json::{Value, json};

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
    let Used { by_model, cost, pretended_cost } = used(&api, &caller.project, span).await?;
    let total = by_model.values().try_fold(Decimal::ZERO, |sum, hours| sum.checked_add(*hours));
    let total = total.ok_or_else(|| Problem::internal("GPU hours overflow"))?;
    let gpu_usage: Vec<_> = by_model
        .iter()
        .map(|((model, pretended), hours)| {
            json!({ "gpu_type": model, "gpu_hours": places(*hours), "pretended": pretended })
        })
        .collect();
    let project = api.parts.store.project(&caller.project).await?;
    let limit = project.and_then(|project| project.quota.hard_limit);
    let in_use = api.parts.jobs.gpus_in_use(&caller).await?;
    let body = json!({
        "period": { "from_date": from.to_string(), "to_date": to.to_string(), "timezone": "UTC" },
        "summary": { "total_gpu_hours": places(total) },
        "gpu_usage": gpu_usage,
        "cost": amounts(&cost),
        // What GPUs would have cost that were not there: nobody is charged for it.
        "pretended_cost": amounts(&pretended_cost),
        "quota": [{ "resource_type": "training", "current": in_use, "limit": limit }],
        "plan": "self-hosted",
        "platform_bill": null,
        "cloud_bill_note": null,
    });
    Ok(Json(body).into_response())
}

fn amounts(sums: &[Money]) -> Vec<Value> {
    let row = |sum: &Money| {
        json!({
            "currency": sum.currency.code(),
            "amount": sum.amount.normalize().to_string(),
        })
    };
    sums.iter().map(row).collect()
}

/// What was used within a span.
#[derive(Default)]
struct Used {
    /// Hours of GPUs by model, and whether the GPUs were pretended.
    by_model: BTreeMap<(String, bool), Decimal>,
    /// Exact amounts, one for each currency.
    cost: Vec<Money>,
    /// Those of pretended GPUs.
    pretended_cost: Vec<Money>,
}

/// What a lease had.
struct Gpus {
    model: String,
    count: Decimal,
    pretended: bool,
}

/// Adds up the recorded segments of a span.
async fn used(
    api: &Api,
    project: &ProjectId,
    (from, to): (Timestamp, Timestamp),
) -> Result<Used, Problem> {
    let mut leases: HashMap<LeaseId, Gpus> = HashMap::new();
    let mut used = Used::default();
    let mut query =
        SegmentQuery { from: Some(from), to: Some(to), limit: PAGE, ..SegmentQuery::default() };
    loop {
        let page = api.parts.store.segments(project, &query).await?;
        for (position, segment) in &page {
            query.after = Some(*position);
            if !leases.contains_key(&segment.lease) {
                leases.insert(segment.lease.clone(), gpus(api, segment).await?);
            }
            let Some(gpus) = leases.get(&segment.lease) else { continue };
            if segment.start < from || segment.start >= to {
                continue;
            }
            let sums = match gpus.pretended {
                true => &mut used.pretended_cost,
                false => &mut used.cost,
            };
            match sums.iter_mut().find(|sum| sum.currency == segment.amount.currency) {
                Some(sum) => {
                    *sum = sum
                        .checked_add(segment.amount)
                        .map_err(|error| Problem::internal(error.to_string()))?;
                }
                None => sums.push(segment.amount),
            }
            let hours = Decimal::from(billed(segment)) / Decimal::from(MICROS_PER_HOUR);
            let hours = hours.checked_mul(gpus.count).unwrap_or_default();
            let sum = used.by_model.entry((gpus.model.clone(), gpus.pretended)).or_default();
            *sum = sum.saturating_add(hours);
        }
        if page.len() < PAGE as usize {
            for sums in [&mut used.cost, &mut used.pretended_cost] {
                sums.sort_by(|a, b| a.currency.code().cmp(b.currency.code()));
            }
            return Ok(used);
        }
    }
}

async fn gpus(api: &Api, segment: &UsageSegment) -> Result<Gpus, Problem> {
    let store = &api.parts.store;
    let lease = store.lease(&segment.lease).await?;
    let (numerator, denominator) = lease.as_ref().map_or((1, 1), |lease| lease.gpu_count.parts());
    let model = lease.and_then(|lease| lease.gpu_model);
    let job = store.job(&segment.project, &segment.job).await?;
    Ok(Gpus {
        model: model.map_or("?", |model| model.as_str()).to_owned(),
        count: Decimal::from(numerator) / Decimal::from(denominator),
        pretended: job.is_some_and(|view| view.job.spec.gpu_pretended),
    })
}

/// Billed microseconds of a segment, taken for those of its first instant: segments do not cross an
/// hour, so only rounding up to the provider's granularity can pass the end of a day.
fn billed(segment: &UsageSegment) -> i64 {
    segment.billed_micros()
}

fn places(hours: Decimal) -> String {
    round_for_display(hours, 4).to_string()
}
