//! The store as one broker process sees it: commits have numbers and can fail, or succeed without
//! saying so, and calls can take time. What is written is held against what was written before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_broker::ports::Prices;
use runwhere_broker::store::{
    Counts, Due, JobQuery, JobView, MemoryStore, Row, SegmentQuery, SqliteStore, Store, StoreError,
    StrayQuery, Transition,
};
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LeaseState, LedgerEntry, Output, Principal, Project,
    Publication, PublicationKind, Stray, SweeperState, SyncManifest, Trial, UsageSegment,
    Workspace,
};
use runwhere_model::{
    HourlyPrice, JobId, KeyId, LeaseId, OfferKey, PrincipalId, ProjectId, SyncId, TrialId,
    WorkspaceId,
};
use runwhere_providers::Clock;

use crate::catalogue::Catalogue;
use crate::fuse::Fuse;
use crate::invariant::{Invariant, Violation};
use crate::rng::Rng;
use crate::trace::Trace;

type Answer<T> = Result<T, StoreError>;

/// The newest written rows, and what was wrong about a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) trials: BTreeMap<TrialId, Trial>,
    pub(crate) budget: Option<Budget>,
    pub(crate) wrong: Vec<Violation>,
}

/// The rows of a run: they outlive every process.
#[derive(Debug)]
pub(crate) struct Shelf {
    inner: Mutex<Arc<dyn Store>>,
    /// Where they are, if on disk.
    folder: Option<PathBuf>,
    catalogue: Arc<Catalogue>,
    rng: Rng,
    trace: Trace,
    /// Commits fail in so many of 100 cases.
    failing: Mutex<u64>,
    written: Mutex<Written>,
}

impl Shelf {
    pub(crate) fn new(
        folder: Option<&Path>,
        catalogue: Arc<Catalogue>,
        rng: Rng,
        trace: Trace,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(open(folder)),
            folder: folder.map(Path::to_owned),
            catalogue,
            rng,
            trace,
            failing: Mutex::new(0),
            written: Mutex::default(),
        })
    }

    pub(crate) fn fail(&self, percent: u64) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = percent;
    }

    pub(crate) fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the catalogue says that an offer costs.
    pub(crate) fn listed(&self, offer: &OfferKey) -> Option<HourlyPrice> {
        self.catalogue.offer(offer)?.price.state.known()
    }

    /// The store itself, without faults.
    pub(crate) fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As after the end of its process: what is on disk is read anew.
    pub(crate) fn reopen(&self) {
        if let Some(folder) = &self.folder {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            // Closed before it is opened again.
            *inner = Arc::new(MemoryStore::new());
            *inner = open(Some(folder));
        }
    }

    async fn commit(&self, fuse: &Fuse, transition: Transition) -> Answer<()> {
        let effect = fuse.commit().await;
        let failing = *self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = || StoreError::Failed("scripted".into());
        let fails = failing > 0 && self.rng.percent(failing);
        if fails && self.rng.percent(70) {
            self.trace.line("commit failed");
            return Err(failure());
        }
        let rows = transition.rows.clone();
        let kinds: Vec<_> = transition.events.iter().map(|event| event.kind.clone()).collect();
        self.inner().commit(transition).await?;
        self.trace.line(format_args!("commit {}", kinds.join(" ")));
        self.note(rows);
        effect.done().await;
        match fails {
            true => {
                self.trace.line("commit succeeded, unsaid");
                Err(failure())
            }
            false => Ok(()),
        }
    }

    fn note(&self, rows: Vec<Row>) {
        let mut written = self.written();
        for row in rows {
            match row {
                Row::Job(job) => {
                    written.jobs.insert(job.id.clone(), job);
                }
                Row::Lease(lease) => {
                    self.trace.line(format_args!("row {} {:?}", lease.id, lease.state));
                    let ended = lease.state.is_terminal();
                    if ended && lease.evidence.is_none() {
                        let broken = format_args!("{} has ended without evidence", lease.id);
                        written.wrong.push(Invariant::ProvenEnd.broken(broken));
                    }
                    let (id, state) = (lease.id.clone(), lease.state);
                    let old = written.leases.insert(lease.id.clone(), lease);
                    // The provider's bill may settle one that has ended, once.
                    let over = |old: &Lease| old.state.is_terminal() && old.usage_due().is_none();
                    if let Some(old) = old
                        .filter(|old| over(old) || (old.state.is_terminal() && old.state != state))
                    {
                        let broken = format_args!("{id} was {:?} and is {state:?}", old.state);
                        written.wrong.push(Invariant::Final.broken(broken));
                    }
                }
                Row::Trial(trial) => {
                    self.trace.line(format_args!("row {} {:?}", trial.id, trial.state));
                    let (id, state) = (trial.id.clone(), trial.state);
                    let clean = trial.cleanup_confirmed;
                    if clean && trial.evidence.is_empty() {
                        let broken = format_args!("{id} is confirmed clean without evidence");
                        written.wrong.push(Invariant::ProvenEnd.broken(broken));
                    }
                    let reason = trial.end_reason.clone();
                    let Some(old) = written.trials.insert(trial.id.clone(), trial) else {
                        continue;
                    };
                    let ended = old.state.is_terminal();
                    if ended && (old.state != state || old.end_reason != reason) {
                        let broken = format_args!("{id} was {:?} and is {state:?}", old.state);
                        written.wrong.push(Invariant::Final.broken(broken));
                    }
                    if old.cleanup_confirmed && !clean {
                        let broken = format_args!("{id} took back its clean-up");
                        written.wrong.push(Invariant::ProvenEnd.broken(broken));
                    }
                }
                Row::Budget(budget) => {
                    let old = written.budget.replace(budget.clone());
                    let bound = |id| old.as_ref().is_some_and(|old| old.reserved.contains_key(id));
                    let fresh = budget.reserved.keys().any(|id| !bound(id));
                    let beyond = budget.limit.is_some_and(|limit| budget.committed() > limit);
                    if fresh && beyond {
                        let broken = format_args!("{budget:?}");
                        written.wrong.push(Invariant::Budget.broken(broken));
                    }
                }
                Row::Segment(segment) => self.trace.line(format_args!("row {}", segment.id)),
                _ => {}
            }
        }
    }
}

fn open(folder: Option<&Path>) -> Arc<dyn Store> {
    match folder {
        None => Arc::new(MemoryStore::new()),
        Some(folder) => Arc::new(
            SqliteStore::open_inline(&folder.join("broker.db")).expect("the folder is ours"),
        ),
    }
}

impl Written {
    pub(crate) fn state_of(&self, lease: &LeaseId) -> Option<LeaseState> {
        self.leases.get(lease).map(|lease| lease.state)
    }
}

/// One process's way to the rows.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) fuse: Fuse,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where calls take time.
    pub(crate) slow: Option<Rng>,
}

impl Desk {
    async fn open(&self) -> Arc<dyn Store> {
        self.fuse.alive().await;
        if let Some(rng) = self.slow.as_ref().filter(|rng| rng.percent(25)) {
            self.clock.sleep(Duration::from_millis(1 + rng.below(40))).await;
        }
        self.fuse.alive().await;
        self.shelf.inner()
    }
}

#[async_trait]
impl Store for Desk {
    async fn commit(&self, transition: Transition) -> Answer<()> {
        self.open().await;
        self.shelf.commit(&self.fuse, transition).await
    }

    async fn job(&self, project: &ProjectId, id: &JobId) -> Answer<Option<JobView>> {
        self.open().await.job(project, id).await
    }
    async fn job_by_name(&self, project: &ProjectId, name: &str) -> Answer<Option<JobView>> {
        self.open().await.job_by_name(project, name).await
    }
    async fn lineage(&self, project: &ProjectId, lineage: &JobId) -> Answer<Vec<JobView>> {
        self.open().await.lineage(project, lineage).await
    }
    async fn jobs(&self, project: &ProjectId, query: &JobQuery) -> Answer<Vec<JobView>> {
        self.open().await.jobs(project, query).await
    }
    async fn active_job(&self, project: &ProjectId, name: &str) -> Answer<Option<JobId>> {
        self.open().await.active_job(project, name).await
    }
    async fn job_by_key(&self, project: &ProjectId, key: &str) -> Answer<Option<JobView>> {
        self.open().await.job_by_key(project, key).await
    }
    async fn unit(&self, trial: &TrialId) -> Answer<Option<(Job, Trial, Option<Lease>)>> {
        self.open().await.unit(trial).await
    }
    async fn lease(&self, id: &LeaseId) -> Answer<Option<Lease>> {
        self.open().await.lease(id).await
    }
    async fn open_leases(&self) -> Answer<Vec<Lease>> {
        self.open().await.open_leases().await
    }
    async fn leases(&self, ids: &[LeaseId]) -> Answer<Vec<Lease>> {
        self.open().await.leases(ids).await
    }
    async fn newest_leases(&self, project: Option<&ProjectId>, limit: u32) -> Answer<Vec<Lease>> {
        self.open().await.newest_leases(project, limit).await
    }
    async fn strays(&self, query: &StrayQuery) -> Answer<Vec<Stray>> {
        self.open().await.strays(query).await
    }
    async fn sweepers(&self) -> Answer<Vec<SweeperState>> {
        self.open().await.sweepers().await
    }
    async fn counts(&self) -> Answer<Counts> {
        self.open().await.counts().await
    }
    async fn position(&self) -> Answer<u64> {
        self.open().await.position().await
    }
    async fn due(&self, now: Timestamp, limit: u32) -> Answer<Vec<Due>> {
        self.open().await.due(now, limit).await
    }
    async fn next_due(&self) -> Answer<Option<Timestamp>> {
        self.open().await.next_due().await
    }
    async fn outputs(&self, trial: &TrialId) -> Answer<Vec<Output>> {
        self.open().await.outputs(trial).await
    }
    async fn sync(&self, project: &ProjectId, id: &SyncId) -> Answer<Option<SyncManifest>> {
        self.open().await.sync(project, id).await
    }
    async fn newest_sync(
        &self,
        project: &ProjectId,
        job_name: Option<&str>,
    ) -> Answer<Option<SyncManifest>> {
        self.open().await.newest_sync(project, job_name).await
    }
    async fn segments(
        &self,
        project: &ProjectId,
        query: &SegmentQuery,
    ) -> Answer<Vec<(u64, UsageSegment)>> {
        self.open().await.segments(project, query).await
    }
    async fn entries(
        &self,
        project: &ProjectId,
        after: Option<u64>,
        limit: u32,
    ) -> Answer<Vec<(u64, LedgerEntry)>> {
        self.open().await.entries(project, after, limit).await
    }
    async fn events(&self, project: &ProjectId, job: &JobId) -> Answer<Vec<EventRecord>> {
        self.open().await.events(project, job).await
    }
    async fn budget(&self, project: &ProjectId) -> Answer<Option<Budget>> {
        self.open().await.budget(project).await
    }
    async fn key_by_secret(&self, secret_sha256: &str) -> Answer<Option<ApiKey>> {
        self.open().await.key_by_secret(secret_sha256).await
    }
    async fn key(&self, id: &KeyId) -> Answer<Option<ApiKey>> {
        self.open().await.key(id).await
    }
    async fn keys(&self) -> Answer<Vec<ApiKey>> {
        self.open().await.keys().await
    }
    async fn project(&self, id: &ProjectId) -> Answer<Option<Project>> {
        self.open().await.project(id).await
    }
    async fn workspace(&self, id: &WorkspaceId) -> Answer<Option<Workspace>> {
        self.open().await.workspace(id).await
    }
    async fn publication(
        &self,
        kind: PublicationKind,
        name: &str,
        revision: &str,
    ) -> Answer<Option<Publication>> {
        self.open().await.publication(kind, name, revision).await
    }

    async fn publications(
        &self,
        kind: PublicationKind,
        name: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Answer<Vec<(u64, Publication)>> {
        self.open().await.publications(kind, name, before, limit).await
    }

    async fn namespace_holder(&self, namespace: &str) -> Answer<Option<Publication>> {
        self.open().await.namespace_holder(namespace).await
    }

    async fn principal(&self, id: &PrincipalId) -> Answer<Option<Principal>> {
        self.open().await.principal(id).await
    }
}
