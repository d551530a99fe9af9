//! Faults 1 to 20: from the intent to a node that works.

use runwhere_agent::protocol::EventKind;
use runwhere_engine::{EndReason, Evidence, LeaseState, TrialState};
use runwhere_model::{BlockScope, Deadman, ErrorKind, MeterStart, NodePhase};
use runwhere_providers::Clock as _;
use runwhere_providers::testing::{Outcome, SimProfile, Verb};
use tokio::task::JoinHandle;

use super::agent::{booted, gpus_ready};
use super::spy::Hang;
use super::world::{World, caller, seconds, states_ends, usd};
use runwhere_broker::api::agent::AgentRefusal;
use runwhere_broker::api::runwhere::JobService as _;

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
fn fault_10_no_stock_is_typed_bounded_and_asked_for_rarely() {
    let asked = |trials: usize| {
        let mut world = World::new(SimProfile::token());
        world.policy.queue_limit = seconds(900);
        world.restart();
        world.cloud.set_stock(&world.offer(), 0);
        let trials: Vec<_> = (0..trials).map(|_| world.submit()).collect();
        for trial in &trials {
            world.until(seconds(1800), "the end", |world| world.state(trial).is_terminal());
            let EndReason::NoCapacity { detail } = world.end_reason(trial) else {
                panic!("{:?}", world.end_reason(trial));
            };
            assert!(detail.contains(&world.offer().to_string()), "{detail}");
            assert!(detail.contains("capacity") && detail.contains("none left"), "{detail}");
            let refusals = world.trial(trial).refusals;
            assert_eq!(refusals[0].kind, ErrorKind::Capacity);
            world.assert_clean(trial);
        }
        world.cloud.calls(Verb::Launch)
    };
    let alone = asked(1);
    assert!((8..=25).contains(&alone), "{alone}");
    // Ten that want the same do not ask ten times as often.
    let ten = asked(10);
    assert!(ten <= alone * 4, "{ten} against {alone}");
}

#[test]
fn fault_11_a_quota_blocks_its_scope_and_is_shown() {
    let mut world = World::new(SimProfile::token());
    let refused = Outcome::Refused(ErrorKind::Quota, BlockScope::Region, None);
    world.cloud.script_until(Some(Verb::Launch), None, refused);
    let trial = world.submit();
    world.pass(seconds(3600));
    let calls = world.cloud.calls(Verb::Launch);
    assert!((2..=12).contains(&calls), "{calls} in an hour");
    let row = world.trial(&trial);
    assert!(row.waiting_for.unwrap().starts_with("quota"), "shown to the user");
    assert_eq!(row.refusals[0].kind, ErrorKind::Quota);
    // The same region is not asked for something else; another region is.
    let mut east = world.request("east");
    east.offer_key = Some(world.cloud.keys()[0].to_string());
    east.yaml = east.yaml.replace("gpuNum: 1", "gpuNum: 8");
    let before = world.cloud.calls(Verb::Launch);
    let east = world.submit_as(east);
    world.pass(seconds(5));
    assert_eq!(world.cloud.calls(Verb::Launch), before);
    let mut west = world.request("west");
    west.offer_key = Some(world.cloud.keys()[2].to_string());
    world.cloud.heal();
    let west = world.submit_as(west);
    world.pass(seconds(5));
    assert_eq!(world.cloud.calls(Verb::Launch), before + 1);
    // And a stop ends the wait.
    let trials = [trial, east, west];
    for trial in &trials {
        world.stop(trial);
        world.clean(trial);
        assert_eq!(world.state(trial), TrialState::Cancelled);
    }
    world.assert_clean(&trials[0]);
}

#[test]
fn fault_12_throttled_launches_wait_and_releases_do_not() {
    let mut world = World::new(SimProfile::token());
    let first = world.submit();
    let agent = world.running(&first);
    world.cloud.script(Verb::Launch, Outcome::Throttle(Some(seconds(300))));
    let second = world.submit();
    world.pass(seconds(10));
    let third = world.submit();
    let throttled = *world.truth().launched_at.last().unwrap();
    let terminates = world.cloud.calls(Verb::Terminate);
    world.finish(&agent, 0);
    world.pass(seconds(60));
    assert!(world.cloud.calls(Verb::Terminate) > terminates, "the release goes on");
    assert_eq!(*world.truth().launched_at.last().unwrap(), throttled);
    let agents = [world.running(&second), world.running(&third)];
    let next = world.truth().launched_at.into_iter().find(|at| *at > throttled).unwrap();
    assert!(next.duration_since(throttled).as_secs() >= 300, "Retry-After is honoured by all");
    for agent in &agents {
        world.finish(agent, 0);
    }
    for trial in [&first, &second, &third] {
        world.clean(trial);
    }
    world.assert_clean(&first);
}

#[test]
fn fault_13_refused_credentials_fail_at_once_and_do_not_cascade() {
    let mut world = World::new(SimProfile::token());
    world.cloud.script_until(Some(Verb::Launch), None, Outcome::Auth);
    let mut trials = Vec::new();
    for _ in 0..25 {
        trials.push(world.submit());
        world.pass(seconds(1));
    }
    for trial in &trials {
        let EndReason::LaunchRefused { detail } = world.end_reason(trial) else {
            panic!("{:?}", world.end_reason(trial));
        };
        assert!(detail.starts_with("auth"), "{detail}");
        world.assert_clean(trial);
    }
    assert_eq!(world.cloud.calls(Verb::Launch), 1);
    // Once they are accepted again, so are launches, without a restart.
    world.cloud.heal();
    world.pass(seconds(120));
    let trial = world.submit();
    let agent = world.running(&trial);
    world.finish(&agent, 0);
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn fault_14_an_accepted_launch_dies_for_want_of_capacity() {
    for profile in [SimProfile::unique_name(), SimProfile::token(), SimProfile::token_billed_stop()]
    {
        let mut world = World::new(profile);
        // More often than a node may fail: stock is no fault of a node.
        for _ in 0..5 {
            world.cloud.script(Verb::Launch, Outcome::CapacityLater);
        }
        let trial = world.submit();
        world.until(seconds(7200), "five tries", |world| world.truth().nodes.len() == 5);
        world.until(seconds(600), "their end", |world| {
            world.lease_state(&trial).is_some_and(LeaseState::is_terminal)
        });
        assert_eq!((world.metered(), world.charged(&trial)), (0, 0));
        let row = world.trial(&trial);
        assert_eq!(row.state, TrialState::Queued, "{row:#?}");
        assert_eq!(row.refusals[0].kind, ErrorKind::Capacity);
        let agent = world.running(&trial);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.charged(&trial), world.metered());
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_16_more_nodes_than_asked_for() {
    for profile in clouds() {
        let reserved = profile.capabilities.minimum_reservation.is_some();
        let mut world = World::new(profile);
        world.cloud.script(Verb::Launch, Outcome::Surplus(2));
        let trial = world.submit();
        let node = world.node(&trial);
        assert_eq!(world.truth().nodes.len(), 3);
        if reserved {
            // They cannot be ended for an hour; the program does not wait for that.
            let agent = world.running(&trial);
            assert_eq!((agent.node(), world.live().len()), (node, 3));
            world.pass(seconds(60));
            assert_eq!(world.lease(&trial).surplus.len(), 2);
            world.finish(&agent, 0);
            world.clean(&trial);
            assert_eq!(world.state(&trial), TrialState::Succeeded);
            world.assert_clean(&trial);
            continue;
        }
        // The wanted one stays while the others are ended; then its agent is let in.
        world.until(seconds(900), "one node", |world| world.live().len() == 1);
        assert_eq!(world.live(), vec![node]);
        world.until(seconds(900), "the proof", |world| world.lease(&trial).surplus.is_empty());
        let agent = world.running(&trial);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_16_only_the_wanted_node_of_several_gets_the_session() {
    // Whichever agent comes first, and though the others live on for an hour or are slow to end.
    let slow = SimProfile::token();
    for profile in [SimProfile::minimum_reservation(), slow] {
        let mut world = World::new(profile);
        let until = world.at(3000);
        world.cloud.script_until(Some(Verb::Terminate), Some(until), Outcome::AckButLives);
        world.cloud.script(Verb::Launch, Outcome::Surplus(1));
        let trial = world.submit();
        let wanted = world.node(&trial);
        let other = world.live().into_iter().find(|node| *node != wanted).unwrap();
        let other = world.agent_with_key(&trial, &other, "the other's key");
        assert_eq!(world.join(&other), Err(AgentRefusal::Gone));
        let agent = world.running(&trial);
        assert_eq!(agent.node(), wanted);
        assert!(!world.lease(&trial).surplus.is_empty());
        world.pass(seconds(900));
        assert_eq!(world.state(&trial), TrialState::Running);
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_16_a_node_that_cannot_name_itself_is_not_too_late() {
    // Nobody can tell which of the two asks before the other one is gone. That takes longer than
    // a node may take for booting, and is not the node's fault.
    let mut world = World::new(SimProfile::minimum_reservation());
    world.cloud.script(Verb::Launch, Outcome::Surplus(1));
    let trial = world.submit();
    let wanted = world.node(&trial);
    let agent = world.agent(&trial, &wanted).nameless();
    assert!(matches!(world.join(&agent), Err(AgentRefusal::NotYet(_))));
    world.until(seconds(2 * 3600), "one node", |world| world.lease(&trial).surplus.is_empty());
    assert_eq!(world.lease_state(&trial), Some(LeaseState::Booting));
    assert_eq!(world.live(), vec![wanted]);
    world.join(&agent).unwrap();
    world.stay(&agent);
    for kind in [booted(), gpus_ready(), super::agent::started()] {
        world.say(&agent, kind).unwrap();
    }
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    assert_eq!(world.cloud.calls(Verb::Launch), 1);
    world.assert_clean(&trial);
    // One that comes no more once it could is late all the same.
    world.cloud.script(Verb::Launch, Outcome::Surplus(1));
    let trial = world.submit();
    let wanted = world.node(&trial);
    let agent = world.agent(&trial, &wanted).nameless();
    assert!(world.join(&agent).is_err());
    world.until(seconds(3 * 3600), "another node", |world| {
        world.lease(&trial).node.as_ref().is_some_and(|node| *node != wanted)
    });
    world.stop(&trial);
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn fault_16_an_agent_that_is_quicker_than_the_launchs_answer() {
    // The first to come is of the node that the answer calls surplus: it is the wanted one then.
    let mut world = World::new(SimProfile::token());
    let answer = Outcome::Delay(seconds(60), Box::new(Outcome::Surplus(1)));
    world.cloud.script(Verb::Launch, answer);
    let trial = world.submit();
    world.pass(seconds(30));
    assert_eq!(world.lease(&trial).node, None);
    let second = world.live()[1].clone();
    let agent = world.agent(&trial, &second);
    world.join(&agent).unwrap();
    world.stay(&agent);
    for kind in [booted(), gpus_ready(), super::agent::started()] {
        world.say(&agent, kind).unwrap();
    }
    world.pass(seconds(60));
    assert_eq!(world.lease(&trial).node, Some(second.clone()));
    world.until(seconds(600), "one node", |world| world.live().len() == 1);
    assert_eq!(world.live(), vec![second]);
    assert_eq!(world.state(&trial), TrialState::Running);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    assert_eq!(world.charged(&trial), world.metered());
    world.assert_clean(&trial);
}

#[test]
fn fault_17_the_price_rises_before_the_launch() {
    let mut world = World::new(SimProfile::token());
    let offer = world.offer();
    world.cloud.set_stock(&offer, 0);
    let trial = world.submit();
    world.until(seconds(60), "the wait", |world| world.trial(&trial).waiting_for.is_some());
    let calls = world.cloud.calls(Verb::Launch);
    world.cloud.set_stock(&offer, 8);
    world.cloud.set_price(&offer, Some(usd(311)));
    world.prices.set_price(&offer, usd(311));
    world.clean(&trial);
    assert_eq!(world.end_reason(&trial), EndReason::PriceChanged);
    assert_eq!(world.cloud.calls(Verb::Launch), calls);
    assert!(world.truth().nodes.is_empty());
    world.assert_clean(&trial);
}

#[test]
fn fault_18_a_node_with_broken_gpus() {
    for profile in [SimProfile::token(), SimProfile::forgotten_end()] {
        let mut world = World::new(profile);
        let trial = world.submit();
        let mut nodes = Vec::new();
        for broken in 0..2 {
            let node = world.node(&trial);
            assert!(!nodes.contains(&node), "another node");
            let agent = world.agent(&trial, &node);
            world.join(&agent).unwrap();
            world.say(&agent, booted()).unwrap();
            let failed = EventKind::Failed {
                stage: "gpu".into(),
                reason: "1 x A100 wanted, the driver shows 0".into(),
            };
            world.say(&agent, failed).unwrap();
            let row = world.trial(&trial);
            assert_eq!((row.state, row.started_at), (TrialState::Provisioning, None));
            assert_eq!(row.node_failures, broken + 1);
            world.until(seconds(1800), "its end", |world| world.live().is_empty());
            nodes.push(node);
        }
        let agent = world.running(&trial);
        assert!(!nodes.contains(&agent.node()));
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_19_an_agent_that_never_connects() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let first = world.node(&trial);
    // Another node after the time for booting, while the mute one's time is on the bill.
    world.until(seconds(1800), "another node", |world| world.truth().nodes.len() == 2);
    let launches = world.truth().launched_at;
    assert!(launches[1].duration_since(launches[0]).as_secs() >= 600);
    assert_eq!(world.truth().node(&first).map(|node| node.live), Some(false));
    assert_eq!(world.charged(&trial), world.truth().meter_micros(&first));
    let agent = world.running(&trial);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    assert_eq!(world.charged(&trial), world.metered());
    world.assert_clean(&trial);
    // Not for ever: the third mute node is the last.
    let trial = world.submit();
    world.until(seconds(4 * 3600), "the end", |world| world.state(&trial).is_terminal());
    assert!(matches!(world.end_reason(&trial), EndReason::NodeFailed { .. }));
    world.clean(&trial);
    assert_eq!(world.truth().nodes.len(), 5);
    world.assert_clean(&trial);
}

#[test]
fn fault_19_an_agent_that_is_too_late_gets_no_acknowledgement() {
    // It runs nothing before its "ready" is acknowledged, so another node may have the program;
    // from then on no word of it may be.
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let node = world.node(&trial);
    let late = world.agent(&trial, &node);
    world.join(&late).unwrap();
    let until = world.at(1200);
    world.cloud.script_until(Some(Verb::Terminate), Some(until), Outcome::AckButLives);
    world.until(seconds(1800), "the release", |world| {
        world.lease_state(&trial) == Some(LeaseState::Releasing)
    });
    assert!(world.say(&late, booted()).is_err());
    assert!(world.say(&late, gpus_ready()).is_err());
    assert_eq!(world.state(&trial), TrialState::Provisioning);
    let agent = world.running(&trial);
    assert_ne!(agent.node(), node);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_19_a_program_that_ran_on_a_node_given_up_is_not_run_again() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let node = world.node(&trial);
    let late = world.agent(&trial, &node);
    world.join(&late).unwrap();
    let until = world.at(1200);
    world.cloud.script_until(Some(Verb::Terminate), Some(until), Outcome::AckButLives);
    world.until(seconds(1800), "the release", |world| {
        world.lease_state(&trial) == Some(LeaseState::Releasing)
    });
    assert_eq!(world.say(&late, super::agent::started()), Ok(()));
    assert_eq!(world.state(&trial), TrialState::Lost);
    world.clean(&trial);
    world.pass(seconds(1800));
    assert_eq!(world.truth().nodes.len(), 1);
    world.assert_clean(&trial);
}

#[test]
fn fault_20_a_listing_that_fails_or_breaks_off_is_no_absence() {
    for outcome in [Outcome::FailedNotDone(ErrorKind::Transient), Outcome::Incomplete] {
        let mut world = World::new(SimProfile::label_only());
        let until = world.at(3600);
        world.cloud.script_until(Some(Verb::Find), Some(until), outcome);
        world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
        let trial = world.submit();
        world.pass(seconds(3500));
        assert_eq!(world.lease_state(&trial), Some(LeaseState::Unknown));
        assert_eq!((world.cloud.calls(Verb::Launch), world.live().len()), (1, 1));
        let agent = world.running(&trial);
        world.finish(&agent, 0);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
    // The same while a node runs whose agent is out of sight for a moment.
    let mut world = World::new(SimProfile::unique_name());
    let trial = world.submit();
    let agent = world.running(&trial);
    let until = world.at(500);
    world.cloud.script_until(None, Some(until), Outcome::FailedNotDone(ErrorKind::Transient));
    world.cut(&agent);
    world.pass(seconds(400));
    assert_eq!(world.state(&trial), TrialState::Running);
    world.stay(&agent);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
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
