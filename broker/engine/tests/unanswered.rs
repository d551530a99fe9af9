//! Launches of unknown outcome, and agents that are heard or not.

mod world;

use std::time::Duration;

use jiff::SignedDuration;
use runwhere_engine::{AgentEvent, LeaseState, Outcome, TrialState, UsageSegment};
use runwhere_model::StopEffect;
use world::{Fault, HOUR, Node, SETTLE, World};

#[test]
fn a_launch_that_takes_effect_late_is_not_taken_for_void() {
    // The answer is lost, and the node appears only shortly before the call's time is over.
    let mut world = World::new();
    world.lag = SETTLE - Duration::from_secs(1);
    world.wake(Fault::Done);
    world.advance(Duration::from_secs(100));
    world.answer(0);
    assert_eq!(world.lease_state(), LeaseState::Unknown);
    world.run_until(HOUR, |w| w.lease_state() != LeaseState::Unknown);
    assert_eq!(world.lease_state(), LeaseState::Booting);
    assert_eq!(world.launches.len(), 1);
}

/// A launch whose answer was lost; nothing has been read yet.
fn unknown() -> World {
    let mut world = World::new();
    world.wake(Fault::Done);
    world.advance(Duration::from_secs(100));
    world.answer(0);
    assert_eq!(world.lease_state(), LeaseState::Unknown);
    world
}

#[test]
fn reads_within_the_window_do_not_count_and_one_after_it_is_no_proof() {
    let mut world = unknown();
    assert!(world.capabilities.absent_reads > 1);
    let over = world.lease().since.checked_add(SETTLE).unwrap();
    let hidden = std::mem::take(&mut world.nodes);
    let mut last = world.now;
    while last < over {
        // Not one of them shows it; the last one is begun after the window.
        last = world.now;
        world.wake(Fault::None);
        while !world.pending.is_empty() {
            world.answer(0);
        }
        let next = world.lease().next_at.unwrap();
        world.advance(next.duration_since(world.now).try_into().unwrap());
    }
    assert_eq!(world.lease_state(), LeaseState::Unknown);
    world.nodes = hidden;
    world.run_until(HOUR, |w| w.lease_state() != LeaseState::Unknown);
    assert_eq!(world.lease_state(), LeaseState::Booting);
    assert_eq!(world.launches.len(), 1);
}

#[test]
fn a_node_that_had_stopped_before_it_was_first_seen_is_billed_to_its_stop() {
    let mut world = unknown();
    world.capabilities.stop = StopEffect::EndsCompute;
    world.unit.lease.as_mut().unwrap().capabilities.stop = StopEffect::EndsCompute;
    let node = &mut world.nodes[0];
    let stopped = node.created.checked_add(Duration::from_secs(45)).unwrap();
    node.stopped = Some(stopped);
    let begun = node.created;
    // Its agent was heard before that; nobody could ask the cloud for more than an hour.
    world.agent(&AgentEvent::Booted).unwrap();
    world.agent(&AgentEvent::GpusReady).unwrap();
    world.agent(&AgentEvent::Started).unwrap();
    world.advance(HOUR * 5 / 4);
    world.sight(&[0]);
    world.run_until(HOUR * 2, |world| world.unit.trial.state.is_terminal());
    let micros = u64::try_from(stopped.duration_since(begun).as_micros()).unwrap();
    let rule = world.lease().capabilities.metering;
    assert_eq!(world.lease().meter.charged_micros, rule.billed_micros(micros));
}

#[test]
fn a_node_that_the_agent_is_not_on_is_not_taken_for_its() {
    let with_two = || {
        let mut world = unknown();
        let second = Node { id: "node-of-nobody".parse().unwrap(), ..world.nodes[0].clone() };
        world.nodes.push(second);
        let its = world.nodes[0].id.clone();
        world.unit.lease.as_mut().unwrap().agent.node = Some(its);
        world
    };
    // Only the other one is shown yet.
    let mut world = with_two();
    world.sight(&[1]);
    assert_eq!((world.lease_state(), &world.lease().node), (LeaseState::Unknown, &None));
    world.sight(&[1, 0]);
    let lease = world.lease();
    assert_eq!(lease.node.as_ref(), Some(&world.nodes[0].id));
    assert_eq!(lease.surplus.len(), 1);
    assert_eq!(lease.surplus[0].node, world.nodes[1].id);
    // It never is: the other one is not left running for that.
    let mut world = with_two();
    world.advance(SETTLE);
    world.sight(&[1]);
    assert_eq!(world.lease().node.as_ref(), Some(&world.nodes[1].id));
    // Nor where everything is to be ended.
    let mut world = with_two();
    world.stop();
    world.sight(&[1]);
    assert_eq!(world.lease().node.as_ref(), Some(&world.nodes[1].id));
}

#[test]
fn a_silent_agent_ends_the_trial_as_lost_and_the_node_is_released() {
    let mut world = World::new();
    world.run_to_ready();
    world.run_until(HOUR, World::settled);
    assert_eq!(world.unit.trial.state, TrialState::Lost);
    assert!(world.live().is_empty());
}

#[test]
fn a_stop_that_a_silent_agent_does_not_hear_ends_the_bill_soon() {
    let mut world = World::new();
    world.run_to_ready();
    world.stop();
    let asked = world.now;
    world.run_until(HOUR, World::settled);
    assert_eq!(world.unit.trial.state, TrialState::Cancelled);
    assert!(world.now.duration_since(asked) < SignedDuration::from_mins(2), "{}", world.now);
    assert!(world.live().is_empty());

    // One that talks gets all the time that collecting may take.
    let mut world = World::new();
    world.run_to_ready();
    world.connected = true;
    world.stop();
    let asked = world.now;
    world.run_until(HOUR, World::settled);
    assert!(world.now.duration_since(asked) > SignedDuration::from_mins(10), "{}", world.now);
}

#[test]
fn an_agent_that_another_process_hears_is_not_given_up_by_the_others() {
    for (stopped, minutes, end) in
        [(true, 10, TrialState::Cancelled), (false, 12, TrialState::Lost)]
    {
        let mut world = World::new();
        world.alone = false;
        world.run_to_ready();
        world.connected = true;
        world.wake(Fault::None);
        assert_eq!(world.lease().agent.heard_by.as_ref(), Some(&world.owner));

        // From here on another process looks, which does not hear it.
        world.owner = "broker-2".into();
        (world.connected, world.agent_seen) = (false, None);
        world.started_at = world.now;
        let (calls, heard) = (world.events.len(), world.now);
        if stopped {
            world.stop();
        }
        let minute = |world: &mut World| {
            let until = world.now.checked_add(Duration::from_secs(60)).unwrap();
            while world.now < until && !world.unit.trial.state.is_terminal() {
                world.wake(Fault::None);
                while !world.pending.is_empty() {
                    world.answer(0);
                }
                world.advance(Duration::from_secs(5));
            }
        };
        minute(&mut world);
        assert!(!world.unit.trial.state.is_terminal());
        assert!(!world.events[calls..].iter().any(|kind| kind == "lease.unreachable"));
        // Unless nobody has heard it for long: who hears it may have done so since it last said so.
        for _ in 0..12 {
            minute(&mut world);
        }
        assert_eq!(world.unit.trial.state, end);
        let waited = world.now.duration_since(heard);
        assert!(waited >= SignedDuration::from_mins(minutes), "{waited}");
    }
}

#[test]
fn who_hears_an_agent_says_so_while_a_call_is_under_way() {
    let mut world = World::new();
    world.alone = false;
    world.run_to_ready();
    // Another process asks the provider about the node, and waits for the answer.
    world.owner = "broker-2".into();
    world.started_at = world.now;
    world.advance(Duration::from_secs(30));
    while world.pending.is_empty() {
        world.advance(Duration::from_secs(30));
        world.wake(Fault::None);
    }
    assert!(world.lease().in_flight.is_some());
    world.owner = "broker-1".into();
    world.connected = true;
    world.advance(Duration::from_secs(10));
    world.wake(Fault::None);
    let agent = &world.lease().agent;
    assert_eq!((agent.seen_at, agent.heard_by.as_ref()), (Some(world.now), Some(&world.owner)));
}

/// A listing was read while the wanted node lived, and comes in after the proof of its end, while others are still
/// looked for: it shows nothing new, and nothing more of the node is billed.
#[test]
fn a_late_listing_bills_no_wanted_node_that_was_seen_to_end() {
    let mut world = World::new();
    world.wake(Fault::None);
    world.crash(Fault::None);
    let late = world.pending.remove(0);
    assert!(matches!(&late.outcome, Outcome::Find(Ok(found)) if found.nodes.len() == 1));
    world.crash(Fault::None);
    world.answer(0);
    world.stop();
    world.run_until(2 * SETTLE, |w| w.lease().evidence.is_some());
    assert!(!world.lease_state().is_terminal(), "others may still show up");
    // That it ended once more shows by its absence only.
    world.shown_after_end = Duration::ZERO;
    let node = world.nodes[0].id.clone();
    world.pending.insert(0, late);
    world.answer(0);
    assert!(world.lease().surplus.iter().any(|one| one.node == node), "it is made sure of");
    world.run_until(HOUR, World::settled);
    assert!(world.live().is_empty());
    let lived = world.nodes[0].gone.unwrap().duration_since(world.nodes[0].created);
    let billed: i64 = world.segments.iter().map(UsageSegment::billed_micros).sum();
    assert_eq!(i128::from(billed), lived.as_micros());
}
