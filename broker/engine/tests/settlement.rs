//! What a provider's own bill makes of an estimate.

mod world;

use std::time::Duration;

use jiff::Timestamp;
use runwhere_engine::{
    AgentEvent, Exit, ExitCause, LeaseState, LedgerEntry, Settlement, UsageSegment, settle,
};
use runwhere_model::{Money, Period, UsageRecord, UsageRecords, cost_total};
use rust_decimal::Decimal;
use world::{HOUR, World};

/// A lease that has ended after two and a half hours, on a cloud that states no times but sends a
/// bill.
fn ended() -> World {
    let mut world = World::new();
    world.capabilities.states_times = false;
    world.capabilities.states_usage = true;
    world.run_to_ready();
    world.connected = true;
    let until = world.now.checked_add(HOUR * 5 / 2).unwrap();
    world.run_until(HOUR * 3, |world| world.now >= until);
    world
        .agent(&AgentEvent::Exited(Exit { code: Some(0), signal: None, cause: ExitCause::Program }))
        .unwrap();
    world.agent(&AgentEvent::Collected { files: 0, bytes: 0, failed: None }).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    world.run_until(HOUR, |world| world.lease_state() == LeaseState::Released);
    world
}

fn line(world: &World, start: Timestamp, seconds: u64) -> UsageRecord {
    let end = start.checked_add(Duration::from_secs(seconds)).unwrap();
    UsageRecord {
        node: world.nodes[0].id.clone(),
        period: Period { start, end },
        billed_micros: seconds * 1_000_000,
        amount: None,
    }
}

fn held_against(world: &World, records: Vec<UsageRecord>, after: Duration) -> Settlement {
    let lease = world.lease().clone();
    let now = lease.since.checked_add(after).unwrap();
    let asked = lease.usage_period(now);
    let bill = UsageRecords { records, complete: true };
    let (trial, policy) = (&world.unit.trial, &world.policy);
    settle(lease, trial, &world.segments, &bill, &asked, policy, now).unwrap()
}

fn sums(segments: &[UsageSegment]) -> (i64, Decimal, i64) {
    let micros = segments.iter().map(UsageSegment::billed_micros).sum();
    let amount = segments.iter().map(|one| one.amount.amount).sum();
    let guessed = segments.iter().filter(|one| one.estimated);
    (micros, amount, guessed.map(UsageSegment::billed_micros).sum())
}

#[test]
fn a_bill_takes_an_estimate_back_and_books_what_it_says_once() {
    let mut world = ended();
    let (lease, before) = (world.lease().clone(), world.segments.len());
    assert!(lease.meter.estimated && world.segments.iter().all(|one| one.estimated));
    assert!(lease.usage_due().is_some(), "the bill is asked for");
    let start = world.nodes[0].created;
    let seconds = 2 * 3600 + 29 * 60 + 1;
    let bill = vec![line(&world, start, seconds)];
    let settled = held_against(&world, bill.clone(), HOUR);
    for one in &settled.segments {
        assert!(LedgerEntry::of_segment(one, one.end).is_balanced());
        let hour = |at: Timestamp| at.as_second().div_euclid(3600);
        let last = one.end.checked_sub(Duration::from_micros(1)).unwrap();
        assert_eq!(hour(one.start), hour(last), "within one hour: {one:?}");
    }
    let taken = settled.segments.iter().filter(|one| one.corrects.is_some()).count();
    assert_eq!(taken, before, "each estimate is taken back");
    let (was, _, _) = sums(&world.segments);
    world.segments.extend(settled.segments.clone());
    let (micros, amount, guessed) = sums(&world.segments);
    assert_eq!(micros, i64::try_from(seconds).unwrap() * 1_000_000);
    assert_ne!(micros, was, "the estimate was another one");
    let owed = cost_total(lease.price.price, seconds * 1_000_000).unwrap();
    assert_eq!((amount, guessed), (owed.amount, 0));
    // The lease says the same, its trial has nothing to correct, and the budget gets the difference.
    let meter = &settled.lease.meter;
    assert!(!meter.estimated && settled.lease.usage_due().is_none());
    assert_eq!(meter.cost(&settled.lease, Timestamp::MAX).unwrap(), owed);
    assert_eq!((settled.past_micros, settled.past_amounts.len()), (0, 0));
    let spent: Decimal = settled.spent.iter().map(|money| money.amount).sum();
    assert_eq!(spent, settled.segments.iter().map(|one| one.amount.amount).sum());
    // The same bill again, with or without the row of the lease: nothing new.
    assert!(held_against(&world, bill.clone(), HOUR * 2).segments.is_empty());
    world.unit.lease = Some(settled.lease);
    assert!(held_against(&world, bill, HOUR * 2).segments.is_empty());
}

/// Two lines of an hour and a second in all, each with that amount.
fn two_lines(world: &World, amounts: [Option<Money>; 2]) -> Vec<UsageRecord> {
    let start = world.nodes[0].created;
    let lines = [line(world, start, 1800), line(world, start + HOUR, 1801)];
    lines.into_iter().zip(amounts).map(|(one, amount)| UsageRecord { amount, ..one }).collect()
}

#[test]
fn what_a_bill_states_beyond_time_at_our_price_is_booked() {
    // A discount, and a price that we never heard of.
    for half in ["0.57 USD", "0 USD", "97.5 USD"] {
        let half: Money = half.parse().unwrap();
        let whole = half.checked_add(half).unwrap();
        let mut world = ended();
        let lease = world.lease().clone();
        let lines = two_lines(&world, [Some(half); 2]);
        let settled = held_against(&world, lines.clone(), HOUR);
        // The same of a trial that has gone on.
        let mut later = world.unit.trial.clone();
        later.lease = None;
        let now = lease.since.checked_add(HOUR).unwrap();
        let was = lease.meter.billed_micros(&lease.capabilities.metering, now);
        later.add_past(was, lease.meter.cost(&lease, now).unwrap());
        let asked = lease.usage_period(now);
        let bill = UsageRecords { records: lines, complete: true };
        let (segments, policy) = (&world.segments, &world.policy);
        let past = settle(lease, &later, segments, &bill, &asked, policy, now).unwrap();
        later.adjust_past(past.past_micros, &past.past_amounts);
        let left: Decimal = later.past_amounts.iter().map(|one| one.amount).sum();
        assert_eq!((later.past_billed_micros, left), (3_601_000_000, whole.amount));
        // Ledger and lease say what the bill says.
        world.segments.extend(settled.segments.clone());
        assert_eq!(sums(&world.segments), (3_601_000_000, whole.amount, 0));
        assert_eq!(settled.lease.meter.cost(&settled.lease, now).unwrap(), whole);
        assert!(
            settled.segments.iter().all(|one| LedgerEntry::of_segment(one, one.end).is_balanced())
        );
    }
}

#[test]
fn a_bill_that_states_only_some_amounts_is_counted_by_its_time() {
    let world = ended();
    let lines = two_lines(&world, [Some("97.5 USD".parse().unwrap()), None]);
    let settled = held_against(&world, lines, HOUR);
    let owed = cost_total(world.lease().price.price, 3_601_000_000).unwrap();
    assert_eq!(settled.lease.meter.cost(&settled.lease, Timestamp::MAX).unwrap(), owed);
}

#[test]
fn a_missing_line_is_waited_for_and_then_means_nothing_billed() {
    let world = ended();
    let soon = held_against(&world, Vec::new(), HOUR);
    assert!(soon.segments.is_empty());
    assert!(soon.lease.meter.estimated && soon.lease.usage_due().is_some(), "asked again");
    let late = held_against(&world, Vec::new(), world.policy.usage_absent);
    let (was, _, _) = sums(&world.segments);
    assert_eq!(sums(&late.segments).0, -was);
    assert!(late.lease.usage_due().is_none());
}

#[test]
fn a_line_that_still_grows_settles_nothing() {
    let world = ended();
    let start = world.nodes[0].created;
    let whole = world.lease().since.duration_since(start).as_secs();
    let growing = line(&world, start, u64::try_from(whole).unwrap() + 3600);
    let settled = held_against(&world, vec![growing], HOUR);
    assert!(settled.segments.is_empty() && settled.lease.usage_due().is_some());
}

#[test]
fn a_trial_that_went_on_corrects_what_is_past() {
    let world = ended();
    let start = world.nodes[0].created;
    let mut later = world.unit.trial.clone();
    later.lease = None;
    let lease = world.lease().clone();
    let now = lease.since.checked_add(HOUR).unwrap();
    let asked = lease.usage_period(now);
    let bill = UsageRecords { records: vec![line(&world, start, 3600)], complete: true };
    let settled =
        settle(lease.clone(), &later, &world.segments, &bill, &asked, &world.policy, now).unwrap();
    later.add_past(
        lease.meter.billed_micros(&lease.capabilities.metering, now),
        lease.meter.cost(&lease, now).unwrap(),
    );
    later.adjust_past(settled.past_micros, &settled.past_amounts);
    assert_eq!(later.past_billed_micros, 3_600_000_000);
    assert_eq!(later.past_amounts, vec![lease.price.price.per_hour()]);
}

#[test]
fn a_surplus_node_that_no_read_showed_at_work_is_charged_by_the_bill() {
    let mut world = ended();
    let mut extra = line(&world, world.nodes[0].created, 60);
    extra.node = runwhere_model::NodeId::new("node-beyond").unwrap();
    let own = line(&world, world.nodes[0].created, 3600);
    let mut lease = world.lease().clone();
    lease.surplus_ended.insert(extra.node.clone(), lease.since);
    world.unit.lease = Some(lease);
    let settled = held_against(&world, vec![own, extra.clone()], HOUR);
    let of_extra = settled.segments.iter().filter(|one| one.node.as_ref() == Some(&extra.node));
    assert_eq!(of_extra.map(UsageSegment::billed_micros).sum::<i64>(), 60_000_000);
    assert_eq!(settled.past_micros, 60_000_000, "the trial's own sums know of it");
}
