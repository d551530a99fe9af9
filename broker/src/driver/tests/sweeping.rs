//! Nodes that nobody owns.

use std::time::Duration;

use runwhere_engine::{Evidence, LeaseState, StrayCause, StrayState};
use runwhere_model::NodeId;
use runwhere_providers::testing::{Outcome, SimProfile, Verb};
use runwhere_providers::{Clock, Provider};

use super::site::{Site, deployment, project, released, sim};
use crate::driver::SweepError;
use crate::store::{Row, Store};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_orphan_is_ended_when_old_and_seen_twice_and_others_are_left_alone() {
    for profile in SimProfile::all() {
        let name = profile.name;
        let site = Site::new(profile).await;
        let theirs = site.cloud.as_installation(deployment("theirs"));
        let orphan = site.plant(&site.cloud, "ours", "lease-none").await;
        let foreign = site.plant(&theirs, "theirs", "lease-none").await;
        let (_, sweeper) = site.server();
        tokio::spawn(sweeper.run());
        site.clock.advance(4 * MINUTE).await;
        assert!(site.live().contains(&orphan), "{name}: too young");
        let suspect = site.stray(&orphan).await;
        assert_eq!(suspect.state, StrayState::Suspected);
        assert_eq!((suspect.cause, suspect.owner), (StrayCause::UnknownLease, None));
        site.until(60 * MINUTE, || async { site.stray(&orphan).await.state == StrayState::Ended })
            .await;
        assert_eq!(site.live(), std::slice::from_ref(&foreign), "{name}");
        assert!(site.cloud.truth().touched_foreign.is_empty());
        let stray = site.stray(&orphan).await;
        assert!(stray.looks >= 2, "{name}: {stray:?}");
        assert!(stray.evidence.is_some());
        // Nobody of ours pays; what it cost is told all the same.
        assert!(site.segments().await.is_empty());
        assert!(stray.billed_micros(site.clock.now()) > 0, "{name}");
        assert!(stray.cost(site.clock.now()).is_some());
        let row = &site.store.sweepers().await.unwrap()[0];
        assert_eq!(row.last.as_ref().unwrap().foreign, 1);
    }
}

#[tokio::test]
async fn a_node_left_behind_by_an_ended_lease_is_billed_to_its_project() {
    for profile in SimProfile::all() {
        let (name, times) = (profile.name, profile.capabilities.states_times);
        let site = Site::new(profile).await;
        let lease = site
            .lease("lease-void", |lease| {
                lease.state = LeaseState::Void;
                lease.evidence = Some(Evidence::FoundNothing { reads: vec![] });
            })
            .await;
        let node = site.plant(&site.cloud, "ours", "lease-void").await;
        let (_, sweeper) = site.server();
        tokio::spawn(sweeper.run());
        site.until(120 * MINUTE, || async {
            let strays = site.strays().await;
            strays.first().is_some_and(|stray| stray.state == StrayState::Ended)
        })
        .await;
        let stray = site.stray(&node).await;
        assert_eq!(stray.cause, StrayCause::LeftBehind, "{name}");
        let (micros, cost) = site.billed(&node).await;
        assert!(micros > 0 && cost.amount > rust_decimal::Decimal::ZERO, "{name}");
        let truth = site.cloud.truth().meter_micros(&node);
        // Exact by the cloud's word; else the end, or both ends, are our own observation.
        let stated = matches!(stray.evidence, Some(Evidence::TerminalRead { .. }));
        if times && stated {
            assert_eq!(micros, truth, "{name}");
        } else {
            let bound = if times { 60_000_000 } else { 300_000_000 };
            assert!(stray.target.meter.estimated, "{name}");
            assert!(micros.abs_diff(truth) <= bound, "{name}: {micros}, {truth}");
        }
        // The job's cost, the budget and the ledger say the same.
        let (trial, _) = site.unit(&lease.trial).await;
        assert_eq!((trial.past_billed_micros, trial.past_amounts), (micros, vec![cost]));
        let budget = site.store.budget(&project()).await.unwrap().unwrap();
        assert_eq!(budget.spent, cost.amount);
        let entries = site.store.entries(&project(), None, 9).await.unwrap();
        assert_eq!(entries.len(), site.segments().await.len());
        let events = site.store.events(&project(), &lease.job).await.unwrap();
        let mut kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        // A cloud that refuses the end for an hour is complained about meanwhile.
        let refused = kinds.contains(&"lease.release_overdue");
        assert_eq!(refused, site.cloud.capabilities().minimum_reservation.is_some(), "{name}");
        kinds.retain(|kind| *kind != "lease.release_overdue");
        assert_eq!(kinds, ["node.unowned", "node.ended"], "{name}");
    }
}

#[tokio::test]
async fn a_node_that_lives_again_is_ended_and_billed_from_where_its_lease_stopped() {
    let site = Site::new(SimProfile::token()).await;
    let node = site.plant(&site.cloud, "ours", "lease-1").await;
    site.clock.advance(10 * MINUTE).await;
    let stopped = site.clock.now();
    let started = site.cloud.truth().node(&node).unwrap().billed_from.unwrap();
    let gone = Evidence::TerminalRead {
        node: node.clone(),
        at: stopped,
        call: "describe".into(),
        stopped_at: Some(stopped),
    };
    let lease = site
        .lease("lease-1", |lease| {
            released(lease);
            lease.node = Some(node.clone());
            lease.evidence = Some(gone);
            lease.meter.start(Some(started), started);
            lease.meter.stop(Some(stopped), stopped);
        })
        .await;
    let (core, sweeper) = site.server();
    tokio::spawn(sweeper.run());
    // A list may lag: right after the end nothing is thought of it.
    site.clock.advance(4 * MINUTE).await;
    assert!(site.strays().await.is_empty());
    site.until(60 * MINUTE, || async {
        let strays = site.strays().await;
        strays.first().is_some_and(|stray| stray.state == StrayState::Ended)
    })
    .await;
    let stray = site.stray(&node).await;
    assert_eq!(stray.cause, StrayCause::Resurrected);
    assert_eq!(core.metrics().read().alerts["node.resurrected"], 1);
    let end = site.cloud.truth().node(&node).unwrap().billed_to.unwrap();
    let owed = u64::try_from(end.as_microsecond() - stopped.as_microsecond()).unwrap();
    let rule = lease.capabilities.metering;
    assert_eq!(site.billed(&node).await.0, rule.billed_micros(owed));
}

#[tokio::test]
async fn what_a_lease_or_a_launch_may_own_is_protected() {
    let site = Site::new(SimProfile::token()).await;
    let node = site.plant(&site.cloud, "ours", "lease-1").await;
    let lease = site
        .lease("lease-1", |lease| {
            lease.state = LeaseState::Unknown;
            lease.next_at = None;
        })
        .await;
    let (_, sweeper) = site.server();
    tokio::spawn(sweeper.run());
    site.clock.advance(60 * MINUTE).await;
    assert_eq!(site.live(), std::slice::from_ref(&node));
    assert!(site.strays().await.is_empty());
    // It turns out to be another lease's node; later its lease has it.
    let stored = site.store.lease(&lease.id).await.unwrap().unwrap();
    let other = NodeId::new("sim-other").unwrap();
    let state = LeaseState::Ready;
    site.put(vec![Row::Lease(runwhere_engine::Lease { state, node: Some(other), ..stored })]).await;
    let (_, sweeper) = site.server();
    sweeper.sweep_now(&sim()).await.unwrap();
    assert_eq!(site.stray(&node).await.cause, StrayCause::Extra);
    let stored = site.store.lease(&lease.id).await.unwrap().unwrap();
    site.put(vec![Row::Lease(runwhere_engine::Lease { node: Some(node.clone()), ..stored })]).await;
    sweeper.sweep_now(&sim()).await.unwrap();
    assert_eq!(site.stray(&node).await.state, StrayState::Cleared);
    assert_eq!(site.live(), [node]);
}

#[tokio::test]
async fn an_incomplete_or_failed_list_proves_no_absence() {
    let site = Site::new(SimProfile::token()).await;
    let orphan = site.plant(&site.cloud, "ours", "lease-none").await;
    let (_, sweeper) = site.server();
    site.clock.advance(MINUTE).await;
    sweeper.sweep_now(&sim()).await.unwrap();
    for outcome in [Outcome::Incomplete, Outcome::Auth, Outcome::Throttle(Some(3 * MINUTE))] {
        for _ in 0..5 {
            site.cloud.script(Verb::Nodes, outcome.clone());
            site.clock.advance(30 * MINUTE).await;
            let swept = sweeper.sweep_now(&sim()).await;
            assert_eq!(swept.is_ok(), outcome == Outcome::Incomplete, "{swept:?}");
            assert_eq!(site.stray(&orphan).await.state, StrayState::Suspected);
        }
    }
    let row = &site.store.sweepers().await.unwrap()[0];
    assert!(row.failures == 10 && row.last_error.is_some());
    assert!(row.next_at >= site.after(3 * MINUTE));
}

#[tokio::test]
async fn one_of_two_servers_sweeps_and_two_at_once_do_no_harm() {
    let site = Site::new(SimProfile::token()).await;
    let orphan = site.plant(&site.cloud, "ours", "lease-none").await;
    site.clock.advance(10 * MINUTE).await;
    let (_, first) = site.server();
    let (_, second) = site.server();
    let slow = Outcome::Delay(MINUTE, Box::new(Outcome::Ok));
    site.cloud.script(Verb::Nodes, slow.clone());
    let busy = {
        let first = first.clone();
        tokio::spawn(async move { first.turn(&sim()).await })
    };
    site.clock.settle().await;
    let refused = second.sweep_now(&sim()).await;
    assert!(matches!(refused, Err(SweepError::Busy(_))), "{refused:?}");
    assert_eq!(site.cloud.calls(Verb::Nodes), 1);
    site.clock.advance(2 * MINUTE).await;
    busy.await.unwrap();
    // A list that takes longer than the lock: another one takes over, and what the first one
    // found is not written.
    let very = Outcome::Delay(100 * Duration::from_secs(1), Box::new(Outcome::Ok));
    site.cloud.script(Verb::Nodes, very);
    let late = {
        let first = first.clone();
        tokio::spawn(async move { first.sweep_now(&sim()).await })
    };
    site.clock.settle().await;
    let mut row = site.store.sweepers().await.unwrap().remove(0);
    row.until = Some(site.clock.now());
    site.put(vec![Row::Sweeper(row)]).await;
    second.sweep_now(&sim()).await.unwrap();
    site.clock.advance(3 * MINUTE).await;
    let late = late.await.unwrap();
    assert!(matches!(late, Err(SweepError::Store(_))), "{late:?}");
    // Both go on for ever; the node is ended once, and proven gone once.
    tokio::spawn(first.run());
    tokio::spawn(second.run());
    site.until(60 * MINUTE, || async { site.stray(&orphan).await.state == StrayState::Ended })
        .await;
    assert!(site.live().is_empty());
    assert_eq!(site.cloud.calls(Verb::Terminate), 1);
}

#[tokio::test]
async fn an_intent_to_end_a_node_outlives_the_server() {
    let site = Site::new(SimProfile::unique_name()).await;
    let orphan = site.plant(&site.cloud, "ours", "lease-none").await;
    site.cloud.script_until(Some(Verb::Terminate), Some(site.after(60 * MINUTE)), Outcome::Auth);
    let (core, sweeper) = site.server();
    let task = tokio::spawn(sweeper.run());
    site.clock.advance(50 * MINUTE).await;
    task.abort();
    let stray = site.stray(&orphan).await;
    assert_eq!(stray.state, StrayState::Ending);
    assert!(stray.last_error.is_some() && stray.alerts >= 2, "{stray:?}");
    // Unattributed: there is no project to write an event for, the row and the log tell.
    assert!(core.metrics().read().alerts.is_empty());
    assert_eq!(site.live(), std::slice::from_ref(&orphan));
    let (_, sweeper) = site.server();
    tokio::spawn(sweeper.run());
    site.until(90 * MINUTE, || async { site.stray(&orphan).await.state == StrayState::Ended })
        .await;
    assert!(site.live().is_empty());
}

#[tokio::test]
async fn after_a_restore_nothing_is_ended_or_launched_before_an_operator_says_so() {
    let site = Site::new(SimProfile::token()).await;
    let orphan = site.plant(&site.cloud, "ours", "lease-none").await;
    let trial = site.submit(1, &site.keys[1]).await;
    let (core, sweeper) = site.server();
    core.hold(true);
    tokio::spawn(core.clone().run());
    tokio::spawn(sweeper.clone().run());
    site.clock.advance(120 * MINUTE).await;
    assert_eq!(site.live(), std::slice::from_ref(&orphan));
    assert_eq!(site.stray(&orphan).await.state, StrayState::Suspected);
    assert_eq!(site.cloud.calls(Verb::Terminate), 0);
    let (waiting, lease) = site.unit(&trial).await;
    assert!(lease.is_none() && waiting.waiting_for.unwrap().contains("operator"));
    let report = sweeper.dry_run(&sim()).await.unwrap();
    assert!(report.held);
    core.hold(false);
    site.until(30 * MINUTE, || async {
        site.stray(&orphan).await.state == StrayState::Ended && site.unit(&trial).await.1.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let site = Site::new(SimProfile::token()).await;
    let orphan = site.plant(&site.cloud, "ours", "lease-none").await;
    site.clock.advance(60 * MINUTE).await;
    let (_, sweeper) = site.server();
    for _ in 0..3 {
        let report = sweeper.dry_run(&sim()).await.unwrap();
        assert_eq!(report.findings.len(), 1);
        assert_eq!(report.findings[0].node, orphan);
        site.clock.advance(10 * MINUTE).await;
    }
    assert!(site.strays().await.is_empty());
    assert!(site.store.sweepers().await.unwrap().is_empty());
    assert_eq!(site.live(), [orphan]);
}

#[tokio::test]
async fn surplus_nodes_are_billed_to_the_job_that_got_them() {
    for profile in [SimProfile::token(), SimProfile::label_only()] {
        let (name, times) = (profile.name, profile.capabilities.states_times);
        let site = Site::new(profile).await;
        site.cloud.script(Verb::Launch, Outcome::Surplus(1));
        // Its end is refused for a while: it runs, and is billed.
        site.cloud.script_until(
            Some(Verb::Terminate),
            Some(site.after(20 * MINUTE)),
            Outcome::Auth,
        );
        let trial = site.submit(1, &site.keys[1]).await;
        let (core, sweeper) = site.server();
        tokio::spawn(core.clone().run());
        tokio::spawn(sweeper.run());
        site.clock.advance(5 * MINUTE).await;
        core.step(&trial, false, |unit, context| unit.stop(context)).await.unwrap();
        site.until(120 * MINUTE, || async { site.unit(&trial).await.0.cleanup_confirmed }).await;
        assert!(site.live().is_empty(), "{name}");
        let (row, lease) = site.unit(&trial).await;
        let lease = lease.unwrap();
        let truth = site.cloud.truth();
        let surplus = truth.nodes.iter().find(|node| Some(&node.node) != lease.node.as_ref());
        let surplus = &surplus.unwrap().node;
        let (micros, cost) = site.billed(surplus).await;
        assert!(micros > 0, "{name}");
        match times {
            true => assert_eq!(micros, truth.meter_micros(surplus), "{name}"),
            false => assert!(micros.abs_diff(truth.meter_micros(surplus)) <= 180_000_000),
        }
        assert_eq!((row.past_billed_micros, row.past_amounts), (micros, vec![cost]));
        let own = site.billed(lease.node.as_ref().unwrap()).await.1;
        let budget = site.store.budget(&project()).await.unwrap().unwrap();
        assert_eq!(budget.spent, cost.checked_add(own).unwrap().amount, "{name}");
        assert!(budget.reserved.is_empty());
        assert!(site.cloud.capabilities().settle > Duration::ZERO);
    }
}

#[tokio::test]
async fn a_list_that_shows_what_a_lost_launch_made_answers_for_it() {
    let site = Site::new(SimProfile::label_only()).await;
    let trial = site.submit(1, &site.keys[1]).await;
    site.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
    // Whoever asks for the lease's own nodes is told of none.
    site.cloud.script_until(Some(Verb::Find), None, Outcome::Gap);
    let (core, sweeper) = site.server();
    tokio::spawn(core.run());
    site.until(MINUTE, || async {
        site.unit(&trial).await.1.is_some_and(|lease| lease.state == LeaseState::Unknown)
    })
    .await;
    // Its label is shown after a while only.
    site.clock.advance(MINUTE).await;
    assert_eq!(site.unit(&trial).await.1.unwrap().state, LeaseState::Unknown);
    sweeper.sweep_now(&sim()).await.unwrap();
    let lease = site.unit(&trial).await.1.unwrap();
    assert_eq!((lease.state, lease.node), (LeaseState::Booting, Some(site.live()[0].clone())));
    assert_eq!(site.cloud.calls(Verb::Launch), 1);
}
