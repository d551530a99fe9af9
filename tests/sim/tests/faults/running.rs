//! Faults 21 to 43: while the program runs.

use runwhere_agent::protocol::{Desired, EventKind, ExitReason};
use runwhere_broker::api::agent::AgentRefusal;
use runwhere_engine::{EndReason, Evidence, LeaseState, OutputState, TrialState};
use runwhere_model::{EndCause, ErrorKind, ProviderId};
use runwhere_providers::testing::{Outcome, SimCloud, SimProfile, Verb};
use runwhere_providers::{Clock, OfferSource, Registry};
use std::sync::Arc;

use super::agent::{booted, ending, exited, gpus_ready, killed, started};
use super::catalogue::Catalogue;
use super::spy::Spy;
use super::world::{World, deployment, seconds};

#[test]
fn fault_21_a_partition_shorter_than_the_grace_loses_nothing() {
    let mut world = World::new(SimProfile::label_only());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cut(&agent);
    world.pass(seconds(300));
    let lease = world.lease(&trial);
    assert!(lease.unreachable_since.is_some() && world.has_event(&trial, "lease.unreachable"));
    assert_eq!(world.state(&trial), TrialState::Running);
    // The program ended meanwhile; the story waits on the node.
    agent.note(world.clock.now(), exited(0));
    for kind in ending(None) {
        agent.note(world.clock.now(), kind);
    }
    world.pass(seconds(200));
    world.stay(&agent);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_21_a_silence_is_over_when_the_agent_is_back() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cut(&agent);
    world.pass(seconds(60));
    world.stay(&agent);
    world.pass(seconds(120));
    assert_eq!(world.lease(&trial).unreachable_since, None);
    assert!(world.has_event(&trial, "lease.reachable"));
    assert_eq!(world.state(&trial), TrialState::Running);
}

#[test]
fn fault_21_a_partition_longer_than_the_grace_ends_the_trial() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cut(&agent);
    world.pass(seconds(590));
    assert_eq!(world.state(&trial), TrialState::Running);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Lost);
    assert!(matches!(world.end_reason(&trial), EndReason::Lost { .. }));
    // What comes later is refused, and changes nothing.
    assert_eq!(world.say(&agent, exited(0)), Err(AgentRefusal::Gone));
    assert_eq!(world.state(&trial), TrialState::Lost);
    assert_eq!(world.truth().nodes.len(), 1, "never replayed");
    world.assert_clean(&trial);
}

#[test]
fn fault_22_a_vanished_node_is_confirmed_and_billed_to_its_own_end() {
    for profile in [SimProfile::token(), SimProfile::fast_clock(), SimProfile::token_billed_stop()]
    {
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.pass(seconds(100));
        // A silent agent alone is no proof.
        world.cut(&agent);
        world.pass(seconds(60));
        assert_eq!(world.state(&trial), TrialState::Running);
        world.cloud.lose(&agent.node());
        let lost = world.clock.now();
        world.until(seconds(120), "the loss", |world| world.state(&trial).is_terminal());
        assert!(world.clock.now().duration_since(lost).as_secs() <= 60, "within one look");
        let EndReason::Lost { detail } = world.end_reason(&trial) else {
            panic!("{:?}", world.end_reason(&trial));
        };
        assert!(detail.contains("host failed"), "{detail}");
        world.clean(&trial);
        assert_eq!(world.charged(&trial), world.metered());
        world.assert_clean(&trial);
    }
    // A cloud that forgets ended nodes at once: absence counts over the window only.
    let mut world = World::new(SimProfile::unique_name());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cut(&agent);
    world.cloud.lose(&agent.node());
    world.clean(&trial);
    let proof = world.trial(&trial).evidence;
    assert!(
        matches!(proof.last(), Some(Evidence::AbsentReads { reads, .. }) if reads.len() >= 3),
        "{proof:?}"
    );
    world.assert_clean(&trial);
}

#[test]
fn fault_23_a_notice_stops_the_program_in_time() {
    for profile in [SimProfile::token(), SimProfile::token_billed_stop(), SimProfile::unique_name()]
    {
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        let at = world.cloud.reclaim_with_notice(&agent.node()).unwrap();
        world.say(&agent, EventKind::ReclaimNotice { reclaim_at: at }).unwrap();
        assert_eq!(agent.order(), (Some(Desired::Stop), Some("reclaimed".into())));
        world.say(&agent, killed(15, Some(ExitReason::Stopped))).unwrap();
        for kind in ending(None) {
            world.say(&agent, kind).unwrap();
        }
        let row = world.trial(&trial);
        assert!(world.clock.now() < at, "before the node is taken");
        assert_eq!(row.state, TrialState::Lost);
        assert!(matches!(row.end_reason, Some(EndReason::Reclaimed { .. })), "{row:#?}");
        assert!(row.log.is_some(), "the log is sealed");
        assert_eq!(row.outputs, OutputState::None);
        world.clean(&trial);
        assert_eq!(world.truth().nodes.len(), 1, "never replayed");
        world.assert_clean(&trial);
        // Its job can be resumed by hand, from what it saved.
        let job = row.job.to_string();
        assert_eq!(world.resume(&job).unwrap().report.view.job.resumed.unwrap().trial, trial);
    }
}

#[test]
fn fault_23_a_notice_before_the_program_started_brings_another_node() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let node = world.node(&trial);
    let agent = world.agent(&trial, &node);
    world.join(&agent).unwrap();
    world.stay(&agent);
    for kind in [booted(), gpus_ready(), EventKind::Preparing] {
        world.say(&agent, kind).unwrap();
    }
    let at = world.cloud.reclaim_with_notice(&node).unwrap();
    world.say(&agent, EventKind::ReclaimNotice { reclaim_at: at }).unwrap();
    let unstarted = EventKind::Exited {
        code: None,
        signal: None,
        reason: Some(ExitReason::Stopped),
        detail: None,
    };
    world.say(&agent, unstarted).unwrap();
    assert_eq!(world.state(&trial), TrialState::Provisioning);
    let agent = world.running(&trial);
    assert_ne!(agent.node(), node);
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_24_a_reclaim_without_notice() {
    for profile in [SimProfile::token(), SimProfile::forgotten_end(), SimProfile::error_with_node()]
    {
        let stated = profile.capabilities.states_times;
        // A node that is forgotten at once says nothing of why.
        let told = !profile.shown_after_end.is_zero() || profile.reclaim_stops;
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.pass(seconds(1000));
        world.cloud.reclaim(&agent.node());
        world.cut(&agent);
        world.until(seconds(600), "the end", |world| world.state(&trial).is_terminal());
        let row = world.trial(&trial);
        assert_eq!((row.state, row.log), (TrialState::Lost, None), "the log has no seal");
        match row.end_reason {
            // The last moments may be seen, or not.
            Some(EndReason::Reclaimed { .. }) => {}
            other => assert!(!told, "{other:?}"),
        }
        world.clean(&trial);
        if stated {
            assert_eq!(world.charged(&trial), world.metered());
        }
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_25_a_second_agent_is_refused() {
    let mut world = World::new(SimProfile::label_only());
    let trial = world.submit();
    let agent = world.running(&trial);
    // A cloned image: the same token, a key of its own.
    let twin = world.agent_with_key(&trial, &agent.node(), "another key");
    assert!(matches!(world.join(&twin), Err(AgentRefusal::Conflict(_))));
    // A rebooted node has the key, and may come back.
    assert_eq!(world.join(&agent), Ok(()));
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.join(&agent), Err(AgentRefusal::Gone));
    assert_eq!(world.join(&twin), Err(AgentRefusal::Gone));
    assert_eq!(world.state(&trial), TrialState::Succeeded);
}

#[test]
fn fault_25_the_agent_of_a_node_that_was_given_up_gets_no_program() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let node = world.node(&trial);
    let late = world.agent(&trial, &node);
    // The end of the mute node is acknowledged, and it lives on for a while.
    world.cloud.script(Verb::Terminate, Outcome::AckButLives);
    world.until(seconds(1800), "the release", |world| {
        world.lease_state(&trial) == Some(LeaseState::Releasing)
    });
    assert_eq!(world.join(&late), Err(AgentRefusal::Gone));
    let agent = world.running(&trial);
    assert_ne!(agent.node(), node);
    assert!(world.say(&late, started()).is_err());
    assert_eq!(world.state(&trial), TrialState::Running);
    world.finish(&agent, 0);
    world.clean(&trial);
    world.assert_clean(&trial);
}

#[test]
fn fault_26_nodes_of_two_clouds_with_one_name() {
    let mut world = World::new(SimProfile::token());
    let shared: Arc<dyn Clock> = world.clock.clone();
    let other = SimCloud::new(SimProfile::token(), deployment(), shared)
        .named(ProviderId::new("other").unwrap());
    let mut offers = world.run(world.cloud.offers(&Default::default())).unwrap().offers;
    offers.extend(world.run(other.offers(&Default::default())).unwrap().offers);
    let mut registry = Registry::new();
    registry.add(world.spy.clone());
    let second = Spy::new(other.clone());
    registry.add(second.clone());
    world.kill();
    let broker = world.process_with(registry, Arc::new(Catalogue::new(offers)));
    world.start_as(broker);
    let here = world.submit();
    let agent = world.running(&here);
    let mut request = world.request("there");
    request.offer_key = Some(other.keys()[1].to_string());
    let there = world.submit_as(request);
    world.pass(seconds(60));
    let twin = other.truth().live().next().unwrap().node.clone();
    assert_eq!(twin, agent.node(), "the two clouds count alike");
    world.stop(&there);
    world.clean(&there);
    assert_eq!(other.truth().live().count(), 0);
    assert_eq!(world.live(), vec![agent.node()]);
    assert_eq!(world.state(&here), TrialState::Running);
    world.finish(&agent, 0);
    world.clean(&here);
    world.assert_clean(&here);
}

#[test]
fn fault_29_a_killed_program_fails_with_its_signal() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.say(&agent, killed(9, None)).unwrap();
    for kind in ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    let row = world.trial(&trial);
    assert_eq!((row.state, &row.end_reason), (TrialState::Failed, &Some(EndReason::ProgramFailed)));
    assert_eq!(row.exit.unwrap().signal, Some(9));
    assert_eq!(world.truth().nodes.len(), 1, "never replayed");
    world.assert_clean(&trial);
}

#[test]
fn fault_33_repeated_and_reordered_events() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    let service = world.broker().agents.clone();
    let before = world.trial(&trial);
    // Everything again, a part again, and a part from the future.
    assert_eq!(world.run(agent.replay(service.as_ref(), 0..4)), Ok(4));
    assert_eq!(world.run(agent.replay(service.as_ref(), 1..2)), Ok(4));
    agent.note(world.clock.now(), exited(0));
    for kind in ending(None) {
        agent.note(world.clock.now(), kind);
    }
    assert_eq!(world.run(agent.replay(service.as_ref(), 6..9)), Ok(4), "a gap is told");
    assert_eq!(world.trial(&trial), before);
    world.cut(&agent);
    world.stay(&agent);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_34_a_good_end_whose_outputs_are_lost() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.say(&agent, exited(0)).unwrap();
    // Its node is held as long as something of it can still be saved.
    world.pass(seconds(300));
    assert_eq!((world.order(&agent), world.live().len()), (Some(Desired::Run), 1));
    for kind in ending(Some("the store answers 500")) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    let row = world.trial(&trial);
    assert_eq!(row.state, TrialState::Succeeded);
    assert!(matches!(&row.outputs, OutputState::Failed { reason } if reason.contains("500")));
    world.assert_clean(&trial);
}

#[test]
fn fault_35_a_collection_that_hangs_has_its_own_deadline() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.say(&agent, exited(0)).unwrap();
    let bound = world.policy.collect_limit;
    world.pass(bound - seconds(10));
    assert_eq!(world.state(&trial), TrialState::Collecting, "the node is held for the data");
    world.clean(&trial);
    let row = world.trial(&trial);
    assert_eq!(row.state, TrialState::Succeeded, "the program's own end stays");
    assert!(matches!(row.outputs, OutputState::Failed { .. }));
    world.assert_clean(&trial);
}

#[test]
fn fault_36_the_time_limit_counts_the_program_only() {
    let mut world = World::new(SimProfile::token());
    let mut request = world.request("limited");
    request.yaml = World::yaml("limited", Some(60));
    let trial = world.submit_as(request);
    let node = world.node(&trial);
    let agent = world.agent(&trial, &node);
    world.join(&agent).unwrap();
    world.stay(&agent);
    for kind in [booted(), gpus_ready(), EventKind::Preparing] {
        world.say(&agent, kind).unwrap();
    }
    // Preparing is no running.
    world.pass(seconds(300));
    assert_eq!(world.order(&agent), Some(Desired::Run));
    world.say(&agent, started()).unwrap();
    world.pass(seconds(59));
    assert_eq!(world.order(&agent), Some(Desired::Run));
    world.say(&agent, exited(0)).unwrap();
    // Nor is collecting.
    world.pass(seconds(300));
    for kind in ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    // The limit itself is kept.
    let mut request = world.request("over");
    request.yaml = World::yaml("over", Some(60));
    let trial = world.submit_as(request);
    let agent = world.running(&trial);
    world.pass(seconds(61));
    assert_eq!(agent.order(), (Some(Desired::Stop), Some("timeout".into())));
    world.say(&agent, killed(15, Some(ExitReason::Timeout))).unwrap();
    for kind in ending(None) {
        world.say(&agent, kind).unwrap();
    }
    world.clean(&trial);
    assert_eq!(world.end_reason(&trial), EndReason::MaxDurationExceeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_37_an_agent_that_does_not_stop_loses_its_node() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.stop(&trial);
    assert_eq!(world.order(&agent), Some(Desired::Stop));
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Cancelled);
    world.assert_clean(&trial);
}

#[test]
fn fault_38_a_restarted_agent_reports_its_program_lost() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cut(&agent);
    world.pass(seconds(30));
    assert_eq!(world.join(&agent), Ok(()), "the key is on the disk");
    world.stay(&agent);
    world.say(&agent, booted()).unwrap();
    world.say(&agent, EventKind::Lost { reason: "the program is gone".into() }).unwrap();
    world.clean(&trial);
    assert!(matches!(world.end_reason(&trial), EndReason::Lost { .. }));
    assert_eq!(world.truth().nodes.len(), 1, "never replayed");
    world.assert_clean(&trial);
}

#[test]
fn fault_39_agents_of_other_versions() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let node = world.node(&trial);
    // Another protocol is refused by name, and the session stays free.
    for protocol in [0, 2, u32::MAX] {
        let other = world.agent(&trial, &node).speaking(protocol);
        let Err(AgentRefusal::Invalid(why)) = world.join(&other) else { panic!("{protocol}") };
        assert!(why.contains(&format!("protocol {protocol}")) && why.contains("speaks 1"), "{why}");
    }
    // An earlier agent does not say which node it is on; a later one tells of things that are not
    // known here yet. Both are served, through an upgrade of the broker in the middle.
    let agent = world.agent(&trial, &node).nameless();
    world.join(&agent).unwrap();
    world.stay(&agent);
    for kind in [booted(), gpus_ready(), EventKind::Unknown, started()] {
        world.say(&agent, kind).unwrap();
    }
    assert_eq!(world.state(&trial), TrialState::Running);
    world.restart();
    assert_eq!(world.order(&agent), Some(Desired::Run));
    world.finish(&agent, 0);
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.assert_clean(&trial);
}

#[test]
fn fault_40_the_broker_is_away_for_hours() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.kill();
    world.pass(seconds(3600));
    agent.note(world.clock.now(), exited(0));
    for kind in ending(None) {
        agent.note(world.clock.now(), kind);
    }
    world.pass(seconds(4 * 3600));
    assert_eq!(world.live().len(), 1);
    world.start();
    world.clean(&trial);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    assert_eq!(world.charged(&trial), world.metered());
    world.assert_clean(&trial);
    // Where the cloud ends nodes by itself it does, though the broker is away.
    let mut world = World::new(SimProfile::token_billed_stop());
    let mut request = world.request("limited");
    request.yaml = World::yaml("limited", Some(600));
    let trial = world.submit_as(request);
    let agent = world.running(&trial);
    world.kill();
    world.cut_off(&agent);
    world.pass(seconds(12 * 3600));
    assert!(world.live().is_empty());
    world.start();
    world.clean(&trial);
    assert!(world.state(&trial).is_terminal());
    world.assert_clean(&trial);
}

#[test]
fn fault_41_clocks_that_disagree() {
    for profile in [SimProfile::fast_clock(), SimProfile::slow_clock()] {
        let name = profile.name;
        let mut world = World::new(profile);
        let trial = world.submit();
        let node = world.node(&trial);
        let agent = world.agent(&trial, &node);
        world.join(&agent).unwrap();
        world.stay(&agent);
        // The node's clock jumps about; the order is that of the numbers.
        let far = "2031-01-01T00:00:00Z".parse().unwrap();
        let past = "1999-01-01T00:00:00Z".parse().unwrap();
        for (at, kind) in
            [(far, booted()), (past, gpus_ready()), (far, EventKind::Preparing), (past, started())]
        {
            agent.note(at, kind);
        }
        let service = world.broker().agents.clone();
        world.run(agent.send(service.as_ref())).unwrap();
        world.pass(seconds(4000));
        world.finish(&agent, 0);
        world.clean(&trial);
        assert_eq!(world.state(&trial), TrialState::Succeeded);
        assert_eq!(world.charged(&trial), world.metered(), "{name}");
        assert!(world.segments(&trial).iter().all(|one| !one.estimated));
        let row = world.trial(&trial);
        assert!(row.started_at.unwrap() >= row.created_at);
        world.assert_clean(&trial);
    }
}

#[test]
fn fault_41_an_end_that_only_we_saw_is_measured_by_our_clock() {
    for profile in [SimProfile::fast_clock(), SimProfile::slow_clock()] {
        let name = profile.name;
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.pass(seconds(1000));
        // Gone from every answer: nobody states when.
        let lost = world.clock.now();
        world.cloud.lose(&agent.node());
        world.cloud.hide(&agent.node(), seconds(7200));
        world.cut(&agent);
        world.clean(&trial);
        let noticed = world.clock.now().duration_since(lost).as_secs();
        assert!(noticed <= 1200, "{noticed}");
        let (charged, metered) = (world.charged(&trial), world.metered());
        let segments = world.segments(&trial);
        assert!(segments.last().is_some_and(|one| one.estimated), "{segments:#?}");
        // One look at the start and one at the end, and nothing of the clocks' difference.
        let error = charged.abs_diff(metered) / 1_000_000;
        assert!(error <= 30, "{name}: {charged} us charged, {metered} us true");
    }
}

#[test]
fn fault_42_revoked_credentials_block_the_clean_up_and_nothing_else() {
    let mut world = World::new(SimProfile::token());
    let trial = world.submit();
    let agent = world.running(&trial);
    world.cloud.script_until(None, None, Outcome::Auth);
    world.pass(seconds(3600));
    assert_eq!(world.state(&trial), TrialState::Running, "the job goes on");
    world.finish(&agent, 0);
    assert_eq!(world.state(&trial), TrialState::Succeeded);
    world.pass(seconds(3 * 3600));
    let lease = world.lease(&trial);
    assert_eq!(lease.state, LeaseState::Releasing);
    assert_eq!(lease.hold.as_ref().map(|hold| hold.kind), Some(ErrorKind::Auth));
    assert!(!world.trial(&trial).cleanup_confirmed);
    let alert = |event: &runwhere_engine::EventRecord| event.kind == "lease.cleanup_blocked";
    assert!(world.events(&trial).iter().any(|event| alert(event) && event.is_alert()));
    assert!(world.cloud.calls(Verb::Terminate) > 60, "tried on and on");
    assert!(!world.budget().reserved.is_empty(), "what may be owed stays bound");
    world.cloud.heal();
    world.clean(&trial);
    assert_eq!(world.lease(&trial).hold, None);
    assert_eq!(world.charged(&trial), world.metered(), "billed to the real end");
    world.assert_clean(&trial);
}

#[test]
fn fault_43_an_account_without_money_is_an_interruption() {
    for profile in [SimProfile::forgotten_end(), SimProfile::token_billed_stop()] {
        let mut world = World::new(profile);
        let trial = world.submit();
        let agent = world.running(&trial);
        world.cloud.run_out_of_money();
        world.cut(&agent);
        world.until(seconds(1200), "the end", |world| world.state(&trial).is_terminal());
        let EndReason::Lost { detail } = world.end_reason(&trial) else {
            panic!("{:?}", world.end_reason(&trial));
        };
        assert!(detail.contains("out of money"), "{detail}");
        assert_eq!(world.lease(&trial).end_cause, Some(EndCause::Balance));
        // Stopped is not gone: it is ended, and only then confirmed.
        world.clean(&trial);
        world.assert_clean(&trial);
        let next = world.submit();
        world.clean(&next);
        let EndReason::LaunchRefused { detail } = world.end_reason(&next) else {
            panic!("{:?}", world.end_reason(&next));
        };
        assert!(detail.starts_with("balance"), "{detail}");
    }
}
