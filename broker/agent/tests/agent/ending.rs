//! How trials end: stops, leftovers, killed agents, fences, silence.

use std::fs;
use std::time::{Duration, Instant};

use runwhere_agent::protocol::{Desired, DropTo, EventKind, ExitReason, LogStream};

use crate::broker::{Broker, Fault, Seen, log_of};
use crate::node::{Node, Setup, file, is_free, make_chain, make_lock, shell, wait_until};

fn has(seen: &Seen, kind: impl Fn(&EventKind) -> bool) -> Option<()> {
    seen.events.iter().any(|event| kind(&event.kind)).then_some(())
}

fn done(seen: &Seen) -> Option<()> {
    has(seen, |kind| *kind == EventKind::Done)
}

const STUBBORN: &str = "trap '' TERM INT HUP\n\
    (trap '' TERM; while :; do sleep 1; done) &\n\
    setsid sh -c \"trap '' TERM; while :; do sleep 1; done\" &\n\
    echo ready\n\
    while :; do sleep 1; done";

fn wait_ready(broker: &Broker) {
    broker.wait("ready", |seen| seen.logs[1].starts_with(b"ready").then_some(()));
}

#[test]
fn a_stop_ends_even_a_stubborn_program_with_all_its_children() {
    let broker = Broker::start(shell(STUBBORN), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let agent = node.agent();
    wait_ready(&broker);
    broker.want(Desired::Stop, "timeout");
    broker.wait("done", done);
    let killed = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Exited {
                code: None,
                signal: Some(9),
                reason: Some(ExitReason::Timeout),
                ..
            }
        )
    };
    assert!(broker.seen(|seen| has(seen, killed)).is_some());
    assert_eq!(node.processes(), [] as [u32; 0]);
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}

#[test]
fn a_polite_program_gets_its_grace() {
    let text = "trap 'echo bye; echo saved > ckpt.txt; exit 0' TERM; echo ready; \
        while :; do sleep 0.05; done";
    let mut assignment = shell(text);
    assignment.stop_grace_seconds = 30;
    let broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    wait_ready(&broker);
    let since = Instant::now();
    broker.want(Desired::Stop, "user");
    broker.wait("done", done);
    assert!(since.elapsed() < Duration::from_secs(20));
    assert!(log_of(&broker, LogStream::Stdout).ends_with(b"bye\n"));
    let exited = |kind: &EventKind| {
        matches!(kind, EventKind::Exited { code: Some(0), reason: Some(ExitReason::Stopped), .. })
    };
    assert!(broker.seen(|seen| has(seen, exited)).is_some());
    let saved =
        |kind: &EventKind| matches!(kind, EventKind::Output { path, .. } if path == "ckpt.txt");
    assert!(broker.seen(|seen| has(seen, saved)).is_some());
}

#[test]
fn children_that_hold_the_pipes_do_not_hold_the_log() {
    let text = "sleep 600 & setsid sleep 600 & echo last words; exit 4";
    let broker = Broker::start(shell(text), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    let since = Instant::now();
    broker.wait("done", done);
    assert!(since.elapsed() < Duration::from_secs(20));
    assert_eq!(log_of(&broker, LogStream::Stdout), b"last words\n");
    assert_eq!(node.processes(), [] as [u32; 0]);
}

#[test]
fn what_goes_on_as_its_own_child_is_ended_with_its_user() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped what_goes_on_as_its_own_child_is_ended_with_its_user: needs root");
        return;
    }
    let text = "\"$PLACE/chain\" \"$PLACE/held\" 50; echo ready";
    let broker = Broker::start(shell(text), Vec::new());
    let to = DropTo { uid: 54_322, gid: 54_322 };
    let mut node = Node::new(&broker, &Setup { drop_to: Some(to), ..Setup::default() });
    make_chain(&node.outside("chain"));
    make_lock(&node.outside("held"));
    broker.seen(|seen| {
        let env = &mut seen.assignment.as_mut().unwrap().env;
        env.insert("PLACE".to_owned(), node.outside("").display().to_string());
    });
    node.agent();
    broker.wait("done", done);
    assert_eq!(log_of(&broker, LogStream::Stdout), b"ready\n");
    assert!(is_free(&node.outside("held")));
}

#[test]
fn a_stop_before_user_code_runs_nothing() {
    let mut assignment = shell("echo ran");
    assignment.sync = vec![file("a", b"a")];
    let broker = Broker::start(assignment, vec![b"a".to_vec()]);
    broker.delay_blobs(Duration::from_secs(600));
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("preparing", |seen| has(seen, |kind| *kind == EventKind::Preparing));
    broker.want(Desired::Stop, "user");
    broker.wait("done", done);
    let stopped = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Exited { code: None, signal: None, reason: Some(ExitReason::Stopped), .. }
        )
    };
    assert!(broker.seen(|seen| has(seen, stopped)).is_some());
    assert!(
        broker.seen(|seen| has(seen, |kind| matches!(kind, EventKind::Started { .. }))).is_none()
    );
}

#[test]
fn a_killed_agent_takes_its_program_along_and_the_next_one_reports_it_lost() {
    let mut broker_text = String::from("echo run >> \"$COUNT\"; setsid sleep 600 & echo ready; ");
    broker_text.push_str("while :; do sleep 1; done");
    let broker = Broker::start(shell(&broker_text), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let count = node.outside("count");
    broker.seen(|seen| {
        let env = &mut seen.assignment.as_mut().unwrap().env;
        env.insert("COUNT".to_owned(), count.display().to_string());
    });
    let first = node.agent();
    wait_ready(&broker);
    let main = broker.seen(|seen| {
        seen.events.iter().find_map(|event| match event.kind {
            EventKind::Started { pid } => Some(pid),
            _ => None,
        })
    });
    let main = main.unwrap();
    assert!(node.processes().contains(&main));
    node.kill(first);
    wait_until("the main process is gone", || !node.processes().contains(&main));

    let second = node.agent();
    broker.wait("done", done);
    assert!(broker.seen(|seen| has(seen, |kind| matches!(kind, EventKind::Lost { .. }))).is_some());
    assert_eq!(node.processes(), [] as [u32; 0]);
    assert_eq!(fs::read_to_string(&count).unwrap(), "run\n");
    assert_eq!(log_of(&broker, LogStream::Stdout), b"ready\n");
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(second), Some(0));
}

#[test]
fn an_agent_killed_at_any_moment_leaves_one_run_and_a_whole_story() {
    // Kills at growing delays walk through joining, preparing, running, sealing and collecting.
    for step in 0..12_u32 {
        let text = "echo run >> \"$COUNT\"; echo one; echo out > o.txt; sleep 0.1; echo two";
        let mut assignment = shell(text);
        assignment.sync = vec![file("a", b"a")];
        let broker = Broker::start(assignment, vec![b"a".to_vec()]);
        let mut node = Node::new(&broker, &Setup::default());
        let count = node.outside("count");
        broker.seen(|seen| {
            let env = &mut seen.assignment.as_mut().unwrap().env;
            env.insert("COUNT".to_owned(), count.display().to_string());
        });
        let first = node.agent();
        std::thread::sleep(Duration::from_millis(u64::from(step * 25)));
        node.kill(first);
        let second = node.agent();
        broker.wait("done", done);
        let runs = fs::read_to_string(&count).unwrap_or_default();
        assert!(runs.len() <= 4, "step {step}: {runs}");
        let ends = broker.seen(|seen| {
            let end = |kind: &EventKind| {
                matches!(kind, EventKind::Exited { .. } | EventKind::Lost { .. })
            };
            seen.events.iter().filter(|event| end(&event.kind)).count()
        });
        assert_eq!(ends, 1, "step {step}");
        let log = log_of(&broker, LogStream::Stdout);
        assert!(b"one\ntwo\n".starts_with(&log), "step {step}");
        broker.want(Desired::Release, "");
        assert_eq!(node.exit_code(second), Some(0));
    }
}

#[test]
fn a_fenced_agent_ends_its_work_and_itself() {
    let broker = Broker::start(shell(STUBBORN), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let agent = node.agent();
    wait_ready(&broker);
    broker.faults(|_, _| Fault::Status(401));
    broker.want(Desired::Stop, "");
    assert_eq!(node.exit_code(agent), Some(3));
    assert_eq!(node.processes(), [] as [u32; 0]);
}

#[test]
fn a_second_agent_is_refused_and_another_key_is_fenced() {
    let broker = Broker::start(shell(STUBBORN), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    wait_ready(&broker);
    let second = node.agent();
    assert_eq!(node.exit_code(second), Some(1));
    // The same bootstrap in another folder, as in a cloned image.
    let mut clone = Node::new(&broker, &Setup::default());
    let third = clone.agent();
    assert_eq!(clone.exit_code(third), Some(3));
}

#[test]
fn a_silent_broker_ends_the_work_and_the_story_is_kept() {
    let mut broker = Broker::start(shell(STUBBORN), Vec::new());
    let mut node = Node::new(&broker, &Setup { ttl: 2, ..Setup::default() });
    let agent = node.agent();
    wait_ready(&broker);
    broker.stop();
    assert_eq!(node.exit_code(agent), Some(4));
    assert_eq!(node.processes(), [] as [u32; 0]);
    broker.resume();
    let next = node.agent();
    broker.wait("done", done);
    let silent = |kind: &EventKind| {
        matches!(kind, EventKind::Exited { reason: Some(ExitReason::BrokerSilent), .. })
    };
    assert!(broker.seen(|seen| has(seen, silent)).is_some());
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(next), Some(0));
}

#[test]
fn an_agent_told_to_end_leaves_nothing_behind() {
    let broker = Broker::start(shell(STUBBORN), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let agent = node.agent();
    wait_ready(&broker);
    let pid = rustix::process::Pid::from_raw(node.pid(agent).cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(node.exit_code(agent), Some(0));
    assert_eq!(node.processes(), [] as [u32; 0]);
}
