//! What a trial is when nothing goes wrong.

use runwhere_agent::protocol::{
    Desired, Digest, DropTo, EventKind, ExitReason, Gpus, LogStream, StreamSeal,
};

use crate::broker::{Broker, log_of};
use crate::node::{Node, Setup, file, shell, wait_until};

fn done(seen: &crate::broker::Seen) -> Option<()> {
    seen.events.iter().any(|event| event.kind == EventKind::Done).then_some(())
}

fn names(broker: &Broker) -> Vec<&'static str> {
    broker.seen(|seen| {
        let name = |kind: &EventKind| match kind {
            EventKind::Booted { .. } => "booted",
            EventKind::GpusReady { .. } => "gpus_ready",
            EventKind::Preparing => "preparing",
            EventKind::Started { .. } => "started",
            EventKind::Exited { .. } => "exited",
            EventKind::LogSealed { .. } => "log_sealed",
            EventKind::Collecting => "collecting",
            EventKind::Output { .. } => "output",
            EventKind::Collected { .. } => "collected",
            EventKind::Failed { .. } => "failed",
            EventKind::Lost { .. } => "lost",
            EventKind::ReclaimNotice { .. } => "reclaim_notice",
            EventKind::Done => "done",
            EventKind::Unknown => "unknown",
        };
        seen.events.iter().map(|event| name(&event.kind)).collect()
    })
}

#[test]
fn a_trial_runs_and_its_outputs_come_home() {
    let script = b"echo \"$GREETING from $(basename $PWD)\"\n\
        printf 'bad \\377 utf8' >&2\n\
        echo changed > ../data/in.txt\n\
        mkdir -p ckpt/deep __pycache__ && echo step1 > ckpt/deep/1.pt && echo x > __pycache__/m.pyc\n\
        echo new > ../result.txt && ln -s /etc/passwd ../link && mkfifo ../pipe\n\
        truncate -s 8M ../holes\n\
        exit 3\n";
    let (same, before, old) = (b"unchanged".to_vec(), b"before".to_vec(), b"step0".to_vec());
    let mut assignment = shell("exec sh ./run.sh");
    assignment.workdir = "src".to_owned();
    assignment.checkpoint = Some("ckpt".to_owned());
    assignment.sync = vec![
        file("src/run.sh", script),
        file("data/same.txt", &same),
        file("data/in.txt", &before),
    ];
    assignment.restore = vec![file("src/ckpt/0.pt", &old)];
    assignment.image = Some("pytorch:2".to_owned());
    assignment.gpus =
        Gpus { count: 2, model: "a100-80g".to_owned(), pretend: true, ..Gpus::default() };
    let broker = Broker::start(assignment, vec![script.to_vec(), same, before, old]);
    let mut node = Node::new(&broker, &Setup::default());
    let agent = node.agent();
    broker.wait("done", done);

    assert_eq!(log_of(&broker, LogStream::Stdout), b"hello from src\n");
    assert_eq!(log_of(&broker, LogStream::Stderr), b"bad \xff utf8");
    // What is pretended or not used is said by the broker, before the first phase.
    assert_eq!(log_of(&broker, LogStream::System), b"");

    let events = broker.seen(|seen| seen.events.clone());
    assert!(events.iter().any(|event| matches!(
        event.kind,
        EventKind::Exited { code: Some(3), signal: None, reason: None, .. }
    )));
    let outputs: Vec<(String, bool)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Output { path, checkpoint, .. } => Some((path.clone(), *checkpoint)),
            _ => None,
        })
        .collect();
    let expected = [
        ("src/ckpt/0.pt", true),
        ("src/ckpt/deep/1.pt", true),
        ("data/in.txt", false),
        ("result.txt", false),
    ];
    assert_eq!(outputs, expected.map(|(path, checkpoint)| (path.to_owned(), checkpoint)));
    broker.seen(|seen| {
        assert_eq!(seen.outputs[&Digest::of(b"step1\n")], b"step1\n");
        assert_eq!(seen.outputs[&Digest::of(b"new\n")], b"new\n");
    });
    let mut skipped: Vec<(String, String)> = events
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::Collected { skipped, files: 4, failed: None, .. } => Some(skipped.clone()),
            _ => None,
        })
        .unwrap()
        .into_iter()
        .map(|skipped| (skipped.path, skipped.reason))
        .collect();
    skipped.sort();
    let pairs = [("holes", "sparse"), ("link", "symlink"), ("pipe", "fifo")];
    assert_eq!(skipped, pairs.map(|(path, why)| (path.to_owned(), why.to_owned())));
    let seals = events.iter().find_map(|event| match &event.kind {
        EventKind::LogSealed { sha256_per_stream, .. } => Some(sha256_per_stream.clone()),
        _ => None,
    });
    let stdout = b"hello from src\n";
    assert!(seals.unwrap().contains(&StreamSeal {
        stream: LogStream::Stdout,
        bytes: stdout.len() as u64,
        sha256: Some(Digest::of(stdout)),
    }));
    let expected = [
        "booted",
        "gpus_ready",
        "preparing",
        "started",
        "exited",
        "log_sealed",
        "collecting",
        "output",
        "output",
        "output",
        "output",
        "collected",
        "done",
    ];
    assert_eq!(names(&broker), expected);

    broker.want(Desired::Release, "");
    assert_eq!(node.exit_code(agent), Some(0));
}

#[test]
fn the_environment_is_the_given_one_and_nothing_else() {
    let broker = Broker::start(shell("exec env"), Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    let text = String::from_utf8(log_of(&broker, LogStream::Stdout)).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    names.retain(|name| !matches!(*name, "PWD" | "_" | "SHLVL" | "OLDPWD"));
    let expected = ["GREETING", "HOME", "LANG", "PATH", "RUNWHERE_LEASE_ID", "TMPDIR"];
    assert_eq!(names, expected, "{text}");
    assert!(!text.contains("s3cret"));
}

#[test]
fn a_program_that_cannot_be_started_says_so() {
    let mut assignment = shell("");
    assignment.command.argv = vec!["no-such-program".to_owned()];
    let broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    let detail = broker.seen(|seen| {
        seen.events.iter().find_map(|event| match &event.kind {
            EventKind::Exited {
                code: Some(127),
                reason: Some(ExitReason::SpawnFailed),
                detail: Some(detail),
                ..
            } => Some(detail.clone()),
            _ => None,
        })
    });
    assert!(detail.unwrap().contains("no-such-program"));
    let stderr = String::from_utf8(log_of(&broker, LogStream::Stderr)).unwrap();
    assert!(stderr.contains("no-such-program"), "{stderr}");
}

#[test]
fn missing_gpus_fail_before_user_code() {
    let mut assignment = shell("echo ran");
    assignment.gpus.count = 64;
    let broker = Broker::start(assignment, Vec::new());
    let mut node = Node::new(&broker, &Setup::default());
    node.agent();
    broker.wait("done", done);
    assert_eq!(names(&broker), ["booted", "failed", "log_sealed", "done"]);
    assert_eq!(log_of(&broker, LogStream::Stdout), b"");
}

#[test]
fn rights_are_dropped_where_the_agent_is_root() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped rights_are_dropped_where_the_agent_is_root: needs root");
        return;
    }
    let to = DropTo { uid: 54_321, gid: 54_321 };
    for apart in [false, true] {
        rights_are_dropped(to, apart);
    }
}

fn rights_are_dropped(to: DropTo, apart: bool) {
    let text = "id -u; id -G; cat ../bootstrap.json ../journal.jsonl; echo out > o; \
                stat -c %u given $HOME $TMPDIR . >&2; mv . ../x; echo err >/dev/stderr; \
                grep NoNewPrivs /proc/self/status; \
                env -i setsid sleep 600 & exit 5";
    let mut assignment = shell(text);
    assignment.sync = vec![file("given", b"given")];
    let broker = Broker::start(assignment, vec![b"given".to_vec()]);
    let mut node = Node::new(&broker, &Setup { drop_to: Some(to), apart, ..Setup::default() });
    if apart {
        // As a provider makes it: its user passes through by the group alone.
        let folder = node.outside("apart");
        std::os::unix::fs::lchown(&folder, None, Some(to.gid)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o710);
        std::fs::set_permissions(folder, mode).unwrap();
    }
    node.agent();
    broker.wait("done", done);
    let stdout = String::from_utf8(log_of(&broker, LogStream::Stdout)).unwrap();
    assert_eq!(stdout, "54321\n54321\nNoNewPrivs:\t1\n");
    let stderr = String::from_utf8(log_of(&broker, LogStream::Stderr)).unwrap();
    assert_eq!(stderr.lines().filter(|line| *line == "54321").count(), 4, "{stderr}");
    assert!(stderr.contains("err\n"), "{stderr}");
    broker.seen(|seen| {
        assert!(seen.outputs.contains_key(&Digest::of(b"out\n")));
        assert!(seen.events.iter().any(|event| matches!(
            event.kind,
            EventKind::Exited { code: Some(5), signal: None, .. }
        )));
    });
    // A child without marker and session is still found by its user.
    let of_user = |entry: &std::fs::DirEntry| {
        let owner = entry.metadata().map(|data| std::os::unix::fs::MetadataExt::uid(&data));
        owner.is_ok_and(|uid| uid == to.uid)
    };
    // It stays visible until the system has reaped it.
    wait_until("the user's processes are gone", || {
        std::fs::read_dir("/proc").unwrap().flatten().filter(of_user).count() == 0
    });
}
