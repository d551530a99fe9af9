//! What every store does: rows, transitions, queries, refusals.

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, JobKind, Lease, LeaseState, LedgerEntry, Output, Principal,
    Project, Publication, PublicationKind, Stray, SweeperState, SyncManifest, Trial, TrialState,
    UsageSegment, Workspace,
};
use runwhere_model::{
    JobId, KeyId, LeaseId, NodeId, ProjectId, ProviderId, SyncId, TrialId, WorkspaceId,
};

/// A row to write.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "few at a time, moved once")]
pub enum Row {
    /// A tenant; insert only.
    Workspace(Workspace),
    /// A project.
    Project(Project),
    /// Who acts; insert only.
    Principal(Principal),
    /// A credential.
    ApiKey(ApiKey),
    /// A job. Unique: `(project, name)` while `active`, `(project, idempotency_key)` where set.
    Job(Job),
    /// A trial of a job that is stored or comes earlier in the same transition.
    Trial(Trial),
    /// A lease of a trial that is stored or comes earlier in the same transition.
    Lease(Lease),
    /// An immutable sync; insert only.
    Sync(SyncManifest),
    /// A usage segment; insert only, an identical repeat is harmless, a different one refused.
    Segment(UsageSegment),
    /// A ledger entry; insert only, like a segment. Refused unless balanced.
    Entry(LedgerEntry),
    /// A stored output of a trial; replaces the one of the same path.
    Output(TrialId, Output),
    /// A budget.
    Budget(Budget),
    /// A node without an owner.
    Stray(Stray),
    /// The sweeper of a provider.
    Sweeper(SweeperState),
    /// A published revision; insert only.
    Publication(Publication),
}

/// A whole change. Rows that carry a `version` are inserted when it is 0 and replace version
/// `version` otherwise; the store writes `version + 1`. A mismatch is [`StoreError::Stale`] and
/// nothing is written. An identical repeat of an insert-only row is harmless.
#[derive(Clone, Debug, Default)]
pub struct Transition {
    /// Rows, in order.
    pub rows: Vec<Row>,
    /// Audit.
    pub events: Vec<EventRecord>,
}

/// Why the store refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else changed the row first: read again and decide anew.
    #[error("{row} was changed meanwhile")]
    Stale {
        /// Which row.
        row: String,
    },
    /// A non-ended job has this name.
    #[error("the name is taken by {existing}")]
    NameTaken {
        /// The job that has it.
        existing: JobId,
    },
    /// The idempotency key was used.
    #[error("the idempotency key was used for {existing}")]
    KeyUsed {
        /// The job it made.
        existing: JobId,
    },
    /// An insert-only row exists with other content.
    #[error("{row} exists with other content")]
    Exists {
        /// Which row.
        row: String,
    },
    /// A ledger entry whose lines do not sum to zero.
    #[error("{0} is not balanced")]
    Unbalanced(String),
    /// No space left: nothing was written; works again once there is space.
    #[error("no space left for the data folder")]
    Full,
    /// Anything else. A commit that failed so was not written, unless the process died meanwhile:
    /// read again before deciding.
    #[error("store: {0}")]
    Failed(String),
}

/// A job with its trials and the lease each trial points to.
#[derive(Clone, Debug)]
pub struct JobView {
    /// The job.
    pub job: Job,
    /// Its trials, in order, each with its present or last lease.
    pub trials: Vec<(Trial, Option<Lease>)>,
}

/// Which jobs are wanted; deleted ones never are.
#[derive(Clone, Debug, Default)]
pub struct JobQuery {
    /// Trial states to match with the first trial; empty = all.
    pub states: Vec<TrialState>,
    /// Kind to match.
    pub kind: Option<JobKind>,
    /// At most so many, newest first. `None` = everything not ended plus the newest 500.
    pub limit: Option<u32>,
    /// Continue after this job (the last of the page before); nothing follows an unknown one.
    pub after: Option<JobId>,
}

/// What a wake-up is for.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Due {
    /// A trial's `next_at` has come.
    Trial(TrialId),
    /// A lease's `next_at` has come.
    Lease(LeaseId),
}

/// Which segments are wanted.
#[derive(Clone, Debug, Default)]
pub struct SegmentQuery {
    /// Only segments that end after this.
    pub from: Option<Timestamp>,
    /// Only segments that start before this.
    pub to: Option<Timestamp>,
    /// Only of this job.
    pub job: Option<JobId>,
    /// At most so many.
    pub limit: u32,
    /// Continue after this position: segments are ordered by the order they were recorded in, so
    /// that pages stay consistent while new ones arrive.
    pub after: Option<u64>,
}

/// Which strays are wanted, by provider and node.
#[derive(Clone, Debug, Default)]
pub struct StrayQuery {
    /// Only of this provider.
    pub provider: Option<ProviderId>,
    /// Only of these nodes; `None` = of all.
    pub nodes: Option<Vec<NodeId>>,
    /// Only those of which something is still to be done or learnt.
    pub open: bool,
}

/// How many there are of what has not ended, over all projects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Leases that have not ended, by state.
    pub leases: Vec<(LeaseState, u64)>,
    /// Trials of jobs that have not ended, by state.
    pub trials: Vec<(TrialState, u64)>,
    /// Since when the lease that releases longest does so.
    pub releasing_since: Option<Timestamp>,
}

/// The newest jobs that a list without a limit holds besides those that have not ended.
pub const DEFAULT_JOBS: u32 = 500;

/// The store. All reads are of one project unless they say otherwise. Newest and oldest go by the
/// order in which rows were recorded, which no step of the clock can turn round.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// Writes a whole transition durably, or nothing.
    async fn commit(&self, transition: Transition) -> Result<(), StoreError>;

    /// A number that is another one after every commit, also one of another process: what was read
    /// after it was taken holds as long as it stays. `None` where that cannot be told. Never waits.
    fn version(&self) -> Option<u64> {
        None
    }

    /// A job with its trials; deleted ones included (callers hide them).
    async fn job(&self, project: &ProjectId, id: &JobId) -> Result<Option<JobView>, StoreError>;
    /// The newest job of a name that is not deleted.
    async fn job_by_name(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<JobView>, StoreError>;
    /// All jobs of a lineage, newest first, deleted ones included.
    async fn lineage(
        &self,
        project: &ProjectId,
        lineage: &JobId,
    ) -> Result<Vec<JobView>, StoreError>;
    /// Jobs, newest first.
    async fn jobs(&self, project: &ProjectId, query: &JobQuery)
    -> Result<Vec<JobView>, StoreError>;
    /// A job that has not ended and has this name.
    async fn active_job(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<JobId>, StoreError>;
    /// The job that an idempotency key made.
    async fn job_by_key(
        &self,
        project: &ProjectId,
        key: &str,
    ) -> Result<Option<JobView>, StoreError>;

    /// The trial with its job and present lease, over all projects (for the driver and agents).
    async fn unit(
        &self,
        trial: &TrialId,
    ) -> Result<Option<(Job, Trial, Option<Lease>)>, StoreError>;
    /// A lease, over all projects (for the driver and agents).
    async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>, StoreError>;
    /// Every lease that has not ended, over all projects.
    async fn open_leases(&self) -> Result<Vec<Lease>, StoreError>;
    /// The leases of these ids that there are, over all projects, by id.
    async fn leases(&self, ids: &[LeaseId]) -> Result<Vec<Lease>, StoreError>;
    /// The newest leases, ended ones included, newest first; of all projects when `None`.
    async fn newest_leases(
        &self,
        project: Option<&ProjectId>,
        limit: u32,
    ) -> Result<Vec<Lease>, StoreError>;
    /// Nodes without an owner, over all projects, by provider and node.
    async fn strays(&self, query: &StrayQuery) -> Result<Vec<Stray>, StoreError>;
    /// The sweepers of all providers, by provider.
    async fn sweepers(&self) -> Result<Vec<SweeperState>, StoreError>;
    /// Numbers for monitoring.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// The position of the newest event: it only grows, so a database in which it is smaller than
    /// it was is an older copy. 0 before the first one.
    async fn position(&self) -> Result<u64, StoreError>;
    /// What is due at `now`, soonest first, over all projects.
    async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError>;
    /// The next instant at which something is due, over all projects.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Stored outputs of a trial, by path.
    async fn outputs(&self, trial: &TrialId) -> Result<Vec<Output>, StoreError>;
    /// At most `limit` of them, by path, behind `after`: a trial can have very many.
    async fn outputs_after(
        &self,
        trial: &TrialId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Output>, StoreError> {
        let mut outputs = self.outputs(trial).await?;
        outputs.retain(|output| after.is_none_or(|after| output.path.as_str() > after));
        outputs.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(outputs)
    }
    /// The one of this path.
    async fn output(&self, trial: &TrialId, path: &str) -> Result<Option<Output>, StoreError> {
        let outputs = self.outputs(trial).await?;
        Ok(outputs.into_iter().find(|output| output.path == path))
    }
    /// A sync.
    async fn sync(
        &self,
        project: &ProjectId,
        id: &SyncId,
    ) -> Result<Option<SyncManifest>, StoreError>;
    /// The newest sync of a job name; of any name when `None`.
    async fn newest_sync(
        &self,
        project: &ProjectId,
        job_name: Option<&str>,
    ) -> Result<Option<SyncManifest>, StoreError>;
    /// Segments with their positions, in recorded order.
    async fn segments(
        &self,
        project: &ProjectId,
        query: &SegmentQuery,
    ) -> Result<Vec<(u64, UsageSegment)>, StoreError>;
    /// Ledger entries with their positions, in recorded order: at most `limit` of those after
    /// position `after`.
    async fn entries(
        &self,
        project: &ProjectId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, LedgerEntry)>, StoreError>;
    /// Audit events of a job, oldest first.
    async fn events(
        &self,
        project: &ProjectId,
        job: &JobId,
    ) -> Result<Vec<EventRecord>, StoreError>;

    /// The budget of a project.
    async fn budget(&self, project: &ProjectId) -> Result<Option<Budget>, StoreError>;
    /// A key by the hash of its secret, over all projects.
    async fn key_by_secret(&self, secret_sha256: &str) -> Result<Option<ApiKey>, StoreError>;
    /// A key by its id, over all projects.
    async fn key(&self, id: &KeyId) -> Result<Option<ApiKey>, StoreError>;
    /// All keys, oldest first, over all projects.
    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError>;
    /// A project.
    async fn project(&self, id: &ProjectId) -> Result<Option<Project>, StoreError>;
    /// A workspace.
    async fn workspace(&self, id: &WorkspaceId) -> Result<Option<Workspace>, StoreError>;
    /// A published revision, over all projects.
    async fn publication(
        &self,
        kind: PublicationKind,
        name: &str,
        revision: &str,
    ) -> Result<Option<Publication>, StoreError>;
    /// Published revisions with their positions, newest first, over all projects: at most `limit`
    /// of those before position `before`, of one name where one is given.
    async fn publications(
        &self,
        kind: PublicationKind,
        name: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, Publication)>, StoreError>;
    /// The first publication in a namespace: its tenant has the namespace.
    async fn namespace_holder(&self, namespace: &str) -> Result<Option<Publication>, StoreError>;
    /// A principal by its id.
    async fn principal(
        &self,
        id: &runwhere_model::PrincipalId,
    ) -> Result<Option<Principal>, StoreError>;
}
