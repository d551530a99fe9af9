//! A cloud, a store, and servers over them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_engine::{
    Budget, FxRate, Job, Lease, LeaseState, Policy, PriceSnapshot, Stray, Trial, TrialState,
    UsageSegment,
};
use runwhere_model::{
    Bootstrap, Currency, DeploymentId, GpuCount, GpuModelId, LaunchRequest, LeaseId, Money, NodeId,
    Offer, OfferCode, OfferKey, OfferScope, ProjectId, ProviderId, Secret, TrialId,
};
use runwhere_providers::testing::{ManualClock, SimCloud, SimProfile};
use runwhere_providers::{Clock, OfferSource, Provider, Registry};

use crate::driver::{Core, CoreParts, Sweeper};
use crate::ports::{NoPlatformLog, Prices, SystemIds};
use crate::store::{MemoryStore, Row, SegmentQuery, Store, StrayQuery, Transition, sample};

pub(super) const PROJECT: &str = "p";

/// The cloud's offers; asking for one of the poisoned ones breaks the step off.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) offers: Mutex<Vec<Offer>>,
    pub(super) poisoned: Mutex<BTreeSet<OfferKey>>,
}

impl Sheet {
    /// The offer, poisoned or not.
    fn stated(&self, key: &OfferKey) -> Option<Offer> {
        self.offers.lock().unwrap().iter().find(|offer| offer.key == *key).cloned()
    }
}

impl Prices for Sheet {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        let poisoned = self.poisoned.lock().unwrap().contains(key);
        assert!(!poisoned, "a poisoned offer");
        self.stated(key)
    }
    fn by_code(&self, _code: OfferCode) -> Option<OfferKey> {
        None
    }
    fn best(&self, _model: GpuModelId, _count: GpuCount) -> Vec<Offer> {
        Vec::new()
    }
    fn suggest(&self, _text: &str) -> Vec<GpuModelId> {
        Vec::new()
    }
    fn rate(&self, _from: Currency, _to: Currency) -> Option<FxRate> {
        None
    }
    fn snapshot(&self) -> String {
        "test".into()
    }
}

/// What outlives a server.
pub(super) struct Site {
    pub(super) clock: Arc<ManualClock>,
    pub(super) cloud: SimCloud,
    pub(super) store: Arc<MemoryStore>,
    pub(super) prices: Arc<Sheet>,
    pub(super) keys: Vec<OfferKey>,
}

impl Site {
    pub(super) async fn new(profile: SimProfile) -> Self {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = clock.clone();
        let cloud = SimCloud::new(profile, deployment("ours"), shared);
        let sheet = cloud.offers(&OfferScope::default()).await.unwrap();
        let keys = cloud.keys();
        let prices = Sheet { offers: Mutex::new(sheet.offers), poisoned: Mutex::default() };
        let store = Arc::new(MemoryStore::new());
        Self { clock, cloud, store, prices: Arc::new(prices), keys }
    }

    /// A server; not running yet.
    pub(super) fn server(&self) -> (Arc<Core>, Arc<Sweeper>) {
        self.server_with(true)
    }

    pub(super) fn server_with(&self, connected: bool) -> (Arc<Core>, Arc<Sweeper>) {
        let mut registry = Registry::new();
        if connected {
            registry.add(Arc::new(self.cloud.clone()));
        }
        let core = Core::new(CoreParts {
            store: self.store.clone(),
            registry,
            prices: self.prices.clone(),
            clock: self.clock.clone(),
            ids: Arc::new(SystemIds),
            log: Arc::new(NoPlatformLog),
            policy: Policy::default(),
            deployment: deployment("ours"),
            broker_url: "https://broker.invalid".into(),
            ca_pem: None,
            token_key: Secret::new("test"),
        });
        let sweeper = Sweeper::new(Arc::clone(&core));
        (core, sweeper)
    }

    pub(super) async fn put(&self, rows: Vec<Row>) {
        self.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    }

    /// A job of the small offer, queued.
    pub(super) async fn submit(&self, number: u32, key: &OfferKey) -> TrialId {
        self.submit_as(number, key, |_| ()).await
    }

    /// As [`Self::submit`], with another job specification.
    pub(super) async fn submit_as(
        &self,
        number: u32,
        key: &OfferKey,
        change: impl FnOnce(&mut Job),
    ) -> TrialId {
        let (mut job, trial) = self.job(number, key);
        change(&mut job);
        let mut rows = vec![Row::Job(job), Row::Trial(trial.clone())];
        if self.store.budget(&project()).await.unwrap().is_none() {
            let workspace = trial.workspace.clone();
            rows.push(Row::Budget(Budget::unlimited(workspace, project(), Currency::USD)));
        }
        self.put(rows).await;
        trial.id
    }

    fn job(&self, number: u32, key: &OfferKey) -> (Job, Trial) {
        let offer = self.prices.stated(key).unwrap();
        let mut job = sample::job(PROJECT, number, &format!("train-{number}"));
        job.created_at = self.clock.now();
        job.spec.offer = key.clone();
        job.spec.gpu_count = offer.gpu_count;
        job.spec.gpu_model = offer.gpu;
        job.spec.ceiling = offer.price.state.known().unwrap();
        job.spec.max_duration_seconds = None;
        let trial = Trial::queued(sample::trial_id(&job.id, 0), &job, 0);
        (job, trial)
    }

    /// The row of a lease in some state, with an ended trial.
    pub(super) async fn lease(&self, id: &str, change: impl FnOnce(&mut Lease)) -> Lease {
        let (job, mut trial) = self.job(77, &self.keys[1]);
        let offer = self.prices.offer(&self.keys[1]).unwrap();
        let now = self.clock.now();
        let mut lease = sample::lease(&trial, id);
        lease.offer = self.keys[1].clone();
        lease.gpu_count = offer.gpu_count;
        lease.gpu_model = offer.gpu;
        lease.capabilities = self.cloud.capabilities().clone();
        lease.price = PriceSnapshot {
            price: offer.price.state.known().unwrap(),
            source: "test".into(),
            observed_at: Some(now),
            snapshot: "test".into(),
        };
        lease.ceiling = lease.price.price;
        (lease.since, lease.intended_at, lease.launched_at) = (now, now, Some(now));
        change(&mut lease);
        trial.state = TrialState::Cancelled;
        trial.next_at = None;
        trial.lease = Some(lease.id.clone());
        trial.cleanup_confirmed = lease.state.is_terminal();
        let workspace = trial.workspace.clone();
        let budget = Budget::unlimited(workspace, project(), Currency::USD);
        let job = Job { active: false, ..job };
        self.put(vec![
            Row::Job(job),
            Row::Trial(trial),
            Row::Lease(lease.clone()),
            Row::Budget(budget),
        ])
        .await;
        lease
    }

    /// A node with a label of ours that the rows know nothing of.
    pub(super) async fn plant(&self, cloud: &SimCloud, of: &str, lease: &str) -> NodeId {
        let (job, trial) = self.job(99, &self.keys[1]);
        let request = LaunchRequest {
            deployment: deployment(of),
            lease: LeaseId::new(lease).unwrap(),
            project: project(),
            trial: trial.id,
            token: format!("planted-{of}-{lease}"),
            offer: self.keys[1].clone(),
            gpus: job.spec.gpu_count,
            gpu_model: job.spec.gpu_model,
            ceiling: job.spec.ceiling,
            end_by: None,
            labels: BTreeMap::new(),
            bootstrap: Bootstrap {
                broker_url: String::new(),
                lease_token: Secret::new(""),
                agent_sha256: None,
                ca_pem: None,
                agent_ttl_seconds: 60,
            },
        };
        cloud.launch(&request).await.unwrap().node
    }

    pub(super) fn live(&self) -> Vec<NodeId> {
        self.cloud.truth().live().map(|node| node.node.clone()).collect()
    }

    pub(super) async fn strays(&self) -> Vec<Stray> {
        self.store.strays(&StrayQuery::default()).await.unwrap()
    }

    pub(super) async fn stray(&self, node: &NodeId) -> Stray {
        self.strays().await.into_iter().find(|stray| stray.node() == node).expect("a stray row")
    }

    pub(super) async fn unit(&self, trial: &TrialId) -> (Trial, Option<Lease>) {
        let (_, trial, lease) = self.store.unit(trial).await.unwrap().unwrap();
        (trial, lease)
    }

    pub(super) async fn segments(&self) -> Vec<UsageSegment> {
        let query = SegmentQuery { limit: 1000, ..SegmentQuery::default() };
        let found = self.store.segments(&project(), &query).await.unwrap();
        found.into_iter().map(|(_, segment)| segment).collect()
    }

    /// Billed microseconds and cost of a node, by the ledger.
    pub(super) async fn billed(&self, node: &NodeId) -> (u64, Money) {
        let mut sum = (0, Money::zero(Currency::USD));
        for segment in self.segments().await {
            if segment.node.as_ref() == Some(node) {
                sum.0 += segment.billed_to_micros - segment.billed_from_micros;
                sum.1 = sum.1.checked_add(segment.amount).unwrap();
            }
        }
        sum
    }

    /// Lets time pass until something holds.
    pub(super) async fn until<F: Future<Output = bool>>(
        &self,
        limit: Duration,
        mut holds: impl FnMut() -> F,
    ) {
        let end = self.clock.now().checked_add(limit).unwrap();
        while !holds().await {
            assert!(self.clock.now() < end, "not within {limit:?}");
            self.clock.advance(Duration::from_secs(1)).await;
        }
    }

    pub(super) fn after(&self, span: Duration) -> Timestamp {
        self.clock.now().checked_add(span).unwrap()
    }
}

pub(super) fn deployment(name: &str) -> DeploymentId {
    DeploymentId::new(name).unwrap()
}

pub(super) fn project() -> ProjectId {
    ProjectId::new(PROJECT).unwrap()
}

pub(super) fn sim() -> ProviderId {
    ProviderId::new("sim").unwrap()
}

pub(super) fn released(lease: &mut Lease) {
    lease.state = LeaseState::Released;
}
