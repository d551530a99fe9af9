//! Faults 16 and 18 to 20: more nodes than wanted, and nodes that are of no use.

use runwhere_agent::protocol::EventKind;
use runwhere_broker::api::agent::AgentRefusal;
use runwhere_engine::{EndReason, LeaseState, TrialState};
use runwhere_model::ErrorKind;
use runwhere_providers::testing::{Outcome, SimProfile, Verb};

use super::agent::{booted, gpus_ready};
use super::world::{World, seconds};

#[test]
fn fault_16_more_nodes_than_asked_for() {
    for profile in SimProfile::all() {
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
