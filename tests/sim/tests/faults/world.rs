//! A broker, its store, its cloud and its agents on virtual time. The broker can be killed and
//! started again; store, cloud and the agents' journals stay.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_agent::protocol::{Desired, EventKind};
use runwhere_broker::accounts::Caller;
use runwhere_broker::agents::{Agents, DurableFrames};
use runwhere_broker::api::agent::{AgentCaller, AgentRefusal, AgentService};
use runwhere_broker::api::runwhere::{
    JobReport, JobService, Refusal, ResumeRequest, SubmitRequest, Submitted,
};
use runwhere_broker::driver::{Core, CoreParts, Others};
use runwhere_broker::jobs::Jobs;
use runwhere_broker::ports::{PlatformLog, Prices, SystemIds};
use runwhere_broker::store::{MemoryStore, Row, SegmentQuery, Store, Transition};
use runwhere_engine::{
    Budget, EndReason, EventRecord, Lease, LeaseState, Policy, Project, Quota, Trial, TrialState,
    Unit, UsageSegment, Workspace,
};
use runwhere_model::{
    Currency, DeploymentId, HourlyPrice, JobId, KeyId, LeaseId, NodeId, NodePhase, OfferKey,
    OfferScope, PrincipalId, ProjectId, Secret, TrialId, WorkspaceId,
};
use runwhere_providers::testing::{ManualClock, SimCloud, SimProfile, Truth};
use runwhere_providers::{Clock, OfferSource, Registry};
use rust_decimal::Decimal;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::agent::{Agent, booted, ending, exited, gpus_ready, started};
use super::catalogue::Catalogue;
use super::spy::Spy;

/// One process.
pub(crate) struct Broker {
    pub(crate) core: Arc<Core>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) agents: Arc<dyn AgentService>,
    runtime: Runtime,
}

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) cloud: SimCloud,
    pub(crate) spy: Arc<Spy>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) prices: Arc<Catalogue>,
    pub(crate) policy: Policy,
    pub(crate) connected: bool,
    told: Arc<Told>,
    broker: Option<Broker>,
    staying: Vec<(Agent, JoinHandle<()>)>,
    submits: u32,
}

/// The states that trials' logs were last told of.
#[derive(Debug, Default)]
struct Told(Mutex<BTreeMap<TrialId, TrialState>>);

#[async_trait]
impl PlatformLog for Told {
    async fn observe(&self, unit: &Unit) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(unit.trial.id.clone(), unit.trial.state);
    }
}

#[derive(Debug)]
struct NoFrames;

impl DurableFrames for NoFrames {
    fn durable_seq(&self, _trial: &TrialId, _lease: &LeaseId) -> u64 {
        0
    }
}

pub(crate) fn deployment() -> DeploymentId {
    DeploymentId::new("ours").unwrap()
}

pub(crate) fn project() -> ProjectId {
    ProjectId::new("project").unwrap()
}

fn workspace() -> WorkspaceId {
    WorkspaceId::new("workspace").unwrap()
}

pub(crate) fn workspace_row(created_at: Timestamp) -> Workspace {
    Workspace { id: workspace(), name: "w".into(), created_at }
}

pub(crate) fn project_row(created_at: Timestamp) -> Project {
    Project {
        id: project(),
        version: 0,
        workspace: workspace(),
        name: "p".into(),
        quota: Quota::default(),
        consents_no_deadman: true,
        approved_plugins: BTreeSet::new(),
        created_at,
    }
}

pub(crate) fn caller() -> Caller {
    Caller {
        workspace: workspace(),
        project: project(),
        principal: PrincipalId::new("user").unwrap(),
        key: KeyId::new("key").unwrap(),
        permissions: Vec::new(),
        seen_in: None,
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn usd(cents: i64) -> HourlyPrice {
    HourlyPrice { amount: Decimal::new(cents, 2), currency: Currency::USD }
}

/// Whether the cloud states the end of every node's bill: one that forgets a node with its end
/// does not.
pub(crate) fn states_ends(profile: &SimProfile) -> bool {
    profile.capabilities.states_times && !profile.shown_after_end.is_zero()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

impl World {
    pub(crate) fn new(profile: SimProfile) -> Self {
        Self::over(profile, Arc::new(MemoryStore::new()))
    }

    /// The same over a store of the test's own.
    pub(crate) fn over(profile: SimProfile, store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = clock.clone();
        let cloud = SimCloud::new(profile, deployment(), shared);
        let sheet = runtime().block_on(cloud.offers(&OfferScope::default())).unwrap();
        let spy = Spy::new(cloud.clone());
        let mut world = Self {
            clock,
            cloud,
            spy,
            store,
            prices: Arc::new(Catalogue::new(sheet.offers)),
            policy: Policy::default(),
            connected: true,
            told: Arc::default(),
            broker: None,
            staying: Vec::new(),
            submits: 0,
        };
        let rows = vec![
            Row::Workspace(workspace_row(world.clock.now())),
            Row::Project(project_row(world.clock.now())),
            Row::Budget(Budget::unlimited(workspace(), project(), Currency::USD)),
        ];
        let transition = Transition { rows, events: Vec::new() };
        runtime().block_on(world.store.commit(transition)).unwrap();
        world.start();
        world
    }

    /// Another process on the same store and cloud; it does not begin to work by itself.
    pub(crate) fn process(&self) -> Broker {
        let mut registry = Registry::new();
        if self.connected {
            registry.add(self.spy.clone());
        }
        let prices: Arc<dyn Prices> = self.prices.clone();
        self.process_with(registry, prices)
    }

    pub(crate) fn process_with(&self, registry: Registry, prices: Arc<dyn Prices>) -> Broker {
        let core = Core::new(CoreParts {
            store: self.store.clone(),
            registry,
            prices,
            clock: self.clock.clone(),
            ids: Arc::new(SystemIds),
            log: self.told.clone(),
            policy: self.policy.clone(),
            deployment: deployment(),
            broker_url: "https://broker.invalid".into(),
            ca_pem: None,
            token_key: Secret::new("faults"),
        });
        Broker {
            jobs: Arc::new(Jobs::new(Arc::clone(&core), true)),
            agents: Arc::new(Agents::new(Arc::clone(&core), Arc::new(NoFrames))),
            core,
            runtime: runtime(),
        }
    }

    /// Starts the broker; agents that stayed come back to it.
    pub(crate) fn start(&mut self) {
        let broker = self.process();
        self.start_as(broker);
    }

    pub(crate) fn start_as(&mut self, broker: Broker) {
        let core = Arc::clone(&broker.core);
        self.broker = Some(broker);
        // Recovery is tried until the store lets it.
        let clock = Arc::clone(&self.clock);
        let recovering = Arc::clone(&core);
        for _ in 0..100 {
            let recovering = Arc::clone(&recovering);
            if self.run(async move { recovering.recover(Others::Ended).await }).is_ok() {
                break;
            }
            self.run(async { clock.advance(seconds(1)).await });
        }
        self.broker().runtime.spawn(core.run());
        let agents: Vec<Agent> = self.staying.drain(..).map(|(agent, _)| agent).collect();
        for agent in &agents {
            self.stay(agent);
        }
        self.settle();
    }

    /// kill -9: what was under way is gone.
    pub(crate) fn kill(&mut self) {
        self.broker = None;
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// The broker's process is stopped where it is, and may go on later.
    pub(crate) fn freeze(&mut self) -> Broker {
        self.broker.take().expect("the broker runs")
    }

    /// It goes on for a moment.
    pub(crate) fn thaw(&self, process: &Broker) {
        let clock = Arc::clone(&self.clock);
        process.runtime.block_on(async move { clock.settle().await });
    }

    /// The state of a trial that its log was last told of.
    pub(crate) fn told(&self, trial: &TrialId) -> Option<TrialState> {
        self.told.0.lock().unwrap_or_else(PoisonError::into_inner).get(trial).copied()
    }

    pub(crate) fn broker(&self) -> &Broker {
        self.broker.as_ref().expect("the broker runs")
    }

    /// Runs something in the broker's process, or beside it while there is none.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.broker {
            Some(broker) => broker.runtime.block_on(work),
            None => runtime().block_on(work),
        }
    }

    /// Starts something that goes on while time passes.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.broker().runtime.spawn(work)
    }

    pub(crate) fn settle(&self) {
        let clock = Arc::clone(&self.clock);
        self.run(async move { clock.settle().await });
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, span: Duration) {
        let clock = Arc::clone(&self.clock);
        self.run(async move { clock.advance(span).await });
    }

    /// Lets time pass until something holds; fails after `limit`.
    #[track_caller]
    pub(crate) fn until(&self, limit: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = self.clock.now().checked_add(limit).unwrap();
        self.settle();
        while !holds(self) {
            let state = || (self.trials(), self.leases(), self.truth().nodes);
            assert!(self.clock.now() < end, "not in time: {what}\n{:#?}", state());
            self.pass(seconds(1));
        }
    }

    pub(crate) fn at(&self, after: u64) -> Timestamp {
        self.clock.now().checked_add(seconds(after)).unwrap()
    }

    pub(crate) fn truth(&self) -> Truth {
        self.cloud.truth()
    }

    /// The one GPU offer that the tests rent.
    pub(crate) fn offer(&self) -> OfferKey {
        self.cloud.keys()[1].clone()
    }

    pub(crate) fn yaml(name: &str, limit: Option<u64>) -> String {
        let limit = limit.map(|limit| format!("  maxDuration: {limit}s\n")).unwrap_or_default();
        format!(
            "job:\n  name: {name}\n{limit}resources:\n  gpuType: A100-80G\n  gpuNum: 1\nenvironment:\n  command: [\"true\"]\n"
        )
    }

    pub(crate) fn request(&self, name: &str) -> SubmitRequest {
        SubmitRequest {
            yaml: Self::yaml(name, None),
            offer_key: Some(self.offer().to_string()),
            offer_code: None,
            overage_confirmed: true,
            idempotency_key: None,
            sync: None,
            max_price: None,
            request_sha256: String::new(),
        }
    }

    pub(crate) fn try_submit(&self, request: SubmitRequest) -> Result<Submitted, Refusal> {
        let jobs = Arc::clone(&self.broker().jobs);
        self.run(async move { jobs.submit(&caller(), request).await })
    }

    /// Submits a job of a name of its own; its trial.
    pub(crate) fn submit(&mut self) -> TrialId {
        self.submits += 1;
        let request = self.request(&format!("job-{}-x", self.submits));
        self.submit_as(request)
    }

    pub(crate) fn submit_as(&self, request: SubmitRequest) -> TrialId {
        let submitted = self.try_submit(request).unwrap();
        submitted.report.view.trials[0].0.id.clone()
    }

    pub(crate) fn resume(&self, target: &str) -> Result<Submitted, Refusal> {
        let request = ResumeRequest {
            target: target.to_owned(),
            overage_confirmed: true,
            ..ResumeRequest::default()
        };
        let jobs = Arc::clone(&self.broker().jobs);
        self.run(async move { jobs.resume(&caller(), request).await })
    }

    /// Asks for a stop; the answer comes when it is released, or after a while.
    pub(crate) fn stop(&self, trial: &TrialId) -> JoinHandle<Result<JobReport, Refusal>> {
        let (jobs, id) = (Arc::clone(&self.broker().jobs), self.trial(trial).job);
        let stop = self.spawn(async move { jobs.stop(&caller(), id.as_str()).await });
        self.settle();
        stop
    }

    pub(crate) fn unit(&self, trial: &TrialId) -> (Trial, Option<Lease>) {
        let unit = self.run(self.store.unit(trial)).unwrap().unwrap();
        (unit.1, unit.2)
    }

    pub(crate) fn trial(&self, trial: &TrialId) -> Trial {
        self.unit(trial).0
    }

    pub(crate) fn lease(&self, trial: &TrialId) -> Lease {
        self.unit(trial).1.expect("the trial has a lease")
    }

    pub(crate) fn lease_state(&self, trial: &TrialId) -> Option<LeaseState> {
        self.unit(trial).1.map(|lease| lease.state)
    }

    pub(crate) fn trials(&self) -> Vec<Trial> {
        let query = runwhere_broker::store::JobQuery::default();
        let views = self.run(self.store.jobs(&project(), &query)).unwrap();
        views.into_iter().flat_map(|view| view.trials).map(|(trial, _)| trial).collect()
    }

    pub(crate) fn leases(&self) -> Vec<Lease> {
        let query = runwhere_broker::store::JobQuery::default();
        let views = self.run(self.store.jobs(&project(), &query)).unwrap();
        views.into_iter().flat_map(|view| view.trials).filter_map(|(_, lease)| lease).collect()
    }

    pub(crate) fn events(&self, trial: &TrialId) -> Vec<EventRecord> {
        let job: JobId = self.trial(trial).job;
        self.run(self.store.events(&project(), &job)).unwrap()
    }

    pub(crate) fn has_event(&self, trial: &TrialId, kind: &str) -> bool {
        self.events(trial).iter().any(|event| event.kind == kind)
    }

    pub(crate) fn budget(&self) -> Budget {
        self.run(self.store.budget(&project())).unwrap().unwrap()
    }

    pub(crate) fn set_budget(&self, limit: Decimal) {
        let budget = Budget { limit: Some(limit), ..self.budget() };
        let rows = vec![Row::Budget(budget)];
        self.run(self.store.commit(Transition { rows, events: Vec::new() })).unwrap();
    }

    pub(crate) fn segments(&self, trial: &TrialId) -> Vec<UsageSegment> {
        let query = SegmentQuery { limit: u32::MAX, ..SegmentQuery::default() };
        let all = self.run(self.store.segments(&project(), &query)).unwrap();
        all.into_iter().map(|(_, one)| one).filter(|one| one.trial == *trial).collect()
    }

    /// Billed microseconds of all leases of a trial, as the ledger has them.
    pub(crate) fn charged(&self, trial: &TrialId) -> u64 {
        self.segments(trial).iter().map(|one| one.billed_to_micros - one.billed_from_micros).sum()
    }

    /// The cloud's own meter over all its nodes.
    pub(crate) fn metered(&self) -> u64 {
        self.truth().nodes.iter().map(|node| node.meter_micros).sum()
    }

    /// Nodes that live, whoever knows of them.
    pub(crate) fn live(&self) -> Vec<NodeId> {
        self.truth().live().map(|node| node.node.clone()).collect()
    }

    /// Waits for a running node of the trial's present lease.
    #[track_caller]
    pub(crate) fn node(&self, trial: &TrialId) -> NodeId {
        let running = |world: &Self| {
            let lease = world.unit(trial).1?;
            let truth = world.truth();
            let node = truth.live_nodes(&lease.id).into_iter().next()?;
            let held = matches!(lease.state, LeaseState::Booting | LeaseState::Ready);
            (held && node.phase == NodePhase::Running && lease.node.as_ref() == Some(&node.node))
                .then(|| node.node.clone())
        };
        self.until(seconds(4 * 3600), "a running node", |world| running(world).is_some());
        running(self).unwrap()
    }

    /// The agent of a trial's node, not joined yet.
    pub(crate) fn agent(&self, trial: &TrialId, node: &NodeId) -> Agent {
        self.agent_with_key(trial, node, "key")
    }

    pub(crate) fn agent_with_key(&self, trial: &TrialId, node: &NodeId, key: &str) -> Agent {
        let lease = self.lease(trial);
        let caller = AgentCaller {
            lease: lease.id.clone(),
            epoch: lease.epoch,
            workspace: lease.workspace,
            project: lease.project,
            job: lease.job,
            trial: lease.trial,
        };
        Agent::new(node.clone(), caller, self.spy.token(&lease.id), key)
    }

    pub(crate) fn join(&self, agent: &Agent) -> Result<(), AgentRefusal> {
        let agents = Arc::clone(&self.broker().agents);
        let agent = agent.clone();
        self.run(async move { agent.join(agents.as_ref()).await })
    }

    /// Reports something now.
    pub(crate) fn say(&self, agent: &Agent, kind: EventKind) -> Result<(), AgentRefusal> {
        agent.note(self.clock.now(), kind);
        let agents = Arc::clone(&self.broker().agents);
        let agent = agent.clone();
        let said = self.run(async move { agent.send(agents.as_ref()).await });
        self.settle();
        said
    }

    /// From now on the agent keeps its connection, through restarts of the broker.
    pub(crate) fn stay(&mut self, agent: &Agent) {
        let agents = Arc::clone(&self.broker().agents);
        let task = self.spawn(agent.clone().stay(agents));
        self.staying.push((agent.clone(), task));
        self.settle();
    }

    /// The agent's connection breaks and stays broken.
    pub(crate) fn cut(&mut self, agent: &Agent) {
        let node = agent.node();
        for (_, task) in self.staying.extract_if(.., |(one, _)| one.node() == node) {
            task.abort();
        }
        self.settle();
    }

    /// The same while there is no broker.
    pub(crate) fn cut_off(&mut self, agent: &Agent) {
        let node = agent.node();
        self.staying.retain(|(one, _)| one.node() != node);
    }

    /// Brings a trial to the point where its program runs.
    #[track_caller]
    pub(crate) fn running(&mut self, trial: &TrialId) -> Agent {
        let node = self.node(trial);
        let agent = self.agent(trial, &node);
        self.join(&agent).unwrap();
        self.stay(&agent);
        for kind in [booted(), gpus_ready(), EventKind::Preparing, started()] {
            self.say(&agent, kind).unwrap();
        }
        assert_eq!(self.trial(trial).state, TrialState::Running);
        agent
    }

    /// The program ends by itself and everything is delivered.
    pub(crate) fn finish(&self, agent: &Agent, code: i32) {
        self.say(agent, exited(code)).unwrap();
        for kind in ending(None) {
            self.say(agent, kind).unwrap();
        }
    }

    /// Waits until the trial's last lease is proven ended.
    #[track_caller]
    pub(crate) fn clean(&self, trial: &TrialId) {
        self.until(seconds(6 * 3600), "a confirmed clean-up", |world| {
            world.trial(trial).cleanup_confirmed
        });
    }

    /// What must be true of every ended trial: no node of ours lives, nothing foreign was touched,
    /// no token was used twice, and the evidence is stored.
    #[track_caller]
    pub(crate) fn assert_clean(&self, trial: &TrialId) {
        let (trial, lease) = self.unit(trial);
        let truth = self.truth();
        assert!(trial.state.is_terminal() && trial.cleanup_confirmed, "{trial:#?}");
        assert!(!trial.evidence.is_empty(), "{trial:#?}");
        if let Some(lease) = lease {
            assert!(lease.state.is_terminal() && lease.evidence.is_some(), "{lease:#?}");
        }
        let ours = |node: &&runwhere_providers::testing::TruthNode| node.deployment == deployment();
        assert_eq!(truth.live().filter(ours).count(), 0, "{:#?}", truth.nodes);
        assert!(truth.touched_foreign.is_empty());
        assert!(truth.launches.values().all(|calls| *calls == 1), "{:?}", truth.launches);
        assert!(self.budget().reserved.is_empty());
    }

    pub(crate) fn state(&self, trial: &TrialId) -> TrialState {
        self.trial(trial).state
    }

    pub(crate) fn end_reason(&self, trial: &TrialId) -> EndReason {
        self.trial(trial).end_reason.expect("the trial has ended")
    }

    pub(crate) fn order(&self, agent: &Agent) -> Option<Desired> {
        self.settle();
        agent.order().0
    }
}
