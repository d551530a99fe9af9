//! The memory store behind faults: commits can fail, or succeed without saying so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_broker::store::{
    Counts, Due, JobQuery, JobView, MemoryStore, Row, SegmentQuery, Store, StoreError, StrayQuery,
    Transition,
};
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LedgerEntry, Output, Principal, Project, Stray,
    SweeperState, SyncManifest, Trial, UsageSegment, Workspace,
};
use runwhere_model::{JobId, KeyId, LeaseId, PrincipalId, ProjectId, SyncId, TrialId, WorkspaceId};

use crate::rng::Rng;
use crate::trace::Trace;

type Answer<T> = Result<T, StoreError>;

/// The newest written rows, and what was wrong about a write.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) trials: BTreeMap<TrialId, Trial>,
    pub(crate) wrong: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: MemoryStore,
    rng: Rng,
    trace: Trace,
    /// Commits fail in so many of 100 cases.
    failing: Mutex<u64>,
    written: Mutex<Written>,
}

impl FaultyStore {
    pub(crate) fn new(rng: Rng, trace: Trace) -> Self {
        Self {
            inner: MemoryStore::new(),
            rng,
            trace,
            failing: Mutex::new(0),
            written: Mutex::default(),
        }
    }

    pub(crate) fn fail(&self, percent: u64) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = percent;
    }

    pub(crate) fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, rows: &[Row]) {
        let mut written = self.written();
        for row in rows {
            match row {
                Row::Lease(lease) => {
                    self.trace.line(format_args!("row {} {:?}", lease.id, lease.state));
                    let old = written.leases.insert(lease.id.clone(), lease.clone());
                    if let Some(old) = old.filter(|old| old.state.is_terminal()) {
                        written.wrong.push(format!("{} had ended {:?}", lease.id, old.state));
                    }
                }
                Row::Trial(trial) => {
                    self.trace.line(format_args!("row {} {:?}", trial.id, trial.state));
                    let old = written.trials.insert(trial.id.clone(), trial.clone());
                    let old = old.filter(|old| old.state.is_terminal());
                    if old.as_ref().is_some_and(|old| old.state != trial.state) {
                        written.wrong.push(format!("{} changed after its end", trial.id));
                    }
                    if old.is_some_and(|old| old.cleanup_confirmed && !trial.cleanup_confirmed) {
                        written.wrong.push(format!("{} took back its clean-up", trial.id));
                    }
                }
                Row::Segment(segment) => self.trace.line(format_args!("row {}", segment.id)),
                _ => {}
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn commit(&self, transition: Transition) -> Answer<()> {
        let failing = *self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = || StoreError::Failed("scripted".into());
        let fails = failing > 0 && self.rng.percent(failing);
        if fails && self.rng.percent(70) {
            self.trace.line("commit failed");
            return Err(failure());
        }
        let rows = transition.rows.clone();
        let kinds: Vec<_> = transition.events.iter().map(|event| event.kind.clone()).collect();
        self.inner.commit(transition).await?;
        self.trace.line(format_args!("commit {}", kinds.join(" ")));
        self.note(&rows);
        match fails {
            true => {
                self.trace.line("commit succeeded, unsaid");
                Err(failure())
            }
            false => Ok(()),
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
        self.inner.unit(trial).await
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
}
