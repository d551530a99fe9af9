//! Single lives of a unit, fault by fault.

mod world;

use std::time::Duration;

use runwhere_engine::{
    AgentEvent, AgentOrder, EndReason, Evidence, Exit, ExitCause, LeaseState, Outcome, OutputState,
    StepError, TrialState,
};
use runwhere_model::{Bootstrapping, Currency, ErrorKind, Metering};
use rust_decimal::Decimal;
use world::{Fault, HOUR, World, price};

const MINUTE: Duration = Duration::from_secs(60);

fn exited(code: i32, cause: ExitCause) -> AgentEvent {
    AgentEvent::Exited(Exit { code: Some(code), signal: None, cause })
}

fn finish(world: &mut World, code: i32) {
    world.agent(&exited(code, ExitCause::Program)).unwrap();
    world.agent(&AgentEvent::Collected { files: 1, bytes: 5, failed: None }).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
}

#[test]
fn a_program_runs_and_its_node_is_proven_gone() {
    let mut world = World::new();
    world.run_to_ready();
    world.advance(MINUTE);
    finish(&mut world, 0);
    assert_eq!(world.unit.trial.state, TrialState::Succeeded);
    assert!(!world.unit.trial.cleanup_confirmed, "not before its node is gone");
    assert_eq!(world.unit.order(), AgentOrder::Release);
    world.run_until(HOUR, World::settled);
    assert!(world.live().is_empty());
    assert!(matches!(world.lease().evidence, Some(Evidence::TerminalRead { .. })));
    // The provider's own times are what is billed, to the second.
    let node = &world.nodes[0];
    let truth = node.gone.unwrap().as_second() - node.created.as_second();
    assert_eq!(world.lease().meter.charged_micros, u64::try_from(truth).unwrap() * 1_000_000);
    assert!(!world.lease().meter.estimated);
}

#[test]
fn a_launch_that_made_nothing_is_void_only_after_the_settle_window() {
    let mut world = World::new();
    world.wake(Fault::NotDone);
    world.answer(0);
    let unknown_since = world.now;
    world.run_until(HOUR, |w| w.lease_state() != LeaseState::Unknown);
    assert_eq!(world.lease_state(), LeaseState::Void);
    assert!(world.now.duration_since(unknown_since).as_secs() >= 30);
    let Some(Evidence::FoundNothing { reads }) = &world.lease().evidence else { panic!() };
    assert!(reads.len() >= 3);
    // Then, and only then, another lease is begun.
    world.run_until(HOUR, |w| w.launches.len() == 2);
}

#[test]
fn an_incomplete_listing_proves_nothing() {
    let mut world = World::new();
    world.wake(Fault::NotDone);
    world.answer(0);
    for _ in 0..50 {
        world.now = world.lease().next_at.unwrap();
        world.wake(Fault::Incomplete);
        world.answer(0);
        assert_eq!(world.lease_state(), LeaseState::Unknown);
    }
}

#[test]
fn an_answer_of_an_earlier_lease_does_not_touch_the_present_one() {
    let mut world = World::new();
    world.wake(Fault::Done);
    let late = world.pending.remove(0);
    // The first lease's node never shows up in time; it is proven void by the provider's promise.
    world.nodes.clear();
    world.run_until(HOUR, |w| w.launches.len() == 2);
    let present = world.lease().id.clone();
    world.pending.insert(0, late);
    let node = runwhere_model::NodeId::new("node-late").unwrap();
    world.pending[0].outcome = Outcome::Launch(Ok(runwhere_model::Launched {
        node: node.clone(),
        surplus: vec![],
        started_at: None,
        billed_price: None,
    }));
    world.answer(0);
    assert_eq!(world.lease().id, present);
    assert_ne!(world.lease().node, Some(node.clone()));
    assert!(world.events.iter().any(|kind| kind == "lease.stray_node"));
    let asked = world.pending.last().unwrap();
    assert_eq!(asked.call, runwhere_engine::Call::Terminate(node));
}

#[test]
fn surplus_nodes_end_at_once_while_the_trial_goes_on() {
    let mut world = World::new();
    world.wake(Fault::Surplus);
    world.answer(0);
    assert_eq!(world.lease().surplus.len(), 2);
    world.run_to_ready();
    world.connected = true;
    world.run_until(5 * MINUTE, |w| w.lease().surplus.is_empty());
    assert_eq!(world.live().len(), 1);
    assert_eq!(world.unit.trial.state, TrialState::Running);
}

#[test]
fn surplus_nodes_that_vanish_from_the_listing_are_proven_by_absence() {
    let mut world = World::new();
    world.shown_after_end = Duration::ZERO;
    world.wake(Fault::Surplus);
    world.answer(0);
    world.stop();
    world.run_until(HOUR, World::settled);
    assert!(world.live().is_empty());
}

#[test]
fn nodes_that_nobody_named_are_looked_for_before_a_lease_ends() {
    // Three nodes are made, the answer is lost with the process, and the first listing breaks off.
    let mut world = World::new();
    world.wake(Fault::Surplus);
    world.crash(Fault::Incomplete);
    world.answer(0);
    assert_eq!(world.lease_state(), LeaseState::Booting);
    world.stop();
    world.run_until(HOUR, World::settled);
    assert!(world.live().is_empty());
}

#[test]
fn an_agent_that_reports_before_its_launch_is_answered_is_ready() {
    let mut world = World::new();
    world.wake(Fault::None);
    world.agent(&AgentEvent::Booted).unwrap();
    world.agent(&AgentEvent::GpusReady).unwrap();
    assert_eq!(world.unit.trial.state, TrialState::Preparing);
    world.answer(0);
    assert_eq!(world.lease_state(), LeaseState::Ready);
}

#[test]
fn a_restarted_broker_waits_for_its_agents_to_come_back() {
    let mut world = World::new();
    world.run_to_ready();
    world.connected = true;
    world.run_until(HOUR, |w| w.lease().meter.started_at.is_some());
    world.advance(5 * HOUR);
    world.crash(Fault::None);
    assert_eq!(world.unit.trial.state, TrialState::Running);
    world.advance(MINUTE);
    // The program ended meanwhile; its own end counts, and there is time to collect.
    finish(&mut world, 0);
    assert_eq!(world.unit.trial.state, TrialState::Succeeded);
}

#[test]
fn collecting_begins_anew_after_the_broker_was_down() {
    let mut world = World::new();
    world.run_to_ready();
    world.agent(&exited(0, ExitCause::Program)).unwrap();
    world.advance(2 * HOUR);
    world.crash(Fault::None);
    world.wake(Fault::None);
    assert_eq!(world.unit.trial.state, TrialState::Collecting);
    world.agent(&AgentEvent::Collected { files: 2, bytes: 9, failed: None }).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    assert_eq!(world.unit.trial.outputs, OutputState::Uploaded { files: 2, bytes: 9 });
}

#[test]
fn an_old_missed_read_is_no_proof_once_the_agent_was_heard_again() {
    let mut world = World::new();
    world.run_to_ready();
    world.connected = true;
    world.run_until(HOUR, |w| w.lease().seen_at.is_some());
    let miss = |world: &mut World| {
        world.connected = false;
        world.agent_seen = Some(world.now);
        world.advance(Duration::from_secs(10));
        // Not found, wrongly.
        let hidden = std::mem::take(&mut world.nodes);
        world.wake(Fault::None);
        assert!(!world.pending.is_empty());
        world.answer(0);
        world.nodes = hidden;
        world.connected = true;
    };
    for _ in 0..5 {
        miss(&mut world);
        world.advance(HOUR);
        world.wake(Fault::None);
        while !world.pending.is_empty() {
            world.answer(0);
        }
        assert_eq!(world.unit.trial.state, TrialState::Running);
        assert!(world.lease().absent_reads.is_empty());
    }
}

#[test]
fn a_read_that_missed_the_node_before_its_agent_spoke_does_not_date_its_end() {
    let mut world = World::new();
    world.capabilities.states_times = false;
    world
        .run_until(HOUR, |w| w.unit.lease.as_ref().is_some_and(|l| l.state == LeaseState::Booting));
    world.advance(Duration::from_secs(10));
    let hidden = std::mem::take(&mut world.nodes);
    world.wake(Fault::None);
    world.answer(0);
    world.nodes = hidden;
    assert_eq!(world.lease().absent_reads.len(), 1);
    // The next read is not answered for as long as the program runs.
    world.advance(Duration::from_secs(30));
    world.wake(Fault::None);
    world.pending.clear();
    for event in [AgentEvent::Booted, AgentEvent::GpusReady, AgentEvent::Started] {
        world.advance(Duration::from_secs(5));
        world.agent(&event).unwrap();
    }
    world.advance(Duration::from_secs(20));
    world.agent(&exited(0, ExitCause::Program)).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    let spoke = world.now;
    // From then on the provider knows nothing of it.
    world.nodes.clear();
    world.advance(Duration::from_secs(600));
    world.run_until(HOUR, World::settled);
    let lease = world.lease();
    assert!(lease.meter.stopped_at.is_some_and(|at| at >= spoke), "{:?}", lease.meter);
}

#[test]
fn a_node_lost_after_the_program_ended_keeps_the_programs_end() {
    let mut world = World::new();
    world.run_to_ready();
    world.agent(&exited(0, ExitCause::Program)).unwrap();
    let now = world.now;
    world.nodes[0].gone = Some(now);
    world.run_until(HOUR, World::settled);
    assert_eq!(world.unit.trial.state, TrialState::Succeeded);
    assert!(matches!(world.unit.trial.outputs, OutputState::Failed { .. }));
}

#[test]
fn a_program_that_cannot_be_started_ends_with_what_the_system_said() {
    let exit = Exit { code: Some(127), signal: None, cause: ExitCause::SpawnFailed };
    let detail = "nosuchprog: No such file or directory".to_owned();
    let mut world = World::new();
    world.run_to_ready();
    world.agent(&AgentEvent::NotStarted { exit, detail: detail.clone() }).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    let reason = world.unit.trial.end_reason.clone();
    assert_eq!(world.unit.trial.state, TrialState::Failed);
    assert_eq!(reason, Some(EndReason::StartFailed { detail }));
    assert_eq!(reason.map(|reason| reason.code()), Some("start_failed"));
}

#[test]
fn a_machine_of_its_own_without_the_gpus_is_what_failed() {
    let mut world = World::new();
    world
        .run_until(HOUR, |w| w.unit.lease.as_ref().is_some_and(|l| l.state == LeaseState::Booting));
    // There is no other machine to try.
    let lease = world.unit.lease.as_mut().unwrap();
    lease.capabilities.bootstrapping = Bootstrapping::Direct;
    world.agent(&AgentEvent::Booted).unwrap();
    let (stage, detail) = ("gpu".to_owned(), "nvidia-smi cannot be started".to_owned());
    world.agent(&AgentEvent::Failed { stage, reason: detail.clone() }).unwrap();
    assert_eq!(world.unit.trial.end_reason, Some(EndReason::NodeFailed { detail }));
}

#[test]
fn a_program_that_passes_a_limit_ends_with_the_limit() {
    let exit = Exit { code: Some(137), signal: None, cause: ExitCause::Limit };
    let detail = "memory: the program needed more than its 64 MiB".to_owned();
    let mut world = World::new();
    world.run_to_ready();
    world.agent(&AgentEvent::OverLimit { exit, detail: detail.clone() }).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    assert_eq!(world.unit.trial.state, TrialState::Failed);
    let reason = world.unit.trial.end_reason.clone();
    assert_eq!(reason.as_ref().map(EndReason::code), Some("limit_exceeded"));
    assert_eq!(reason, Some(EndReason::LimitExceeded { detail }));
    assert_eq!(world.unit.trial.exit.and_then(|exit| exit.code), Some(137));
}

#[test]
fn a_stop_while_it_collects_does_not_hold_the_node_longer() {
    let collected = |stop: bool| {
        let mut world = World::new();
        world.run_to_ready();
        world.connected = true;
        world.agent(&exited(0, ExitCause::Program)).unwrap();
        let begun = world.now;
        world.advance(9 * MINUTE);
        if stop {
            world.stop();
        }
        world.run_until(HOUR, |w| w.unit.trial.state != TrialState::Collecting);
        assert_eq!(world.unit.trial.state, TrialState::Succeeded, "the program's own end stays");
        world.now.duration_since(begun)
    };
    assert_eq!(collected(true), collected(false));
}

#[test]
fn stop_time_limit_and_the_programs_own_end() {
    // The program's own end wins over a stop that came while it was collected.
    let mut world = World::new();
    world.run_to_ready();
    world.agent(&exited(7, ExitCause::Program)).unwrap();
    world.stop();
    world.agent(&AgentEvent::Done).unwrap();
    assert_eq!(world.unit.trial.state, TrialState::Failed);
    assert_eq!(world.unit.trial.end_reason, Some(EndReason::ProgramFailed));

    // After the end nothing is wanted any more.
    let mut world = World::new();
    world.run_to_ready();
    finish(&mut world, 0);
    let told = world.events.len();
    world.stop();
    assert_eq!(world.unit.trial.desired_at, None);
    assert_eq!(world.events.len(), told, "{:?}", &world.events[told..]);

    // A stop; a second one and the time limit change nothing.
    let mut world = World::new();
    world.unit.job.spec.max_duration_seconds = Some(60);
    world.run_to_ready();
    world.connected = true;
    world.stop();
    let wanted_at = world.unit.trial.desired_at;
    world.advance(2 * MINUTE);
    world.stop();
    world.wake(Fault::None);
    assert_eq!(world.unit.trial.desired_at, wanted_at);
    assert_eq!(world.unit.order(), AgentOrder::Stop);
    world.agent(&exited(143, ExitCause::Stop)).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    assert_eq!(world.unit.trial.state, TrialState::Cancelled);

    // The time limit; a later stop does not make it a stop. The node dies on the way.
    let mut world = World::new();
    world.unit.job.spec.max_duration_seconds = Some(60);
    world.run_to_ready();
    world.connected = true;
    world.run_until(HOUR, |w| w.unit.trial.desired_at.is_some());
    assert_eq!(world.unit.order(), AgentOrder::TimeOut);
    world.stop();
    let now = world.now;
    world.nodes[0].gone = Some(now);
    world.connected = false;
    world.run_until(HOUR, World::settled);
    assert_eq!(world.unit.trial.state, TrialState::TimedOut);
}

#[test]
fn a_stop_in_the_queue_is_confirmed_without_any_launch() {
    let mut world = World::new();
    world.stop();
    assert!(world.settled());
    assert_eq!(world.unit.trial.state, TrialState::Cancelled);
    assert!(matches!(world.unit.trial.evidence[..], [Evidence::NothingLaunched { .. }]));
    world.wake(Fault::None);
    assert!(world.launches.is_empty());
}

#[test]
fn a_stop_during_the_launch_waits_for_its_outcome() {
    let mut world = World::new();
    world.wake(Fault::None);
    world.stop();
    assert_eq!(world.unit.trial.state, TrialState::Cancelled);
    assert!(!world.unit.trial.cleanup_confirmed);
    world.run_until(HOUR, World::settled);
    assert_eq!(world.nodes.len(), 1);
    assert!(world.live().is_empty());
}

#[test]
fn capacity_refusals_do_not_use_up_the_node_failures() {
    let mut world = World::new();
    while world.launches.len() < 10 {
        world.now = world.unit.trial.next_at.unwrap();
        world.wake(Fault::Refused(ErrorKind::Capacity));
        world.answer(0);
    }
    assert_eq!(world.unit.trial.state, TrialState::Queued);
    assert_eq!(world.unit.trial.evidence.len(), 1, "refusals are not piled up");
    for failures in 1..=3 {
        world.run_until(HOUR, |w| w.lease_state() == LeaseState::Booting);
        assert_eq!(world.unit.trial.node_failures, failures - 1);
        let now = world.now;
        world.nodes.last_mut().unwrap().gone = Some(now);
        world.run_until(HOUR, |w| w.lease_state().is_terminal());
    }
    assert_eq!(world.unit.trial.state, TrialState::Failed);
    assert!(matches!(world.unit.trial.end_reason, Some(EndReason::NodeFailed { .. })));
}

#[test]
fn a_launch_that_was_withheld_made_nothing_unless_it_was_taken_for_lost() {
    for late in [false, true] {
        let mut world = World::new();
        world.wake(Fault::None);
        world.pending[0].outcome = Outcome::LaunchWithheld;
        world.nodes.clear();
        if late {
            let withheld = world.pending.remove(0);
            world.advance(world.policy.call_timeout);
            world.wake(Fault::None);
            world.pending.insert(0, withheld);
        }
        world.answer(0);
        if late {
            assert_eq!(world.lease_state(), LeaseState::Unknown, "only a find tells");
        } else {
            assert!(matches!(world.lease().evidence, Some(Evidence::NothingLaunched { .. })));
            assert_eq!(world.lease_state(), LeaseState::Void);
            assert_eq!(world.unit.trial.state, TrialState::Queued);
            assert!(world.unit.trial.refusals.is_empty(), "no provider refused it");
        }
    }
}

#[test]
fn launches_that_fail_and_leave_nodes_behind_are_not_tried_for_ever() {
    let mut world = World::new();
    let fault = Fault::DoneWithIds(ErrorKind::Transient);
    for failures in 1..=3 {
        world.now = world.unit.trial.next_at.unwrap_or(world.now);
        world.wake(fault);
        world.answer(0);
        assert_eq!(world.unit.trial.node_failures, failures);
        // Each is ended before the next is tried.
        world.run_until(HOUR, |w| w.lease_state().is_terminal());
        assert!(world.live().is_empty());
    }
    assert!(world.settled() && world.nodes.len() == 3);
    assert!(matches!(world.unit.trial.end_reason, Some(EndReason::NodeFailed { .. })));
}

#[test]
fn a_refusal_for_good_ends_at_once_and_a_wait_for_capacity_ends_in_time() {
    let mut world = World::new();
    world.wake(Fault::Refused(ErrorKind::Auth));
    world.answer(0);
    assert!(world.settled());
    assert!(matches!(world.unit.trial.end_reason, Some(EndReason::LaunchRefused { .. })));

    let mut world = World::new();
    let begun = world.now;
    while !world.unit.trial.state.is_terminal() {
        world.now = world.unit.trial.next_at.unwrap();
        world.wake(Fault::Refused(ErrorKind::Capacity));
        if !world.pending.is_empty() {
            world.answer(0);
        }
    }
    assert!(matches!(world.unit.trial.end_reason, Some(EndReason::NoCapacity { .. })));
    assert!(world.now.duration_since(begun).as_hours() <= 25);
    assert!(world.launches.len() < 3000, "{} launches", world.launches.len());
}

#[test]
fn a_dearer_price_is_not_launched() {
    let mut world = World::new();
    world.wake(Fault::Refused(ErrorKind::Capacity));
    world.answer(0);
    world.price = Some(price(401));
    world.now = world.unit.trial.next_at.unwrap();
    world.wake(Fault::None);
    assert_eq!(world.unit.trial.end_reason, Some(EndReason::PriceChanged));
    assert!(world.settled());
    assert!(world.nodes.is_empty());
}

#[test]
fn a_release_is_never_given_up() {
    let mut world = World::new();
    world.run_to_ready();
    finish(&mut world, 0);
    let begun = world.now;
    let mut calls = 0;
    while world.now.duration_since(begun).as_hours() < 48 {
        world.now = world.lease().next_at.unwrap().max(world.now);
        let fault =
            if calls % 2 == 0 { Fault::Refused(ErrorKind::Auth) } else { Fault::AckButLives };
        world.wake(fault);
        if !world.pending.is_empty() {
            world.answer(0);
            calls += 1;
        }
        assert!(!world.unit.trial.cleanup_confirmed);
    }
    assert!((48 * 60 - 10..=48 * 125).contains(&calls), "{calls} calls in two days");
    assert!(world.events.iter().any(|kind| kind == "lease.release_overdue"));
    // What is owed meanwhile is bound in the budget and charged hour by hour.
    let bound = world.budget.as_ref().unwrap().reserved[&world.lease().id];
    assert!(bound >= Decimal::new(360 * 48, 2));
    world.run_until(HOUR, World::settled);
}

#[test]
fn a_budget_refuses_the_launch_that_would_pass_it() {
    let mut world = World::new();
    world.budget.as_mut().unwrap().limit = Some(Decimal::new(359, 2));
    world.wake(Fault::None);
    assert_eq!(world.unit.trial.end_reason, Some(EndReason::BudgetExceeded));
    assert!(world.settled() && world.nodes.is_empty());

    // In another currency without a rate it cannot be kept.
    let mut world = World::new();
    world.budget.as_mut().unwrap().currency = Currency::CNY;
    world.wake(Fault::None);
    assert_eq!(world.unit.trial.end_reason, Some(EndReason::BudgetExceeded));
}

#[test]
fn hours_are_cut_when_they_are_over_and_time_does_not_stand_still() {
    let mut world = World::new();
    world.capabilities.settle = Duration::ZERO;
    world.capabilities.absent_reads = 1;
    world.run_to_ready();
    world.connected = true;
    let end = world.now.checked_add(3 * HOUR).unwrap();
    world.run_until(4 * HOUR, |w| w.now >= end);
    assert_eq!(world.segments.len(), 3);
    finish(&mut world, 0);
    world.run_until(HOUR, World::settled);
    assert_eq!(world.segments.len(), 4);
}

#[test]
fn an_end_that_the_provider_dates_before_an_hour_is_not_charged_beyond_it() {
    let mut world = World::new();
    world.capabilities.metering = Metering::PER_SECOND;
    world.run_to_ready();
    world.connected = true;
    world.run_until(HOUR, |w| w.lease().seen_at.is_some());
    // Its node ends at 00:59:58; the agent's connection is noticed to be gone only later.
    let gone = world.unit.job.created_at.checked_add(Duration::from_secs(3598)).unwrap();
    world.run_until(HOUR, |w| w.now >= gone.checked_sub(MINUTE).unwrap());
    world.nodes[0].gone = Some(gone);
    world.lag = Duration::from_secs(20);
    world.run_until(HOUR, |w| w.now > gone);
    world.connected = false;
    world.agent_seen = Some(gone);
    world.run_until(HOUR, World::settled);
    let from = world.nodes[0].created;
    let truth = gone.as_second() - from.as_second();
    assert_eq!(world.lease().meter.charged_micros, u64::try_from(truth).unwrap() * 1_000_000);
}

#[test]
fn a_process_that_begins_after_the_hour_charges_nothing_that_the_node_did_not_live() {
    let mut world = World::new();
    world.capabilities.metering = Metering::PER_SECOND;
    world.run_to_ready();
    world.connected = true;
    world.run_until(HOUR, |w| w.lease().seen_at.is_some());
    // The broker is away from before the end of the node until long after the hour.
    let gone = world.unit.job.created_at.checked_add(MINUTE * 30).unwrap();
    world.run_until(HOUR, |w| w.now >= gone.checked_sub(MINUTE).unwrap());
    world.nodes[0].gone = Some(gone);
    world.shown_after_end = HOUR * 24;
    world.advance(HOUR);
    world.crash(Fault::None);
    world.run_until(HOUR, World::settled);
    let from = world.nodes[0].created;
    let truth = gone.as_second() - from.as_second();
    assert_eq!(world.lease().meter.charged_micros, u64::try_from(truth).unwrap() * 1_000_000);
}

#[test]
fn agents_of_other_leases_are_fenced() {
    let mut world = World::new();
    world.run_to_ready();
    let other = runwhere_model::LeaseId::new("lease-999").unwrap();
    assert_eq!(world.agent_as(&other, 4, &AgentEvent::Done), Err(StepError::Fenced));
    let own = world.lease().id.clone();
    assert_eq!(
        world.agent_as(&own, 9, &AgentEvent::Done),
        Err(StepError::Gap { wanted: 4, got: 9 })
    );
    // Late words about the beginning do not take a program back to it.
    world.agent(&exited(0, ExitCause::Program)).unwrap();
    world.agent(&AgentEvent::Started).unwrap();
    assert_eq!(world.unit.trial.state, TrialState::Collecting);
    world.agent(&exited(1, ExitCause::Program)).unwrap();
    world.agent(&AgentEvent::Done).unwrap();
    assert_eq!(world.unit.trial.state, TrialState::Succeeded);
}
