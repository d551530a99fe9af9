//! A store whose commits can fail, or succeed without saying so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_broker::store::{
    Counts, Due, JobQuery, JobView, MemoryStore, Row, SegmentQuery, Store, StoreError, StrayQuery,
    Transition,
};
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LedgerEntry, Output, Principal, Project, Publication,
    PublicationKind, Stray, SweeperState, SyncManifest, Trial, UsageSegment, Workspace,
};
use runwhere_model::{JobId, KeyId, LeaseId, PrincipalId, ProjectId, SyncId, TrialId, WorkspaceId};

use tokio::sync::Notify;

type Answer<T> = Result<T, StoreError>;

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It is not written, and says so.
    Fails,
    /// It is written, and says that it failed.
    Unsaid,
}

/// Which commits, by the kinds of rows and events in them.
type Which = Box<dyn Fn(&Transition) -> bool + Send>;

pub(crate) struct Ledge {
    inner: MemoryStore,
    rule: Mutex<Option<(Which, Fate)>>,
    met: Mutex<u32>,
    /// Reads of units give others their turn before they answer.
    slow: bool,
    held: Mutex<Option<Which>>,
    gate: Notify,
}

impl std::fmt::Debug for Ledge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledge").finish_non_exhaustive()
    }
}

impl Ledge {
    pub(crate) fn new() -> Arc<Self> {
        let inner = MemoryStore::new();
        Arc::new(Self::over(inner, false))
    }

    /// One that several processes read at the same instant.
    pub(crate) fn slow() -> Arc<Self> {
        Arc::new(Self::over(MemoryStore::new(), true))
    }

    fn over(inner: MemoryStore, slow: bool) -> Self {
        let (rule, met, held, gate) =
            (Mutex::default(), Mutex::default(), Mutex::default(), Notify::new());
        Self { inner, rule, met, slow, held, gate }
    }

    /// The next of these commits is written, and answered only after [`let_go`](Self::let_go).
    pub(crate) fn hold_answer(&self, which: impl Fn(&Transition) -> bool + Send + 'static) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(which));
    }

    /// What waits for its answer gets it.
    pub(crate) fn let_go(&self) {
        self.gate.notify_one();
    }

    fn is_held(&self, transition: &Transition) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.take_if(|which| which(transition)).is_some()
    }

    fn rule(&self) -> MutexGuard<'_, Option<(Which, Fate)>> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these commits have this fate.
    pub(crate) fn rule_is(&self, fate: Fate, which: impl Fn(&Transition) -> bool + Send + 'static) {
        *self.rule() = Some((Box::new(which), fate));
    }

    /// Everything works again; how many commits had the fate.
    pub(crate) fn heal(&self) -> u32 {
        *self.rule() = None;
        std::mem::take(&mut *self.met.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many commits had the fate so far.
    pub(crate) fn met(&self) -> u32 {
        *self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, transition: &Transition) -> Option<Fate> {
        let fate = self.rule().as_ref().filter(|(which, _)| which(transition)).map(|rule| rule.1);
        if fate.is_some() {
            *self.met.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        fate
    }
}

/// Commits in which a lease's row is written.
pub(crate) fn of_leases(transition: &Transition) -> bool {
    transition.rows.iter().any(|row| matches!(row, Row::Lease(_)))
}

#[async_trait]
impl Store for Ledge {
    async fn commit(&self, transition: Transition) -> Answer<()> {
        let fate = self.fate(&transition);
        let held = self.is_held(&transition);
        if fate != Some(Fate::Fails) {
            self.inner.commit(transition).await?;
        }
        if held {
            self.gate.notified().await;
        }
        match fate {
            Some(_) => Err(StoreError::Failed("the disk is full".into())),
            None => Ok(()),
        }
    }
    async fn job(&self, project: &ProjectId, id: &JobId) -> Answer<Option<JobView>> {
        self.inner.job(project, id).await
    }
    async fn job_by_name(&self, project: &ProjectId, name: &str) -> Answer<Option<JobView>> {
        self.inner.job_by_name(project, name).await
    }
    async fn lineage(&self, project: &ProjectId, lineage: &JobId) -> Answer<Vec<JobView>> {
        self.inner.lineage(project, lineage).await
    }
    async fn jobs(&self, project: &ProjectId, query: &JobQuery) -> Answer<Vec<JobView>> {
        self.inner.jobs(project, query).await
    }
    async fn active_job(&self, project: &ProjectId, name: &str) -> Answer<Option<JobId>> {
        self.inner.active_job(project, name).await
    }
    async fn job_by_key(&self, project: &ProjectId, key: &str) -> Answer<Option<JobView>> {
        self.inner.job_by_key(project, key).await
    }
    async fn unit(&self, trial: &TrialId) -> Answer<Option<(Job, Trial, Option<Lease>)>> {
        let unit = self.inner.unit(trial).await;
        if self.slow {
            tokio::task::yield_now().await;
        }
        unit
    }
    async fn lease(&self, id: &LeaseId) -> Answer<Option<Lease>> {
        self.inner.lease(id).await
    }
    async fn open_leases(&self) -> Answer<Vec<Lease>> {
        self.inner.open_leases().await
    }
    async fn leases(&self, ids: &[LeaseId]) -> Answer<Vec<Lease>> {
        self.inner.leases(ids).await
    }
    async fn newest_leases(&self, project: Option<&ProjectId>, limit: u32) -> Answer<Vec<Lease>> {
        self.inner.newest_leases(project, limit).await
    }
    async fn strays(&self, query: &StrayQuery) -> Answer<Vec<Stray>> {
        self.inner.strays(query).await
    }
    async fn sweepers(&self) -> Answer<Vec<SweeperState>> {
        self.inner.sweepers().await
    }
    async fn counts(&self) -> Answer<Counts> {
        self.inner.counts().await
    }
    async fn position(&self) -> Answer<u64> {
        self.inner.position().await
    }
    async fn due(&self, now: Timestamp, limit: u32) -> Answer<Vec<Due>> {
        self.inner.due(now, limit).await
    }
    async fn next_due(&self) -> Answer<Option<Timestamp>> {
        self.inner.next_due().await
    }
    async fn outputs(&self, trial: &TrialId) -> Answer<Vec<Output>> {
        self.inner.outputs(trial).await
    }
    async fn sync(&self, project: &ProjectId, id: &SyncId) -> Answer<Option<SyncManifest>> {
        self.inner.sync(project, id).await
    }
    async fn newest_sync(
        &self,
        project: &ProjectId,
        job_name: Option<&str>,
    ) -> Answer<Option<SyncManifest>> {
        self.inner.newest_sync(project, job_name).await
    }
    async fn segments(
        &self,
        project: &ProjectId,
        query: &SegmentQuery,
    ) -> Answer<Vec<(u64, UsageSegment)>> {
        self.inner.segments(project, query).await
    }
    async fn entries(
        &self,
        project: &ProjectId,
        after: Option<u64>,
        limit: u32,
    ) -> Answer<Vec<(u64, LedgerEntry)>> {
        self.inner.entries(project, after, limit).await
    }
    async fn events(&self, project: &ProjectId, job: &JobId) -> Answer<Vec<EventRecord>> {
        self.inner.events(project, job).await
    }
    async fn budget(&self, project: &ProjectId) -> Answer<Option<Budget>> {
        self.inner.budget(project).await
    }
    async fn key_by_secret(&self, secret_sha256: &str) -> Answer<Option<ApiKey>> {
        self.inner.key_by_secret(secret_sha256).await
    }
    async fn key(&self, id: &KeyId) -> Answer<Option<ApiKey>> {
        self.inner.key(id).await
    }
    async fn keys(&self) -> Answer<Vec<ApiKey>> {
        self.inner.keys().await
    }
    async fn project(&self, id: &ProjectId) -> Answer<Option<Project>> {
        self.inner.project(id).await
    }
    async fn workspace(&self, id: &WorkspaceId) -> Answer<Option<Workspace>> {
        self.inner.workspace(id).await
    }
    async fn principal(&self, id: &PrincipalId) -> Answer<Option<Principal>> {
        self.inner.principal(id).await
    }
    async fn publication(
        &self,
        kind: PublicationKind,
        name: &str,
        revision: &str,
    ) -> Answer<Option<Publication>> {
        self.inner.publication(kind, name, revision).await
    }
    async fn publications(
        &self,
        kind: PublicationKind,
        name: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Answer<Vec<(u64, Publication)>> {
        self.inner.publications(kind, name, before, limit).await
    }
    async fn namespace_holder(&self, namespace: &str) -> Answer<Option<Publication>> {
        self.inner.namespace_holder(namespace).await
    }
}
