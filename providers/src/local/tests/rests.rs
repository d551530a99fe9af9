//! What ended allocations leave, and who waits for its removal: nobody.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use runwhere_model::{LaunchRequest, NodeId, NodePhase};

use super::super::ending::Ended;
use super::super::{LocalConfig, UidRange};
use super::{Bench, QUIET_AGENT, bench, end_all, end_user_args, gone, request, until};
use crate::clock::SystemClock;
use crate::provider::Provider;

/// Ends a node up to where its meter has stopped, as a server does that is killed then.
async fn stop(bench: &Bench, node: &NodeId) {
    let host = Arc::clone(&bench.local.host);
    let Ended::Not(ending) = host.begin_end(node).unwrap() else { panic!("it has ended") };
    until("all is killed", async || (ending.kill_all().unwrap() == 0).then_some(())).await;
    host.finish_end(&ending, &SystemClock).unwrap().unwrap();
}

#[tokio::test]
async fn what_a_program_leaves_is_removed_while_others_launch() {
    let script = r#"mkdir -p "$1/work/deep/er"; echo >"$1/work/deep/er/file"; exec sleep 60"#;
    let bench = bench(script, |config| config.retention = Duration::ZERO).await;
    let node = bench.local.launch(&request(1, "a100-80g.x2")).await.unwrap().node;
    let file = bench.folder_of(&node).join("work/deep/er/file");
    until("the program's file", async || file.exists().then_some(())).await;
    stop(&bench, &node).await;
    // All that needs the lock is done: the GPUs are free and the meter has stopped.
    assert!(file.exists());
    assert_eq!(bench.phase(&node).await, NodePhase::Gone);
    let host = Arc::clone(&bench.local.host);
    let second = host.launch(&request(2, "a100-80g.x2"), &SystemClock).unwrap().node;
    // It was shown for long enough, but is not archived before it is cleared; nor did the launch
    // wait for that.
    assert!(file.exists());
    // The next server makes up for what the last one was kept from.
    let beside = bench.beside(|config| config.retention = Duration::ZERO).await;
    gone(&bench.folder_of(&node).join("work")).await;
    assert_eq!(beside.describe(&node).await.unwrap().phase, NodePhase::Gone);
    beside.terminate(&second).await.unwrap();
    let third = beside.launch(&request(3, "a100-80g.x2")).await.unwrap().node;
    assert!(!bench.folder_of(&node).exists());
    assert_eq!(beside.describe(&node).await.unwrap().phase, NodePhase::Gone);
    beside.terminate(&third).await.unwrap();
}

#[tokio::test]
async fn a_launch_has_rests_removed_that_were_kept() {
    let bench = bench(QUIET_AGENT, |config| config.retention = Duration::ZERO).await;
    let node = bench.local.launch(&request(1, "a100-80g.x2")).await.unwrap().node;
    stop(&bench, &node).await;
    let rest = bench.folder_of(&node).join("agent.log");
    assert!(rest.exists());
    // Thrown away with more in it than is removed while others wait.
    let trash = bench.root().join(".scratch-node-0000eeee");
    std::fs::create_dir_all(trash.join("below")).unwrap();
    bench.local.launch(&request(2, "a100-80g.x2")).await.unwrap();
    gone(&rest).await;
    until("the trash is empty", async || {
        let names = std::fs::read_dir(bench.root()).unwrap();
        let hidden = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().as_encoded_bytes().starts_with(b".")
        };
        (!names.into_iter().any(hidden)).then_some(())
    })
    .await;
    end_all(&bench.local).await;
}

/// Settings of a server that is root, with users of their own below a folder.
fn own_users(config: &mut LocalConfig, first: u32, root: &Path) {
    config.drop_to = Some(UidRange { first, count: 1 });
    config.end_user_args = end_user_args();
    config.work_root = Some(root.to_owned());
}

#[tokio::test]
async fn an_end_is_confirmed_when_the_kernel_has_ended_the_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped an_end_is_confirmed_when_the_kernel_has_ended_the_user: needs root");
        return;
    }
    let root = tempfile::Builder::new().prefix("runwhere-jobs-").tempdir_in("/var/tmp").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(root.path(), mode).unwrap();
    let jobs = root.path().join("jobs");
    let bench = bench(QUIET_AGENT, |config| {
        own_users(config, 391_020, &jobs);
        config.end_user_args = vec!["-c".into(), "exit 3".into()];
    })
    .await;
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    // Nobody is found any more, but something may have been missed.
    let error = bench.local.terminate(&node).await.unwrap_err();
    assert!(error.to_string().contains("user 391020"), "{error}");
    assert_eq!(bench.phase(&node).await, NodePhase::Stopping);
    let beside = bench.beside(|config| own_users(config, 391_020, &jobs)).await;
    beside.terminate(&node).await.unwrap();
    assert_eq!(bench.phase(&node).await, NodePhase::Gone);
}

#[tokio::test]
async fn files_in_shared_folders_go_with_their_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped files_in_shared_folders_go_with_their_user: needs root");
        return;
    }
    let shared = ["/tmp", "/var/tmp", "/dev/shm"];
    let places = |name: &str| -> Vec<PathBuf> {
        let name = format!("runwhere-test-{}-{name}", std::process::id());
        shared.iter().map(|folder| Path::new(folder).join(&name)).collect()
    };
    let (left, kept) = (places("left"), places("kept"));
    let mut script = String::from(
        r#"uid=$(sed -n 's/.*"uid":\([0-9]*\).*/\1/p' "$1/bootstrap.json")
        as_user() { setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"; }
        "#,
    );
    for (left, kept) in left.iter().zip(&kept) {
        std::fs::create_dir(kept).unwrap();
        let (left, kept) = (left.display(), kept.display());
        script += &format!("as_user mkdir {left}; as_user ln -s {kept} {left}/link\n");
    }
    script += "echo >\"$1/ready\"; exec sleep 60";
    let root = tempfile::Builder::new().prefix("runwhere-jobs-").tempdir_in("/var/tmp").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(root.path(), mode).unwrap();
    let bench =
        bench(&script, |config| own_users(config, 391_010, &root.path().join("jobs"))).await;
    let launch: LaunchRequest = request(1, "a100-80g.x1");
    let node = bench.local.launch(&launch).await.unwrap().node;
    let ready = bench.folder_of(&node).join("ready");
    until("the program has left its files", async || ready.exists().then_some(())).await;
    assert!(left.iter().all(|path| path.join("link").exists()), "{left:?}");
    bench.local.terminate(&node).await.unwrap();
    for (left, kept) in left.iter().zip(&kept) {
        gone(left).await;
        std::fs::remove_dir(kept).unwrap();
    }
}
