//! What the RunWhere routes need of the broker.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_engine::{JobKind, JobState};
use runwhere_model::{HourlyPrice, JobId, Money, SyncId};
use rust_decimal::Decimal;
use tokio::sync::watch;

use crate::accounts::Caller;
use crate::api::text::Words;
use crate::store::JobView;

/// The broker's jobs, as far as HTTP needs them. Permissions are checked by the routes; every
/// method sees only the caller's project. `target` is a name or an id: by name the newest job of
/// the lineage answers; deleted jobs are [`Refusal::NotFound`].
#[async_trait]
pub trait JobService: fmt::Debug + Send + Sync + 'static {
    /// Whether a task YAML can be synced: valid, and without declarations that are not served.
    async fn check_task(&self, caller: &Caller, yaml: &str) -> Result<(), Refusal>;

    /// Accepts a job, or returns the one that the same idempotency key made.
    async fn submit(&self, caller: &Caller, request: SubmitRequest) -> Result<Submitted, Refusal>;

    /// Jobs, newest first.
    async fn jobs(&self, caller: &Caller, query: &ListQuery) -> Result<JobPage, Refusal>;

    /// One job.
    async fn job(&self, caller: &Caller, target: &str) -> Result<JobReport, Refusal>;

    /// Asks for the end and waits, at most some seconds, for the confirmed release; then says how
    /// far it is. An ended job is answered as it is.
    async fn stop(&self, caller: &Caller, target: &str) -> Result<JobReport, Refusal>;

    /// Makes a new job of the lineage that starts from the outputs of the last one.
    async fn resume(&self, caller: &Caller, request: ResumeRequest) -> Result<Submitted, Refusal>;

    /// Hides a job (by id) or the whole lineage (by name). Refused while it runs, unless forced:
    /// then it is stopped too. A repeated delete by id succeeds.
    async fn delete(&self, caller: &Caller, target: &str, force: bool) -> Result<Deleted, Refusal>;

    /// A number that changes whenever the job, its trials or its leases change.
    fn watch(&self, job: &JobId) -> watch::Receiver<u64>;

    /// GPUs that the project's jobs use or wait for now.
    async fn gpus_in_use(&self, caller: &Caller) -> Result<u32, Refusal>;
}

/// A submit.
#[derive(Clone, Eq, PartialEq)]
pub struct SubmitRequest {
    /// The task YAML.
    pub yaml: String,
    /// `resources.gpuSkuKey` resolved by the client, as text.
    pub offer_key: Option<String>,
    /// The eight-letter code instead of the key.
    pub offer_code: Option<String>,
    /// The user has accepted an overage of the quota.
    pub overage_confirmed: bool,
    /// Repeats with the same key return the same job.
    pub idempotency_key: Option<String>,
    /// The sync to run; the newest of the job's name without.
    pub sync: Option<SyncId>,
    /// The highest price per hour the user accepts.
    pub max_price: Option<HourlyPrice>,
    /// SHA-256 of the request as sent, for the check of a repeated key.
    pub request_sha256: String,
}

impl fmt::Debug for SubmitRequest {
    // The YAML may hold secrets in its environment variables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitRequest")
            .field("yaml", &format_args!("{} bytes", self.yaml.len()))
            .field("offer_key", &self.offer_key)
            .field("offer_code", &self.offer_code)
            .field("overage_confirmed", &self.overage_confirmed)
            .field("sync", &self.sync)
            .finish_non_exhaustive()
    }
}

/// A resume.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResumeRequest {
    /// Name or id.
    pub target: String,
    /// Handed to the program as `RUNW_RESUME_FROM_STEP`.
    pub from_step: Option<u64>,
    /// The highest price per hour the user accepts; without one the earlier job's.
    pub max_price: Option<HourlyPrice>,
    /// The user has accepted an overage of the quota.
    pub overage_confirmed: bool,
    /// Repeats with the same key return the same job.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request as sent.
    pub request_sha256: String,
}

/// An accepted job.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The job.
    pub report: JobReport,
    /// It runs in the customer's own account.
    pub byoa: bool,
    /// Seconds until it is expected to run.
    pub estimated_start_seconds: u32,
    /// What the user should know.
    pub warnings: Vec<Words>,
    /// The quota is nearly or more than used up.
    pub quota_warning: Option<Words>,
    /// It had been accepted before, under the same idempotency key.
    pub repeated: bool,
}

/// Which jobs are wanted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListQuery {
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only of this kind.
    pub kind: Option<JobKind>,
    /// At most so many; everything that has not ended and the newest 500 without.
    pub limit: Option<u32>,
    /// Continue after this job.
    pub after: Option<JobId>,
}

/// A page of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobPage {
    /// Newest first.
    pub jobs: Vec<JobReport>,
    /// Where the next page starts, if there is one.
    pub next: Option<JobId>,
}

/// A job with what it has cost so far.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// The rows.
    pub view: JobView,
    /// Its cost.
    pub cost: Cost,
    /// When this was read; running times count up to here.
    pub at: Timestamp,
}

/// Billed time and its exact price.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cost {
    /// Billed microseconds over all leases.
    pub billed_micros: u64,
    /// Exact totals, one for each currency that occurred.
    pub amounts: Vec<Money>,
    /// Nothing will be added: all leases have ended with evidence.
    pub settled: bool,
}

/// What a delete did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Deleted {
    /// The hidden jobs.
    pub jobs: Vec<JobId>,
    /// One of them is still being stopped and released.
    pub stopping: bool,
}

/// Amounts in yuan, converted once with a dated rate.
pub trait CnyRates: fmt::Debug + Send + Sync + 'static {
    /// The amount in yuan; `None` where there is no usable rate.
    fn to_cny(&self, money: Money) -> Option<InCny>;
}

/// An amount in yuan and how it came about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InCny {
    /// Exact, not rounded.
    pub amount: Decimal,
    /// Yuan for one unit of the original currency.
    pub rate: Decimal,
    /// The rate's date, `YYYY-MM-DD`.
    pub date: String,
    /// The rate's source.
    pub source: String,
}

/// Why the broker refused. The routes make status, code and sentence of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// No such job in the caller's project.
    NotFound,
    /// A job of that name has not ended.
    NameTaken {
        /// It.
        existing: JobId,
    },
    /// The idempotency key came with another request before.
    KeyReused {
        /// What it made.
        existing: JobId,
    },
    /// The request is wrong.
    Invalid {
        /// What is wrong.
        message: Words,
        /// What to do.
        suggestion: Option<Words>,
    },
    /// Valid, but not served yet (a kind, a declaration).
    NotServed {
        /// What is not served.
        message: Words,
        /// What to do instead.
        suggestion: Option<Words>,
    },
    /// The state of the job does not allow it.
    Conflict {
        /// Why.
        message: Words,
        /// What to do.
        suggestion: Option<Words>,
    },
    /// Above the confirmation threshold of the quota.
    QuotaConfirmation(QuotaState),
    /// Above the hard limit of the quota.
    QuotaExceeded(QuotaState),
    /// The budget does not allow it.
    BudgetExceeded {
        /// What is left, what is needed.
        message: Words,
    },
    /// The caller's key does not allow it.
    Forbidden,
    /// No space on the server's disk.
    StorageFull,
    /// Not now.
    Unavailable {
        /// Why.
        message: Words,
        /// Seconds after which to try again.
        retry_after: Option<u32>,
    },
    /// A fault of ours; the text is logged, not shown.
    Internal(String),
}

/// Numbers of a quota question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuotaState {
    /// GPUs in use or waited for.
    pub current: u32,
    /// GPUs that the request adds.
    pub wanted: u32,
    /// The threshold that it would pass.
    pub limit: u32,
    /// What the overage costs, free text.
    pub overage_unit_price: Option<String>,
}

impl From<crate::store::StoreError> for Refusal {
    fn from(error: crate::store::StoreError) -> Self {
        use crate::store::StoreError;
        match error {
            StoreError::NameTaken { existing } => Self::NameTaken { existing },
            StoreError::KeyUsed { existing } => Self::KeyReused { existing },
            StoreError::Full => Self::StorageFull,
            StoreError::Stale { .. }
            | StoreError::Exists { .. }
            | StoreError::Unbalanced(_)
            | StoreError::Failed(_) => Self::Internal(error.to_string()),
        }
    }
}
