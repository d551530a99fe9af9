//! The rows against the cloud's hidden truth.

use std::collections::BTreeSet;

use runwhere_broker::store::{SegmentQuery, Store};
use runwhere_engine::LedgerEntry;
use runwhere_model::{LeaseId, Money, ProjectId, cost_total};
use runwhere_providers::testing::Truth;

use crate::store::FaultyStore;

/// What must hold at every instant.
pub(crate) fn always(store: &FaultyStore, truth: &Truth) -> Vec<String> {
    let written = store.written();
    let mut wrong = written.wrong.clone();
    for trial in written.trials.values() {
        let live: BTreeSet<&LeaseId> = truth
            .live()
            .filter(|node| {
                written.leases.get(&node.lease).is_some_and(|lease| lease.trial == trial.id)
            })
            .map(|node| &node.lease)
            .collect();
        if live.len() > 1 {
            wrong.push(format!("{} has nodes of {live:?}", trial.id));
        }
        if trial.cleanup_confirmed && !live.is_empty() {
            wrong.push(format!("{} is confirmed clean with nodes of {live:?}", trial.id));
        }
    }
    for lease in written.leases.values().filter(|lease| lease.state.is_terminal()) {
        if !truth.live_nodes(&lease.id).is_empty() {
            wrong.push(format!("{} has ended with live nodes: {:?}", lease.id, lease.evidence));
        }
    }
    for (token, calls) in truth.launches.iter().filter(|(_, calls)| **calls > 1) {
        wrong.push(format!("{token} was launched {calls} times"));
    }
    if !truth.touched_foreign.is_empty() {
        wrong.push(format!("foreign nodes touched: {:?}", truth.touched_foreign));
    }
    wrong
}

/// What must hold once everything has ended.
pub(crate) async fn finally(
    store: &FaultyStore,
    project: &ProjectId,
    truth: &Truth,
    states_times: bool,
) -> Vec<String> {
    let mut wrong = always(store, truth);
    for node in truth.live() {
        wrong.push(format!("{} of {} is left", node.node, node.lease));
    }
    let query = SegmentQuery { limit: u32::MAX, ..SegmentQuery::default() };
    let segments = match store.segments(project, &query).await {
        Ok(segments) => segments,
        Err(error) => return vec![error.to_string()],
    };
    let budget = store.budget(project).await.ok().flatten();
    let leases: Vec<_> = store.written().leases.values().cloned().collect();
    let mut spent = rust_decimal::Decimal::ZERO;
    for lease in &leases {
        let mut sum = Money::zero(lease.price.price.currency);
        let mut micros = 0;
        let of_lease = segments.iter().filter(|(_, segment)| segment.lease == lease.id);
        // Nodes that nobody wanted have meters of their own.
        let (own, others): (Vec<_>, Vec<_>) = of_lease.partition(|(_, s)| !s.id.contains('+'));
        spent +=
            others.iter().map(|(_, segment)| segment.amount.amount).sum::<rust_decimal::Decimal>();
        for (_, segment) in own {
            if segment.billed_from_micros != micros {
                wrong.push(format!("{} has a gap before it", segment.id));
            }
            if !LedgerEntry::of_segment(segment, segment.end).is_balanced() {
                wrong.push(format!("{} is not balanced", segment.id));
            }
            micros = segment.billed_to_micros;
            sum = sum.checked_add(segment.amount).unwrap_or(sum);
        }
        if cost_total(lease.price.price, micros) != Ok(sum) {
            wrong.push(format!("{}: the pieces are not the whole", lease.id));
        }
        spent += sum.amount;
        // Where the cloud states its times, our meter is the cloud's to the microsecond.
        let stated = states_times && !lease.meter.estimated;
        if let Some(node) = lease.node.as_ref().filter(|_| stated)
            && truth.meter_micros(node) != micros
        {
            wrong.push(format!(
                "{}: {micros} us are charged, the cloud's meter says {}",
                lease.id,
                truth.meter_micros(node)
            ));
        }
    }
    if let Some(budget) = budget {
        if !budget.reserved.is_empty() {
            wrong.push(format!("the budget is still bound by {:?}", budget.reserved));
        }
        if budget.spent != spent {
            wrong.push(format!("the budget says {} is spent, it is {spent}", budget.spent));
        }
    }
    wrong
}
