//! What crashes leave behind, of agents and of servers.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use runwhere_model::{Effect, ErrorKind, NodeId, NodePhase, OfferScope, Stock, Terminated};

use super::super::folder::{self, Grant};
use super::super::process::AgentProcess;
use super::super::{Local, meter};
use super::{QUIET_AGENT, agent_pid, bench, config, end_all, kill, lease, request, runs, until};
use crate::clock::{Clock, SystemClock};
use crate::provider::{OfferSource, Provider};

#[tokio::test]
async fn a_killed_agent_leaves_a_stopped_node_that_still_holds_its_gpus() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let node = bench.local.launch(&request(1, "a100-80g.x2")).await.unwrap().node;
    assert_eq!(bench.phase(&node).await, NodePhase::Running);
    kill(agent_pid(&bench.folder_of(&node)));
    until("the node stops", async || {
        (bench.phase(&node).await == NodePhase::Stopped).then_some(())
    })
    .await;
    // A repeated launch finds it and does not start the agent again.
    assert_eq!(bench.local.launch(&request(1, "a100-80g.x2")).await.unwrap().node, node);
    assert_eq!(bench.phase(&node).await, NodePhase::Stopped);
    let error = bench.local.launch(&request(2, "a100-80g.x1")).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (ErrorKind::Capacity, Effect::None));
    let Terminated::Gone { stopped_at: Some(stopped) } =
        bench.local.terminate(&node).await.unwrap()
    else {
        panic!("not gone")
    };
    assert_eq!(meter::read(&bench.folder_of(&node)).unwrap().stopped_at, Some(stopped));
    bench.local.launch(&request(2, "a100-80g.x2")).await.unwrap();
    end_all(&bench.local).await;
}

#[tokio::test]
async fn an_allocation_of_an_unrecorded_launch_is_seen_and_ended() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let store = &bench.local.host.store;
    // The crash came after the folder and before the agent.
    let request = request(1, "a100-80g.x1");
    let node = NodeId::new("node-0000aaaa").unwrap();
    store.create(&request, &grant(&node)).unwrap();
    let found = bench.local.find(&request.lease).await.unwrap();
    assert_eq!((found.nodes.len(), found.nodes[0].phase), (1, NodePhase::Stopped));
    assert!(found.nodes[0].started_at.is_some());

    // The launch repeated finishes it; once more, it changes nothing.
    for _ in 0..2 {
        assert_eq!(bench.local.launch(&request).await.unwrap().node, node);
        assert_eq!(bench.phase(&node).await, NodePhase::Running);
    }
    let pid = agent_pid(&bench.folder_of(&node));

    // The crash came after the agent and before the note; or within the note.
    for note in [None, Some("{\"pid\":")] {
        let path = bench.folder_of(&node).join("agent.json");
        match note {
            None => std::fs::remove_file(path).unwrap(),
            Some(text) => std::fs::write(path, text).unwrap(),
        }
        assert_eq!(bench.phase(&node).await, NodePhase::Running);
        assert_eq!(bench.local.launch(&request).await.unwrap().node, node);
    }
    // The crash came so early that a second agent was started, which found the first and ended.
    let mut second = Command::new("true").spawn().unwrap();
    let ended = AgentProcess::of(second.id());
    second.wait().unwrap();
    folder::note_agent(&bench.folder_of(&node), &ended.unwrap()).unwrap();
    assert_eq!(bench.phase(&node).await, NodePhase::Running);

    bench.local.terminate(&node).await.unwrap();
    assert!(!runs(pid));
    assert_eq!(bench.phase(&node).await, NodePhase::Gone);
    assert_eq!(bench.local.launch(&request).await.unwrap().node, node);
    assert_eq!(bench.phase(&node).await, NodePhase::Gone);
}

fn grant(node: &NodeId) -> Grant {
    Grant {
        node: node.clone(),
        price: "36.44 CNY".parse::<runwhere_model::Money>().unwrap().into(),
        slots: vec![0],
        devices: vec!["0".to_owned()],
        stated: false,
        pretended: false,
        uid: None,
        work_dir: None,
        docker: None,
        at: SystemClock.now(),
    }
}

#[tokio::test]
async fn an_end_that_was_cut_off_is_finished_by_the_next() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let request = request(1, "a100-80g.x1");
    let node = bench.local.launch(&request).await.unwrap().node;
    folder::note_ending(&bench.folder_of(&node)).unwrap();
    assert_eq!(bench.phase(&node).await, NodePhase::Stopping);
    kill(agent_pid(&bench.folder_of(&node)));
    // No repeated launch brings it back, even if nobody noted that it ever ran.
    let note = bench.folder_of(&node).join("agent.json");
    std::fs::remove_file(&note).unwrap();
    bench.local.launch(&request).await.unwrap();
    assert!(!note.exists());
    assert_eq!(bench.phase(&node).await, NodePhase::Stopping);
    bench.local.terminate(&node).await.unwrap();
    assert_eq!(bench.phase(&node).await, NodePhase::Gone);
}

#[tokio::test]
async fn live_agents_are_told_where_the_broker_is_now() {
    let bench = bench(QUIET_AGENT, |config| config.gpus = "a100-80g:4".parse().ok()).await;
    let live = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let ended = bench.local.launch(&request(2, "a100-80g.x1")).await.unwrap().node;
    bench.local.terminate(&ended).await.unwrap();
    let emptied = bench.local.launch(&request(3, "a100-80g.x1")).await.unwrap().node;
    std::fs::remove_file(bench.folder_of(&emptied).join("bootstrap.json")).unwrap();
    let deployment = runwhere_model::DeploymentId::new("theirs").unwrap();
    let theirs = bench
        .beside(|config| {
            config.deployment = deployment.clone();
            config.gpus = "a100-80g:4".parse().ok();
        })
        .await;
    let foreign = runwhere_model::LaunchRequest { deployment, ..request(4, "a100-80g.x1") };
    let foreign = theirs.launch(&foreign).await.unwrap().node;

    let path = bench.folder_of(&live).join("bootstrap.json");
    let told = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let mut expected = told(&path);
    let theirs_before = told(&bench.folder_of(&foreign).join("bootstrap.json"));
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    let mut last = inode(&path);
    for (url, changes) in [
        (None, false),
        (Some("http://127.0.0.1:4711/"), true),
        (Some("http://127.0.0.1:4711"), false),
    ] {
        let _restarted = bench.beside(|config| config.broker_url = url.map(str::to_owned)).await;
        assert_eq!(inode(&path) != last, changes, "{url:?}");
        last = inode(&path);
    }
    expected["broker_url"] = "http://127.0.0.1:4711".into();
    assert_eq!(told(&path), expected);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(!bench.folder_of(&ended).join("bootstrap.json").exists());
    assert!(!bench.folder_of(&emptied).join("bootstrap.json").exists());
    assert_eq!(told(&bench.folder_of(&foreign).join("bootstrap.json")), theirs_before);
    end_all(&theirs).await;
    end_all(&bench.local).await;
}

#[tokio::test]
async fn rests_of_crashes_are_swept_and_strange_folders_left_alone() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let rest = bench.root().join(".scratch-node-0000bbbb");
    std::fs::create_dir(&rest).unwrap();
    std::fs::write(rest.join("bootstrap.json"), "{}").unwrap();
    for strange in ["node-", "node-ZZZZZZZZ", "lost+found", "node-0000cccc.bak"] {
        std::fs::create_dir(bench.root().join(strange)).unwrap();
    }
    assert!(bench.local.nodes().await.unwrap().complete);
    bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap();
    assert!(!rest.exists());
    assert!(bench.root().join("lost+found").exists());
    end_all(&bench.local).await;
}

#[tokio::test]
async fn with_a_damaged_folder_absence_proves_nothing() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let damaged = bench.root().join("node-0000dddd");
    std::fs::create_dir(&damaged).unwrap();
    for content in [None, Some("{"), Some("{\"version\":1}")] {
        if let Some(content) = content {
            std::fs::write(damaged.join("request.json"), content).unwrap();
        }
        assert!(!bench.local.find(&lease(1)).await.unwrap().complete);
        assert!(!bench.local.nodes().await.unwrap().complete);
        let error = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap_err();
        assert_eq!((error.kind, error.effect), (ErrorKind::Conflict, Effect::Possible));
    }
}

#[tokio::test]
async fn a_program_that_destroys_its_folder_is_still_known_and_ended() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    for (number, whole) in [(1, false), (2, true)] {
        let launch = request(number, "a100-80g.x2");
        let node = bench.local.launch(&launch).await.unwrap().node;
        let folder = bench.folder_of(&node);
        let started = meter::read(&folder).unwrap().started_at;
        let agent = agent_pid(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        if !whole {
            std::fs::create_dir(&folder).unwrap();
            kill(agent);
            until("the agent ends", async || (!runs(agent)).then_some(())).await;
        }
        // By itself, by its lease, and in what is taken of the machine.
        let phase = if whole { NodePhase::Running } else { NodePhase::Stopped };
        assert_eq!(bench.phase(&node).await, phase);
        let found = bench.local.find(&launch.lease).await.unwrap();
        assert!(found.complete && found.nodes[0].started_at == started, "{found:?}");
        let full = bench.local.launch(&request(9, "a100-80g.x1")).await.unwrap_err();
        assert_eq!((full.kind, full.effect), (ErrorKind::Capacity, Effect::None));
        let ended = bench.local.terminate(&node).await.unwrap();
        assert!(matches!(ended, Terminated::Gone { stopped_at: Some(_) }), "{ended:?}");
        assert!(!runs(agent));
        assert_eq!(bench.phase(&node).await, NodePhase::Gone);
    }
    bench.local.launch(&request(3, "a100-80g.x1")).await.unwrap();
    end_all(&bench.local).await;
}

#[tokio::test]
async fn an_agent_that_cannot_start_leaves_nothing() {
    for program in ["/no/such/program", "/proc/version"] {
        let bench = bench(QUIET_AGENT, |config| config.agent_program = program.into()).await;
        let request = request(1, "a100-80g.x1");
        let error = bench.local.launch(&request).await.unwrap_err();
        assert_eq!((error.kind, error.effect), (ErrorKind::Invalid, Effect::None));
        assert!(error.to_string().contains(program), "{error}");
        let found = bench.local.find(&request.lease).await.unwrap();
        assert!(found.complete && found.nodes.is_empty());
        let mut names: Vec<_> =
            std::fs::read_dir(bench.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["lock", "records"]);
        assert_eq!(std::fs::read_dir(bench.root().join("records")).unwrap().count(), 0);
    }
}

const SERVER_FOLDER: &str = "RUNWHERE_TEST_SERVER_FOLDER";

/// This test's program also plays the server that is killed: it launches and ends nodes until then.
#[tokio::test]
async fn a_killed_server_loses_no_allocation() {
    if let Some(folder) = std::env::var_os(SERVER_FOLDER) {
        return launch_and_end(Path::new(&folder)).await;
    }
    let bench = bench("for second in $(seq 60); do sleep 1; done", |_| {}).await;
    let mut survivors = 0;
    for round in 0..24u64 {
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args([
                "--nocapture",
                "--exact",
                "local::tests::crashes::a_killed_server_loses_no_allocation",
            ])
            .env(SERVER_FOLDER, bench.folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        until("the server works", async || working(&bench.root()).exists().then_some(())).await;
        // Another instant of its work in each round.
        tokio::time::sleep(Duration::from_micros(1_700 * round)).await;
        server.kill().unwrap();
        server.wait().unwrap();
        std::fs::remove_file(working(&bench.root())).unwrap();

        let nodes = bench.local.nodes().await.unwrap();
        assert!(nodes.complete);
        let live: Vec<_> =
            nodes.nodes.iter().filter(|n| n.state.phase != NodePhase::Gone).collect();
        assert!(live.len() <= 1, "{live:?}");
        for seen in &live {
            // Whatever the crash cut off, the folder knows its lease and its meter runs.
            assert!(seen.lease.is_some() && seen.state.started_at.is_some());
            survivors += u32::from(seen.state.phase == NodePhase::Running);
        }
        end_all(&bench.local).await;
        assert_eq!(working_in(&bench.root()), Vec::<u32>::new(), "round {round}");
        let sheet = bench.local.offers(&OfferScope::default()).await.unwrap();
        assert!(sheet.offers.iter().all(|offer| offer.stock == Stock::Available));
    }
    assert!(survivors > 0, "no agent ever outlived its server");
}

fn working(root: &Path) -> PathBuf {
    root.join("working")
}

async fn launch_and_end(folder: &Path) {
    let local = Local::open(config(folder), Arc::new(SystemClock)).await.unwrap();
    for number in 0..1000 {
        let node = local.launch(&request(number, "a100-80g.x2")).await.unwrap().node;
        std::fs::write(working(&folder.join("local")), "").unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        local.terminate(&node).await.unwrap();
    }
}

/// Processes whose working folder is below a folder, also a removed one.
fn working_in(folder: &Path) -> Vec<u32> {
    let folder = folder.canonicalize().unwrap();
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let at = std::fs::read_link(format!("/proc/{pid}/cwd"));
        runs(*pid) && at.is_ok_and(|at| at.starts_with(&folder))
    })
    .collect()
}
