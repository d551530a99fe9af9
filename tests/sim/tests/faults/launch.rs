//! Faults 1 to 9: a launch whose outcome is open.

use runwhere_broker::api::runwhere::JobService as _;
use runwhere_engine::{EndReason, Evidence, LeaseState, TrialState};
use runwhere_model::{Deadman, ErrorKind, MeterStart, NodePhase};
use runwhere_providers::Clock as _;
use runwhere_providers::testing::{Outcome, SimProfile, Verb};
use tokio::task::JoinHandle;

use super::agent::gpus_ready;
use super::spy::Hang;
use super::world::{World, caller, seconds, states_ends, usd};

/// Kinds of clouds that are told apart by how a lost launch is found again.
fn clouds() -> Vec<SimProfile> {
    SimProfile::all()
}

#[test]
fn fault_01_crash_before_the_launch_call() {
    for profile in clouds() {
        let (settle, reads_wanted) =
            (profile.capabilities.settle, profile.capabilities.absent_reads as usize);
        let mut world = World::new(profile);
        world.spy.hang(Verb::Launch, Hang::Before);
        let trial = world.submit();
        world.until(seconds(60), "the launch", |world| world.spy.hangs());
        assert_eq!(world.lease_state(&trial), Some(LeaseState::Launching));
        world.kill();
        assert!(world.truth().nodes.is_empty());
        let killed = world.clock.now();
        world.start();
        let agent = world.running(&trial);
        assert_eq!(world.truth().nodes.len(), 1);
        // Nobody knew whether the call had been made: another one only when it is certain.
        let requests = world.spy.requests();
        assert_eq!(requests.len(), 2);
        assert_ne!(requests[0].token, requests[1].token);
        assert!(world.truth().launched_at[0].duration_since(killed).unsigned_abs() >= settle);
        let first = world.trial(&trial).evidence[0].clone();
        assert!(
            matches!(&first, Evidence::FoundNothing { reads } if reads.len() >= reads_wanted),
            "{first:?}"
        );
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_02_crash_after_the_cloud_accepted() {
    for profile in clouds() {
        let mut world = World::new(profile);
        world.spy.hang(Verb::Launch, Hang::After);
        let trial = world.submit();
        world.until(seconds(60), "the launch", |world| world.spy.hangs());
        world.kill();
        let made = world.live();
        assert_eq!(made.len(), 1);
        assert_eq!(world.lease(&trial).node, None);
        world.start();
        let agent = world.running(&trial);
        assert_eq!(agent.node(), made[0]);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.truth().nodes.len(), 1);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_03_launch_times_out_and_the_node_exists() {
    for profile in clouds() {
        let mut world = World::new(profile);
        world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
        let trial = world.submit();
        world.until(seconds(60), "an unknown launch", |world| {
            world.lease_state(&trial) == Some(LeaseState::Unknown)
        });
        let made = world.live();
        let agent = world.running(&trial);
        assert_eq!(world.cloud.calls(Verb::Launch), 1);
        assert_eq!(vec![agent.node()], made);
        world.finish(&agent, 0);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_04_launch_times_out_and_nothing_was_made() {
    for profile in clouds() {
        let settle = profile.capabilities.settle;
        let mut world = World::new(profile);
        world.cloud.script(Verb::Launch, Outcome::NotDoneReplyLost);
        let trial = world.submit();
        let agent = world.running(&trial);
        let launches = world.truth().launched_at;
        assert_eq!(launches.len(), 2);
        assert!(launches[1].duration_since(launches[0]).unsigned_abs() >= settle);
        world.finish(&agent, 0);
        world.clean(&trial);
        let evidence = world.trial(&trial).evidence;
        assert!(matches!(&evidence[0], Evidence::FoundNothing { reads } if reads.len() >= 3));
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_05_launch_error_that_brings_a_node() {
    let mut world = World::new(SimProfile::error_with_node());
    world.cloud.set_stock(&world.offer(), 0);
    let trial = world.submit();
    world.until(seconds(60), "a left node", |world| world.truth().nodes.len() == 1);
    let left = world.truth().nodes[0].node.clone();
    world.until(seconds(600), "its end", |world| world.live().is_empty());
    world.until(seconds(600), "the proof", |world| {
        world.lease_state(&trial).is_some_and(LeaseState::is_terminal)
    });
    let proof = world.trial(&trial).evidence;
    let ended = |one: &Evidence| match one {
        Evidence::TerminalRead { node, .. } | Evidence::AbsentReads { node, .. } => *node == left,
        _ => false,
    };
    assert!(proof.iter().any(ended), "{proof:#?}");
    world.cloud.set_stock(&world.offer(), 1);
    let agent = world.running(&trial);
    world.finish(&agent, 0);
    world.clean(&trial);
    world.assert_clean(&trial);
    // An error of another kind that brings a node ends the trial; the node is ended all the same.
    world.cloud.script(Verb::Launch, Outcome::FailedButDone(ErrorKind::Balance));
    let trial = world.submit();
    world.clean(&trial);
    assert!(matches!(world.end_reason(&trial), EndReason::LaunchRefused { .. }));
    world.assert_clean(&trial);
}

#[test]
fn fault_06_a_launch_is_never_repeated_by_a_lower_layer() {
    for outcome in [
        Outcome::DoneReplyLost,
        Outcome::NotDoneReplyLost,
        Outcome::FailedNotDone(ErrorKind::Transient),
        Outcome::Throttle(None),
        Outcome::Delay(seconds(500), Box::new(Outcome::Ok)),
    ] {
        let mut world = World::new(SimProfile::label_only());
        world.cloud.script(Verb::Launch, outcome);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.finish(&agent, 0);
        world.clean(&trial);
        let tokens: Vec<_> = world.spy.requests().into_iter().map(|one| one.token).collect();
        let mut distinct = tokens.clone();
        distinct.dedup();
        assert_eq!(tokens, distinct);
        assert_eq!(world.cloud.calls(Verb::Launch), tokens.len() as u64);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_07_a_submit_delivered_twice() {
    let world = World::new(SimProfile::token());
    let mut request = world.request("twice");
    request.idempotency_key = Some("the-key".into());
    request.request_sha256 = "same".into();
    // Both at once, and once more later.
    let submit = || -> JoinHandle<_> {
        let (jobs, request) = (world.broker().jobs.clone(), request.clone());
        world.spawn(async move { jobs.submit(&caller(), request).await.unwrap() })
    };
    let (one, two) = (submit(), submit());
    let (one, two) = (world.run(one).unwrap(), world.run(two).unwrap());
    world.pass(seconds(120));
    let three = world.try_submit(request).unwrap();
    let ids = [&one, &two, &three].map(|submitted| submitted.report.view.job.id.clone());
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
    assert_eq!([one.repeated, two.repeated, three.repeated].iter().filter(|r| **r).count(), 2);
    assert_eq!((world.truth().nodes.len(), world.trials().len()), (1, 1));
}

#[test]
fn fault_08_the_tokens_node_has_ended() {
    let mut world = World::new(SimProfile::token());
    world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
    let until = world.at(45);
    let fails = Outcome::FailedNotDone(ErrorKind::Transient);
    world.cloud.script_until(Some(Verb::Find), Some(until), fails);
    let trial = world.submit();
    world.until(seconds(60), "an unknown launch", |world| !world.live().is_empty());
    // Nobody has seen it when it ends; it has run, and been billed, for a while.
    let first = world.live()[0].clone();
    let runs = |world: &World| world.truth().node(&first).map(|node| node.phase);
    world.until(seconds(60), "a running node", |world| runs(world) == Some(NodePhase::Running));
    world.pass(seconds(1));
    assert_eq!(world.lease_state(&trial), Some(LeaseState::Unknown));
    world.cloud.lose(&first);
    let agent = world.running(&trial);
    let requests = world.spy.requests();
    assert_eq!(requests.len(), 2);
    assert_ne!(requests[0].token, requests[1].token);
    assert_eq!(world.truth().launches_of(&requests[0].token), 1);
    // It was: its end is what is proven, not that nothing was made, and its time is on the bill.
    let proof = world.trial(&trial).evidence[0].clone();
    assert!(matches!(&proof, Evidence::TerminalRead { node, .. } if *node == first), "{proof:?}");
    world.finish(&agent, 0);
    world.clean(&trial);
    assert!(world.truth().meter_micros(&first) > 0);
    assert_eq!(world.charged(&trial), world.metered());
    world.assert_clean(&trial);
}

#[test]
fn fault_09_the_offer_changes_while_a_launch_is_unknown() {
    for price in [usd(299), usd(350)] {
        let mut world = World::new(SimProfile::token());
        let offer = world.offer();
        world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
        let trial = world.submit();
        world.until(seconds(60), "an unknown launch", |world| !world.live().is_empty());
        world.cloud.set_price(&offer, Some(price));
        world.prices.set_price(&offer, price);
        // The token is not sent again with other parameters: the node it made is looked up and
        // kept, at its own price, also where a launch would be too dear now.
        let agent = world.running(&trial);
        assert_eq!(world.spy.requests().len(), 1);
        assert_eq!(world.lease(&trial).price.price, usd(310));
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn every_kind_of_cloud_is_among_the_profiles() {
    let has = |wanted: &dyn Fn(&SimProfile) -> bool| clouds().iter().any(wanted);
    assert!(has(&|one| one.capacity_shows_later));
    assert!(has(&|one| one.refusal_makes_node));
    assert!(has(&|one| one.ignores_token));
    assert!(has(&|one| one.ignores_end_time && one.capabilities.deadman == Deadman::Cloud));
    assert!(has(&|one| one.capabilities.minimum_reservation.is_some()));
    assert!(has(&|one| one.capabilities.metering.start == MeterStart::Requested));
    assert!(has(&|one| one.reclaim_stops));
    assert!(has(&|one| one.paging.is_some()));
    assert!(has(&|one| !one.clock_ahead.is_zero()));
}

#[test]
fn a_submit_with_a_gpu_that_is_ready_runs_once() {
    for profile in clouds() {
        let exact = states_ends(&profile);
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.pass(seconds(4000));
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        let estimated = world.segments(&trial).iter().any(|one| one.estimated);
        assert_eq!(estimated, !exact);
        if exact {
            assert_eq!(world.charged(&trial), world.metered());
        }
        // A repeated "ready" changes nothing.
        assert!(world.say(&agent, gpus_ready()).is_err(), "fenced");
        world.assert_clean(&trial);
    }
}
