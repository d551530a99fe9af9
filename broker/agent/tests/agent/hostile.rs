//! Hostile manifests and hostile amounts.

use std::fs;

use runwhere_agent::protocol::{Assignment, Desired, Digest, EventKind, LogStream};
use sha2::Digest as _;

use crate::broker::{Broker, Seen, log_of};
use crate::node::{Node, Setup, file, shell, status_kib};

fn done(seen: &Seen) -> Option<()> {
    seen.events.iter().any(|event| event.kind == EventKind::Done).then_some(())
}

fn failure(broker: &Broker) -> Option<(String, String)> {
    broker.seen(|seen| {
        seen.events.iter().find_map(|event| match &event.kind {
            EventKind::Failed { stage, reason } => Some((stage.clone(), reason.clone())),
            _ => None,
        })
    })
}

#[test]
fn manifests_that_lead_outside_are_refused() {
    for path in ["../x", "/tmp/x", "a/../../x", "", "a//b", "a\u{0}b"] {
        for restored in [false, true] {
            let mut assignment = shell("echo ran");
            let entry = vec![file(path, b"evil")];
            if restored {
                assignment.restore = entry;
            } else {
                assignment.sync = entry;
            }
            let broker = Broker::start(assignment, vec![b"evil".to_vec()]);
            let mut node = Node::new(&broker, &Setup::default());
            let agent = node.agent();
            broker.wait("done", done);
            let (stage, _) = failure(&broker).unwrap();
            assert_eq!(stage, if restored { "restore" } else { "sync" }, "{path:?}");
            assert_eq!(log_of(&broker, LogStream::Stdout), b"");
            broker.want(Desired::Release, "");
            assert_eq!(node.exit_code(agent), Some(0));
        }
    }
}

#[test]
fn content_that_is_not_what_the_manifest_says_never_runs() {
    let mut assignment = shell("echo ran");
    assignment.sync = vec![file("a.txt", b"honest")];
    let broker = Broker::start(assignment, Vec::new());
    broker.seen(|seen| {
        seen.blobs.insert(Digest::of(b"honest"), b"forged".to_vec());
    });
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    let (stage, reason) = failure(&broker).unwrap();
    assert_eq!(stage, "sync");
    assert!(reason.contains("a.txt"), "{reason}");
    assert!(!node.dir().join("work/a.txt").exists());
}

#[test]
fn a_file_that_is_also_a_folder_is_refused() {
    let mut assignment = shell("echo ran");
    assignment.sync = vec![file("a", b"1"), file("a/b", b"2")];
    let broker = Broker::start(assignment, vec![b"1".to_vec(), b"2".to_vec()]);
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    assert_eq!(failure(&broker).unwrap().0, "sync");
}

#[test]
fn restored_files_take_the_place_of_the_sync() {
    // The earlier program has made a folder of a file, and a file of a folder.
    let mut assignment = shell("cat a/b d keep; rm -r a; printf old >a");
    assignment.sync = vec![
        file("a", b"old"),
        file("d/x", b"old"),
        file("d/y/z", b"old"),
        file("keep", b"keep"),
        file("ab", b"old"),
    ];
    assignment.restore = vec![file("a/b", b"new "), file("d", b"file ")];
    let blobs = ["old", "keep", "new ", "file "].map(|text| text.as_bytes().to_vec());
    let broker = Broker::start(assignment, blobs.to_vec());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    assert_eq!(failure(&broker), None);
    assert_eq!(log_of(&broker, LogStream::Stdout), b"new file keep");
    let mut outputs: Vec<String> = broker.seen(|seen| {
        let path = |event: &runwhere_agent::protocol::Event| match &event.kind {
            EventKind::Output { path, .. } => Some(path.clone()),
            _ => None,
        };
        seen.events.iter().filter_map(path).collect()
    });
    outputs.sort();
    // What was left out of the sync is new where the program makes it, whatever is in it.
    assert_eq!(outputs, ["a", "d"]);
}

#[test]
fn output_beyond_the_cap_is_counted_and_does_not_stall() {
    let mut assignment = shell("head -c 3000000 /dev/zero; echo end >&2");
    assignment.max_log_bytes = 1_000_000;
    let broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    let kept = log_of(&broker, LogStream::Stdout).len() + log_of(&broker, LogStream::Stderr).len();
    assert_eq!(kept, 1_000_000);
    let dropped = broker.seen(|seen| {
        seen.events.iter().find_map(|event| match event.kind {
            EventKind::LogSealed { dropped_bytes, .. } => Some(dropped_bytes),
            _ => None,
        })
    });
    assert_eq!(dropped, Some(3_000_004 - 1_000_000));
    let system = String::from_utf8(log_of(&broker, LogStream::System)).unwrap();
    assert_eq!(system.lines().count(), 2, "{system}");
    assert!(system.contains("2000004"), "{system}");
}

#[test]
fn outputs_beyond_the_bound_are_named() {
    let mut assignment =
        shell("mkdir ck; echo c > ck/1; head -c 5000 /dev/zero > big; echo s > small");
    assignment.checkpoint = Some("ck".to_owned());
    assignment.collect.max_bytes = 1000;
    let broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    let (files, skipped) = broker.seen(|seen| {
        seen.events
            .iter()
            .find_map(|event| match &event.kind {
                EventKind::Collected { files, skipped, failed: Some(_), .. } => {
                    Some((*files, skipped.clone()))
                }
                _ => None,
            })
            .unwrap()
    });
    assert_eq!(files, 2);
    assert_eq!(skipped.len(), 1);
    assert_eq!((skipped[0].path.as_str(), skipped[0].reason.as_str()), ("big", "over_max_bytes"));
}

/// A runner's files are declared: what of them stays behind makes the collection incomplete.
fn runner(script: &[u8], outputs: &[&str]) -> Assignment {
    let mut assignment = shell("");
    let task = serde_json::json!({
        "entrypoint": "main.sh", "files": [file("main.sh", script)], "outputs": outputs, "image": "",
    });
    assignment.runner = Some(serde_json::from_value(task).unwrap());
    assignment
}

/// What became of a collection: files, what was left behind and why, and why it failed.
fn collection(broker: &Broker) -> (u64, Vec<(String, String)>, Option<String>) {
    broker.seen(|seen| {
        let found = seen.events.iter().find_map(|event| match &event.kind {
            EventKind::Collected { files, skipped, failed, .. } => {
                let mut skipped: Vec<_> =
                    skipped.iter().map(|s| (s.path.clone(), s.reason.clone())).collect();
                skipped.sort();
                Some((*files, skipped, failed.clone()))
            }
            _ => None,
        });
        found.unwrap()
    })
}

#[test]
fn every_output_that_cannot_be_taken_has_its_reason() {
    let make =
        |text: &str| format!("mkdir -p outputs/deep; echo good >outputs/deep/good; {text}\n");
    for (text, expected, failed) in [
        (
            "ln -s /etc/passwd outputs/l; ln -s / outputs/d; mkfifo outputs/p",
            &[("outputs/d", "symlink"), ("outputs/l", "symlink"), ("outputs/p", "fifo")][..],
            None,
        ),
        // What was not declared is nobody's concern.
        ("ln -s /etc/passwd other; printf x >'c:x'", &[], None),
        ("truncate -s 64M outputs/holes", &[("outputs/holes", "sparse")], Some("sparse")),
        ("printf x >'outputs/a\\b'", &[("outputs/a\\b", "unsafe_name")], Some("unsafe_name")),
        (
            "printf x >\"outputs/$(printf 'a\\nb')\"",
            &[("outputs/a\nb", "unsafe_name")],
            Some("unsafe_name"),
        ),
        (
            "printf x >\"outputs/$(printf 'a\\377b')\"",
            &[("outputs/a\u{fffd}b", "name_not_utf8")],
            Some("name_not_utf8"),
        ),
        (
            "head -c 90000000 /dev/zero >outputs/large",
            &[("outputs/large", "over_max_bytes")],
            Some("over_max_bytes"),
        ),
    ] {
        let script = make(text);
        let mut assignment = runner(script.as_bytes(), &["outputs/**"]);
        assignment.collect.max_bytes = 80_000_000;
        let broker = Broker::start(assignment, vec![script.clone().into_bytes()]);
        let mut node = Node::new(&broker, &Setup::default());
        node.agent();
        broker.wait("done", done);
        let (files, skipped, reason) = collection(&broker);
        let expected: Vec<_> =
            expected.iter().map(|(path, why)| ((*path).to_owned(), (*why).to_owned())).collect();
        assert_eq!((files, skipped), (1, expected), "{text}");
        assert_eq!(reason.as_deref(), failed, "{text}");
    }
}

#[test]
fn a_file_that_grows_while_it_is_taken_is_told() {
    let script =
        b"mkdir outputs; head -c 30000000 /dev/urandom >outputs/grows; echo fine >outputs/still\n";
    let assignment = runner(script, &["outputs/**"]);
    let broker = Broker::start(assignment, vec![script.to_vec()]);
    let mut node = Node::new(&broker, &Setup::default());
    let grows = node.dir().join("work/outputs/grows");
    let agent = node.agent();
    // Somebody else's program, which the end of the trial does not end.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write as _;
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !stop.load(std::sync::atomic::Ordering::Relaxed)
                && std::time::Instant::now() < end
            {
                if let Ok(mut file) = fs::OpenOptions::new().append(true).open(&grows) {
                    let _ = file.write_all(b"more");
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        broker.wait("done", done);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let (files, skipped, failed) = collection(&broker);
    assert_eq!(files, 1);
    assert_eq!(skipped, [("outputs/grows".to_owned(), "changed_while_read".to_owned())]);
    assert_eq!(failed.as_deref(), Some("changed_while_read"));
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}

#[test]
fn a_flood_with_a_very_long_line_arrives_whole_in_little_memory() {
    // 50 MB without a newline, then many lines; both streams at once.
    let text = "(head -c 50000000 /dev/zero | tr '\\0' x; yes 'a line of the flood' | head -c 150000000) \
                & yes err | head -c 20000000 >&2; wait";
    let broker = Broker::start(shell(text), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let agent = node.agent();
    broker.wait("done", done);
    let log = log_of(&broker, LogStream::Stdout);
    assert_eq!(log.len(), 200_000_000);
    assert!(log[..50_000_000].iter().all(|byte| *byte == b'x'));
    assert_eq!(log_of(&broker, LogStream::Stderr).len(), 20_000_000);
    let sealed = broker.seen(|seen| {
        seen.events.iter().find_map(|event| match &event.kind {
            EventKind::LogSealed { sha256_per_stream, .. } => Some(sha256_per_stream.clone()),
            _ => None,
        })
    });
    let hash = Digest::from_bytes(sha2::Sha256::digest(&log).into());
    assert!(sealed.unwrap().iter().any(|seal| seal.sha256 == Some(hash)));
    let peak = status_kib(node.pid(agent), "VmHWM:");
    assert!(peak < 100 << 10, "the agent used {peak} KiB");
    // What was sent is deleted; the newest segment stays.
    let left = fs::read_dir(node.dir().join("spool")).unwrap().count();
    assert!(left <= 1, "{left} segments are left");
}

#[test]
fn a_disk_that_takes_no_more_loses_no_log_while_the_broker_is_there() {
    let broker = Broker::start(shell("cat \"$SOURCE\"; echo end; exit 6"), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    let source = node.outside("source");
    // Does not compress, so that it is as large in the spool.
    let mut random = vec![0_u8; 40_000_000];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for chunk in random.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    fs::write(&source, &random).unwrap();
    broker.seen(|seen| {
        let env = &mut seen.assignment.as_mut().unwrap().env;
        env.insert("SOURCE".to_owned(), source.display().to_string());
    });
    let agent = node.agent_with_file_limit(10 << 11);
    broker.wait("done", done);
    random.extend_from_slice(b"end\n");
    assert!(log_of(&broker, LogStream::Stdout) == random);
    let spooled = fs::read_dir(node.dir().join("spool")).unwrap().flatten();
    assert!(spooled.map(|entry| entry.metadata().unwrap().len()).sum::<u64>() <= 10 << 20);
    let exited = |kind: &EventKind| matches!(kind, EventKind::Exited { code: Some(6), .. });
    assert!(broker.seen(|seen| seen.events.iter().any(|event| exited(&event.kind))));
    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}
