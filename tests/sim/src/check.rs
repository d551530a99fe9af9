//! The rows, files and answers against the cloud's hidden truth.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use jiff::Timestamp;
use runwhere_broker::logs::Logs;
use runwhere_broker::store::{SegmentQuery, StoreError};
use runwhere_engine::{Lease, LedgerEntry, TrialState, UsageSegment};
use runwhere_model::{LeaseId, Money, cost_total};
use runwhere_providers::testing::{Truth, TruthNode};
use rust_decimal::Decimal;

use crate::cloud::live_by_lease;
use crate::invariant::{Invariant, Violation};
use crate::replica::runtime;
use crate::run::Tally;
use crate::user::project;
use crate::world::World;

/// What must hold at every instant.
pub(crate) fn always(world: &World, truth: &Truth) -> Vec<Violation> {
    let mut wrong = Vec::new();
    {
        let told = world.told.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.extend(told.wrong.iter().cloned());
    }
    wrong.extend(world.unnamed());
    let written = world.shelf.written();
    wrong.extend(written.wrong.iter().cloned());
    wrong.extend(world.sky.log().wrong.iter().cloned());
    if !truth.touched_foreign.is_empty() {
        wrong.push(Invariant::Foreign.broken(format_args!("{:?}", truth.touched_foreign)));
    }
    for (token, calls) in truth.launches.iter().filter(|(_, calls)| **calls > 1) {
        let broken = format_args!("{token} was launched {calls} times");
        wrong.push(Invariant::OneAttempt.broken(broken));
    }
    let mut attempts = std::collections::BTreeMap::new();
    // Of a node that the cloud says nothing of nobody knows when a lease is ended: the sweeper ends
    // it later.
    for (id, nodes) in live_by_lease(truth) {
        let Some(lease) = written.leases.get(id) else {
            wrong.push(Invariant::Owned.broken(format_args!("{nodes:?} belong to no lease")));
            continue;
        };
        if lease.state.is_terminal() {
            wrong.push(Invariant::ProvenEnd.broken(format_args!(
                "{id} has ended by {:?}, and {nodes:?} live",
                lease.evidence
            )));
        }
        let clean = written.trials.get(&lease.trial).is_some_and(|trial| trial.cleanup_confirmed);
        if clean {
            let broken = format_args!("{} is confirmed clean, and {nodes:?} live", lease.trial);
            wrong.push(Invariant::ProvenEnd.broken(broken));
        }
        if let Some(other) = attempts.insert(&lease.trial, id) {
            let broken = format_args!("{} has live nodes of {other} and {id}", lease.trial);
            wrong.push(Invariant::OneAttempt.broken(broken));
        }
    }
    wrong
}

/// Whether nothing is left to do.
pub(crate) fn settled(world: &World) -> bool {
    let written = world.shelf.written();
    !world.users_wait()
        && written.trials.values().all(|t| t.state.is_terminal() && t.cleanup_confirmed)
        && written.leases.values().all(|lease| lease.usage_due().is_none())
}

/// What must hold once everything has ended.
pub(crate) fn finally(world: &World, truth: &Truth, tally: &mut Tally) -> Vec<Violation> {
    let mut wrong = always(world, truth);
    for node in truth.live() {
        let broken = format_args!("{} of {} is left", node.node, node.lease);
        wrong.push(Invariant::Owned.broken(broken));
    }
    if world.foreign() != 1 {
        wrong.push(Invariant::Foreign.broken("somebody else's node is gone"));
    }
    match books(world, truth, tally) {
        Ok(found) => wrong.extend(found),
        Err(error) => wrong.push(Invariant::Books.broken(error)),
    }
    wrong.extend(logs(world));
    wrong.extend(kept(world, truth));
    wrong
}

/// Nothing is lost that was not harmed. Where a node that nobody was told of was the first to ask,
/// its lease's program ran there.
fn kept(world: &World, truth: &Truth) -> Vec<Violation> {
    let written = world.shelf.written();
    let unsaid = truth.nodes.iter().filter(|node| {
        node.unsaid && world.agents.get(&node.node).is_some_and(crate::agent::Agent::has_joined)
    });
    let elsewhere: BTreeSet<&LeaseId> = unsaid.map(|node| &node.lease).collect();
    let lost = written.trials.values().filter(|trial| {
        let harmed = trial
            .lease
            .as_ref()
            .is_some_and(|lease| world.harmed.contains(lease) || elsewhere.contains(lease));
        trial.state == TrialState::Lost && !harmed
    });
    lost.map(|trial| Invariant::Kept.broken(format_args!("{}: {:?}", trial.id, trial.end_reason)))
        .collect()
}

fn books(world: &World, truth: &Truth, tally: &mut Tally) -> Result<Vec<Violation>, StoreError> {
    let mut wrong = Vec::new();
    let store = world.shelf.inner();
    let query = SegmentQuery { limit: u32::MAX, ..SegmentQuery::default() };
    let (segments, budget) = runtime().block_on(async {
        let segments = store.segments(&project(), &query).await?;
        Ok::<_, StoreError>((segments, store.budget(&project()).await?))
    })?;
    wrong.extend(twice(&segments));
    let written = world.shelf.written();
    let mut spent = Decimal::ZERO;
    for lease in written.leases.values() {
        let of_lease: Vec<&UsageSegment> =
            segments.iter().map(|(_, one)| one).filter(|one| one.lease == lease.id).collect();
        spent += of_lease.iter().map(|segment| segment.amount.amount).sum::<Decimal>();
        for segment in &of_lease {
            if !LedgerEntry::of_segment(segment, segment.end).is_balanced() {
                let broken = format_args!("{} is not balanced", segment.id);
                wrong.push(Invariant::Books.broken(broken));
            }
        }
        // Nodes that nobody wanted have meters of their own, and so has the provider's bill.
        let own = of_lease.iter().filter(|segment| {
            !segment.id.contains('+')
                && segment.corrects.is_none()
                && segment.usage_record.is_none()
        });
        let mut sum = Money::zero(lease.price.price.currency);
        let mut micros = 0;
        let mut estimated = lease.meter.estimated;
        let mut begun = lease.meter.started_at.filter(|_| !lease.meter.settled);
        for segment in own {
            if segment.billed_from_micros != micros {
                let broken = format_args!("{} has a gap before it", segment.id);
                wrong.push(Invariant::Books.broken(broken));
            }
            micros = segment.billed_to_micros;
            // A settled meter has the bill's start in place of ours.
            begun.get_or_insert(segment.start);
            estimated |= segment.estimated;
            sum = sum.checked_add(segment.amount).unwrap_or(sum);
        }
        if cost_total(lease.price.price, micros) != Ok(sum) {
            let broken = format_args!("{}: the pieces are not the whole", lease.id);
            wrong.push(Invariant::Books.broken(broken));
        }
        if let Some(node) = lease.node.as_ref().and_then(|node| truth.node(node)) {
            let flagged = estimated || lease.meter.settled;
            wrong.extend(metered(world, lease, node, (micros, begun, flagged), tally));
        }
        let nodes = lease.node.iter().chain(lease.surplus_ended.keys());
        let nodes = nodes.filter_map(|node| truth.node(node));
        wrong.extend(nodes.filter_map(|node| settled_bill(world, lease, node, &of_lease, tally)));
    }
    if let Some(budget) = budget {
        if !budget.reserved.is_empty() {
            let broken = format_args!("the budget is still bound by {:?}", budget.reserved);
            wrong.push(Invariant::Books.broken(broken));
        }
        if budget.spent != spent {
            let broken = format_args!("the budget says {} is spent, it is {spent}", budget.spent);
            wrong.push(Invariant::Books.broken(broken));
        }
    }
    Ok(wrong)
}

/// No instant of a node is on two bills: not of its lease and of a stray, nor of two that it made by coming back.
fn twice(segments: &[(u64, UsageSegment)]) -> Vec<Violation> {
    let taken_back: BTreeSet<&String> =
        segments.iter().filter_map(|(_, one)| one.corrects.as_ref()).collect();
    let mut spans: Vec<_> = segments
        .iter()
        .map(|(_, one)| one)
        // What the cloud's bill put right is held against that bill.
        .filter(|one| one.corrects.is_none() && one.usage_record.is_none())
        .filter(|one| !taken_back.contains(&one.id))
        .filter(|one| one.node.is_some() && one.start < one.end)
        .map(|one| (&one.node, one.start, one.end, &one.id))
        .collect();
    spans.sort();
    let pairs = spans.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2);
    pairs
        .map(|pair| {
            let (node, start, end, id) = pair[1];
            Invariant::Books
                .broken(format_args!("{id}: {start} to {end} of {node:?} is on {} too", pair[0].3))
        })
        .collect()
}

/// What was charged of a node against the cloud's own meter, before the cloud's bill corrected
/// it. Where the cloud states its times they are the same to the microsecond. Elsewhere the charge
/// covers at least what reads showed, and at most the time from the launch to the proof of the end:
/// it misses by what lies between two observations.
fn metered(
    world: &World,
    lease: &Lease,
    node: &TruthNode,
    (micros, begun, flagged): (u64, Option<Timestamp>, bool),
    tally: &mut Tally,
) -> Option<Violation> {
    // What ran again after its proven end is on another bill.
    if node.unsaid {
        return None;
    }
    let missed = micros.abs_diff(node.meter_micros);
    let rule = &world.plan.profile.capabilities.metering;
    if world.plan.profile.capabilities.states_times && !flagged {
        tally.stated += 1;
        tally.misbilled_micros += missed;
        return (missed != 0).then(|| {
            Invariant::Metered.broken(format_args!(
                "{}: {micros} us are charged, the cloud's meter says {}",
                lease.id, node.meter_micros
            ))
        });
    }
    tally.estimated += 1;
    tally.estimate_micros += missed;
    let between = |from: Timestamp, to: Timestamp| {
        let span = to.as_microsecond().saturating_sub(from.as_microsecond());
        rule.billed_micros(u64::try_from(span).unwrap_or(0))
    };
    let most = between(node.created_at.min(lease.intended_at), lease.since);
    let reads = world.sky.log().reads.get(&node.node).copied().unwrap_or_default();
    let least = match (begun, reads.last_running) {
        (Some(from), Some(to)) => between(from.max(node.created_at), to),
        (_, _) => 0,
    };
    // Something was seen to run: then something is charged, and it is said to be an estimate.
    let flagged = flagged || micros == 0;
    (!flagged || micros > most || micros < least).then(|| {
        Invariant::Metered.broken(format_args!(
            "{}: {micros} us are charged as an estimate, not {least} to {most}",
            lease.id
        ))
    })
}

/// Where the cloud sends a bill nothing is left of an estimate: what stands in the ledger of a node
/// is what the cloud's own meter says, to the microsecond, and none of it is an estimate.
fn settled_bill(
    world: &World,
    lease: &Lease,
    node: &TruthNode,
    of_lease: &[&UsageSegment],
    tally: &mut Tally,
) -> Option<Violation> {
    lease.settled_at?;
    if node.unsaid || !world.plan.profile.capabilities.states_usage {
        return None;
    }
    let of_node = of_lease.iter().filter(|one| one.node.as_ref() == Some(&node.node));
    let micros: i64 = of_node.clone().map(|one| one.billed_micros()).sum();
    let guessed: i64 =
        of_node.clone().filter(|one| one.estimated).map(|one| one.billed_micros()).sum();
    let missed = micros.abs_diff(i64::try_from(node.meter_micros).unwrap_or(i64::MAX));
    tally.settled += 1;
    tally.settled_micros += missed;
    let amounts: Decimal = of_node.map(|one| one.amount.amount).sum();
    let owed = cost_total(node.price, node.meter_micros).map(|money| money.amount);
    (missed != 0 || guessed != 0 || owed != Ok(amounts)).then(|| {
        Invariant::Metered.broken(format_args!(
            "{} of {}: the bill says {} us ({owed:?}), the ledger {micros} us ({amounts}), {guessed} us \
             of it estimated",
            node.node, lease.id, node.meter_micros
        ))
    })
}

/// Each log holds what its agent sent, once, and is sealed.
fn logs(world: &World) -> Vec<Violation> {
    let Some(folder) = &world.folder else { return Vec::new() };
    let logs = match Logs::open_inline(folder.path().join("logs"), 1 << 30, world.clock()) {
        Ok(logs) => logs,
        Err(error) => return vec![Invariant::Logged.broken(error)],
    };
    let mut wrong = Vec::new();
    for (said, then) in world.agents.values().filter_map(crate::agent::Agent::taken_back) {
        let broken = format_args!("frames to {said} were said to be stored, then to {then}");
        wrong.push(Invariant::Logged.broken(broken));
    }
    let written = world.shelf.written();
    for trial in written.trials.values() {
        let state = match runtime().block_on(logs.state(&trial.id)) {
            Ok(state) => state,
            Err(error) => {
                wrong.push(Invariant::Logged.broken(format_args!("{}: {error}", trial.id)));
                continue;
            }
        };
        if !state.sealed {
            let broken = format_args!("the log of {} is not sealed", trial.id);
            wrong.push(Invariant::Logged.broken(broken));
        }
        let joined = world.agents.values().filter(|agent| agent.has_joined());
        let agent = joined
            .map(crate::agent::Agent::log)
            .find(|(lease, ..)| trial.lease.as_ref() == Some(lease));
        if let (Some(seal), Some((_, frames, bytes))) = (&trial.log, agent) {
            let sent = (frames, bytes);
            if (seal.frames, seal.bytes) != sent || state.durable_seq != frames {
                let broken =
                    format_args!("{}: sealed {seal:?}, sent {sent:?}, stored {state:?}", trial.id);
                wrong.push(Invariant::Logged.broken(broken));
            }
        }
    }
    wrong
}
