//! `/api/v1/admin/*`: what is owned, unknown or releasing, and the sweeper.
//!
//! An admin of the installation (of its first project) sees all; other admins see what is of
//! their own project. Sweeps are the installation's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use runwhere_engine::{
    Evidence, Finding, Lease, LeaseState, Permission, Stray, SweepCounts, SweeperState,
};
use runwhere_model::{HourlyPrice, ProviderId};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::problem::Problem;
use super::state::{Api, Signed};
use super::text::{Words, plain};
use crate::accounts::Caller;
use crate::driver::{SweepError, SweepReport};
use crate::serve::Restored;
use crate::store::StrayQuery;

const DEFAULT_LIMIT: usize = 500;
const MAX_LIMIT: usize = 5000;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/api/v1/admin/leases", get(leases))
        .route("/api/v1/admin/sweep", post(sweep))
        .route("/api/v1/admin/restore/confirm", post(confirm))
}

#[derive(Deserialize)]
struct Parameters {
    all: Option<bool>,
    limit: Option<usize>,
}

async fn leases(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Query(wanted): Query<Parameters>,
) -> Result<Json<Value>, Problem> {
    let caller = signed.with(Permission::Admin)?;
    let (store, admin) = (&api.parts.store, &api.parts.admin);
    let operator = caller.is_operator();
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let now = api.parts.clock.now();
    let all = wanted.all.unwrap_or(false);
    let open = store.open_leases().await?;
    let mut rows: Vec<Lease> = open.into_iter().filter(|lease| sees(&caller, lease)).collect();
    rows.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
    let open = rows.len();
    let totals = hourly(rows.iter().filter(|lease| bills(lease)).map(|lease| lease.price.price));
    if all {
        let known: BTreeSet<_> = rows.iter().map(|lease| lease.id.clone()).collect();
        let project = (!operator).then_some(&caller.project);
        let newest = store.newest_leases(project, u32::try_from(limit).unwrap_or(u32::MAX)).await?;
        rows.extend(newest.into_iter().filter(|lease| !known.contains(&lease.id)));
    }
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let connected = |provider: &ProviderId| admin.is_connected(provider);
    let data: Vec<Value> =
        rows.iter().map(|row| lease(row, connected(&row.offer.provider), now)).collect();
    let query = StrayQuery { open: !all, ..StrayQuery::default() };
    let mut strays = store.strays(&query).await?;
    strays.retain(|stray| {
        operator || stray.owner.as_ref().is_some_and(|owner| owner.project == caller.project)
    });
    let cost = hourly(strays.iter().filter(|stray| stray.state.is_open()).filter_map(Stray::price));
    strays.truncate(limit);
    let mut answer = json!({
        "data": data,
        "open": open,
        "has_more": has_more,
        "price_per_hour": totals,
        "strays": strays
            .iter()
            .map(|one| stray(one, connected(&one.provider), now))
            .collect::<Vec<_>>(),
        "strays_price_per_hour": cost,
    });
    if operator {
        let sweepers = store.sweepers().await?;
        let mut ids: BTreeSet<ProviderId> = admin.providers().into_iter().collect();
        ids.extend(sweepers.iter().map(|row| row.provider.clone()));
        let row = |id: &ProviderId| sweepers.iter().find(|row| row.provider == *id);
        let providers: Vec<Value> =
            ids.iter().map(|id| provider(id, connected(id), row(id))).collect();
        answer["providers"] = providers.into();
        answer["restored"] = admin.restored().as_ref().map_or(Value::Null, restored);
        answer["quarantined_trials"] = admin.quarantined().into();
    }
    Ok(Json(answer))
}

fn sees(caller: &Caller, lease: &Lease) -> bool {
    caller.is_operator() || lease.project == caller.project
}

/// Whether there may be a node that costs money.
fn bills(lease: &Lease) -> bool {
    match lease.state {
        LeaseState::Launching
        | LeaseState::Unknown
        | LeaseState::Booting
        | LeaseState::Ready
        | LeaseState::Releasing => true,
        LeaseState::Intended | LeaseState::Released | LeaseState::Void => false,
    }
}

/// The sum per currency; exact.
fn hourly(prices: impl Iterator<Item = HourlyPrice>) -> Value {
    let mut sums: BTreeMap<&'static str, Decimal> = BTreeMap::new();
    for price in prices {
        let sum = sums.entry(price.currency.code()).or_default();
        *sum = sum.saturating_add(price.amount);
    }
    let sums = sums.into_iter().map(|(code, sum)| (code.to_owned(), sum.normalize().to_string()));
    Value::Object(sums.map(|(code, sum)| (code, sum.into())).collect())
}

fn seconds_since(at: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(at).as_secs().max(0)
}

fn priced(price: Option<HourlyPrice>) -> (Value, Value) {
    match price {
        Some(price) => (price.amount.normalize().to_string().into(), price.currency.code().into()),
        None => (Value::Null, Value::Null),
    }
}

fn lease(lease: &Lease, connected: bool, now: Timestamp) -> Value {
    let (price, currency) = priced(Some(lease.price.price));
    let open = !lease.state.is_terminal();
    let surplus: Vec<Value> = lease
        .surplus
        .iter()
        .map(|one| {
            json!({
                "node_id": one.node.to_string(), "since": one.since.to_string(),
                "termination_accepted": one.acked, "calls": one.failures,
            })
        })
        .collect();
    let micros = lease.meter.billed_micros(&lease.capabilities.metering, now);
    json!({
        "lease_id": lease.id.to_string(),
        "workspace_id": lease.workspace.to_string(),
        "project_id": lease.project.to_string(),
        "job_id": lease.job.to_string(),
        "trial_id": lease.trial.to_string(),
        "provider": lease.offer.provider.to_string(),
        "offer_key": lease.offer.to_string(),
        "node_id": lease.node.as_ref().map(ToString::to_string),
        "state": lease.state.as_str(),
        "since": lease.since.to_string(),
        "seconds": seconds_since(lease.since, now),
        "price_per_hour": price,
        "currency": currency,
        "billed_seconds": micros / 1_000_000,
        "cost": lease.meter.cost(lease, now).ok().map(|cost| cost.amount.to_string()),
        "release_wanted": lease.release_wanted,
        "termination_accepted": lease.release_acked,
        "calls_without_progress": lease.release_failures,
        "alerts": lease.alerts,
        "surplus": surplus,
        "cleanup_blocked": match (&lease.hold, open && !connected) {
            (_, true) => Some("provider_not_connected"),
            (Some(hold), false) if open => Some(hold.kind.as_str()),
            (_, false) => None,
        },
        "blocked_until": lease.hold.as_ref().and_then(|hold| hold.until).map(|at| at.to_string()),
        "last_error": lease.last_error,
        "evidence": lease.evidence.as_ref().map(evidence),
    })
}

/// What was read, and when.
fn evidence(evidence: &Evidence) -> Value {
    serde_json::to_value(evidence).unwrap_or(Value::Null)
}

fn stray(stray: &Stray, connected: bool, now: Timestamp) -> Value {
    let (price, currency) = priced(stray.price());
    let owner = stray.owner.as_ref();
    json!({
        "node_id": stray.node().to_string(),
        "provider": stray.provider.to_string(),
        "lease_id": stray.lease.as_ref().map(ToString::to_string),
        "attribution": if owner.is_some() { "project" } else { "unattributed" },
        "project_id": owner.map(|owner| owner.project.to_string()),
        "job_id": owner.map(|owner| owner.job.to_string()),
        "cause": stray.cause.as_str(),
        "state": stray.state.as_str(),
        "since": stray.since.to_string(),
        "seconds": seconds_since(stray.since, now),
        "first_seen": stray.first_seen.to_string(),
        "last_seen": stray.last_seen.to_string(),
        "looks": stray.looks,
        "price_per_hour": price,
        "currency": currency,
        "billed_seconds": stray.billed_micros(now) / 1_000_000,
        "cost": stray.cost(now).map(|cost| cost.amount.to_string()),
        "termination_accepted": stray.target.acked,
        "calls": stray.target.failures,
        "cleanup_blocked":
            (stray.state.is_open() && !connected).then_some("provider_not_connected"),
        "last_error": stray.last_error,
        "evidence": stray.evidence.as_ref().map(evidence),
    })
}

fn provider(id: &ProviderId, connected: bool, row: Option<&SweeperState>) -> Value {
    json!({
        "provider": id.to_string(),
        "connected": connected,
        "last_sweep": row.and_then(|row| row.last.as_ref()).map(counts),
        "last_complete_at": row.and_then(|row| row.complete_at).map(|at| at.to_string()),
        "failures": row.map_or(0, |row| row.failures),
        "last_error": row.and_then(|row| row.last_error.clone()),
        "next_at": row.map(|row| row.next_at.to_string()),
    })
}

fn counts(counts: &SweepCounts) -> Value {
    json!({
        "at": counts.listed_at.to_string(),
        "complete": counts.complete,
        "nodes": counts.live,
        "owned": counts.owned,
        "waiting": counts.waiting,
        "suspected": counts.suspected,
        "ending": counts.ending,
        "foreign": counts.foreign,
    })
}

fn restored(restored: &Restored) -> Value {
    json!({
        "found": restored.found,
        "expected": restored.expected,
        "noticed_at": restored.noticed_at.to_string(),
    })
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SweepRequest {
    apply: bool,
    provider: Option<String>,
}

async fn sweep(
    State(api): State<Arc<Api>>,
    signed: Signed,
    body: Body,
) -> Result<Json<Value>, Problem> {
    operator(signed)?;
    let body = body::read(body, body::SMALL).await?;
    let wanted: SweepRequest =
        if body.is_empty() { SweepRequest::default() } else { body::typed(&body)? };
    let admin = &api.parts.admin;
    let held = admin.restored();
    if wanted.apply && held.is_some() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            Words::new(
                "数据库是从旧备份恢复的，清扫只报告、不结束节点",
                "the database was restored from an older copy: sweeps only report",
            ),
        )
        .suggest(
            "核对后执行 runwhere admin sweep --confirm-restore",
            "look at what is reported, then run `runwhere admin sweep --confirm-restore`",
        )
        .reason("restore_not_confirmed"));
    }
    let providers = match wanted.provider {
        None => admin.providers(),
        Some(id) => {
            let known = ProviderId::new(&id).ok().filter(|id| admin.is_connected(id));
            vec![known.ok_or_else(|| not_connected(&id, &admin.providers()))?]
        }
    };
    let mut data = Vec::new();
    for id in providers {
        data.push(match admin.sweep(&id, wanted.apply).await {
            Ok(report) => swept(&report, api.parts.clock.now()),
            Err(SweepError::Store(error)) => return Err(error.into()),
            // One provider that does not answer does not hide the others.
            Err(error) => json!({ "provider": id.to_string(), "error": error.to_string() }),
        });
    }
    Ok(Json(json!({
        "data": data,
        "applied": wanted.apply,
        "restored": held.as_ref().map_or(Value::Null, restored),
    })))
}

/// What was asked for is not connected: what is?
fn not_connected(wanted: &str, connected: &[ProviderId]) -> Problem {
    let wanted: String = plain(wanted).chars().take(80).collect();
    let problem = Problem::invalid(
        format!("云 {wanted} 没有连接"),
        format!("the provider {wanted} is not connected"),
    );
    let ids = connected.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match ids.is_empty() {
        true => problem.suggest("没有连接任何云", "no provider is connected"),
        false => problem.suggest(format!("已连接：{ids}"), format!("connected: {ids}")),
    }
}

fn swept(report: &SweepReport, now: Timestamp) -> Value {
    let findings: Vec<Value> = report.findings.iter().map(|one| finding(one, now)).collect();
    let ending: Vec<Value> = report
        .strays
        .iter()
        .map(|stray| {
            json!({
                "node_id": stray.node().to_string(), "state": stray.state.as_str(),
                "cause": stray.cause.as_str(), "first_seen": stray.first_seen.to_string(),
                "last_error": stray.last_error,
            })
        })
        .collect();
    let mut answer = counts(&report.counts);
    answer["provider"] = report.provider.to_string().into();
    answer["report_only"] = report.held.into();
    answer["findings"] = findings.into();
    answer["strays"] = ending.into();
    answer
}

fn finding(finding: &Finding, now: Timestamp) -> Value {
    let (price, currency) = priced(finding.price);
    json!({
        "node_id": finding.node.to_string(),
        "lease_id": finding.lease.as_ref().map(ToString::to_string),
        "verdict": finding.verdict.as_str(),
        "cause": finding.cause.map(runwhere_engine::StrayCause::as_str),
        "created_at": finding.created_at.map(|at| at.to_string()),
        "first_seen": finding.first_seen.map(|at| at.to_string()),
        "again_at": finding.again_at.map(|at| at.to_string()),
        "again_in_seconds": finding.again_at.map(|at| seconds_since(now, at)),
        "price_per_hour": price,
        "currency": currency,
    })
}

async fn confirm(State(api): State<Arc<Api>>, signed: Signed) -> Result<Json<Value>, Problem> {
    operator(signed)?;
    let confirmed = api.parts.admin.confirm_restore().await?;
    Ok(Json(json!({ "confirmed": confirmed })))
}

fn operator(signed: Signed) -> Result<Caller, Problem> {
    let caller = signed.with(Permission::Admin)?;
    if caller.is_operator() { Ok(caller) } else { Err(Problem::forbidden()) }
}
