//! Faults 44 to 60: the way to a proven end.

use runwhere_agent::protocol::{Desired, ExitReason};
use runwhere_broker::api::runwhere::{JobService as _, Refusal};
use runwhere_broker::driver::Sweeper;
use runwhere_engine::{EndReason, Evidence, LeaseState, TrialState};
use runwhere_model::{DeploymentId, ErrorKind, NodePhase};
use runwhere_providers::testing::{Outcome, SimProfile, Verb};
use runwhere_providers::{Clock as _, Provider as _};

use super::agent::{ending, exited, killed};
use super::spy::Hang;
use super::world::{World, caller, seconds, states_ends};

#[test]
fn fault_44_cancel_before_the_launch() {
    let mut world = World::new(SimProfile::token());
    world.cloud.set_stock(&world.offer(), 0);
    let trial = world.submit();
    world.until(seconds(60), "the wait", |world| world.trial(&trial).waiting_for.is_some());
    let calls = world.cloud.calls(Verb::Launch);
    world.cloud.set_stock(&world.offer(), 8);
    world.stop(&trial);
    assert_eq!(world.state(&trial), TrialState::Cancelled);
    world.pass(seconds(600));
    assert_eq!(world.cloud.calls(Verb::Launch), calls);
    assert!(world.truth().nodes.is_empty());
    assert!(matches!(world.trial(&trial).evidence.last(), Some(Evidence::Refused { .. })));
    world.assert_clean(&trial);
    // Between the accepted submit and the first look at it.
    let request = world.request("at-once");
    let jobs = world.broker().jobs.clone();
    let trial = world.run(async move {
        let submitted = jobs.submit(&caller(), request).await.unwrap();
        let trial = submitted.report.view.trials[0].0.clone();
        jobs.stop(&caller(), trial.job.as_str()).await.unwrap();
        trial.id
    });
    world.pass(seconds(600));
    assert_eq!(world.state(&trial), TrialState::Cancelled);
    assert_eq!(world.cloud.calls(Verb::Launch), calls);
    assert!(matches!(world.trial(&trial).evidence[..], [Evidence::NothingLaunched { .. }]));
    world.assert_clean(&trial);
}

#[test]
fn fault_45_cancel_while_the_launch_is_under_way() {
    for then in [Outcome::Ok, Outcome::DoneReplyLost, Outcome::NotDoneReplyLost] {
        for profile in SimProfile::all() {
            let mut world = World::new(profile);
            let outcome = Outcome::Delay(seconds(50), Box::new(then.clone()));
            world.cloud.script(Verb::Launch, outcome);
            let trial = world.submit();
            world.pass(seconds(10));
            assert_eq!(world.lease_state(&trial), Some(LeaseState::Launching));
            world.stop(&trial);
            let row = world.trial(&trial);
            assert_eq!((row.state, row.cleanup_confirmed), (TrialState::Cancelled, false));
            world.clean(&trial);
            assert_eq!(world.cloud.calls(Verb::Launch), 1);
            world.assert_clean(&trial);
        }
    }
}

#[test]
fn fault_46_cancel_wins_over_a_pending_relaunch() {
    for profile in SimProfile::all() {
        let mut world = World::new(profile);
        world.cloud.script(Verb::Launch, Outcome::NotDoneReplyLost);
        let trial = world.submit();
        world.until(seconds(60), "an unknown launch", |world| {
            world.lease_state(&trial) == Some(LeaseState::Unknown)
        });
        world.stop(&trial);
        let row = world.trial(&trial);
        assert_eq!((row.state, row.cleanup_confirmed), (TrialState::Cancelled, false));
        world.clean(&trial);
        world.pass(seconds(1800));
        assert_eq!(world.cloud.calls(Verb::Launch), 1);
        assert_eq!(world.state(&trial), TrialState::Cancelled);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_47_cancel_twice_and_cancel_against_the_end() {
    // Twice at once: one end, the same answer.
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    let (one, two) = (world.stop(&trial), world.stop(&trial));
    world.say(&agent, killed(15, Some(ExitReason::Stopped))).unwrap();
    for kind in ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.pass(seconds(60));
    let answers = [world.run(one), world.run(two)].map(|answer| {
        let trial = answer.unwrap().unwrap().view.trials[0].0.clone();
        (trial.state, trial.end_reason)
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].0, TrialState::Cancelled);
    let asked = world.events(&trial);
    let asked = asked.iter().filter(|event| event.kind == "trial.end_wanted").count();
    assert_eq!(asked, 1);
    world.clean(&trial);
    world.assert_clean(&trial);
    // After the end: the end stays, and nothing is asked for any more.
    let trial = world.submit();
    let agent = world.running(&trial);
    world.finish(&agent, 0);
    world.stop(&trial);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    assert!(!world.has_event(&trial, "trial.end_wanted"));
    // Before a launch is answered, with what would have been another end: the first one stays.
    let refused = Outcome::FailedNotDone(ErrorKind::Invalid);
    world.cloud.script(Verb::Launch, Outcome::Delay(seconds(50), Box::new(refused)));
    let trial = world.submit();
    world.pass(seconds(10));
    let stop = world.stop(&trial);
    assert_eq!(world.state(&trial), TrialState::Cancelled);
    world.clean(&trial);
    assert_eq!(world.end_reason(&trial), EndReason::Stopped);
    assert_eq!(world.trial(&trial).refusals.len(), 0, "it is no news for a trial that has ended");
    let told = world.run(stop).unwrap().unwrap().view.trials[0].0.clone();
    assert_eq!((told.state, told.end_reason), (TrialState::Cancelled, Some(EndReason::Stopped)));
    // Wanted, but the program was quicker: its own end counts.
    let trial = world.submit();
    let agent = world.running(&trial);
    world.stop(&trial);
    world.say(&agent, exited(0)).unwrap();
    for kind in ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_48_delete_while_it_runs() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    world.running(&trial);
    let id = world.trial(&trial).job.to_string();
    let jobs = world.broker().jobs.clone();
    let refused = world.run(async { jobs.delete(&caller(), &id, false).await });
    assert!(matches!(refused, Err(Refusal::Conflict { .. })));
    // Forced: it is stopped; the release, which fails for long, goes on after the answer.
    let until = world.at(3600);
    let fails = Outcome::FailedNotDone(ErrorKind::Transient);
    world.cloud.script_until(Some(Verb::Terminate), Some(until), fails);
    let (jobs, target) = (world.broker().jobs.clone(), id.clone());
    let delete = world.spawn(async move { jobs.delete(&caller(), &target, true).await });
    world.pass(seconds(1800));
    let deleted = world.run(delete).unwrap().unwrap();
    assert!(deleted.stopping && deleted.jobs.len() == 1);
    let jobs = world.broker().jobs.clone();
    let hidden = world.run(async { jobs.job(&caller(), &id).await });
    assert!(matches!(hidden, Err(Refusal::NotFound)));
    assert!(!world.trial(&trial).cleanup_confirmed, "the row stays until it is proven");
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn fault_49_resume_after_a_stop() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    let job = world.trial(&trial).job.to_string();
    assert!(matches!(world.resume(&job), Err(Refusal::Conflict { .. })), "while it runs");
    world.stop(&trial);
    world.say(&agent, killed(15, Some(ExitReason::Stopped))).unwrap();
    for kind in ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    // Without capacity it waits and says so; it is never shown as running.
    world.cloud.set_stock(&world.offer(), 0);
    let resumed = world.resume(&job).unwrap();
    let next = resumed.report.view.trials[0].0.id.clone();
    assert_eq!(resumed.report.view.job.resumed.unwrap().trial, trial, "bound to the same data");
    world.pass(seconds(600));
    let row = world.trial(&next);
    assert_eq!((row.state, row.started_at), (TrialState::Queued, None));
    assert!(row.waiting_for.is_some());
    world.cloud.set_stock(&world.offer(), 8);
    let agent = world.running(&next);
    let (service, lease) = (world.broker().agents.clone(), world.lease(&next));
    let caller = runwhere_broker::api::agent::AgentCaller {
        lease: lease.id,
        epoch: lease.epoch,
        workspace: lease.workspace,
        project: lease.project,
        job: lease.job,
        trial: lease.trial,
    };
    let assignment = world.run(async { service.assignment(&caller).await }).unwrap();
    assert_eq!(assignment.restore.len(), 0, "nothing was saved, so nothing is pretended");
    world.finish(&agent, 0);
    world.clean(&next);
    // The earlier record is still what it was.
    assert_eq!(world.state(&trial), TrialState::Cancelled);
    world.assert_clean(&next);
}

#[test]
fn fault_50_a_stop_that_does_not_stop_the_bill() {
    for profile in [SimProfile::token_billed_stop(), SimProfile::token()] {
        let name = profile.name;
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.pass(seconds(600));
        world.cloud.halt(&agent.node());
        world.cut(&agent);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Lost);
        let node = world.truth().nodes[0].clone();
        assert_eq!(node.phase, NodePhase::Gone, "a stopped node is ended");
        assert_eq!(world.charged(&trial), node.meter_micros, "{name}");
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_51_a_termination_without_an_answer() {
    for outcome in [
        Outcome::DoneReplyLost,
        Outcome::NotDoneReplyLost,
        Outcome::Delay(seconds(300), Box::new(Outcome::Ok)),
    ] {
        for profile in SimProfile::all() {
            // What is shown for longer than the answers take.
            let exact = states_ends(&profile) && profile.shown_after_end > seconds(600);
            let name = profile.name;
            let mut world = World::new(profile);
            let trial = world.submit();
            let agent = world.running(&trial);
            for _ in 0..3 {
                world.cloud.script(Verb::Terminate, outcome.clone());
            }
            world.finish(&agent, 0);
            world.clean(&trial);
            if exact {
                let nodes = world.truth().nodes;
                assert_eq!(world.charged(&trial), world.metered(), "{name} {outcome:?} {nodes:?}");
            }
            world.assert_clean(&trial);
        }
    }
}

#[test]
fn fault_51_a_read_tells_what_became_of_it() {
    for profile in SimProfile::all() {
        let (settle, reads) = (profile.capabilities.settle, profile.capabilities.absent_reads);
        let shutdown = profile.delays.shutdown;
        let reserved = profile.capabilities.minimum_reservation.is_some();
        for outcome in [Outcome::DoneReplyLost, Outcome::NotDoneReplyLost] {
            let name = profile.name;
            let mut world = World::new(profile.clone());
            let trial = world.submit();
            let agent = world.running(&trial);
            if reserved {
                world.pass(seconds(3600));
            }
            world.cloud.script(Verb::Terminate, outcome.clone());
            let asked = world.clock.now();
            world.finish(&agent, 0);
            world.until(seconds(60), "the lost answer", |world| {
                world.cloud.calls(Verb::Terminate) == 1
            });
            world.settle();
            assert_eq!(world.lease_state(&trial), Some(LeaseState::Releasing), "{name}");
            world.clean(&trial);
            // What was not done is asked for again soon; what was done, or goes on, is only read.
            let took = world.clock.now().duration_since(asked).unsigned_abs();
            let absent = settle + seconds(60) * reads;
            assert!(took <= shutdown + absent + seconds(60), "{name} {outcome:?} {took:?}");
            let calls = world.cloud.calls(Verb::Terminate);
            let least = if outcome == Outcome::NotDoneReplyLost { 2 } else { 1 };
            assert!((least..=8).contains(&calls), "{name} {outcome:?}: {calls}");
            world.assert_clean(&trial);
        }
    }
}

#[test]
fn fault_52_an_acknowledged_end_that_is_none() {
    for outcome in [Outcome::AckButLives, Outcome::Resurrects(seconds(60))] {
        for profile in SimProfile::all() {
            let exact = states_ends(&profile);
            let reserved = profile.capabilities.minimum_reservation.is_some();
            let name = profile.name;
            let mut world = World::new(profile);
            let trial = world.submit();
            let agent = world.running(&trial);
            let until = world.at(2 * 3600);
            world.cloud.script_until(Some(Verb::Terminate), Some(until), outcome.clone());
            world.finish(&agent, 0);
            world.pass(seconds(7000));
            assert!(!world.trial(&trial).cleanup_confirmed);
            assert!(world.has_event(&trial, "lease.release_overdue"), "a person is told");
            // It was asked for again and again, unless it is not the time for it.
            assert!(world.cloud.calls(Verb::Terminate) > 3 || reserved);
            world.clean(&trial);
            if exact {
                let nodes = world.truth().nodes;
                assert_eq!(world.charged(&trial), world.metered(), "{name} {outcome:?} {nodes:?}");
            }
            world.assert_clean(&trial);
        }
    }
}

#[test]
fn fault_53_not_found_while_it_lives() {
    for profile in SimProfile::all() {
        let settle = profile.capabilities.settle;
        let reserved = profile.capabilities.minimum_reservation.is_some();
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        if reserved {
            world.pass(seconds(3600));
        }
        world.cloud.hide(&agent.node(), settle * 3 / 4);
        world.finish(&agent, 0);
        world.pass(settle * 3 / 4);
        assert_eq!(world.live().len(), 1);
        assert!(!world.trial(&trial).cleanup_confirmed, "one look is no proof");
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_54_an_end_that_is_refused_until_a_time() {
    let mut world = World::new(SimProfile::minimum_reservation());
    let trial = world.submit();
    let launched = world.clock.now();
    let agent = world.running(&trial);
    world.pass(seconds(300));
    world.finish(&agent, 0);
    world.pass(seconds(60));
    let lease = world.lease(&trial);
    let hold = lease.hold.expect("shown until when");
    assert_eq!(hold.kind, ErrorKind::Conflict);
    let until = hold.until.unwrap().duration_since(launched).as_secs();
    assert!((3590..=3610).contains(&until), "{until}");
    assert!(world.has_event(&trial, "lease.cleanup_blocked"), "with its price");
    // Asked for rarely, and never taken for done.
    let calls = world.cloud.calls(Verb::Terminate);
    world.pass(seconds(2400));
    assert!(!world.trial(&trial).cleanup_confirmed);
    assert!(world.cloud.calls(Verb::Terminate) - calls <= 10);
    world.clean(&trial);
    assert!(world.clock.now().duration_since(launched).as_secs() >= 3600);
    assert_eq!(world.charged(&trial), world.metered());
    assert!(world.charged(&trial) >= 3600 * 1_000_000);
    world.assert_clean(&trial);
}

#[test]
fn fault_55_it_is_gone_already() {
    for profile in SimProfile::all() {
        let settle = profile.capabilities.settle;
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.pass(seconds(60));
        world.say(&agent, exited(0)).unwrap();
        for kind in &ending(None)[..3] {
            world.say(&agent, kind.clone()).unwrap();
        }
        world.cloud.lose(&agent.node());
        world.say(&agent, ending(None)[3].clone()).unwrap();
        let asked = world.clock.now();
        world.clean(&trial);
        // As soon as the cloud says so, or has not shown it for long enough.
        let took = world.clock.now().duration_since(asked).unsigned_abs();
        assert!(took <= settle + seconds(180), "{took:?}");
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        let proof = world.trial(&trial).evidence;
        assert!(
            matches!(
                proof.last(),
                Some(Evidence::TerminalRead { .. } | Evidence::AbsentReads { .. })
            ),
            "{proof:?}"
        );
        world.assert_clean(&trial);
    }
}

/// Lets the sweeper work beside the broker.
fn sweep(world: &World) {
    world.spawn(Sweeper::new(world.broker().core.clone()).run());
    world.settle();
}

#[test]
fn fault_57_nodes_that_nobody_owns() {
    for profile in SimProfile::all() {
        let reservation = profile.capabilities.minimum_reservation.unwrap_or_default();
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        // Somebody else's, and one with our label that no row knows.
        let mut request = world.spy.requests()[0].clone();
        let theirs = DeploymentId::new("theirs").unwrap();
        request.deployment = theirs.clone();
        let others = world.cloud.as_installation(theirs);
        let foreign = world.run(others.launch(&request)).unwrap().node;
        // The list shows them as well: it is the label that tells.
        world.spy.shows_too(others);
        let mut request = world.spy.requests()[0].clone();
        request.lease = "lease-of-nobody".parse().unwrap();
        request.token = "token-of-nobody".into();
        let stray = world.run(world.cloud.launch(&request)).unwrap().node;
        sweep(&world);
        world.pass(seconds(120));
        let newborn = world.truth();
        assert_eq!(newborn.node(&stray).map(|node| node.live), Some(true), "too young to judge");
        world.until(reservation + seconds(7200), "its end", |world| {
            world.truth().node(&stray).is_some_and(|node| !node.live)
        });
        let truth = world.truth();
        assert_eq!(truth.node(&foreign).map(|node| node.live), Some(true));
        assert!(truth.touched_foreign.is_empty());
        assert_eq!(truth.node(&agent.node()).map(|node| node.live), Some(true));
        assert_eq!(world.state(&trial), TrialState::Running);
        world.finish(&agent, 0);
        world.clean(&trial);
    }
}

#[test]
fn fault_57_one_look_at_a_node_is_not_enough() {
    for profile in SimProfile::all() {
        let reservation = profile.capabilities.minimum_reservation.unwrap_or_default();
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        let mut request = world.spy.requests()[0].clone();
        request.lease = "lease-of-nobody".parse().unwrap();
        request.token = "token-of-nobody".into();
        let stray = world.run(world.cloud.launch(&request)).unwrap().node;
        // Old enough when it is first seen, and past every reservation.
        world.pass(reservation + seconds(3600));
        sweep(&world);
        world.pass(seconds(50));
        assert_eq!(world.truth().node(&stray).map(|node| node.live), Some(true), "one look");
        assert_eq!(world.cloud.calls(Verb::Terminate), 0);
        world.until(seconds(1200), "its end", |world| {
            world.truth().node(&stray).is_some_and(|node| !node.live)
        });
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_58_the_sweeper_meets_a_launch_under_way() {
    for profile in SimProfile::all() {
        for then in [Outcome::Ok, Outcome::DoneReplyLost] {
            let mut world = World::new(profile.clone());
            world.policy.call_timeout = seconds(1200);
            // Nothing but the row of the intent protects the node then.
            world.policy.sweep_age = seconds(0);
            world.policy.sweep_every = seconds(10);
            world.restart();
            sweep(&world);
            let outcome = Outcome::Delay(seconds(600), Box::new(then));
            world.cloud.script(Verb::Launch, outcome);
            let trial = world.submit();
            world.pass(seconds(500));
            assert_eq!(world.lease(&trial).node, None, "nobody was told of it yet");
            let made = world.live();
            assert_eq!(made.len(), 1);
            let agent = world.running(&trial);
            assert_eq!(vec![agent.node()], made);
            world.finish(&agent, 0);
            world.clean(&trial);
            assert_eq!(world.state(&trial), TrialState::Succeeded);
            world.assert_clean(&trial);
        }
    }
}

#[test]
fn fault_60_a_provider_is_taken_out_while_its_nodes_live() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.connected = false;
    world.restart();
    assert_eq!(world.order(&agent), Some(Desired::Run), "the job goes on");
    world.finish(&agent, 0);
    world.pass(seconds(3 * 3600));
    let lease = world.lease(&trial);
    assert_eq!(lease.state, LeaseState::Releasing, "held, never forgotten");
    assert_eq!(lease.hold.map(|hold| hold.kind), Some(ErrorKind::Auth));
    assert!(!world.trial(&trial).cleanup_confirmed);
    assert_eq!(world.live().len(), 1);
    assert!(world.trial(&trial).evidence.is_empty(), "what cannot be asked proves nothing");
    assert!(world.has_event(&trial, "lease.cleanup_blocked"), "a person is told");
    assert!(!world.budget().reserved.is_empty(), "what may be owed stays bound");
    // Nothing new is launched there, and the user is told whose account is missing.
    let told = format!("{:?}", world.try_submit(world.request("another")).unwrap_err());
    assert!(told.contains("sim"), "{told}");
    assert_eq!(world.trials().len(), 1);
    world.connected = true;
    world.restart();
    world.clean(&trial);
    assert_eq!(world.charged(&trial), world.metered());
    world.assert_clean(&trial);
}

#[test]
fn a_crash_in_every_call_of_a_release() {
    for (verb, hang) in [
        (Verb::Describe, Hang::Before),
        (Verb::Describe, Hang::After),
        (Verb::Terminate, Hang::Before),
        (Verb::Terminate, Hang::After),
    ] {
        for profile in SimProfile::all() {
            let mut world = World::new(profile);
            let trial = world.submit();
            let agent = world.running(&trial);
            world.spy.hang(verb, hang);
            world.finish(&agent, 0);
            world.until(seconds(5400), "the call", |world| world.spy.hangs());
            world.restart();
            world.clean(&trial);
            assert!(matches!(world.end_reason(&trial), EndReason::Succeeded));
            world.assert_clean(&trial);
        }
    }
}
