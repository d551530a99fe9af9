//! Jobs: what a user submitted, frozen.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::{
    Currency, GpuCount, GpuModelId, HourlyPrice, JobId, OfferKey, PrincipalId, ProjectId, SyncId,
    TrialId, WorkspaceId,
};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::run::TrialSpec;
use crate::trial::{Trial, TrialState};

/// What kind of work.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Runs to its end.
    Training,
    /// Serves until stopped (not served yet).
    Inference,
    /// Interactive (not served yet).
    Notebook,
}

impl JobKind {
    /// The lower-case word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
            Self::Notebook => "notebook",
        }
    }
}

/// One file of a synced work directory.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SyncedFile {
    /// Relative POSIX path.
    pub path: String,
    /// Lower-case hexadecimal SHA-256 of the content.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
}

/// An immutable, complete manifest of a work directory's files.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SyncManifest {
    /// Its name.
    pub id: SyncId,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// The job name it was made for.
    pub job_name: String,
    /// When it was completed.
    pub created_at: Timestamp,
    /// The files, sorted by path.
    pub files: Vec<SyncedFile>,
    /// The task YAML of that sync.
    pub yaml: Option<String>,
}

/// Everything a run needs, frozen at submit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The task YAML as submitted.
    pub yaml: String,
    /// Free text for people.
    pub description: Option<String>,
    /// Container image; not used by the process runtime.
    pub image: Option<String>,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The user's environment variables.
    pub env: BTreeMap<String, String>,
    /// How many GPUs.
    pub gpu_count: GpuCount,
    /// Which model.
    pub gpu_model: Option<GpuModelId>,
    /// The machine only pretends to have them.
    pub gpu_pretended: bool,
    /// What to rent.
    pub offer: OfferKey,
    /// The highest price per hour it may be launched at: the user's limit, else the price at the submit.
    pub ceiling: HourlyPrice,
    /// Wall-clock limit of the user's program in seconds; `None` = none.
    pub max_duration_seconds: Option<u64>,
    /// The pinned sync; `None` when nothing was ever synced for this name.
    pub sync: Option<SyncId>,
    /// Where checkpoints are written, relative to the work directory unless absolute.
    pub checkpoint: Option<String>,
    /// Handed to the program after a resume.
    pub from_step: Option<u64>,
    /// The user's own limit, which a resume keeps. Where there is one it is the ceiling.
    #[serde(default)]
    pub max_price: Option<HourlyPrice>,
    /// What the submit was decided with; absent in jobs of earlier versions.
    #[serde(default)]
    pub decided: Option<Decided>,
}

impl JobSpec {
    /// The price per hour at the submit.
    pub fn price_at_submit(&self) -> HourlyPrice {
        // Earlier versions knew no other ceiling.
        self.decided.as_ref().map_or(self.ceiling, |decided| decided.price)
    }
}

/// The price that a submit saw, and how the user's limit became the ceiling.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The offer's price per hour at the submit.
    pub price: HourlyPrice,
    /// The rates that brought a limit in another currency into the price's; empty without one.
    #[serde(default)]
    pub rates: Vec<UsedRate>,
}

/// An exchange rate that decided something.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UsedRate {
    /// From which currency.
    pub from: Currency,
    /// To which currency.
    pub to: Currency,
    /// Units of `to` for one unit of `from`.
    pub rate: Decimal,
    /// Its day.
    pub date: String,
    /// Its source.
    pub source: String,
}

/// Where a resumed job goes on from.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// The job it resumes.
    pub job: JobId,
    /// The trial whose outputs are restored.
    pub trial: TrialId,
}

/// A submitted job.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// `job-` and 8 hexadecimal digits.
    pub id: JobId,
    /// Row version, for the store's check.
    pub version: u64,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// Who submitted it.
    pub principal: PrincipalId,
    /// The user's name for it. By name the newest of the lineage answers.
    pub name: String,
    /// What kind.
    pub kind: JobKind,
    /// The frozen request.
    pub spec: JobSpec,
    /// Its trials, in order.
    pub trials: Vec<TrialId>,
    /// The trials' own requests, in the same order; empty where all run `spec`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trial_specs: Vec<TrialSpec>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// The job it resumes, if any. A lineage is the chain of these.
    pub resumed: Option<Resumed>,
    /// The first job of the lineage (itself when it resumes none).
    pub lineage: JobId,
    /// Its name is taken by it: true until all trials are terminal.
    pub active: bool,
    /// Hidden from every answer since.
    pub deleted_at: Option<Timestamp>,
    /// Repeats with the same key return this job.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request the key came with: a changed request under one key is refused.
    pub request_sha256: String,
}

/// Why a trial ended, as a code; sentences are made at the edge.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum EndReason {
    /// The program ended with 0.
    Succeeded,
    /// The program ended with another code or a signal.
    ProgramFailed,
    /// A user stopped it.
    Stopped,
    /// It ran longer than `maxDuration`.
    MaxDurationExceeded,
    /// Execution was lost after user code had started; never replayed.
    Lost {
        /// What was seen.
        detail: String,
    },
    /// The provider took the node back.
    Reclaimed {
        /// What was seen.
        detail: String,
    },
    /// No offer could be launched.
    NoCapacity {
        /// What the provider said last.
        detail: String,
    },
    /// The price rose above the ceiling before the launch.
    PriceChanged,
    /// The project's budget is used up.
    BudgetExceeded,
    /// The provider refused the launch for good.
    LaunchRefused {
        /// What the provider said.
        detail: String,
    },
    /// The node never became usable.
    NodeFailed {
        /// What was seen.
        detail: String,
    },
    /// The work folder could not be prepared.
    PrepareFailed {
        /// What was seen.
        detail: String,
    },
    /// The program used more memory or disk than the trial may.
    LimitExceeded {
        /// Which limit.
        detail: String,
    },
    /// The program itself could not be started.
    StartFailed {
        /// What the system said.
        detail: String,
    },
}

impl EndReason {
    /// The code on the wire; the first four have display texts in the published client.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::ProgramFailed => "failed",
            Self::Stopped => "stopped",
            Self::MaxDurationExceeded => "max_duration_exceeded",
            Self::Lost { .. } => "lost",
            Self::Reclaimed { .. } => "reclaimed",
            Self::NoCapacity { .. } => "no_capacity",
            Self::PriceChanged => "price_changed",
            Self::BudgetExceeded => "budget_exceeded",
            Self::LaunchRefused { .. } => "launch_refused",
            Self::NodeFailed { .. } => "node_failed",
            Self::PrepareFailed { .. } => "prepare_failed",
            Self::LimitExceeded { .. } => "limit_exceeded",
            Self::StartFailed { .. } => "start_failed",
        }
    }

    /// What was seen, where the code alone does not say it.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Lost { detail }
            | Self::Reclaimed { detail }
            | Self::NoCapacity { detail }
            | Self::LaunchRefused { detail }
            | Self::NodeFailed { detail }
            | Self::PrepareFailed { detail }
            | Self::LimitExceeded { detail }
            | Self::StartFailed { detail } => Some(detail),
            Self::Succeeded
            | Self::ProgramFailed
            | Self::Stopped
            | Self::MaxDurationExceeded
            | Self::PriceChanged
            | Self::BudgetExceeded => None,
        }
    }
}

/// The state of a job, derived from its trials.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Nothing of it runs yet.
    Pending,
    /// Some of it runs, or has ended while the rest waits.
    Running,
    /// All succeeded.
    Completed,
    /// All ended, some failed.
    Failed,
    /// All ended, none failed, some were cancelled.
    Cancelled,
}

impl JobState {
    /// Derives the state from the trials' states.
    pub fn of<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Self {
        let (mut all_ended, mut any_begun, mut any_failed, mut any_cancelled) =
            (true, false, false, false);
        for trial in trials {
            any_begun |= !matches!(
                trial.state,
                TrialState::Queued | TrialState::Provisioning | TrialState::Preparing
            );
            all_ended &= trial.state.is_terminal();
            match trial.state {
                TrialState::Failed | TrialState::Lost | TrialState::TimedOut => any_failed = true,
                TrialState::Cancelled => any_cancelled = true,
                TrialState::Queued
                | TrialState::Provisioning
                | TrialState::Preparing
                | TrialState::Running
                | TrialState::Collecting
                | TrialState::Succeeded => {}
            }
        }
        match (all_ended, any_begun, any_failed, any_cancelled) {
            (false, false, ..) => Self::Pending,
            (false, true, ..) => Self::Running,
            (true, _, true, _) => Self::Failed,
            (true, _, false, true) => Self::Cancelled,
            (true, _, false, false) => Self::Completed,
        }
    }
}
