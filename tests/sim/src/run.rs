//! One run of one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_broker::accounts::Caller;
use runwhere_broker::agents::{Agents, DurableFrames};
use runwhere_broker::api::agent::AgentService;
use runwhere_broker::api::runwhere::JobService;
use runwhere_broker::driver::{Core, CoreParts};
use runwhere_broker::jobs::Jobs;
use runwhere_broker::ports::{NoPlatformLog, Prices};
use runwhere_broker::store::{Row, Store, Transition};
use runwhere_engine::{Budget, FxRate, Job, JobKind, JobSpec, Policy, Trial};
use runwhere_model::{
    Currency, DeploymentId, GpuCount, GpuModelId, JobId, KeyId, LeaseId, NodeId, NodePhase, Offer,
    OfferCode, OfferKey, OfferScope, PrincipalId, ProjectId, Secret, TrialId, WorkspaceId,
};
use runwhere_providers::testing::{ManualClock, SimCloud};
use runwhere_providers::{Clock, OfferSource, Registry};
use tokio::task::JoinHandle;

use crate::agent::Agent;
use crate::check;
use crate::cloud::TracedCloud;
use crate::plan::{Plan, PlannedJob, What, pick};
use crate::rng::Rng;
use crate::store::FaultyStore;
use crate::trace::{Trace, hash};

/// Everything must have settled so long after the last thing from outside.
const PATIENCE: Duration = Duration::from_secs(8 * 3600);

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Hash of everything that happened; the same for every run of the seed.
    pub hash: u64,
    /// What happened, line by line.
    pub trace: Vec<String>,
    /// What must not have happened.
    pub wrong: Vec<String>,
}

#[derive(Debug)]
struct OneOffer(Offer);

impl Prices for OneOffer {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        (self.0.key == *key).then(|| self.0.clone())
    }
    fn by_code(&self, _code: OfferCode) -> Option<OfferKey> {
        None
    }
    fn best(&self, _model: GpuModelId, _count: GpuCount) -> Vec<Offer> {
        vec![self.0.clone()]
    }
    fn suggest(&self, _text: &str) -> Vec<GpuModelId> {
        Vec::new()
    }
    fn rate(&self, _from: Currency, _to: Currency) -> Option<FxRate> {
        None
    }
    fn snapshot(&self) -> String {
        "sim".into()
    }
}

#[derive(Debug)]
struct NoFrames;

impl DurableFrames for NoFrames {
    fn durable_seq(&self, _trial: &TrialId, _lease: &LeaseId) -> u64 {
        0
    }
}

/// What outlives a broker.
struct World {
    clock: Arc<ManualClock>,
    cloud: Arc<TracedCloud>,
    store: Arc<FaultyStore>,
    prices: Arc<OneOffer>,
    ids: Arc<Rng>,
    rng: Rng,
    trace: Trace,
    plan: Plan,
    start: Timestamp,
    next_act: usize,
    agents: BTreeMap<NodeId, Agent>,
    partitioned: bool,
}

enum After {
    Crash,
    End(Vec<String>),
}

/// Runs a seed from its first submit until everything has settled.
pub fn run(seed: u64) -> Report {
    let rng = Rng::new(seed, 1);
    let plan = Plan::of(&rng);
    let clock = Arc::new(ManualClock::default());
    let shared: Arc<dyn Clock> = clock.clone();
    let trace = Trace::new(Arc::clone(&shared));
    let deployment = DeploymentId::new("ours").expect("a valid constant");
    let cloud = SimCloud::new(plan.profile.clone(), deployment, shared);
    let offer = runtime().block_on(first_offer(&cloud));
    Plan::script(&rng, &cloud);
    trace.line(format_args!("{plan:?}"));
    let mut world = World {
        start: clock.now(),
        clock,
        cloud: TracedCloud::new(cloud, trace.clone()),
        store: Arc::new(FaultyStore::new(Rng::new(seed, 2), trace.clone())),
        prices: Arc::new(OneOffer(offer)),
        ids: Arc::new(Rng::new(seed, 3)),
        rng,
        trace: trace.clone(),
        plan,
        next_act: 0,
        agents: BTreeMap::new(),
        partitioned: false,
    };
    let wrong = loop {
        // The runtime dies with the broker, and with it everything that was under way.
        match runtime().block_on(world.one_broker()) {
            After::Crash => world.trace.line("crash"),
            After::End(wrong) => break wrong,
        }
    };
    let trace = trace.take();
    Report { seed, hash: hash(&trace), trace, wrong }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers")
}

async fn first_offer(cloud: &SimCloud) -> Offer {
    let key = cloud.keys()[1].clone();
    let sheet = cloud.offers(&OfferScope::default()).await.expect("nothing is scripted yet");
    sheet.offers.into_iter().find(|offer| offer.key == key).expect("the cloud lists its keys")
}

fn project() -> ProjectId {
    ProjectId::new("project").expect("a valid constant")
}

impl World {
    fn parts(&self) -> CoreParts {
        let mut registry = Registry::new();
        registry.add(self.cloud.clone());
        CoreParts {
            store: self.store.clone(),
            registry,
            prices: self.prices.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            log: Arc::new(NoPlatformLog),
            policy: Policy::default(),
            deployment: DeploymentId::new("ours").expect("a valid constant"),
            broker_url: "https://broker.invalid".into(),
            ca_pem: None,
            token_key: Secret::new("sim"),
        }
    }

    async fn one_broker(&mut self) -> After {
        let core = Core::new(self.parts());
        if let Err(error) = core.recover().await {
            self.trace.line(format_args!("recovery failed: {error}"));
            self.clock.advance(Duration::from_secs(5)).await;
            self.skip_acts();
            return After::Crash;
        }
        let service: Arc<dyn AgentService> =
            Arc::new(Agents::new(Arc::clone(&core), Arc::new(NoFrames)));
        let jobs = Arc::new(Jobs::new(Arc::clone(&core), true));
        tokio::spawn(Arc::clone(&core).run());
        let mut serving: BTreeMap<NodeId, JoinHandle<()>> = BTreeMap::new();
        self.clock.settle().await;
        loop {
            self.meet_agents(&service, &mut serving);
            let truth = self.cloud.cloud.truth();
            let wrong = check::always(&self.store, &truth);
            if !wrong.is_empty() {
                return After::End(wrong);
            }
            let now = self.clock.now();
            if let Some(act) = self.plan.acts.get(self.next_act).cloned() {
                if self.at(act.at) <= now {
                    self.next_act += 1;
                    self.trace.line(format_args!("{:?}", act.what));
                    if let What::Crash = act.what {
                        return After::Crash;
                    }
                    self.act(&act.what, &core, &jobs).await;
                    self.clock.settle().await;
                    continue;
                }
            } else if self.settled() {
                // A little longer: nothing may come to life again.
                self.clock.advance(Duration::from_secs(1800)).await;
                let truth = self.cloud.cloud.truth();
                let times = self.plan.profile.capabilities.states_times;
                return After::End(check::finally(&self.store, &project(), &truth, times).await);
            }
            let last = self.plan.acts.last().map_or(Duration::ZERO, |act| act.at);
            if now > self.at(last + PATIENCE) {
                let written = self.store.written();
                return After::End(vec![format!("not settled in time: {:#?}", written.trials)]);
            }
            let next = self.next_instant(now);
            let span = Duration::try_from(next.duration_since(now)).unwrap_or_default();
            self.clock.advance(span.max(Duration::from_micros(1))).await;
        }
    }

    fn at(&self, after: Duration) -> Timestamp {
        self.start.checked_add(after).unwrap_or(Timestamp::MAX)
    }

    /// The next deadline or act, but not beyond a node's next change.
    fn next_instant(&self, now: Timestamp) -> Timestamp {
        let act = self.plan.acts.get(self.next_act).map(|act| self.at(act.at));
        let truth = self.cloud.cloud.truth();
        let starting = truth.live().any(|node| node.phase == NodePhase::Pending);
        let pause = Duration::from_secs(if starting { 5 } else { 30 });
        let nodes = truth.live().next().map(|_| pause);
        let nodes = nodes.and_then(|pause| now.checked_add(pause).ok());
        [act, nodes, self.clock.next_deadline()].into_iter().flatten().min().unwrap_or(now)
    }

    /// Acts whose time passed while there was no broker happen to nobody.
    fn skip_acts(&mut self) {
        let now = self.clock.now();
        while let Some(act) = self.plan.acts.get(self.next_act).cloned() {
            if self.at(act.at) > now {
                break;
            }
            match act.what {
                What::StoreFails(percent) => self.store.fail(percent),
                What::Partition(cut) => self.partitioned = cut,
                // A submit cannot be skipped: it is made later.
                What::Submit(_) => break,
                _ => {}
            }
            self.next_act += 1;
        }
    }

    fn settled(&self) -> bool {
        let written = self.store.written();
        written.trials.len() == self.plan.jobs.len()
            && written.trials.values().all(|t| t.state.is_terminal() && t.cleanup_confirmed)
    }

    /// An agent for each running node; it dies with its node and is cut off by a partition.
    fn meet_agents(
        &mut self,
        service: &Arc<dyn AgentService>,
        serving: &mut BTreeMap<NodeId, JoinHandle<()>>,
    ) {
        let truth = self.cloud.cloud.truth();
        let running: BTreeSet<&NodeId> = truth
            .live()
            .filter(|node| node.phase == NodePhase::Running && !self.partitioned)
            .map(|node| &node.node)
            .collect();
        serving.retain(|node, task| {
            let stays = running.contains(node);
            if !stays {
                task.abort();
            }
            stays
        });
        for node in truth.live().filter(|node| running.contains(&node.node)) {
            if serving.contains_key(&node.node) {
                continue;
            }
            let agent = match self.agents.get(&node.node) {
                Some(agent) => agent.clone(),
                None => {
                    let lease = self.store.written().leases.get(&node.lease).cloned();
                    let (Some(lease), Some(token)) = (lease, self.cloud.token(&node.lease)) else {
                        continue;
                    };
                    let job = self.planned(&lease.job);
                    let agent = Agent::new(lease, token, job, self.clock.now());
                    self.agents.insert(node.node.clone(), agent.clone());
                    agent
                }
            };
            let task = agent.serve(Arc::clone(service), self.clock.clone());
            serving.insert(node.node.clone(), tokio::spawn(task));
        }
    }

    fn planned(&self, job: &JobId) -> PlannedJob {
        let number = job.as_str().trim_start_matches("job-").parse::<usize>().unwrap_or(0);
        self.plan.jobs[number.min(self.plan.jobs.len() - 1)].clone()
    }

    async fn act(&mut self, what: &What, core: &Arc<Core>, jobs: &Arc<Jobs>) {
        match what {
            What::Submit(number) => self.submit(*number, core).await,
            What::Stop(number) => {
                let (jobs, id) = (Arc::clone(jobs), job_id(*number));
                tokio::spawn(async move {
                    let _ = jobs.stop(&caller(), id.as_str()).await;
                });
            }
            What::StoreFails(percent) => self.store.fail(*percent),
            What::Partition(cut) => self.partitioned = *cut,
            What::NodeFails | What::NodeReclaimed | What::NodeHalts => {
                let truth = self.cloud.cloud.truth();
                let live: Vec<_> = truth.live().map(|node| node.node.clone()).collect();
                let Some(node) = live.get(pick(&self.rng, live.len())) else { return };
                match what {
                    What::NodeFails => self.cloud.cloud.lose(node),
                    What::NodeReclaimed => self.cloud.cloud.reclaim(node),
                    _ => self.cloud.cloud.halt(node),
                }
            }
            What::Crash => {}
        }
    }

    async fn submit(&self, number: usize, core: &Arc<Core>) {
        let id = job_id(number);
        let planned = &self.plan.jobs[number];
        let offer = &self.prices.0;
        let caller = caller();
        let trial_id = TrialId::new(format!("{id}.0")).expect("made of a valid id");
        let job = Job {
            id: id.clone(),
            version: 0,
            workspace: caller.workspace.clone(),
            project: caller.project.clone(),
            principal: caller.principal,
            name: format!("train-{number}"),
            kind: JobKind::Training,
            trial_specs: Vec::new(),
            spec: JobSpec {
                yaml: String::new(),
                description: None,
                image: None,
                argv: vec!["true".into()],
                env: BTreeMap::new(),
                gpu_count: offer.gpu_count,
                gpu_model: offer.gpu,
                gpu_pretended: false,
                offer: offer.key.clone(),
                ceiling: offer.price.state.known().expect("the sample has a price"),
                max_duration_seconds: planned.limit_seconds,
                sync: None,
                checkpoint: None,
                from_step: None,
            },
            trials: vec![trial_id.clone()],
            created_at: self.clock.now(),
            resumed: None,
            lineage: id,
            active: true,
            deleted_at: None,
            idempotency_key: None,
            request_sha256: String::new(),
        };
        let trial = Trial::queued(trial_id, &job, 0);
        // A user repeats what the store did not take.
        for _ in 0..1000 {
            let mut rows = vec![Row::Job(job.clone()), Row::Trial(trial.clone())];
            if matches!(self.store.budget(&job.project).await, Ok(None)) {
                let budget =
                    Budget::unlimited(job.workspace.clone(), job.project.clone(), Currency::USD);
                rows.push(Row::Budget(budget));
            }
            let _ = self.store.commit(Transition { rows, events: Vec::new() }).await;
            if self.store.written().trials.contains_key(&trial.id) {
                break;
            }
            self.clock.advance(Duration::from_secs(1)).await;
        }
        core.signals().ring();
    }
}

fn job_id(number: usize) -> JobId {
    JobId::new(format!("job-{number:08}")).expect("digits are valid")
}

fn caller() -> Caller {
    Caller {
        workspace: WorkspaceId::new("workspace").expect("a valid constant"),
        project: project(),
        principal: PrincipalId::new("user").expect("a valid constant"),
        key: KeyId::new("key").expect("a valid constant"),
        permissions: Vec::new(),
    }
}
