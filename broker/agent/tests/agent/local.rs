//! The real agent below the real provider `local`: whatever happens to the agent, the end of the
//! node leaves nothing of the trial.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;

use runwhere_model::{
    Bootstrap, DeploymentId, LaunchRequest, LeaseId, Money, NodeId, NodePhase, ProjectId, Secret,
    Terminated, TrialId,
};
use runwhere_providers::local::{Local, LocalConfig, UidRange};
use runwhere_providers::{Clock, Provider, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use crate::broker::{Broker, TOKEN};
use crate::node::{is_free, make_chain, make_lock, shell, wait_until};

// Stubborn processes that note their ids: a child in a session of its own, one whose parent has
// ended at once, and the program itself.
const PROGRAM: &str = r#"
    stubborn='trap "" TERM HUP INT; echo $$ >"$0.pid"; while :; do sleep 1; done'
    setsid sh -c "$stubborn" child &
    (setsid sh -c "$stubborn" orphan &)
    [ -z "$CHAIN" ] || "$CHAIN/chain" "$CHAIN/held" 50
    [ -z "$BARE" ] || (env -i PATH="$PATH" setsid sh -c "$stubborn" bare &)
    echo $$ >main.pid
    trap '' TERM
    while :; do sleep 1; done
"#;

struct Bench {
    temp: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    local: Local,
    broker: Broker,
    names: Vec<&'static str>,
    own_user: bool,
}

impl Bench {
    fn new(drop_to: Option<UidRange>) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let mut names = vec!["main", "child", "orphan"];
        let mut assignment = shell(PROGRAM);
        if drop_to.is_some() {
            // Only its user tells whose this one is.
            names.push("bare");
            assignment.env.insert("BARE".to_owned(), "yes".to_owned());
        }
        let deployment = DeploymentId::new("ours").unwrap();
        let program = env!("CARGO_BIN_EXE_runwhere-agent").into();
        let config = LocalConfig {
            gpus: Some("a100-80g:1".parse().unwrap()),
            price_per_hour: Some("36.44 CNY".parse().unwrap()),
            drop_to,
            work_root: Some(temp.path().join("jobs")),
            ..LocalConfig::new(deployment, temp.path().join("local"), program)
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let local = runtime.block_on(Local::open(config, clock)).unwrap();
        let broker = Broker::start(assignment, Vec::new());
        Self { temp, runtime, local, broker, names, own_user: drop_to.is_some() }
    }

    fn launch(&self) -> NodeId {
        let request = LaunchRequest {
            deployment: DeploymentId::new("ours").unwrap(),
            lease: LeaseId::new(self.broker.lease()).unwrap(),
            project: ProjectId::new("project").unwrap(),
            trial: TrialId::new("trial-1").unwrap(),
            token: "launch-1".to_owned(),
            offer: "local/-/-/on_demand/a100-80g.x1".parse().unwrap(),
            gpus: "1".parse().unwrap(),
            gpu_model: None,
            ceiling: "40 CNY".parse::<Money>().unwrap().into(),
            end_by: None,
            labels: std::collections::BTreeMap::new(),
            bootstrap: Bootstrap {
                broker_url: format!("http://{}", self.broker.address),
                lease_token: Secret::new(TOKEN),
                agent_sha256: None,
                ca_pem: None,
                agent_ttl_seconds: 600,
            },
        };
        self.runtime.block_on(self.local.launch(&request)).unwrap().node
    }

    fn folder(&self, node: &NodeId) -> PathBuf {
        self.temp.path().join("local").join(node.as_str())
    }

    // Where the program works.
    fn work(&self, node: &NodeId) -> PathBuf {
        match self.own_user {
            true => self.temp.path().join("jobs").join(node.as_str()).join("work"),
            false => self.folder(node).join("work"),
        }
    }

    // Process ids by name, once all of them are written.
    fn pids(&self, node: &NodeId) -> Vec<(&'static str, u32)> {
        let work = self.work(node);
        let read = |name: &str| -> Option<u32> {
            fs::read_to_string(work.join(format!("{name}.pid"))).ok()?.trim().parse().ok()
        };
        wait_until("the program and its children run", || {
            self.names.iter().all(|name| read(name).is_some())
        });
        self.names.iter().map(|name| (*name, read(name).unwrap())).collect()
    }

    fn agent(&self, node: &NodeId) -> u32 {
        let note = fs::read(self.folder(node).join("agent.json")).unwrap();
        let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
        u32::try_from(note["pid"].as_u64().unwrap()).unwrap()
    }

    fn phase(&self, node: &NodeId) -> NodePhase {
        self.runtime.block_on(self.local.describe(node)).unwrap().phase
    }

    fn end(&self, node: &NodeId) {
        let end = self.runtime.block_on(self.local.terminate(node)).unwrap();
        assert!(matches!(end, Terminated::Gone { stopped_at: Some(_) }), "{end:?}");
        assert_eq!(self.phase(node), NodePhase::Gone);
    }
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn running(pids: &[(&'static str, u32)]) -> Vec<&'static str> {
    pids.iter().filter(|(_, pid)| runs(*pid)).map(|(name, _)| *name).collect()
}

// A trial of another lease, whose mark only begins like ours.
fn bystander(bench: &Bench) -> Child {
    let lease = format!("{}0", bench.broker.lease());
    Command::new("sleep").arg("60").env("RUNWHERE_LEASE_ID", lease).spawn().unwrap()
}

fn check_end(bench: &Bench, kill_agent: bool) {
    let mut bystander = bystander(bench);
    let chain = bench.temp.path().to_owned();
    if bench.own_user {
        // Goes on as its own child, faster than anybody looks.
        make_chain(&chain.join("chain"));
        make_lock(&chain.join("held"));
        bench.broker.seen(|seen| {
            let env = &mut seen.assignment.as_mut().unwrap().env;
            env.insert("CHAIN".to_owned(), chain.display().to_string());
        });
    }
    let node = bench.launch();
    let pids = bench.pids(&node);
    let agent = bench.agent(&node);
    assert_eq!(running(&pids), bench.names);
    assert!(!bench.own_user || !is_free(&chain.join("held")));
    if kill_agent {
        kill(agent);
        wait_until("the node stops", || bench.phase(&node) == NodePhase::Stopped);
        // The program goes with its agent; what it detached is still there, and seen by nobody.
        let detached = &bench.names[1..];
        wait_until("the program ends", || running(&pids) == detached);
    }
    bench.end(&node);
    assert_eq!(running(&pids), [] as [&str; 0]);
    assert!(!runs(agent));
    assert!(!bench.own_user || is_free(&chain.join("held")));
    wait_until("the work folder is gone", || !bench.work(&node).exists());
    assert!(runs(bystander.id()));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn the_end_of_a_node_takes_the_children_of_a_killed_agent() {
    check_end(&Bench::new(None), true);
}

#[test]
fn the_end_of_a_node_takes_a_living_agent_and_its_stubborn_trial() {
    check_end(&Bench::new(None), false);
}

#[test]
fn with_a_user_of_its_own_nothing_of_a_trial_hides() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped with_a_user_of_its_own_nothing_of_a_trial_hides: needs root");
        return;
    }
    let users = |first| Some(UidRange { first, count: 1 });
    check_end(&Bench::new(users(392_000)), true);
    check_end(&Bench::new(users(392_001)), false);
}
