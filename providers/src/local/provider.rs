//! The provider itself: the verbs, each a short piece of blocking work on the folders.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_model::{
    Bootstrapping, Capabilities, Deadman, Found, Identity, LaunchRequest, Launched, LeaseId,
    MeterStart, Metering, NodeId, NodeList, NodeState, OfferScope, OfferSheet, Period,
    ProviderError, ProviderId, SourceTerms, StopEffect, Terminated, UsageRecords,
};
use tokio::sync::oneshot;

use super::allocate::Host;
use super::config::{LocalConfig, LocalError, SAMPLE_PRICE};
use super::ending::{Ended, Ending};
use super::failure::{Failure, lost};
use super::gpus::{self, Inventory};
use super::offers::Machine;
use super::process;
use super::spawn::AgentProgram;
use super::store::Store;
use super::work::{self, Users};
use crate::clock::Clock;
use crate::provider::{OfferSource, Provider, Result};

/// Between two looks at a process that was asked to end.
const LOOK: Duration = Duration::from_millis(20);
/// How long an end waits for the removal of what is left.
const CLEAR_WAIT: Duration = Duration::from_secs(3);
/// How long killed processes may take to disappear before the end is only "requested".
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// This machine as a host of allocations.
#[derive(Debug)]
pub struct Local {
    capabilities: Capabilities,
    pub(super) host: Arc<Host>,
    clock: Arc<dyn Clock>,
    stop_grace: Duration,
}

impl Local {
    /// Opens the folder of the allocations, creating it where needed, and looks at the machine.
    /// Agents that outlived an earlier broker are told where this one is
    /// ([`LocalConfig::broker_url`]), so it should be listening already.
    pub async fn open(
        config: LocalConfig,
        clock: Arc<dyn Clock>,
    ) -> std::result::Result<Self, LocalError> {
        config.check()?;
        if !process::visible() {
            return Err(LocalError::Processes);
        }
        let inventory = match &config.gpus {
            Some(list) => {
                let wanted = list.entries().iter().map(|(_, count)| *count as usize).sum();
                let problem = match config.pretend {
                    // Nothing is asked of GPUs that are not there.
                    true => None,
                    false => gpus::driver_problem("nvidia-smi", wanted, &*clock).await,
                };
                if let Some(problem) = problem {
                    tracing::warn!(
                        "[local] gpus in config.toml says that this machine has {wanted} GPUs, but \
                         {problem}: until that is mended, each job on them fails before its program \
                         is started. To try things out without GPUs use --try-locally"
                    );
                }
                Inventory::configured(list)
            }
            None => Inventory::detect(&*clock).await,
        };
        let root = config.root_dir.clone();
        let store = tokio::task::spawn_blocking(move || Store::open(root))
            .await
            .map_err(std::io::Error::other)
            .and_then(|store| store)
            .map_err(|source| LocalError::Root { path: config.root_dir.clone(), source })?;
        let users = match config.drop_to {
            None => None,
            Some(ids) => {
                let root =
                    config.work_root.unwrap_or_else(|| work::default_root(&config.deployment));
                let path = root.clone();
                let users = tokio::task::spawn_blocking(move || Users::open(&root, ids))
                    .await
                    .map_err(std::io::Error::other)
                    .and_then(|users| users)
                    .map_err(|source| LocalError::WorkRoot { path, source })?;
                Some(users)
            }
        };
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let machine = Machine {
            provider: config.id,
            inventory,
            price: config.price_per_hour,
            sample_price: SAMPLE_PRICE.parse().ok(),
            pretend: config.pretend,
            pretended_slots: cpus * 4,
            vcpus: u32::try_from(cpus).ok(),
            memory_mib: memory_mib(),
        };
        let host = Host {
            machine,
            store,
            agent: AgentProgram {
                program: config.agent_program,
                args: config.agent_args,
                clear_args: config.clear_args,
                end_user_args: config.end_user_args,
            },
            deployment: config.deployment,
            users,
            docker: config.docker,
            retention: config.retention,
            rests: AtomicBool::new(false),
        };
        let host = Arc::new(host);
        {
            let (host, path) = (Arc::clone(&host), config.root_dir.clone());
            tokio::task::spawn_blocking(move || host.catch_up())
                .await
                .map_err(std::io::Error::other)
                .and_then(|done| done)
                .map_err(|source| LocalError::Root { path, source })?;
        }
        {
            let host = Arc::clone(&host);
            let url = config.broker_url;
            tokio::task::spawn_blocking(move || host.take_up(url.as_deref()))
                .await
                .map_err(std::io::Error::other)
                .and_then(|told| told)
                .map_err(|source| LocalError::Root { path: config.root_dir, source })?;
        }
        let local =
            Self { capabilities: capabilities(), host, clock, stop_grace: config.stop_grace };
        // What a crash has left of ended allocations.
        local.clear(None).await;
        Ok(local)
    }

    /// The folder of the allocations.
    pub fn root(&self) -> &Path {
        self.host.store.root()
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Failure) -> ProviderError {
        let provider = self.id().clone();
        move |failure| failure.at(provider.clone(), operation)
    }

    /// Removes what ended allocations have left: one, or all of them. Comes back when that is done
    /// or takes long; it goes on then, and with the next server where this one ends before.
    async fn clear(&self, node: Option<&NodeId>) {
        let done = self.start_clear(node);
        tokio::select! {
            biased;
            _ = done => {}
            () = self.clock.sleep(CLEAR_WAIT) => {
                tracing::info!("what an ended allocation has left is still being removed");
            }
        }
    }

    fn start_clear(&self, node: Option<&NodeId>) -> oneshot::Receiver<()> {
        let (host, node) = (Arc::clone(&self.host), node.cloned());
        let (sender, done) = oneshot::channel();
        // A thread that nobody waits for: neither the runtime nor the process ends later for it.
        let started = std::thread::Builder::new().name("local-clear".to_owned()).spawn(move || {
            if let Err(error) = host.clear(node.as_ref()) {
                tracing::warn!(%error, "cannot look for what ended allocations have left");
            }
            drop(sender);
        });
        if let Err(error) = started {
            tracing::warn!(%error, "what an ended allocation has left is removed later");
        }
        done
    }

    async fn work<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Host, &dyn Clock) -> std::result::Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let host = Arc::clone(&self.host);
        let clock = Arc::clone(&self.clock);
        tokio::task::spawn_blocking(move || work(&host, &*clock))
            .await
            .unwrap_or_else(|error| Err(lost(error)))
            .map_err(self.failed(operation))
    }
}

fn capabilities() -> Capabilities {
    Capabilities {
        identity: Identity::Token,
        // Reads are the truth itself: what is not there was not launched.
        settle: Duration::ZERO,
        absent_reads: 1,
        tags: true,
        spot: false,
        reclaim_notice: None,
        states_stock: true,
        states_times: true,
        states_usage: true,
        // An allocation without its agent still holds its GPUs.
        stop: StopEffect::KeepsBilling,
        minimum_reservation: None,
        // The agent ends the work when its broker stays silent, but the allocation stays.
        deadman: Deadman::None,
        bootstrapping: Bootstrapping::Direct,
        needs_public_url: false,
        metering: Metering { start: MeterStart::Requested, ..Metering::PER_SECOND },
        boot_timeout: Duration::from_secs(60),
    }
}

fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024)
}

#[async_trait]
impl OfferSource for Local {
    fn id(&self) -> &ProviderId {
        &self.host.machine.provider
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        // A machine has no region: where only some are wanted, it is in none of them.
        let elsewhere = !scope.regions.is_empty();
        self.work("offers", move |host, clock| {
            let mut sheet = host.offers(clock.now())?;
            if elsewhere {
                sheet.offers.clear();
            }
            Ok(sheet)
        })
        .await
    }

    fn terms(&self) -> SourceTerms {
        // Reading this machine costs nothing, and what is taken changes with every job.
        SourceTerms {
            refresh: Duration::from_secs(30),
            readings_per_hour: 3600,
            ..SourceTerms::default()
        }
    }
}

#[async_trait]
impl Provider for Local {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Launched> {
        let request = request.clone();
        let launched = self.work("launch", move |host, clock| host.launch(&request, clock)).await;
        if self.host.rests.swap(false, Ordering::Relaxed) {
            // Goes on by itself.
            drop(self.start_clear(None));
        }
        launched
    }

    async fn find(&self, lease: &LeaseId) -> Result<Found> {
        let lease = lease.clone();
        self.work("find", move |host, _| host.find(&lease)).await
    }

    async fn nodes(&self) -> Result<NodeList> {
        self.work("nodes", |host, clock| host.nodes(clock.now())).await
    }

    async fn describe(&self, node: &NodeId) -> Result<NodeState> {
        let node = node.clone();
        self.work("describe", move |host, _| host.describe(&node)).await
    }

    async fn terminate(&self, node: &NodeId) -> Result<Terminated> {
        let wanted = node.clone();
        let begun = self.work("terminate", move |host, _| host.begin_end(&wanted)).await?;
        let ending: Arc<Ending> = match begun {
            Ended::Already(stopped_at) => {
                return Ok(Terminated::Gone { stopped_at: Some(stopped_at) });
            }
            Ended::Not(ending) => Arc::new(*ending),
        };
        if ending.ask_agent() {
            let deadline = self.clock.now().checked_add(self.stop_grace).unwrap_or(Timestamp::MAX);
            while ending.agent_alive() && self.clock.now() < deadline {
                self.clock.sleep(LOOK).await;
            }
        }
        let deadline = self.clock.now().checked_add(KILL_LIMIT).unwrap_or(Timestamp::MAX);
        let mut empty_looks = 0;
        loop {
            let shared = Arc::clone(&ending);
            let left = self
                .work("terminate", move |_, _| shared.kill_all().map_err(Failure::possible))
                .await?;
            empty_looks = if left == 0 { empty_looks + 1 } else { 0 };
            if empty_looks >= ending.empty_looks() {
                let shared = Arc::clone(&ending);
                self.work("terminate", move |host, _| {
                    host.clear_container(&shared).map_err(Failure::possible)
                })
                .await?;
                let shared = Arc::clone(&ending);
                let ended = self
                    .work("terminate", move |host, clock| {
                        host.finish_end(&shared, clock).map_err(Failure::possible)
                    })
                    .await?;
                if let Some(stopped_at) = ended {
                    self.clear(Some(node)).await;
                    return Ok(Terminated::Gone { stopped_at: Some(stopped_at) });
                }
                empty_looks = 0;
            }
            if self.clock.now() >= deadline {
                tracing::warn!(%node, left, "killed processes do not end; the node is kept");
                return Ok(Terminated::Requested);
            }
            self.clock.sleep(LOOK).await;
        }
    }

    async fn usage(&self, period: &Period) -> Result<UsageRecords> {
        let period = *period;
        let metering = self.capabilities.metering;
        self.work("usage", move |host, clock| host.usage(&period, &metering, clock.now())).await
    }
}
