//! Random lives of a unit: whatever happens in whatever order, the invariants of every step hold,
//! and once calls answer again a stop leads to a proven end in bounded time.

mod world;

use std::time::Duration;

use proptest::prelude::*;
use runwhere_engine::{AgentEvent, Exit, ExitCause};
use runwhere_model::ErrorKind;
use world::{Fault, HOUR, World};

#[derive(Clone, Debug)]
enum Op {
    /// Time goes on to the next due instant, then a wake-up.
    Due(Fault),
    /// Time goes on by so many seconds, then a wake-up.
    After(u32, Fault),
    /// The answer to one of the calls under way.
    Answer(usize),
    /// The agent says something, in order.
    Agent(AgentEvent),
    /// The agent says something out of order: repeated, or with a gap.
    Disordered(bool, AgentEvent),
    Connected(bool),
    Stop,
    Crash(Fault),
    /// A node ends by itself.
    NodeEnds(usize),
    Price(Option<i64>),
    Lag(u32),
    /// Ended nodes are shown for so long.
    Shown(u32),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        2 => Just(Fault::Done),
        2 => Just(Fault::NotDone),
        1 => Just(Fault::Refused(ErrorKind::Capacity)),
        1 => Just(Fault::Refused(ErrorKind::Throttle)),
        1 => Just(Fault::Refused(ErrorKind::Auth)),
        1 => Just(Fault::DoneWithIds(ErrorKind::Transient)),
        1 => Just(Fault::DoneWithIds(ErrorKind::Capacity)),
        1 => Just(Fault::Surplus),
        1 => Just(Fault::AckButLives),
        1 => Just(Fault::Incomplete),
    ]
}

fn agent_event() -> impl Strategy<Value = AgentEvent> {
    let exit = |code, cause| AgentEvent::Exited(Exit { code: Some(code), signal: None, cause });
    prop_oneof![
        1 => Just(AgentEvent::Booted),
        3 => Just(AgentEvent::GpusReady),
        3 => Just(AgentEvent::Started),
        1 => Just(exit(0, ExitCause::Program)),
        1 => Just(exit(143, ExitCause::Stop)),
        1 => Just(AgentEvent::Collected { files: 1, bytes: 10, failed: None }),
        1 => Just(AgentEvent::Failed { stage: "sync".into(), reason: "disk".into() }),
        1 => Just(AgentEvent::Lost { reason: "restarted".into() }),
        1 => Just(AgentEvent::Done),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => fault().prop_map(Op::Due),
        2 => (0u32..8000, fault()).prop_map(|(after, fault)| Op::After(after, fault)),
        8 => (0usize..3).prop_map(Op::Answer),
        5 => agent_event().prop_map(Op::Agent),
        1 => (any::<bool>(), agent_event()).prop_map(|(gap, event)| Op::Disordered(gap, event)),
        2 => any::<bool>().prop_map(Op::Connected),
        1 => Just(Op::Stop),
        1 => fault().prop_map(Op::Crash),
        1 => (0usize..4).prop_map(Op::NodeEnds),
        1 => prop_oneof![Just(None), Just(Some(360)), Just(Some(500))].prop_map(Op::Price),
        1 => (0u32..20).prop_map(Op::Lag),
        1 => prop_oneof![Just(0u32), Just(60), Just(3600)].prop_map(Op::Shown),
    ]
}

fn play(world: &mut World, op: &Op) {
    match op {
        Op::Due(fault) => {
            let lease = world.unit.lease.as_ref().and_then(|lease| lease.next_at);
            let due = [world.unit.trial.next_at, lease].into_iter().flatten().min();
            world.now = world.now.max(due.unwrap_or(world.now));
            world.wake(*fault);
        }
        Op::After(seconds, fault) => {
            world.advance(Duration::from_secs(u64::from(*seconds)));
            world.wake(*fault);
        }
        Op::Answer(index) => {
            if *index < world.pending.len() {
                world.answer(*index);
            }
        }
        Op::Agent(event) => {
            let _ = world.agent(event);
        }
        Op::Disordered(gap, event) => {
            let Some(lease) = world.unit.lease.clone() else { return };
            let seq = world.unit.trial.agent_seq;
            let before = world.unit.clone();
            let result = world.agent_as(&lease.id, if *gap { seq + 2 } else { seq }, event);
            assert_eq!(result.is_err(), *gap || lease.state.is_terminal());
            assert_eq!(world.unit.trial, before.trial);
        }
        Op::Connected(connected) => {
            if world.connected && !connected {
                world.agent_seen = Some(world.now);
            }
            world.connected = *connected;
        }
        Op::Stop => world.stop(),
        Op::Crash(fault) => world.crash(*fault),
        Op::NodeEnds(index) => {
            let now = world.now;
            if let Some(node) = world.nodes.get_mut(*index)
                && node.created <= now
            {
                node.gone.get_or_insert(now);
            }
        }
        Op::Price(cents) => world.price = cents.map(world::price),
        Op::Lag(seconds) => world.lag = Duration::from_secs(u64::from(*seconds)),
        Op::Shown(seconds) => world.shown_after_end = Duration::from_secs(u64::from(*seconds)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_life_keeps_the_invariants_and_ends(
        ops in proptest::collection::vec(op(), 1..60),
        limited in any::<bool>(),
    ) {
        let mut world = World::new();
        if limited {
            world.unit.job.spec.max_duration_seconds = Some(1800);
        }
        for op in &ops {
            play(&mut world, op);
        }
        // Calls answer again, the agent stays silent, and a user wants the end.
        world.connected = false;
        world.stop();
        world.run_until(2 * HOUR, World::settled);
        prop_assert!(world.live().is_empty(), "{:?}", world.live());
        // Answers and events that come even later change nothing.
        let (unit, budget) = (world.unit.clone(), world.budget.clone());
        while !world.pending.is_empty() {
            world.answer(0);
        }
        let _ = world.agent(&AgentEvent::Started);
        world.stop();
        world.wake(Fault::None);
        prop_assert_eq!(&world.unit, &unit);
        prop_assert_eq!(&world.budget, &budget);
    }

    #[test]
    fn without_a_stop_something_is_always_due(ops in proptest::collection::vec(op(), 1..40)) {
        let mut world = World::new();
        world.unit.job.spec.max_duration_seconds = Some(1800);
        for op in ops.iter().filter(|op| !matches!(op, Op::Stop)) {
            play(&mut world, op);
        }
        // A silent agent and a lost price alone bring every trial to its end in time.
        world.connected = false;
        world.price = None;
        world.run_until(30 * HOUR, World::settled);
        prop_assert!(world.live().is_empty());
    }
}

/// A surplus node's end was proven before an answer came that was read while it lived: what nobody has seen again
/// costs nothing more.
#[test]
fn a_late_answer_bills_no_node_that_was_seen_to_end() {
    let mut world = World::new();
    let ops = [
        Op::Due(Fault::Surplus),
        Op::Due(Fault::None),
        Op::NodeEnds(1),
        Op::Due(Fault::None),
        Op::Answer(0),
        Op::Answer(1),
        Op::Due(Fault::None),
        Op::Answer(1),
        Op::Answer(0),
        Op::After(3480, Fault::None),
    ];
    for op in &ops {
        play(&mut world, op);
    }
    world.connected = false;
    world.stop();
    world.run_until(2 * HOUR, World::settled);
    assert!(world.live().is_empty());
    let of_it = world.segments.iter().filter(|segment| segment.id.contains("+node-2+"));
    let billed: Vec<_> = of_it.map(|one| (one.start.to_string(), one.billed_micros())).collect();
    assert_eq!(billed, [("2026-01-01T00:00:00Z".to_owned(), 120_000_000)]);
}
