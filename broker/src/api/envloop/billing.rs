//! Money, read-only: account, usage, ledger, prices.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use runwhere_engine::{Permission, UsageSegment};
use runwhere_model::{Currency, Money};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use crate::accounts::Caller;
use crate::api::text::words;
use crate::runners::Code;
use crate::store::SegmentQuery;

const PAGE: u32 = 1000;

fn text(amount: Decimal) -> String {
    amount.normalize().to_string()
}

/// An amount in dollars by today's rate, where there is one.
fn dollars(el: &El, money: Money) -> Option<Decimal> {
    let to: Currency = "USD".parse().ok()?;
    if money.currency == to {
        return Some(money.amount);
    }
    let rate = el.core().parts.prices.rate(money.currency, to)?;
    money.amount.checked_mul(rate.rate).map(|amount| amount.round_dp(6))
}

fn reader(signed: Signed) -> Result<Caller, Error> {
    signed.any(&[Permission::BillingRead])
}

pub(super) async fn account(State(el): State<Arc<El>>, signed: Signed) -> Answer {
    let caller = reader(signed)?;
    let budget = el.parts.store.budget(&caller.project).await?;
    ok(match budget {
        None => json!({
            "workspace_id": caller.workspace.as_str(),
            "project_id": caller.project.as_str(),
            "currency": null, "limit": null, "spent": "0", "reserved": "0", "available": null,
        }),
        Some(budget) => {
            let committed = budget.committed();
            json!({
                "workspace_id": caller.workspace.as_str(),
                "project_id": caller.project.as_str(),
                "currency": budget.currency.code(),
                "limit": budget.limit.map(text),
                "spent": text(budget.spent),
                "reserved": text(committed.saturating_sub(budget.spent)),
                "available": budget.limit.map(|limit| text(limit.saturating_sub(committed))),
            })
        }
    })
}

fn instant(parameters: &Parameters, name: &str) -> Result<Timestamp, Error> {
    let wrong = || {
        let why = words!("{name} 必须是 RFC 3339 时间", "{name} is an RFC 3339 time");
        Error::new(Code::InvalidBillingWindow, why).at(name)
    };
    let given = given(parameters, name).ok_or_else(wrong)?;
    // A plus sign in a query is a blank.
    given.replace(' ', "+").parse().map_err(|_| wrong())
}

async fn segments(
    el: &El,
    caller: &Caller,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) -> Result<Vec<UsageSegment>, Error> {
    let mut query = SegmentQuery { from, to, limit: PAGE, ..SegmentQuery::default() };
    let mut found = Vec::new();
    loop {
        let page = el.parts.store.segments(&caller.project, &query).await?;
        let last = page.len() < PAGE as usize;
        for (position, segment) in page {
            query.after = Some(position);
            found.push(segment);
        }
        if last {
            return Ok(found);
        }
    }
}

fn micros(segment: &UsageSegment) -> i64 {
    segment.billed_micros()
}

/// GPUs in an offer of ours; the key's last part ends with their number.
fn gpus(segment: &UsageSegment) -> i64 {
    let kind = segment.offer.to_string();
    let count = kind.rsplit_once(".x").and_then(|(_, count)| count.parse().ok());
    count.unwrap_or(1)
}

#[derive(Default)]
struct Sum {
    amounts: BTreeMap<String, Money>,
    gpu_micros: i64,
}

pub(super) async fn usage(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let caller = reader(signed)?;
    let (start, end) = (instant(&parameters, "start")?, instant(&parameters, "end")?);
    if end <= start {
        let why = words!("end 必须晚于 start", "end must come after start");
        return Err(Error::new(Code::InvalidBillingWindow, why).at("end"));
    }
    let by = given(&parameters, "group_by").unwrap_or("day");
    if !matches!(by, "day" | "product" | "endpoint" | "sku") {
        let why = words!(
            "group_by 是 day、product、endpoint 或 sku",
            "group_by is day, product, endpoint or sku"
        );
        return Err(Error::new(Code::InvalidGroupBy, why));
    }
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for segment in segments(&el, &caller, Some(start), Some(end)).await? {
        if segment.start < start || segment.start >= end {
            continue;
        }
        let group = match by {
            "day" => TimeZone::UTC.to_datetime(segment.start).date().to_string(),
            "sku" => segment.offer.to_string(),
            _ => "training".to_owned(),
        };
        let sum = sums.entry(group).or_default();
        sum.gpu_micros =
            sum.gpu_micros.saturating_add(micros(&segment).saturating_mul(gpus(&segment)));
        let code = segment.amount.currency.code().to_owned();
        match sum.amounts.get_mut(&code) {
            Some(amount) => {
                amount.amount = amount.amount.saturating_add(segment.amount.amount);
            }
            None => {
                sum.amounts.insert(code, segment.amount);
            }
        }
    }
    let items: Vec<Value> = sums
        .into_iter()
        .map(|(group, sum)| {
            let mut dollar = Some(Decimal::ZERO);
            for money in sum.amounts.values() {
                dollar = dollar.zip(dollars(&el, *money)).map(|(a, b)| a.saturating_add(b));
            }
            let amounts: Vec<Value> = sum
                .amounts
                .values()
                .map(|money| json!({ "amount": text(money.amount), "currency": money.currency.code() }))
                .collect();
            let mut row = json!({
                "product": "training",
                "amount_usd": dollar.map(text),
                "gpu_seconds": sum.gpu_micros / 1_000_000,
                "amounts": amounts,
            });
            row[match by { "product" => "product", "endpoint" => "endpoint_id", other => other }] = group.into();
            row
        })
        .collect();
    ok(json!({ "items": items, "next_cursor": null }))
}

pub(super) async fn ledger(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let caller = reader(signed)?;
    let limit = page::limit_to(&parameters, 25, 1000)?;
    let all = segments(&el, &caller, None, None).await?;
    let items: Vec<Value> = all
        .iter()
        .rev()
        .take(limit)
        .map(|segment| {
            json!({
                "entry_id": segment.id,
                "kind": "usage",
                "product": "training",
                "sku": segment.offer.to_string(),
                "amount_usd": dollars(&el, segment.amount).map(text),
                "amount": text(segment.amount.amount),
                "currency": segment.amount.currency.code(),
                "gpu_seconds": micros(segment).saturating_mul(gpus(segment)) / 1_000_000,
                "reference": segment.trial.as_str(),
                "occurred_at": segment.end.to_string(),
                "estimated": segment.estimated,
            })
        })
        .collect();
    // A cursor would make the client print a command that it refuses itself.
    ok(json!({ "items": items, "next_cursor": null }))
}

pub(super) async fn prices(State(el): State<Arc<El>>, signed: Signed) -> Answer {
    reader(signed)?;
    let mut items = Vec::new();
    for provider in el.core().parts.registry.iter() {
        let sheet = provider.offers(&runwhere_model::OfferScope::default()).await;
        let Ok(sheet) = sheet else { continue };
        for offer in sheet.offers {
            let Some(price) = offer.price.state.known() else { continue };
            let money = Money::new(price.amount, price.currency);
            items.push(json!({
                "sku": offer.key.to_string(),
                "product": "training",
                "amount_usd": dollars(&el, money).map(text),
                "amount": text(price.amount),
                "currency": price.currency.code(),
                "unit": "hour",
                "gpu_type": offer.gpu.map(|model| model.as_str()),
                "gpus": offer.gpu_count.to_string(),
            }));
        }
    }
    ok(json!({ "items": items }))
}
