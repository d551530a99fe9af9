//! What users of such brokers reported, where no fault's own test has it: the numbers are those of
//! the second table of `docs/faults.md`.

use runwhere_broker::api::runwhere::JobService as _;
use runwhere_engine::{EndReason, LeaseState, TrialState};
use runwhere_model::{ErrorKind, NodePhase};
use runwhere_providers::Clock as _;
use runwhere_providers::testing::{Outcome, SimProfile, Verb};

use super::spy::Hang;
use super::world::{World, caller, seconds};

#[test]
fn report_02_a_provider_that_is_unreachable_for_an_hour() {
    let mut world = World::new(SimProfile::label_only());
    let trial = world.submit();
    let agent = world.running(&trial);
    let until = world.at(3600);
    world.cloud.script_until(None, Some(until), Outcome::FailedNotDone(ErrorKind::Transient));
    world.finish(&agent, 0);
    world.pass(seconds(3500));
    assert_eq!(world.lease_state(&trial), Some(LeaseState::Releasing));
    assert!(!world.trial(&trial).cleanup_confirmed);
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn report_07_an_end_that_is_refused_because_there_is_nothing_to_end() {
    for profile in [SimProfile::token(), SimProfile::unique_name(), SimProfile::label_only()] {
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.cloud.lose(&agent.node());
        let refused = Outcome::FailedNotDone(ErrorKind::Conflict);
        world.cloud.script_until(Some(Verb::Terminate), None, refused);
        world.finish(&agent, 0);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}

#[test]
fn report_08_every_launch_has_an_end_of_its_own() {
    let mut world = World::new(SimProfile::token_billed_stop());
    world.submit();
    let mut limited = world.request("limited");
    limited.yaml = World::yaml("limited", Some(3600));
    world.submit_as(limited);
    world.pass(seconds(30));
    let requests = world.spy.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|one| one.bootstrap.agent_ttl_seconds == 24 * 3600));
    // With a limit the cloud itself is told when.
    assert_eq!(requests.iter().filter(|one| one.end_by.is_some()).count(), 1);
}

#[test]
fn report_16_what_has_ended_costs_nothing_more() {
    let mut world = World::new(SimProfile::label_only());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.finish(&agent, 0);
    world.clean(&trial);
    let id = world.trial(&trial).job.to_string();
    let cost = |world: &World| {
        let jobs = world.broker().jobs.clone();
        world.run(async { jobs.job(&caller(), &id).await }).unwrap().cost
    };
    let before = cost(&world);
    world.pass(seconds(100_000));
    assert_eq!(cost(&world), before);
    assert!(before.billed_micros > 0);
}

#[test]
fn report_26_and_32_an_end_that_fails_for_minutes() {
    for kind in [ErrorKind::Transient, ErrorKind::Malformed, ErrorKind::Throttle] {
        let mut world = World::new(SimProfile::error_with_node());
        let until = world.at(600);
        world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
        world.cloud.script_until(Some(Verb::Terminate), Some(until), Outcome::FailedNotDone(kind));
        let trial = world.submit();
        world.pass(seconds(10));
        world.stop(&trial);
        world.pass(seconds(500));
        assert_eq!(world.live().len(), 1);
        assert!(!world.trial(&trial).cleanup_confirmed);
        assert!(world.cloud.calls(Verb::Terminate) > 5);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}

#[test]
fn report_28_and_55_reads_that_lag_up_to_the_promised_time() {
    for lag in [0, 60, 200, 299] {
        let profile = SimProfile { read_lag: seconds(lag), ..SimProfile::token() };
        let mut world = World::new(profile);
        world.cloud.script(Verb::Launch, Outcome::DoneReplyLost);
        let trial = world.submit();
        let agent = world.running(&trial);
        assert_eq!(world.truth().nodes.len(), 1, "lag of {lag} s");
        world.finish(&agent, 0);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}

#[test]
fn report_34_the_same_name_while_the_old_one_is_dying() {
    for profile in SimProfile::all() {
        let mut world = World::new(profile);
        let old = world.submit_as(world.request("name"));
        world.running(&old);
        let until = world.at(300);
        let fails = Outcome::FailedNotDone(ErrorKind::Transient);
        world.cloud.script_until(Some(Verb::Terminate), Some(until), fails);
        world.stop(&old);
        world.until(seconds(1200), "its end", |world| world.state(&old).is_terminal());
        let new = world.submit_as(world.request("name"));
        let agent = world.running(&new);
        world.clean(&old);
        assert_eq!(world.state(&new), TrialState::Running);
        assert_eq!(world.live(), vec![agent.node()]);
        world.finish(&agent, 0);
        world.clean(&new);
        world.assert_clean(&new);
    }
}

#[test]
fn report_50_five_hundred_launches_with_losses_by_label() {
    no_losses(SimProfile::label_only());
}

#[test]
fn report_50_five_hundred_launches_with_losses_by_name() {
    no_losses(SimProfile::unique_name());
}

fn no_losses(profile: SimProfile) {
    let mut world = World::new(profile);
    world.cloud.set_stock(&world.offer(), 1000);
    for _ in 0..5 {
        for number in 0..100 {
            let outcome = match number % 7 {
                0 => Outcome::DoneReplyLost,
                1 => Outcome::NotDoneReplyLost,
                2 => Outcome::Surplus(1),
                3 => Outcome::FailedButDone(ErrorKind::Transient),
                _ => Outcome::Ok,
            };
            world.cloud.script(Verb::Launch, outcome);
            world.cloud.script(
                Verb::Terminate,
                match number % 5 {
                    0 => Outcome::DoneReplyLost,
                    1 => Outcome::AckButLives,
                    _ => Outcome::Ok,
                },
            );
        }
        let trials: Vec<_> = (0..100).map(|_| world.submit()).collect();
        world.pass(seconds(60));
        for trial in &trials {
            world.stop(trial);
        }
        world.pass(seconds(2400));
        world.cloud.heal();
        world.pass(seconds(1200));
    }
    assert!(world.truth().nodes.len() > 400, "{}", world.truth().nodes.len());
    assert_eq!(world.live().len(), 0);
    assert!(world.trials().iter().all(|trial| trial.cleanup_confirmed));
    assert!(world.budget().reserved.is_empty());
}

#[test]
fn report_52_credentials_refused_for_what_is_gone() {
    let mut world = World::new(SimProfile::unique_name());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cloud.lose(&agent.node());
    world.cloud.script_until(Some(Verb::Terminate), None, Outcome::Auth);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn report_64_counts_come_from_the_rows() {
    let mut world = World::new(SimProfile::token());
    let in_use = |world: &World| {
        let jobs = world.broker().jobs.clone();
        world.run(async { jobs.gpus_in_use(&caller()).await }).unwrap()
    };
    for _ in 0..3 {
        let trial = world.submit();
        let agent = world.running(&trial);
        assert_eq!(in_use(&world), 1);
        world.cloud.lose(&agent.node());
        world.cut(&agent);
        world.restart();
        world.clean(&trial);
        assert_eq!(in_use(&world), 0);
    }
}

#[test]
fn report_67_an_end_time_that_the_cloud_forgets() {
    let mut world = World::new(SimProfile::forgotten_end());
    let mut request = world.request("limited");
    request.yaml = World::yaml("limited", Some(600));
    let trial = world.submit_as(request);
    let agent = world.running(&trial);
    let end_by = world.spy.requests()[0].end_by.expect("asked for");
    world.kill();
    world.cut_off(&agent);
    world.pass(seconds(12 * 3600));
    assert!(end_by < world.clock.now());
    assert_eq!(world.truth().nodes[0].phase, NodePhase::Running, "promised, and not kept");
    // We do not rely on it.
    world.start();
    world.clean(&trial);
    assert!(matches!(
        world.end_reason(&trial),
        EndReason::Lost { .. } | EndReason::MaxDurationExceeded
    ));
    world.assert_clean(&trial);
}

#[test]
fn report_68_the_nodes_name_is_kept_before_anything_is_waited_for() {
    for profile in SimProfile::all() {
        let mut world = World::new(profile);
        world.spy.hang(Verb::Describe, Hang::Before);
        let trial = world.submit();
        world.until(seconds(600), "the first look", |world| world.spy.hangs());
        let made = world.live();
        assert_eq!(world.lease(&trial).node.as_ref(), made.first());
        world.restart();
        world.stop(&trial);
        world.clean(&trial);
        world.assert_clean(&trial);
    }
}
