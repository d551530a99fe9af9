//! Jobs as RunWhere's clients read them.

use jiff::Timestamp;
use runwhere_engine::{
    Evidence, Hold, JobKind, JobState, OutputState, PlatformLine, Refusal, Trial,
};
use runwhere_model::{Currency, HourlyPrice, Lang, Money, NodeId, cost::round_for_display};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::service::{CnyRates, Cost, InCny, JobReport};
use crate::api::text::plain;

/// Decimal places of amounts on the wire.
const PLACES: u32 = 4;

/// The word of a job's state.
pub(crate) fn status(report: &JobReport) -> &'static str {
    match state(report) {
        JobState::Pending => "pending",
        JobState::Running => "running",
        JobState::Completed => "succeeded",
        JobState::Failed => "failed",
        JobState::Cancelled => "stopped",
    }
}

pub(crate) fn state(report: &JobReport) -> JobState {
    JobState::of(report.view.trials.iter().map(|(trial, _)| trial))
}

/// The state that a client's word means, in any letter case.
pub(crate) fn state_of_word(word: &str) -> Option<JobState> {
    Some(match word.to_ascii_lowercase().as_str() {
        "pending" | "queued" | "provisioning" | "preparing" => JobState::Pending,
        "running" => JobState::Running,
        "succeeded" | "completed" => JobState::Completed,
        "failed" => JobState::Failed,
        "stopped" | "cancelled" => JobState::Cancelled,
        _ => return None,
    })
}

/// The kind that a client's word means, in any letter case.
pub(crate) fn kind_of_word(word: &str) -> Option<JobKind> {
    Some(match word.to_ascii_lowercase().as_str() {
        "training" | "compute" | "batch" => JobKind::Training,
        "inference" => JobKind::Inference,
        "notebook" => JobKind::Notebook,
        _ => return None,
    })
}

/// The price per hour: of the lease, or what is to be rented.
pub(crate) fn price(report: &JobReport) -> HourlyPrice {
    let lease = report.view.trials.first().and_then(|(_, lease)| lease.as_ref());
    lease.map_or(report.view.job.spec.price_at_submit(), |lease| lease.price.price)
}

/// An amount with the places of the wire, from the exact one.
pub(crate) fn shown(amount: Decimal) -> String {
    round_for_display(amount, PLACES).to_string()
}

/// The sum in yuan, exact; `None` where a rate is missing.
pub(crate) fn total_in_cny(cost: &Cost, rates: &dyn CnyRates) -> Option<Decimal> {
    cost.amounts
        .iter()
        .try_fold(Decimal::ZERO, |sum, amount| sum.checked_add(rates.to_cny(*amount)?.amount))
}

/// A whole job, for describe and list.
pub(crate) fn job(report: &JobReport, rates: &dyn CnyRates, lang: Lang) -> Map<String, Value> {
    let job = &report.view.job;
    let first = report.view.trials.first();
    let trial = first.map(|(trial, _)| trial);
    let lease = first.and_then(|(_, lease)| lease.as_ref());
    let spec = &job.spec;
    let node = lease.and_then(|lease| lease.node.as_ref());
    let ended = trial.is_some_and(|trial| trial.state.is_terminal());
    let reason = trial.and_then(|trial| trial.end_reason.as_ref());
    let total = total_in_cny(&report.cost, rates);
    let count = spec
        .gpu_count
        .as_whole()
        .map_or_else(|| Value::from(spec.gpu_count.to_string()), Value::from);
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| {
        map.insert(key.to_owned(), value);
    };
    put("id", job.id.to_string().into());
    put("job_id", job.id.to_string().into());
    put("name", job.name.clone().into());
    put("job_type", job.kind.as_str().into());
    put("description", spec.description.as_deref().map(plain).into());
    put("platform", spec.offer.provider.to_string().into());
    put("status", status(report).into());
    put("url", Value::Null);
    put("gpu_count", count);
    put("gpu_type", spec.gpu_model.map(|model| model.as_str()).into());
    put("gpu_pretended", spec.gpu_pretended.into());
    put("sku_key", spec.offer.instance_type.clone().into());
    put("offer_key", spec.offer.to_string().into());
    put("node_id", node.map(node_name).into());
    let price = price(report);
    let in_cny = rates.to_cny(price.per_hour());
    put("price_per_hour", in_cny.as_ref().map(|cny| shown(cny.amount)).into());
    put("estimated_cost", total.map(shown).into());
    put("final_cost", total.filter(|_| report.cost.settled && ended).map(shown).into());
    put("cost_exact", total.map(|total| total.normalize().to_string()).into());
    put("cost_amounts", report.cost.amounts.iter().map(money).collect());
    put("billed_seconds", (report.cost.billed_micros / 1_000_000).into());
    put("created_at", time(job.created_at));
    put("started_at", trial.and_then(|trial| trial.started_at).map_or(Value::Null, time));
    put("ended_at", trial.and_then(|trial| trial.ended_at).map_or(Value::Null, time));
    put("gpu_metrics", Value::Null);
    put("elapsed_seconds", elapsed(trial, report.at).into());
    // Left out where there is no limit: clients that find it show a line for it, and the documents show none.
    if let Some(limit) = spec.max_duration_seconds {
        put("max_duration_seconds", limit.into());
    }
    put("end_reason", reason.map(|reason| reason.code()).into());
    put("end_message", reason.and_then(|reason| reason.detail()).map(plain).into());
    put("exit_code", trial.and_then(|trial| trial.exit).and_then(|exit| exit.code).into());
    put("signal", trial.and_then(|trial| trial.exit).and_then(|exit| exit.signal).into());
    put("phase", trial.map(|trial| trial.state.as_str()).into());
    put("waiting_for", trial.and_then(|trial| trial.waiting_for.as_deref()).map(plain).into());
    put("refusals", trial.map_or(Value::Null, |trial| refusals(&trial.refusals)));
    put("outputs", trial.map_or(Value::Null, |trial| outputs(&trial.outputs)));
    let confirmed = report.view.trials.iter().all(|(trial, _)| trial.cleanup_confirmed);
    put("cleanup_confirmed", confirmed.into());
    let evidence = report.view.trials.iter().flat_map(|(trial, _)| &trial.evidence);
    put("cleanup_evidence", evidence.map(|evidence| proof(evidence, lang)).collect());
    put("resumable", (!job.active).into());
    put("resumed_job_id", job.resumed.as_ref().map(|from| from.job.to_string()).into());
    put("resumed_from_step", spec.from_step.into());
    put("sync_id", spec.sync.as_ref().map(ToString::to_string).into());
    put("unreachable_since", lease.and_then(|l| l.unreachable_since).map_or(Value::Null, time));
    put("cleanup_blocked", lease.and_then(|l| l.hold.as_ref()).map_or(Value::Null, blocked));
    put("lease_state", lease.map(|lease| lease.state.as_str()).into());
    put_original(&mut map, price, in_cny.as_ref());
    map
}

/// The price as the cloud stated it, and the rate that was used.
pub(crate) fn put_original(
    map: &mut Map<String, Value>,
    price: HourlyPrice,
    in_cny: Option<&InCny>,
) {
    map.insert("price".to_owned(), price.amount.normalize().to_string().into());
    map.insert("currency".to_owned(), price.currency.code().into());
    let used = in_cny.filter(|_| price.currency != Currency::CNY);
    map.insert("fx_rate".to_owned(), used.map(|cny| cny.rate.normalize().to_string()).into());
    map.insert("fx_date".to_owned(), used.map(|cny| cny.date.clone()).into());
    map.insert("fx_source".to_owned(), used.map(|cny| cny.source.clone()).into());
}

/// Whole seconds that user code has run.
pub(crate) fn elapsed(trial: Option<&Trial>, now: Timestamp) -> u64 {
    let Some(trial) = trial else { return 0 };
    let Some(start) = trial.started_at else { return 0 };
    let end = trial.ended_at.unwrap_or(now);
    u64::try_from(end.as_second().saturating_sub(start.as_second())).unwrap_or(0)
}

/// Seconds, with an offset, as the documents show them.
pub(crate) fn time(at: Timestamp) -> Value {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at);
    seconds.to_string().replace('Z', "+00:00").into()
}

/// `node-` and eight hexadecimal digits, whatever the provider calls it.
fn node_name(node: &NodeId) -> String {
    let name = node.as_str();
    let digits = name.strip_prefix("node-").unwrap_or_default();
    if digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return name.to_owned();
    }
    format!("node-{}", &hex::encode(Sha256::digest(name.as_bytes()))[..8])
}

fn money(money: &Money) -> Value {
    json!({ "amount": money.amount.normalize().to_string(), "currency": money.currency.code() })
}

fn outputs(state: &OutputState) -> Value {
    match state {
        OutputState::None => json!({ "state": "none" }),
        OutputState::Pending => json!({ "state": "pending" }),
        OutputState::Uploaded { files, bytes } => {
            json!({ "state": "uploaded", "files": files, "bytes": bytes })
        }
        OutputState::Failed { reason } => json!({ "state": "failed", "reason": plain(reason) }),
    }
}

fn refusals(refusals: &[Refusal]) -> Value {
    let row = |one: &Refusal| {
        json!({
            "offer": one.offer.to_string(), "code": one.kind.as_str(), "times": one.times,
            "at": time(one.at), "message": plain(&one.detail),
        })
    };
    refusals.iter().map(row).collect()
}

/// What keeps a node from being ended now.
fn blocked(hold: &Hold) -> Value {
    json!({
        "code": hold.kind.as_str(), "since": time(hold.since), "until": hold.until.map(time),
        "message": plain(&hold.detail),
    })
}

/// What proves the end of a lease, as one sentence.
fn proof(evidence: &Evidence, lang: Lang) -> Value {
    let zh = lang == Lang::Zh;
    let text = match evidence {
        Evidence::TerminalRead { node, at, .. } => match zh {
            true => format!("{} 确认节点 {node} 已释放", time_text(*at)),
            false => format!("{}: the provider says that node {node} has ended", time_text(*at)),
        },
        Evidence::AbsentReads { node, reads } => match zh {
            true => format!("连续 {} 次完整查询均未见节点 {node}", reads.len()),
            false => format!("node {node} was absent in {} complete reads", reads.len()),
        },
        Evidence::Refused { at, .. } => match zh {
            true => format!("{} 厂商明确拒绝创建，未产生节点", time_text(*at)),
            false => format!("{}: the launch was refused, nothing was made", time_text(*at)),
        },
        Evidence::FoundNothing { reads } => match zh {
            true => format!("连续 {} 次完整查询均未发现节点", reads.len()),
            false => format!("{} complete reads found no node", reads.len()),
        },
        Evidence::NothingLaunched { .. } => match zh {
            true => "未创建过节点".to_owned(),
            false => "nothing was launched".to_owned(),
        },
    };
    plain(&text).into()
}

fn time_text(at: Timestamp) -> String {
    time(at).as_str().unwrap_or_default().to_owned()
}

/// An object with one more field that is a number given as text, exactly so.
pub(crate) fn with_number(map: Map<String, Value>, key: &str, number: Option<String>) -> String {
    let object = Value::Object(map).to_string();
    match number {
        Some(number) if object.len() > 2 => format!("{{\"{key}\":{number},{}", &object[1..]),
        Some(number) => format!("{{\"{key}\":{number}}}"),
        None => object,
    }
}

/// Whether user code of a trial may still change anything.
pub(crate) fn has_ended(report: &JobReport) -> bool {
    report.view.trials.iter().all(|(trial, _)| trial.state.is_terminal())
}

/// The client's word for the last phase that was reached.
pub(crate) fn phase(last: Option<PlatformLine>) -> Option<&'static str> {
    match last? {
        PlatformLine::CreatingNode => Some("creating"),
        PlatformLine::NodeJoining => Some("joining"),
        PlatformLine::GpuReady => Some("gpu_ready"),
        PlatformLine::Running => None,
    }
}
