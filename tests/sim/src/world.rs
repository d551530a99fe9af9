//! What outlives every broker process: the cloud, the rows, the agents, the users and time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{
    Bootstrap, DeploymentId, HourlyPrice, LaunchRequest, LeaseId, NodeId, NodePhase, Offer,
    OfferScope, Secret, TrialId,
};
use runwhere_providers::testing::{ManualClock, SimCloud, Truth};
use runwhere_providers::{Clock, OfferSource, Provider};
use rust_decimal::Decimal;
use tokio::task::JoinHandle;

use crate::agent::Agent;
use crate::catalogue::Catalogue;
use crate::cloud::{Sky, Window};
use crate::fuse::{Effects, Fuse};
use crate::invariant::{Invariant, Violation};
use crate::plan::{Plan, What};
use crate::replica::{Replica, Slot, deployment, runtime};
use crate::rng::Rng;
use crate::store::{Desk, Shelf};
use crate::trace::Trace;
use crate::user::{Errand, Told, number_of, project, tenants};

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) sky: Arc<Sky>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) effects: Arc<Effects>,
    pub(crate) ids: Arc<Rng>,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    pub(crate) folder: Option<tempfile::TempDir>,
    pub(crate) told: Arc<Mutex<Told>>,
    pub(crate) agents: BTreeMap<NodeId, Agent>,
    /// Leases whose node or agent was harmed: their runs may be lost.
    pub(crate) harmed: BTreeSet<LeaseId>,
    errands: Vec<(Errand, Option<JoinHandle<()>>)>,
    partitioned: Option<Timestamp>,
    /// Since when commits do not fail; `None` = they do now.
    store_works_since: Option<Timestamp>,
}

/// By then a row names the node that a launch was answered with, where nothing is in the way.
const NAMED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

impl World {
    pub(crate) fn new(plan: Plan, keep_trace: bool) -> Self {
        let seed = plan.seed;
        let clock = Arc::new(ManualClock::new(plan.start));
        let shared: Arc<dyn Clock> = clock.clone();
        let trace = Trace::new(Arc::clone(&shared), keep_trace);
        let cloud = SimCloud::new(plan.profile.clone(), deployment(), Arc::clone(&shared));
        let folder = plan.on_disk.then(folder);
        let offers = runtime()
            .block_on(cloud.offers(&OfferScope::default()))
            .expect("nothing is scripted yet")
            .offers;
        settle_neighbour(&cloud, &offers[1]);
        if let Some(stock) = plan.stock {
            // Somebody else has one of the first kind already.
            offers[1..3].iter().for_each(|offer| cloud.set_stock(&offer.key, stock + 1));
        }
        let catalogue = Arc::new(Catalogue::new(offers.iter().cloned()));
        let shelf = Shelf::new(
            folder.as_ref().map(tempfile::TempDir::path),
            Arc::clone(&catalogue),
            Rng::new(seed, 2),
            trace.clone(),
        );
        runtime()
            .block_on(shelf.inner().commit(tenants(plan.budget, clock.as_ref())))
            .expect("an empty store takes its first rows");
        let faults = plan.faults.clone();
        Self {
            sky: Sky::new(cloud, shared, Arc::clone(&shelf), faults, trace.clone()),
            effects: Effects::new(plan.crashes.iter().copied()),
            ids: Arc::new(Rng::new(seed, 3)),
            rng: Rng::new(seed, 4),
            told: Arc::default(),
            agents: BTreeMap::new(),
            errands: Vec::new(),
            harmed: BTreeSet::new(),
            partitioned: None,
            store_works_since: Some(plan.start),
            plan,
            clock,
            shelf,
            catalogue,
            offers,
            trace,
            folder,
        }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn at(&self, after: Duration) -> Timestamp {
        self.plan.start.checked_add(after).unwrap_or(Timestamp::MAX)
    }

    /// The truth about our own nodes.
    pub(crate) fn truth(&self) -> Truth {
        let mut truth = self.sky.cloud.truth();
        truth.nodes.retain(|node| node.deployment == deployment());
        truth
    }

    /// Nodes of others that live.
    pub(crate) fn foreign(&self) -> usize {
        let truth = self.sky.cloud.truth();
        truth.live().filter(|node| node.deployment != deployment()).count()
    }

    pub(crate) fn desk(&self, fuse: Fuse, slow: Option<Rng>) -> Desk {
        Desk { shelf: Arc::clone(&self.shelf), fuse, clock: self.clock(), slow }
    }

    pub(crate) fn window(&self, fuse: Fuse) -> Window {
        Window { sky: Arc::clone(&self.sky), fuse }
    }

    /// Makes an act happen, as far as it is not a process's own end.
    pub(crate) fn act(&mut self, what: &What, slots: &mut [Slot]) {
        if let Some(errand) = Errand::of(what, self) {
            self.errands.push((errand, None));
            return;
        }
        match what {
            What::StoreFails(percent) => {
                self.shelf.fail(*percent);
                self.store_works_since = (*percent == 0).then(|| self.now());
            }
            What::Partition(cut) => self.partition(*cut),
            What::Revoked(revoked) => self.sky.log().revoked = *revoked,
            What::Price { offer, percent, heard } => self.reprice(*offer, *percent, *heard),
            What::NodeFails | What::NodeReclaimed | What::NodeHalts => {
                let Some(node) = self.some_node() else { return };
                self.harm(&node);
                match what {
                    What::NodeFails => self.sky.cloud.lose(&node),
                    What::NodeReclaimed => self.sky.cloud.reclaim(&node),
                    _ => self.sky.cloud.halt(&node),
                }
            }
            What::NodeReturns => {
                let truth = self.truth();
                let gone: Vec<_> = truth.nodes.iter().filter(|n| !n.live && n.served).collect();
                if gone.is_empty() {
                    return;
                }
                let node = self.rng.one_of(&gone);
                self.harmed.insert(node.lease.clone());
                self.sky.cloud.resume(&node.node);
            }
            What::AgentFails => {
                let Some(node) = self.some_node() else { return };
                self.harm(&node);
                let Some(agent) = self.agents.get(&node) else { return };
                agent.restart(self.now());
                for slot in slots {
                    if let Slot::Up(replica) = slot
                        && let Some(task) = replica.serving.remove(&node)
                    {
                        task.abort();
                    }
                }
            }
            What::Twin => {
                let mut ready = slots.iter().filter_map(Slot::ready);
                let (Some(node), Some(replica)) = (self.some_node(), ready.next()) else { return };
                let Some(agent) = self.agents.get(&node).filter(|a| a.has_joined()) else { return };
                let (agent, door) = (agent.clone(), replica.door.clone());
                let told = Arc::clone(&self.told);
                replica.spawn(async move {
                    let broken = match agent.twin_joins(&door).await {
                        Ok(()) => Some("a second agent has the session"),
                        Err(_) => {
                            agent.stale_goes_on(&door).await.ok().map(|()| "a stale epoch is heard")
                        }
                    };
                    if let Some(broken) = broken {
                        let broken = Invariant::Fenced.broken(broken);
                        told.lock().unwrap_or_else(PoisonError::into_inner).wrong.push(broken);
                    }
                });
            }
            What::Crash(_)
            | What::Submit(_)
            | What::Stop(_)
            | What::Delete(..)
            | What::Resume(_) => {}
        }
    }

    /// Launches whose answer is in no row for long.
    pub(crate) fn unnamed(&self) -> Option<Violation> {
        let works_since = self.store_works_since?;
        let now = self.now();
        let written = self.shelf.written();
        let mut log = self.sky.log();
        log.unnamed.retain(|id, (node, _)| {
            written.leases.get(id).is_none_or(|lease| {
                let surplus = lease.surplus.iter().any(|one| one.node == *node);
                lease.node.as_ref() != Some(node) && !surplus && !lease.state.is_terminal()
            })
        });
        let late = |at: &Timestamp| now.duration_since((*at).max(works_since)) > NAMED_WITHIN;
        let (id, (node, at)) = log.unnamed.iter().find(|(_, (_, at))| late(at))?;
        let broken = format_args!("{id} was answered with {node} at {at}, and no row names it");
        Some(Invariant::Owned.broken(broken))
    }

    fn harm(&mut self, node: &NodeId) {
        let truth = self.truth();
        self.harmed.extend(truth.node(node).map(|node| node.lease.clone()));
    }

    /// Cut off for shorter than it takes to give an agent up, nothing is lost.
    fn partition(&mut self, cut: bool) {
        let now = self.now();
        let long = |since: Timestamp| now.duration_since(since) >= SignedDuration::from_secs(590);
        match (cut, self.partitioned) {
            (true, None) => self.partitioned = Some(now),
            (false, Some(since)) if long(since) => {
                self.harmed.extend(self.shelf.written().leases.keys().cloned());
                self.partitioned = None;
            }
            (false, _) => self.partitioned = None,
            (true, Some(_)) => {}
        }
    }

    fn some_node(&self) -> Option<NodeId> {
        let live: Vec<NodeId> = self.truth().live().map(|node| node.node.clone()).collect();
        (!live.is_empty()).then(|| self.rng.one_of(&live).clone())
    }

    fn reprice(&self, offer: usize, percent: u32, heard: bool) {
        let offer = &self.offers[offer];
        let Some(price) = offer.price.state.known() else { return };
        let amount = price.amount * Decimal::from(percent) / Decimal::ONE_HUNDRED;
        let price = HourlyPrice { amount, currency: price.currency };
        self.sky.cloud.set_price(&offer.key, Some(price));
        if heard {
            self.catalogue.set(&offer.key, price);
        }
    }

    /// Sends the errands that nobody works on to some process; true when there was one.
    pub(crate) fn send_users(&mut self, slots: &[Slot]) -> bool {
        let mut sent = false;
        let ready: Vec<&Replica> = slots.iter().filter_map(Slot::ready).collect();
        let mut errands = std::mem::take(&mut self.errands);
        errands.retain(|(errand, _)| !errand.is_done());
        for (errand, task) in &mut errands {
            let working = task.as_ref().is_some_and(|task| !task.is_finished());
            if !working && !ready.is_empty() {
                *task = Some(errand.run(self.rng.one_of::<&Replica>(&ready), self));
                sent = true;
            }
        }
        self.errands = errands;
        sent
    }

    pub(crate) fn users_wait(&self) -> bool {
        !self.errands.is_empty()
    }

    /// An agent for each running node, served by some process; it dies with its node and is cut
    /// off by a partition. True when one began to be served.
    pub(crate) fn meet_agents(&mut self, truth: &Truth, slots: &mut [Slot]) -> bool {
        let mut met = false;
        let running: BTreeSet<&NodeId> = truth
            .live()
            .filter(|node| node.phase == NodePhase::Running && self.partitioned.is_none())
            .map(|node| &node.node)
            .collect();
        let mut served: BTreeSet<NodeId> = BTreeSet::new();
        for slot in slots.iter_mut() {
            let Slot::Up(replica) = slot else { continue };
            replica.serving.retain(|node, task| {
                let stays = running.contains(node);
                if !stays {
                    task.abort();
                }
                stays
            });
            served.extend(replica.serving.keys().cloned());
        }
        for node in truth.live().filter(|node| running.contains(&node.node)) {
            let ready: Vec<usize> =
                (0..slots.len()).filter(|place| slots[*place].ready().is_some()).collect();
            if served.contains(&node.node) || ready.is_empty() {
                continue;
            }
            if !self.agents.contains_key(&node.node) {
                let Some(agent) = self.boot(&node.node, &node.lease) else { continue };
                self.agents.insert(node.node.clone(), agent);
            }
            let agent = self.agents[&node.node].clone();
            if let Slot::Up(replica) = &mut slots[*self.rng.one_of(&ready)] {
                let task = replica.spawn(agent.serve(replica.door.clone(), self.clock()));
                replica.serving.insert(node.node.clone(), task);
                met = true;
            }
        }
        met
    }

    /// A new agent, as its node's bootstrap makes it.
    fn boot(&self, node: &NodeId, lease: &LeaseId) -> Option<Agent> {
        let token = self.sky.token(lease)?;
        let written = self.shelf.written();
        let lease = written.leases.get(lease)?.clone();
        let job = number_of(&written.jobs.get(&lease.job)?.name);
        let index = written.trials.get(&lease.trial)?.index;
        let job = (self.plan.jobs[job].clone(), index);
        Some(Agent::new(node, (lease, token), job, self.now()))
    }
}

/// Somebody else's node in the same account, made by another installation.
fn settle_neighbour(cloud: &SimCloud, offer: &Offer) {
    let theirs = DeploymentId::new("theirs").expect("a valid constant");
    let price = offer.price.state.known().expect("the sample has a price");
    let request = LaunchRequest {
        deployment: theirs.clone(),
        lease: LeaseId::new("lease-of-others").expect("a valid constant"),
        project: project(),
        trial: TrialId::new("trial-of-others").expect("a valid constant"),
        token: "of-others".into(),
        offer: offer.key.clone(),
        gpus: offer.gpu_count,
        gpu_model: offer.gpu,
        ceiling: price,
        end_by: None,
        labels: BTreeMap::new(),
        bootstrap: Bootstrap {
            broker_url: "https://others.invalid".into(),
            lease_token: Secret::new("of-others"),
            agent_sha256: None,
            ca_pem: None,
            agent_ttl_seconds: 0,
        },
    };
    let cloud = cloud.as_installation(theirs);
    runtime().block_on(cloud.launch(&request)).expect("nothing is scripted yet");
}

/// On a file system in memory where there is one: a simulated disk loses nothing, so nothing is
/// gained by waiting for a real one.
fn folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    made.expect("a folder for temporary files")
}
