//! The local machine against the suite and against crashes. The agent is a small shell script.

mod crashes;
mod rests;

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_model::{
    Bootstrap, DeploymentId, Effect, ErrorKind, GpuCount, LaunchRequest, LeaseId, NodeId,
    NodePhase, OfferScope, Period, ProjectId, Secret, Stock, Terminated, TrialId,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{Local, LocalConfig, UidRange};
use crate::clock::{Clock, SystemClock};
use crate::provider::{OfferSource, Provider};
use crate::testing::conformance::{Subject, assert_conforms};

/// Ends by itself after a while, should a test not get to it.
const QUIET_AGENT: &str = "exec sleep 60";

struct Bench {
    folder: tempfile::TempDir,
    local: Local,
}

impl Bench {
    fn root(&self) -> PathBuf {
        self.folder.path().join("local")
    }

    fn folder_of(&self, node: &NodeId) -> PathBuf {
        self.root().join(node.as_str())
    }

    /// Another server on the same folder.
    async fn beside(&self, change: impl FnOnce(&mut LocalConfig)) -> Local {
        let mut config = config(self.folder.path());
        change(&mut config);
        Local::open(config, Arc::new(SystemClock)).await.unwrap()
    }

    async fn phase(&self, node: &NodeId) -> NodePhase {
        self.local.describe(node).await.unwrap().phase
    }
}

fn config(folder: &Path) -> LocalConfig {
    let deployment = DeploymentId::new("ours").unwrap();
    let mut config = LocalConfig::new(deployment, folder.join("local"), "/bin/sh".into());
    config.agent_args = vec![folder.join("agent.sh").into()];
    config.gpus = Some("a100-80g:2".parse().unwrap());
    config.price_per_hour = Some("36.44 CNY".parse().unwrap());
    config.stop_grace = Duration::from_secs(1);
    config
}

async fn bench(script: &str, change: impl FnOnce(&mut LocalConfig)) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("agent.sh"), script).unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    let local = Local::open(config, Arc::new(SystemClock)).await.unwrap();
    Bench { folder, local }
}

/// Marks are looked for on the whole machine: no two tests may share a lease.
fn lease(number: u32) -> LeaseId {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    thread_local!(static TEST: u32 = TESTS.fetch_add(1, Ordering::Relaxed));
    let test = TEST.with(|test| *test);
    LeaseId::new(format!("lease-{}-{test}-{number}", std::process::id())).unwrap()
}

/// Ends what runs as a user the way an agent's program does it; here a shell stands for that.
fn end_user_args() -> Vec<std::ffi::OsString> {
    let become_it = r#"exec setpriv --reuid="$0" --regid="$0" --clear-groups sh -c "$END""#;
    vec!["-c".into(), format!("END='kill -s KILL -- -1' && export END && {become_it}").into()]
}

/// Sets `lease` in an agent's script.
const READ_LEASE: &str =
    r#"lease=$(sed -n 's/.*"lease_id":"\([^"]*\)".*/\1/p' "$1/bootstrap.json")"#;

fn request(number: u32, kind: &str) -> LaunchRequest {
    let count = kind.rsplit_once(".x").unwrap().1;
    LaunchRequest {
        deployment: DeploymentId::new("ours").unwrap(),
        lease: lease(number),
        project: ProjectId::new("project").unwrap(),
        trial: TrialId::new("trial").unwrap(),
        token: format!("token-of-{}", lease(number)),
        offer: format!("local/-/-/on_demand/{kind}").parse().unwrap(),
        gpus: count.parse().unwrap(),
        gpu_model: None,
        ceiling: "400 CNY".parse::<runwhere_model::Money>().unwrap().into(),
        end_by: None,
        labels: [("purpose".to_owned(), "test".to_owned())].into(),
        bootstrap: Bootstrap {
            broker_url: "http://127.0.0.1:9/".to_owned(),
            lease_token: Secret::new("the-secret-token"),
            agent_sha256: None,
            ca_pem: None,
            agent_ttl_seconds: 60,
        },
    }
}

#[async_trait]
impl Subject for Bench {
    fn provider(&self) -> &dyn Provider {
        &self.local
    }

    fn request(&self, number: u32) -> LaunchRequest {
        request(number, "a100-80g.x1")
    }

    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    async fn launch_foreign(&self, number: u32) -> bool {
        let theirs = DeploymentId::new("theirs").unwrap();
        let request =
            LaunchRequest { deployment: theirs.clone(), ..request(number, "a100-80g.x1") };
        let other = self.beside(|config| config.deployment = theirs).await;
        other.launch(&request).await.is_ok()
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}

/// What ended allocations leave is removed in the background.
async fn gone(path: &Path) {
    until(&format!("{} goes", path.display()), async || (!path.exists()).then_some(())).await;
}

/// A process id that the agent's script wrote down.
async fn written_pid(path: &Path) -> u32 {
    let read = async || std::fs::read_to_string(path).ok()?.trim().parse().ok();
    until(&format!("{}", path.display()), read).await
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn agent_pid(folder: &Path) -> u32 {
    let text = std::fs::read(folder.join("agent.json")).unwrap();
    let note: serde_json::Value = serde_json::from_slice(&text).unwrap();
    u32::try_from(note["pid"].as_u64().unwrap()).unwrap()
}

async fn end_all(local: &Local) {
    for seen in local.nodes().await.unwrap().nodes {
        local.terminate(&seen.state.node).await.unwrap();
    }
}

#[tokio::test]
async fn the_machine_conforms() {
    // Somebody else's node and three of ours at once.
    let bench = bench(QUIET_AGENT, |c| c.gpus = Some("a100-80g:4".parse().unwrap())).await;
    let report = assert_conforms(&bench).await;
    let skipped = [
        "a_name_launches_once",
        "find_shows_every_node_of_a_lease",
        "a_refused_end_says_until_when",
        "a_server_side_end_is_kept",
        "no_usage_is_said",
    ];
    assert_eq!(report.skipped(), skipped);
    let theirs = bench.beside(|c| c.deployment = DeploymentId::new("theirs").unwrap()).await;
    assert_eq!(theirs.nodes().await.unwrap().nodes.len(), 1);
    end_all(&theirs).await;
}

#[tokio::test]
async fn a_pretending_machine_conforms() {
    let bench = bench(QUIET_AGENT, |config| {
        config.gpus = None;
        config.price_per_hour = None;
        config.pretend = true;
    })
    .await;
    assert_conforms(&bench).await;
    let sheet = bench.local.offers(&OfferScope::default()).await.unwrap();
    assert!(sheet.offers.iter().all(|o| o.pretended && o.launchable));
    let launched = bench.local.launch(&request(1, "h100-80g.x8")).await.unwrap();
    assert_eq!(launched.billed_price.unwrap().to_string(), "291.52 CNY/h");
    let theirs = bench.beside(|c| c.deployment = DeploymentId::new("theirs").unwrap()).await;
    end_all(&theirs).await;
    end_all(&bench.local).await;
}

#[tokio::test]
async fn the_folder_tells_the_agent_everything_and_others_nothing() {
    let bench = bench("env >\"$1/environment\"\nexec sleep 60", |_| {}).await;
    let node = bench.local.launch(&request(1, "a100-80g.x2")).await.unwrap().node;
    let folder = bench.folder_of(&node);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("bootstrap.json")), 0o600);
    let text = std::fs::read(folder.join("bootstrap.json")).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let expected = serde_json::json!({
        "protocol": 1, "lease_id": lease(1), "node_id": node.as_str(),
        "broker_url": "http://127.0.0.1:9", "lease_token": "the-secret-token",
        "agent_ttl_seconds": 60, "runtime": "process", "gpu_devices": ["0", "1"],
        "gpus_stated": true,
    });
    assert_eq!(told, expected);
    let record = std::fs::read_to_string(folder.join("request.json")).unwrap();
    assert!(record.contains("purpose") && !record.contains("the-secret-token"));

    let environment = until("the agent's environment", async || {
        let text = std::fs::read_to_string(folder.join("environment")).ok()?;
        text.contains("PATH=").then_some(text)
    })
    .await;
    // Set by the test runner, as a credential might be set for a server.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(!environment.contains("CARGO_MANIFEST_DIR"));
    assert!(environment.contains(&format!("RUNWHERE_NODE_ID={node}")));
    assert!(!environment.contains("RUNWHERE_LEASE_ID"));

    end_all(&bench.local).await;
    let left: BTreeSet<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["meter.jsonl", "request.json"].map(str::to_owned).into());
}

#[tokio::test]
async fn an_end_takes_everything_of_the_allocation_and_nothing_else() {
    // Children: one that carries the mark, has its own session and ignores SIGTERM; one without
    // any mark in another session; both also as processes whose parent has ended.
    let script = r#"
        stubborn='trap "" TERM; echo $$ >"$0.pid"; for second in $(seq 60); do sleep 1; done'
        env -i PATH="$PATH" RUNWHERE_LEASE_ID="$lease" setsid sh -c "$stubborn" "$1/marked" &
        env -i PATH="$PATH" setsid sh -c "$stubborn" "$1/unmarked" &
        (env -i PATH="$PATH" RUNWHERE_LEASE_ID="$lease" setsid sh -c "$stubborn" "$1/orphan" &)
        wait
    "#;
    let bench = bench(&format!("{READ_LEASE}\n{script}"), |_| {}).await;
    let mut bystander = unrelated(&format!("{}1", lease(1)));
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let folder = bench.folder_of(&node);
    let mut pids = vec![agent_pid(&folder)];
    for name in ["marked.pid", "unmarked.pid", "orphan.pid"] {
        pids.push(written_pid(&folder.join(name)).await);
    }
    assert!(pids.iter().all(|pid| runs(*pid)));
    let end = bench.local.terminate(&node).await.unwrap();
    assert!(matches!(end, Terminated::Gone { .. }));
    let survivors: Vec<_> = pids.into_iter().filter(|pid| runs(*pid)).collect();
    assert_eq!(survivors, Vec::<u32>::new());
    assert!(runs(bystander.id()));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// A process with a mark of its own, in this test's session.
fn unrelated(lease: &str) -> Child {
    Command::new("sleep").arg("60").env("RUNWHERE_LEASE_ID", lease).spawn().unwrap()
}

#[tokio::test]
async fn marked_processes_of_a_dead_agent_are_ended_too() {
    let script = r#"
        env -i PATH="$PATH" RUNWHERE_LEASE_ID="$lease" setsid sleep 60 &
        echo $! >"$1/child.pid"
        wait
    "#;
    let bench = bench(&format!("{READ_LEASE}\n{script}"), |_| {}).await;
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let child = written_pid(&bench.folder_of(&node).join("child.pid")).await;
    kill(agent_pid(&bench.folder_of(&node)));
    until("the node stops", async || {
        (bench.phase(&node).await == NodePhase::Stopped).then_some(())
    })
    .await;
    assert!(runs(child));
    bench.local.terminate(&node).await.unwrap();
    assert!(!runs(child));
}

#[tokio::test]
async fn a_polite_agent_ends_by_itself() {
    let script = r#"
        trap 'echo bye >"'"$1"'/../bye"; kill $!; exit 0' TERM
        sleep 60 &
        echo ready >"$1/ready"
        wait
    "#;
    let bench = bench(script, |_| {}).await;
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let ready = bench.folder_of(&node).join("ready");
    until("the agent is ready", async || ready.exists().then_some(())).await;
    bench.local.terminate(&node).await.unwrap();
    assert!(bench.root().join("bye").exists());
}

#[tokio::test]
async fn the_last_gpu_is_given_once_between_two_servers() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let beside = bench.beside(|_| {}).await;
    let (one, two) = (request(1, "a100-80g.x2"), request(2, "a100-80g.x2"));
    let (one, two) = tokio::join!(bench.local.launch(&one), beside.launch(&two));
    let refused: Vec<_> = [one, two].into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].kind, refused[0].effect), (ErrorKind::Capacity, Effect::None));
    let sheet = beside.offers(&OfferScope::default()).await.unwrap();
    assert!(sheet.offers.iter().all(|offer| offer.stock == Stock::SoldOut));
    end_all(&bench.local).await;
}

#[tokio::test]
async fn others_allocations_are_counted_and_not_touched() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let theirs = bench.beside(|c| c.deployment = DeploymentId::new("theirs").unwrap()).await;
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let error = theirs.terminate(&node).await.unwrap_err();
    assert_eq!((error.kind, error.effect), (ErrorKind::NotFound, Effect::None));
    assert_eq!(theirs.describe(&node).await.unwrap_err().kind, ErrorKind::NotFound);
    let list = theirs.nodes().await.unwrap();
    assert_eq!((list.nodes.len(), list.foreign), (0, 1));
    assert_eq!(bench.phase(&node).await, NodePhase::Running);
    let mut foreign = request(2, "a100-80g.x1");
    foreign.deployment = DeploymentId::new("theirs").unwrap();
    assert_eq!(bench.local.launch(&foreign).await.unwrap_err().kind, ErrorKind::Invalid);
    end_all(&bench.local).await;
}

#[tokio::test]
async fn an_archived_meter_still_proves_the_end() {
    let bench = bench(QUIET_AGENT, |config| config.retention = Duration::ZERO).await;
    let start = SystemClock.now();
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let end = bench.local.terminate(&node).await.unwrap();
    let before = bench.local.describe(&node).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = bench.local.launch(&request(2, "a100-80g.x1")).await.unwrap().node;
    assert!(!bench.folder_of(&node).exists());
    assert_eq!(bench.local.describe(&node).await.unwrap(), before);
    assert_eq!(bench.local.terminate(&node).await.unwrap(), end);
    assert_eq!(bench.local.find(&lease(1)).await.unwrap().nodes, [before]);
    // Nor is its launch ever made again.
    assert_eq!(bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node, node);
    let period = Period { start, end: SystemClock.now() };
    let usage = bench.local.usage(&period).await.unwrap();
    let billed: BTreeSet<_> = usage.records.iter().map(|record| record.node.clone()).collect();
    assert_eq!(billed, [node, second].into());
    let line = usage.records.iter().find(|record| record.period.end < period.end).unwrap();
    assert!(line.billed_micros.is_multiple_of(1_000_000) && line.billed_micros > 0);
    end_all(&bench.local).await;
}

#[tokio::test]
async fn what_a_program_locked_up_is_removed_all_the_same() {
    let script = r#"mkdir -p "$1/work/deep/er"; chmod 000 "$1/work/deep"; exec sleep 60"#;
    let bench = bench(script, |_| {}).await;
    let node = bench.local.launch(&request(1, "a100-80g.x1")).await.unwrap().node;
    let work = bench.folder_of(&node).join("work");
    until("the locked folder", async || {
        let mode = std::fs::metadata(work.join("deep")).ok()?.permissions().mode();
        (mode & 0o777 == 0).then_some(())
    })
    .await;
    bench.local.terminate(&node).await.unwrap();
    assert!(!work.exists());
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let bench = bench(QUIET_AGENT, |_| {}).await;
    let good = request(1, "a100-80g.x1");
    let money = |text: &str| text.parse::<runwhere_model::Money>().unwrap().into();
    for (bad, word) in [
        (LaunchRequest { gpus: GpuCount::whole(2).unwrap(), ..good.clone() }, "GPUs"),
        (
            LaunchRequest { offer: "local/-/-/spot/a100-80g.x1".parse().unwrap(), ..good.clone() },
            "offer",
        ),
        (request(1, "a100-80g.x3"), "offer"),
        (request(1, "t4.x1"), "offer"),
        (LaunchRequest { ceiling: money("36.43 CNY"), ..good.clone() }, "above the ceiling"),
        (LaunchRequest { ceiling: money("100 USD"), ..good.clone() }, "in USD"),
    ] {
        let error = bench.local.launch(&bad).await.unwrap_err();
        assert_eq!((error.kind, error.effect), (ErrorKind::Invalid, Effect::None));
        assert!(error.to_string().contains(word), "{error}");
    }
    let unpriced = bench.beside(|config| config.price_per_hour = None).await;
    let error = unpriced.launch(&good).await.unwrap_err();
    assert!(error.to_string().contains("price_per_hour"), "{error}");
    // At the ceiling exactly it may be launched.
    let exact = LaunchRequest { ceiling: money("36.440 CNY"), ..good };
    bench.local.launch(&exact).await.unwrap();
    // And what was launched is found again whatever the configuration says by now.
    assert!(unpriced.launch(&exact).await.is_ok());
    end_all(&bench.local).await;
}

#[tokio::test]
async fn each_allocation_has_a_user_of_its_own_that_is_ended_with_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "skipped each_allocation_has_a_user_of_its_own_that_is_ended_with_it: needs root"
        );
        return;
    }
    // Without a mark, a parent or a common session: only the user id tells whose it is.
    let script = r#"
        uid=$(sed -n 's/.*"uid":\([0-9]*\).*/\1/p' "$1/bootstrap.json")
        work=$(sed -n 's/.*"work_dir":"\([^"]*\)".*/\1/p' "$1/bootstrap.json")
        mkdir -p "$work/work/locked"; chmod 0 "$work/work/locked"; chown -R "$uid" "$work/work"
        (env -i PATH="$PATH" setpriv --reuid="$uid" --regid="$uid" --clear-groups \
            setsid sh -c 'echo $$ >"$0/pid"; cd /; exec sleep 60' "$work/work" &)
        exec sleep 60
    "#;
    let ours = || DeploymentId::new("users-of-their-own").unwrap();
    let request = |number| LaunchRequest { deployment: ours(), ..request(number, "a100-80g.x1") };
    let range = UidRange { first: 391_000, count: 4 };
    // Somebody else's by now, so it is passed over.
    let mut stranger = Command::new("sleep").arg("60").uid(391_000).spawn().unwrap();
    let bench = bench(script, |config| {
        config.deployment = ours();
        config.drop_to = Some(range);
        config.end_user_args = end_user_args();
        config.gpus = Some("a100-80g:3".parse().unwrap());
    })
    .await;
    let work_root = Path::new("/var/tmp/runwhere-users-of-their-own");
    let work = |node: &NodeId| work_root.join(node.as_str());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert!(!work_root.exists());
    // Nobody's id, but somebody's work folder is there.
    let other = work_root.with_extension("other");
    std::fs::create_dir_all(other.join("node-00000000")).unwrap();
    std::os::unix::fs::lchown(other.join("node-00000000"), None, Some(391_001)).unwrap();
    let mut running = Vec::new();
    for number in 1..=2 {
        let node = bench.local.launch(&request(number)).await.unwrap().node;
        let pid = written_pid(&work(&node).join("work/pid")).await;
        running.push((node, pid));
    }
    let error = bench.local.launch(&request(3)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Capacity);
    let users: BTreeSet<_> =
        running.iter().map(|(node, _)| std::fs::metadata(work(node)).unwrap().gid()).collect();
    assert_eq!(users, [391_002, 391_003].into());
    assert_eq!((mode(work_root), mode(&work(&running[0].0))), (0o711, 0o710));
    assert_eq!((mode(&bench.root()), mode(&bench.folder_of(&running[0].0))), (0o700, 0o700));
    bench.local.terminate(&running[0].0).await.unwrap();
    assert!(!work(&running[0].0).exists() && work(&running[1].0).exists());
    assert!(!runs(running[0].1));
    assert!(runs(running[1].1) && runs(stranger.id()));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    // A crash in the middle of the end: the rest goes when the next server opens the folder, and
    // what somebody has put in the place of it stays.
    std::fs::create_dir_all(work(&running[0].0).join("work/rest")).unwrap();
    let beside = bench
        .beside(|config| {
            config.deployment = ours();
            config.drop_to = Some(range);
            config.end_user_args = end_user_args();
        })
        .await;
    gone(&work(&running[0].0)).await;
    assert!(work(&running[1].0).exists());
    end_all(&beside).await;
    assert!(!runs(running[1].1));
    gone(work_root).await;
    assert!(other.exists());
    std::fs::remove_dir_all(other).unwrap();
}

#[tokio::test]
async fn a_work_root_that_is_not_ours_alone_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped a_work_root_that_is_not_ours_alone_is_refused: needs root");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let good = place.path().join("good");
    let open = async |root: &Path| {
        let config = LocalConfig {
            drop_to: Some(UidRange::DYNAMIC),
            work_root: Some(root.to_owned()),
            ..config(place.path())
        };
        Local::open(config, Arc::new(SystemClock)).await.map(drop).map_err(|e| e.to_string())
    };
    let permit = |mode| {
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    permit(0o700);
    assert!(open(&good).await.unwrap_err().contains("other users cannot enter"));
    permit(0o777);
    assert!(open(&good).await.unwrap_err().contains("other users can rename it"));
    permit(0o755);
    open(&good).await.unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    assert!(open(&link).await.unwrap_err().contains("it is a link"));
    std::os::unix::fs::lchown(&good, Some(391_009), None).unwrap();
    assert!(open(&good).await.unwrap_err().contains("belongs to somebody else"));
    assert!(open(Path::new("relative")).await.is_err());
}
