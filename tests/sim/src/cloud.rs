//! The simulated cloud as one broker process sees it: every call has a number, an outcome of the
//! plan and a place in the trace; and what a node is told at its launch is kept for its agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_engine::LeaseState;
use runwhere_model::{
    Capabilities, Found, HourlyPrice, LaunchRequest, Launched, LeaseId, NodeId, NodeList,
    NodePhase, NodeState, OfferScope, OfferSheet, Period, ProviderId, Terminated, UsageRecords,
};
use runwhere_providers::testing::{Outcome, SimCloud, Verb};
use runwhere_providers::{Clock, OfferSource, Provider};

use crate::coverage::Coverage;
use crate::fault::{CallNumber, Class, Faults};
use crate::fuse::Fuse;
use crate::invariant::{Invariant, Violation};
use crate::store::Shelf;
use crate::trace::Trace;

type Answer<T> = Result<T, runwhere_model::ProviderError>;

/// The cloud of a run, and what all processes together did to it.
#[derive(Debug)]
pub(crate) struct Sky {
    pub(crate) cloud: SimCloud,
    pub(crate) clock: Arc<dyn Clock>,
    shelf: Arc<Shelf>,
    faults: Faults,
    trace: Trace,
    log: Mutex<SkyLog>,
}

/// What was seen of the calls.
#[derive(Debug, Default)]
pub(crate) struct SkyLog {
    pub(crate) coverage: Coverage,
    /// Calls that went wrong by plan.
    pub(crate) faults: Vec<(CallNumber, Class)>,
    pub(crate) wrong: Vec<Violation>,
    /// Every call is refused for want of rights.
    pub(crate) revoked: bool,
    /// When reads first and last showed a node running, and when one first showed its end.
    pub(crate) reads: BTreeMap<NodeId, Reads>,
    /// Leases that launched, and when.
    pub(crate) launches: BTreeMap<LeaseId, Timestamp>,
    /// Nodes that launches were answered with, and when, as long as no row names them.
    pub(crate) unnamed: BTreeMap<LeaseId, (NodeId, Timestamp)>,
    tokens: BTreeMap<LeaseId, String>,
    calls: BTreeMap<Verb, u64>,
    /// Complete lists in a row, of one lease or of all nodes, that missed a row.
    gaps: BTreeMap<Option<LeaseId>, u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    pub(crate) first_running: Option<Timestamp>,
    pub(crate) last_running: Option<Timestamp>,
    pub(crate) gone: Option<Timestamp>,
}

impl Sky {
    pub(crate) fn new(
        cloud: SimCloud,
        clock: Arc<dyn Clock>,
        shelf: Arc<Shelf>,
        faults: Faults,
        trace: Trace,
    ) -> Arc<Self> {
        Arc::new(Self { cloud, clock, shelf, faults, trace, log: Mutex::default() })
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, SkyLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one-time token in the bootstrap of a lease's nodes.
    pub(crate) fn token(&self, lease: &LeaseId) -> Option<String> {
        self.log().tokens.get(lease).cloned()
    }

    /// Decides what becomes of the next call of a verb, for a lease or a node.
    fn decide(&self, verb: Verb, lease: Option<&LeaseId>, node: Option<&NodeId>) -> Class {
        let stopped = node.is_some_and(|node| {
            self.cloud.truth().node(node).is_some_and(|node| node.phase == NodePhase::Stopped)
        });
        let mut log = self.log();
        let counter = log.calls.entry(verb).or_default();
        let number = (verb, *counter);
        *counter += 1;
        if log.revoked {
            self.cloud.script(verb, Outcome::Auth);
            return Class::Auth;
        }
        let (class, outcome) = match self.faults.of_call(number) {
            // One that does not run has nothing to go on with.
            (Class::Resurrects, _) if stopped => (Class::AckButLives, Outcome::AckButLives),
            decided => decided,
        };
        let (class, outcome) = match (verb, class) {
            (Verb::Find | Verb::Nodes, Class::Gap) => {
                // No cloud misses the same row in as many lists in a row as it says prove its
                // absence.
                let row = log.gaps.entry(lease.cloned()).or_default();
                *row += 1;
                match *row < self.cloud.capabilities().absent_reads {
                    true => (class, outcome),
                    false => (Class::Incomplete, Outcome::Incomplete),
                }
            }
            (Verb::Find | Verb::Nodes, Class::Ok | Class::Duplicates) => {
                log.gaps.remove(&lease.cloned());
                (class, outcome)
            }
            _ => (class, outcome),
        };
        if class != Class::Ok {
            log.faults.push((number, class));
        }
        self.cloud.script(verb, outcome);
        class
    }

    fn begin(&self, verb: Verb, lease: Option<&LeaseId>) -> Waiting<'_> {
        self.begin_for(verb, lease, None)
    }

    fn begin_for(&self, verb: Verb, lease: Option<&LeaseId>, node: Option<&NodeId>) -> Waiting<'_> {
        let class = self.decide(verb, lease, node);
        Waiting { sky: self, lease: lease.cloned(), verb, class, begun: self.clock.now() }
    }

    fn lease_of(&self, node: &NodeId) -> Option<LeaseId> {
        self.cloud.truth().node(node).map(|node| node.lease.clone())
    }

    fn read(&self, node: &NodeId, phase: NodePhase) {
        let now = self.clock.now();
        let mut log = self.log();
        let reads = log.reads.entry(node.clone()).or_default();
        match phase {
            NodePhase::Running => {
                reads.first_running.get_or_insert(now);
                reads.last_running = Some(now);
            }
            NodePhase::Gone => {
                reads.gone.get_or_insert(now);
            }
            NodePhase::Pending | NodePhase::Stopping | NodePhase::Stopped => {}
        }
    }

    /// What must hold of a launch when it leaves: its price is within its ceiling.
    fn judge_price(&self, request: &LaunchRequest) {
        let listed = self.shelf.listed(&request.offer);
        if listed.is_some_and(|price: HourlyPrice| price.amount > request.ceiling.amount) {
            self.log().wrong.push(Invariant::Ceiling.broken(format_args!(
                "{} is launched at {listed:?} with the ceiling {:?}",
                request.lease, request.ceiling
            )));
        }
    }

    /// What must hold of a launch when it arrives: its intent is durable, and nothing else of its
    /// trial may live.
    fn judge_launch(&self, request: &LaunchRequest) {
        let written = self.shelf.written();
        let mut log = self.log();
        let wrong = match written.leases.get(&request.lease) {
            None => Some(Invariant::Owned.broken("a launch without a durable intent")),
            Some(lease) if lease.state != LeaseState::Launching => {
                Some(Invariant::NoRelaunch.broken(format_args!(
                    "{} is launched while {}",
                    lease.id,
                    lease.state.as_str()
                )))
            }
            Some(_) => None,
        };
        log.wrong.extend(wrong);
        let open = written.leases.values().filter(|other| {
            other.trial == request.trial && other.id != request.lease && !other.state.is_terminal()
        });
        for other in open {
            log.wrong.push(Invariant::NoRelaunch.broken(format_args!(
                "{} is launched while {} of the same trial is {}",
                request.lease,
                other.id,
                other.state.as_str()
            )));
        }
        let now = self.clock.now();
        if log.launches.insert(request.lease.clone(), now).is_some() {
            log.wrong.push(
                Invariant::OneAttempt.broken(format_args!("{} is launched twice", request.lease)),
            );
        }
    }

    /// What must hold of an end when it is asked for: the node is not one that its lease has and
    /// wants, nor one that a launch under way has just made.
    fn judge_terminate(&self, node: &NodeId) {
        let Some(id) = self.lease_of(node) else { return };
        let written = self.shelf.written();
        let Some(lease) = written.leases.get(&id) else { return };
        let own = lease.node.as_ref().is_none_or(|own| own == node);
        let open = !lease.state.is_terminal() && lease.state != LeaseState::Releasing;
        if own && open && !lease.release_wanted && lease.evidence.is_none() {
            let broken = format_args!("{node} is ended while {id} is {}", lease.state.as_str());
            self.log().wrong.push(Invariant::Owned.broken(broken));
        }
    }

    fn note<T: std::fmt::Debug>(&self, call: impl std::fmt::Display, answer: &Answer<T>) {
        match answer {
            Ok(good) => self.trace.line(format_args!("{call}: {good:?}")),
            Err(error) => self.trace.line(format_args!("{call}: {error} {:?}", error.nodes)),
        }
    }
}

/// A call under way; dropped unanswered when its caller gives up.
struct Waiting<'a> {
    sky: &'a Sky,
    lease: Option<LeaseId>,
    verb: Verb,
    class: Class,
    begun: Timestamp,
}

impl Waiting<'_> {
    fn answered(mut self) {
        self.visit();
    }

    /// Notes in which state of the lease it ended, once.
    fn visit(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let state = self.sky.shelf.written().state_of(&lease);
        if let Some(state) = state {
            self.sky.log().coverage.call(state, self.verb, self.class);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Not so when its process ended before.
        let waited = self.sky.clock.now().duration_since(self.begun);
        if self.class == Class::Late && waited.as_secs() >= 100 {
            self.visit();
        }
    }
}

/// One process's way to the cloud.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) sky: Arc<Sky>,
    pub(crate) fuse: Fuse,
}

#[async_trait]
impl OfferSource for Window {
    fn id(&self) -> &ProviderId {
        self.sky.cloud.id()
    }

    async fn offers(&self, scope: &OfferScope) -> Answer<OfferSheet> {
        self.fuse.alive().await;
        self.sky.cloud.offers(scope).await
    }
}

#[async_trait]
impl Provider for Window {
    fn capabilities(&self) -> &Capabilities {
        self.sky.cloud.capabilities()
    }

    async fn launch(&self, request: &LaunchRequest) -> Answer<Launched> {
        let effect = self.fuse.launch().await;
        let (sky, lease) = (&self.sky, &request.lease);
        let token = request.bootstrap.lease_token.expose().to_owned();
        sky.log().tokens.insert(lease.clone(), token);
        sky.trace.line(format_args!("launch {lease} ..."));
        sky.judge_price(request);
        let number = sky.log().calls.get(&Verb::Launch).copied().unwrap_or(0);
        if number.is_multiple_of(2) && sky.faults.of_call((Verb::Launch, number)).0 == Class::Slow {
            // Slow on its way there too: what others believe of it meanwhile must not be acted upon.
            sky.clock.sleep(Duration::from_secs(10 + number % 3 * 15)).await;
            self.fuse.alive().await;
        }
        sky.judge_launch(request);
        let waiting = sky.begin(Verb::Launch, Some(lease));
        let answer = sky.cloud.launch(request).await;
        sky.note(format_args!("launch {lease}"), &answer);
        effect.done().await;
        if let Ok(launched) = &answer {
            let named = (launched.node.clone(), sky.clock.now());
            sky.log().unnamed.insert(lease.clone(), named);
        }
        waiting.answered();
        answer
    }

    async fn find(&self, lease: &LeaseId) -> Answer<Found> {
        let effect = self.fuse.call().await;
        let sky = &self.sky;
        let waiting = sky.begin(Verb::Find, Some(lease));
        let answer = sky.cloud.find(lease).await;
        for node in answer.iter().flat_map(|found| &found.nodes) {
            sky.read(&node.node, node.phase);
        }
        sky.note(format_args!("find {lease}"), &answer);
        effect.done().await;
        waiting.answered();
        answer
    }

    async fn nodes(&self) -> Answer<NodeList> {
        let effect = self.fuse.call().await;
        let number = self.sky.log().calls.get(&Verb::Nodes).copied().unwrap_or(0);
        if self.sky.faults.of_call((Verb::Nodes, number)).0 == Class::Slow {
            // Slow on its way there too: what it shows is then newer than what was read before it.
            self.sky.clock.sleep(Duration::from_secs(10 + number % 5 * 10)).await;
            self.fuse.alive().await;
        }
        self.sky.decide(Verb::Nodes, None, None);
        let answer = self.sky.cloud.nodes().await;
        self.sky.note("nodes", &answer);
        effect.done().await;
        answer
    }

    async fn describe(&self, node: &NodeId) -> Answer<NodeState> {
        let effect = self.fuse.call().await;
        let sky = &self.sky;
        let waiting = sky.begin(Verb::Describe, sky.lease_of(node).as_ref());
        let answer = sky.cloud.describe(node).await;
        if let Ok(state) = &answer {
            sky.read(node, state.phase);
        }
        sky.note(format_args!("describe {node}"), &answer);
        effect.done().await;
        waiting.answered();
        answer
    }

    async fn terminate(&self, node: &NodeId) -> Answer<Terminated> {
        let effect = self.fuse.call().await;
        let sky = &self.sky;
        sky.judge_terminate(node);
        let waiting = sky.begin_for(Verb::Terminate, sky.lease_of(node).as_ref(), Some(node));
        let answer = sky.cloud.terminate(node).await;
        if let Ok(Terminated::Gone { .. }) = &answer {
            sky.read(node, NodePhase::Gone);
        }
        sky.note(format_args!("terminate {node}"), &answer);
        effect.done().await;
        waiting.answered();
        answer
    }

    async fn usage(&self, period: &Period) -> Answer<UsageRecords> {
        let effect = self.fuse.call().await;
        self.sky.decide(Verb::Usage, None, None);
        let answer = self.sky.cloud.usage(period).await;
        self.sky.note("usage", &answer);
        effect.done().await;
        answer
    }
}

/// Live nodes by lease, but for those that nobody was told of.
pub(crate) fn live_by_lease(
    truth: &runwhere_providers::testing::Truth,
) -> BTreeMap<&LeaseId, BTreeSet<&NodeId>> {
    let mut live: BTreeMap<&LeaseId, BTreeSet<&NodeId>> = BTreeMap::new();
    for node in truth.live().filter(|node| !node.unsaid) {
        live.entry(&node.lease).or_default().insert(&node.node);
    }
    live
}
