//! One broker process: its own tasks on its own runtime, which dies with everything it was doing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_broker::agents::{Agents, DurableFrames};
use runwhere_broker::driver::{Core, CoreParts, Others, Sweeper};
use runwhere_broker::jobs::Jobs;
use runwhere_broker::logs::Logs;
use runwhere_broker::ports::{NoPlatformLog, PlatformLog};
use runwhere_broker::store::Store;
use runwhere_engine::Policy;
use runwhere_model::{DeploymentId, LeaseId, NodeId, Secret, TrialId};
use runwhere_providers::Registry;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::agent::Door;
use crate::fuse::Fuse;
use crate::rng::Rng;
use crate::world::World;

/// More turns than any task takes in one go.
const TURNS: u32 = 1 << 20;

/// Where logs are kept in no file.
#[derive(Debug)]
struct NoFrames;

impl DurableFrames for NoFrames {
    fn durable_seq(&self, _trial: &TrialId, _lease: &LeaseId) -> u64 {
        0
    }
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) fuse: Fuse,
    pub(crate) core: Arc<Core>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) door: Door,
    /// Agents that it serves.
    pub(crate) serving: BTreeMap<NodeId, JoinHandle<()>>,
    /// Until when it sleeps, if it does.
    pub(crate) asleep_until: Option<Timestamp>,
    ready: Arc<AtomicBool>,
    runtime: Runtime,
}

impl Replica {
    /// Starts a process over the rows, files and cloud of a world.
    pub(crate) fn start(world: &World) -> Self {
        let fuse = Fuse::new(Arc::clone(&world.effects));
        let slow = world.plan.slow_store.then(|| Rng::new(world.rng.next(), 5));
        let store: Arc<dyn Store> = Arc::new(world.desk(fuse.clone(), slow));
        let logs = world.folder.as_ref().map(|folder| open_logs(folder.path(), world));
        let log: Arc<dyn PlatformLog> = match &logs {
            Some(logs) => Arc::new(logs.clone()),
            None => Arc::new(NoPlatformLog),
        };
        let frames: Arc<dyn DurableFrames> = match &logs {
            Some(logs) => Arc::new(logs.clone()),
            None => Arc::new(NoFrames),
        };
        let mut registry = Registry::new();
        registry.add(Arc::new(world.window(fuse.clone())));
        let core = Core::new(CoreParts {
            store: Arc::clone(&store),
            registry,
            prices: world.catalogue.clone(),
            clock: world.clock.clone(),
            ids: world.ids.clone(),
            log,
            // A day is long where every half a minute is looked at.
            policy: Policy { usage_absent: Duration::from_secs(900), ..Policy::default() },
            deployment: deployment(),
            broker_url: "https://broker.invalid".into(),
            ca_pem: None,
            token_key: Secret::new("sim"),
        });
        let runtime = runtime();
        let ready = Arc::new(AtomicBool::new(false));
        // As where each process has its own machine: then nobody knows which of the others live.
        let others = if world.plan.replicas == 1 { Others::Ended } else { Others::MayLive };
        runtime.spawn({
            let (core, ready, clock) = (Arc::clone(&core), Arc::clone(&ready), world.clock());
            let trace = world.trace.clone();
            async move {
                while let Err(error) = core.recover(others).await {
                    trace.line(format_args!("recovery failed: {error}"));
                    clock.sleep(Duration::from_secs(5)).await;
                }
                ready.store(true, Ordering::Relaxed);
                tokio::spawn(Sweeper::new(Arc::clone(&core)).run());
                core.run().await;
            }
        });
        let jobs = Arc::new(Jobs::new(Arc::clone(&core), true));
        let service = Arc::new(Agents::new(Arc::clone(&core), frames));
        let door = Door { service, store, logs };
        Self {
            fuse,
            core,
            jobs,
            door,
            serving: BTreeMap::new(),
            asleep_until: None,
            ready,
            runtime,
        }
    }

    /// Lets all its tasks work until each of them waits.
    pub(crate) fn work(&self) {
        self.runtime.block_on(async {
            // A task that gave way to others goes on in the next turn.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    /// It has taken up what an earlier process left.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.fuse.is_blown() && !self.fuse.is_asleep()
    }
}

pub(crate) fn deployment() -> DeploymentId {
    DeploymentId::new("ours").expect("a valid constant")
}

/// A runtime without drivers: nothing moves it but its tasks.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .event_interval(TURNS)
        .build()
        .expect("a runtime without drivers")
}

fn open_logs(folder: &Path, world: &World) -> Logs {
    Logs::open_inline(folder.join("logs"), 1 << 30, world.clock()).expect("the folder is ours")
}

/// A process, or the time at which it is started again.
#[derive(Debug)]
pub(crate) enum Slot {
    Up(Box<Replica>),
    Down(Timestamp),
}

impl Slot {
    pub(crate) fn ready(&self) -> Option<&Replica> {
        match self {
            Self::Up(replica) if replica.is_ready() => Some(replica),
            Self::Up(_) | Self::Down(_) => None,
        }
    }
}
