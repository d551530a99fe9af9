//! A bad line and a bad broker lose nothing.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runwhere_agent::protocol::{Desired, EventKind, LogStream};

use crate::broker::{Broker, Fault, Seen, log_of};
use crate::node::{Node, Setup, file, shell, wait_until};

fn done(seen: &Seen) -> Option<()> {
    seen.events.iter().any(|event| event.kind == EventKind::Done).then_some(())
}

// Writes the same bytes to standard output and to a file of its own.
fn noisy(lines: u32) -> String {
    format!(
        "seq 1 {lines} | awk '{{ print \"line\", $1, $1 * 7919 % 10007 }}' | tee \"$COPY\"; \
         echo out > out.txt; exit 9"
    )
}

fn with_copy(broker: &Broker, node: &Node) -> std::path::PathBuf {
    let copy = node.outside("copy");
    broker.seen(|seen| {
        let env = &mut seen.assignment.as_mut().unwrap().env;
        env.insert("COPY".to_owned(), copy.display().to_string());
    });
    copy
}

fn check_whole(broker: &Broker, copy: &std::path::Path) {
    let expected = fs::read(copy).unwrap();
    let log = log_of(broker, LogStream::Stdout);
    assert_eq!(log.len(), expected.len());
    assert!(log == expected, "the log differs from the program's own copy");
    broker.seen(|seen| {
        for (place, event) in seen.events.iter().enumerate() {
            assert_eq!(event.seq, place as u64 + 1);
        }
        let exits: Vec<_> = seen
            .events
            .iter()
            .filter_map(|event| match event.kind {
                EventKind::Exited { code, .. } => Some(code),
                _ => None,
            })
            .collect();
        assert_eq!(exits, [Some(9)]);
        assert_eq!(seen.outputs.len(), 1);
    });
}

#[test]
fn errors_lost_replies_and_repeats_lose_and_double_nothing() {
    let mut assignment = shell(&noisy(300_000));
    assignment.sync = (0..10).map(|n| file(&format!("f{n}"), &[n])).collect();
    let broker = Broker::start(assignment, (0..10).map(|n| vec![n]).collect());
    let random = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    broker.faults(move |_, _| {
        let mut x = random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random.store(x, Ordering::Relaxed);
        match x % 8 {
            0 => Fault::Status(500),
            1 => Fault::Status(503),
            2 | 3 => Fault::LoseReply,
            4 => Fault::Twice,
            _ => Fault::None,
        }
    });
    let mut node = Node::new(&broker, &Setup::default());
    let copy = with_copy(&broker, &node);
    let agent = node.agent();
    broker.wait("done", done);
    check_whole(&broker, &copy);
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}

#[test]
fn a_broker_that_is_gone_for_a_while_gets_everything_afterwards() {
    let text = format!("echo first; sleep 1; {}", noisy(200_000))
        .replace("echo first", "echo first | tee \"$COPY\"");
    let text = text.replace("tee \"$COPY\"; echo out", "tee -a \"$COPY\"; echo out");
    let mut broker = Broker::start(shell(&text), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let copy = with_copy(&broker, &node);
    let agent = node.agent();
    broker.wait("first", |seen| (!seen.logs[1].is_empty()).then_some(()));
    for _ in 0..3 {
        broker.stop();
        std::thread::sleep(Duration::from_millis(700));
        broker.resume();
        std::thread::sleep(Duration::from_millis(300));
    }
    broker.wait("done", done);
    check_whole(&broker, &copy);
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}

#[test]
fn a_broker_that_comes_back_on_another_port_is_found_again() {
    let text = format!("echo first; sleep 1; {}", noisy(200_000))
        .replace("echo first", "echo first | tee \"$COPY\"");
    let text = text.replace("tee \"$COPY\"; echo out", "tee -a \"$COPY\"; echo out");
    let mut broker = Broker::start(shell(&text), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let copy = with_copy(&broker, &node);
    let agent = node.agent();
    broker.wait("first", |seen| (!seen.logs[1].is_empty()).then_some(()));
    for _ in 0..3 {
        let earlier = broker.address;
        broker.stop();
        // Whoever has the earlier port now, a 401 of his must not end the work. He comes after the
        // bootstrap was rewritten, as a broker rewrites it at once.
        broker.resume_elsewhere();
        node.rewrite_url(&broker);
        answer_401(earlier);
        let calls = broker.seen(|seen| seen.calls.values().sum::<usize>());
        broker.wait("a call at the new place", |seen| {
            (seen.calls.values().sum::<usize>() > calls).then_some(())
        });
    }
    broker.wait("done", done);
    check_whole(&broker, &copy);
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}

fn answer_401(address: std::net::SocketAddr) {
    use std::io::{Read, Write};
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let listener = loop {
        match std::net::TcpListener::bind(address) {
            Ok(listener) => break listener,
            Err(error) if std::time::Instant::now() > deadline => panic!("{error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // Ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
}

#[test]
fn a_killed_agent_sends_what_it_had_spooled() {
    // The broker takes no logs at first, so that everything lies in the spool.
    let text =
        "seq 1 50000 | tee \"$COPY\"; echo ready > \"$COPY.ready\"; while :; do sleep 1; done";
    let broker = Broker::start(shell(text), Vec::new());
    broker.faults(|call, _| if call == "logs" { Fault::Status(503) } else { Fault::None });
    let mut node = Node::new(&broker, &Setup::default());
    let copy = with_copy(&broker, &node);
    let agent = node.agent();
    let ready = copy.with_extension("ready");
    wait_until("the program wrote its log", || ready.exists());
    let spool = node.dir().join("spool");
    let size = || -> u64 {
        fs::read_dir(&spool).unwrap().flatten().map(|e| e.metadata().unwrap().len()).sum()
    };
    // Two looks with the same size, one log-writer period apart: all of the pipe has been read.
    let mut last = 0;
    loop {
        std::thread::sleep(Duration::from_millis(600));
        let now = size();
        if now > 0 && now == last {
            break;
        }
        last = now;
    }
    node.kill(agent);
    broker.faults(|_, _| Fault::None);
    node.agent();
    broker.wait("done", done);
    assert!(log_of(&broker, LogStream::Stdout) == fs::read(&copy).unwrap());
}

#[test]
fn time_without_a_broker_does_not_count_against_the_outputs() {
    let mut assignment = shell(
        "i=0; while [ $i -lt 60 ]; do echo $i > f$i; i=$((i+1)); done; \
         head -c 3000000 /dev/zero > big; echo ready; cat \"$GATE\"",
    );
    assignment.collect.max_seconds = 4;
    let mut broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let gate = node.outside("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    broker.seen(|seen| {
        let env = &mut seen.assignment.as_mut().unwrap().env;
        env.insert("GATE".to_owned(), gate.display().to_string());
    });
    node.agent();
    broker.wait("ready", |seen| seen.logs[1].starts_with(b"ready").then_some(()));
    broker.stop();
    fs::write(&gate, b"go").unwrap();
    // Longer than the bound of the collection.
    std::thread::sleep(Duration::from_secs(6));
    broker.resume();
    broker.wait("done", done);
    broker.seen(|seen| {
        assert_eq!(seen.outputs.len(), 61);
        assert!(seen.events.iter().any(|event| matches!(
            event.kind,
            EventKind::Collected { files: 61, failed: None, .. }
        )));
    });
}

#[test]
fn a_large_output_is_sent_as_it_is_hashed_and_otherwise_with_care() {
    let script = "head -c 20000000 /dev/urandom >large; cp large \"$COPY\"";
    // Faults of the calls for it, and how many calls there are: sent and read back; lost and
    // refused for a while; refused for good, asked for, sent by its digest and read back.
    type Plan = (fn(usize) -> Fault, usize);
    let plans: [Plan; 3] = [
        (|_| Fault::None, 2),
        (
            |number| match number {
                1 => Fault::LoseReply,
                2 => Fault::Status(503),
                _ => Fault::None,
            },
            4,
        ),
        (|number| if number == 1 { Fault::Status(400) } else { Fault::None }, 4),
    ];
    for (plan, calls) in plans {
        let broker = Broker::start(shell(script), Vec::new());
        broker
            .faults(move |call, number| if call == "outputs" { plan(number) } else { Fault::None });
        let mut node = Node::new(&broker, &Setup::default());
        let copy = with_copy(&broker, &node);
        node.agent();
        broker.wait("done", done);
        let content = fs::read(&copy).unwrap();
        broker.seen(|seen| {
            assert_eq!(seen.calls["outputs"], calls);
            assert_eq!(seen.outputs.len(), 1);
            assert!(seen.outputs.values().all(|stored| *stored == content));
            let told = seen.events.iter().find_map(|event| match &event.kind {
                EventKind::Output { path, sha256, size, .. } => Some((path, sha256, *size)),
                _ => None,
            });
            let (path, sha256, size) = told.unwrap();
            assert_eq!((path.as_str(), size), ("large", 20_000_000));
            assert!(seen.outputs.contains_key(sha256));
        });
    }
}

#[test]
fn user_code_waits_until_the_broker_knows_that_the_node_is_ready() {
    // Else a broker that hears nothing of a lost node would give the trial another one, and run it twice.
    let broker = Broker::start(shell(": >\"$STARTED\""), Vec::new());
    broker.faults(|call, _| if call == "events" { Fault::Status(503) } else { Fault::None });
    let mut node = Node::new(&broker, &Setup::default());
    let started = node.outside("started");
    broker.seen(|seen| {
        let env = &mut seen.assignment.as_mut().unwrap().env;
        env.insert("STARTED".to_owned(), started.display().to_string());
    });
    let since = std::time::Instant::now();
    node.agent();
    broker.wait("several posts of events", |seen| {
        let long = since.elapsed() > Duration::from_secs(3);
        (long && seen.calls.get("events").is_some_and(|count| *count >= 4)).then_some(())
    });
    assert!(!started.exists(), "user code ran although the broker knew nothing of the node");
    broker.faults(|_, _| Fault::None);
    broker.wait("done", done);
    assert!(started.exists());
}
