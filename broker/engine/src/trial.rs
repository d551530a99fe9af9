//! Trials: one independent workload each.

use jiff::Timestamp;
use runwhere_model::{JobId, LeaseId, Money, ProjectId, TrialId, WorkspaceId};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::hold::Refusal;
use crate::job::EndReason;
use crate::lease::LeaseState;

/// Where a trial is. Terminal states never change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// Waits for capacity or its turn.
    Queued,
    /// A node is being made.
    Provisioning,
    /// The node prepares the work folder.
    Preparing,
    /// User code runs.
    Running,
    /// User code ended; logs and outputs are being collected.
    Collecting,
    /// Ended with 0.
    Succeeded,
    /// Ended otherwise.
    Failed,
    /// Execution lost after user code had started.
    Lost,
    /// Ran longer than allowed.
    TimedOut,
    /// Stopped by a user.
    Cancelled,
}

impl TrialState {
    /// Every state.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Provisioning,
        Self::Preparing,
        Self::Running,
        Self::Collecting,
        Self::Succeeded,
        Self::Failed,
        Self::Lost,
        Self::TimedOut,
        Self::Cancelled,
    ];

    /// Whether it has ended.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Queued
            | Self::Provisioning
            | Self::Preparing
            | Self::Running
            | Self::Collecting => false,
            Self::Succeeded | Self::Failed | Self::Lost | Self::TimedOut | Self::Cancelled => true,
        }
    }

    /// The internal word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Provisioning => "provisioning",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Collecting => "collecting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What the user wants of a trial now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// Go on.
    Run,
    /// End because a user said so.
    Stop,
    /// End because time is up.
    TimeOut,
    /// End because the provider takes the node back.
    Reclaim,
}

/// What ended the user's program.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// The program itself.
    Program,
    /// Our stop, wanted by a user or by the time limit.
    Stop,
    /// The agent's own limit.
    TimeOut,
    /// It could not be started.
    SpawnFailed,
    /// It used more memory or disk than it may.
    Limit,
    /// The broker was silent longer than the agent goes on without it.
    BrokerSilent,
}

/// How the user's program ended, raw.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// What ended it.
    pub cause: ExitCause,
}

/// What became of the outputs; independent of the trial's state.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum OutputState {
    /// There was nothing to collect.
    None,
    /// Not collected yet.
    Pending,
    /// All collected files are stored and read back.
    Uploaded {
        /// How many.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Not all were.
    Failed {
        /// Why.
        reason: String,
    },
}

/// One stored output file.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Relative path in the work folder.
    pub path: String,
    /// Lower-case hexadecimal SHA-256.
    pub sha256: String,
    /// Size in bytes.
    pub size: u64,
    /// It lies under the checkpoint path.
    pub checkpoint: bool,
}

/// The end of a log as the agent states it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LogSeal {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of program output.
    pub bytes: u64,
    /// Bytes that the program wrote beyond what is kept.
    #[serde(default)]
    pub dropped_bytes: u64,
}

/// A line the platform adds to the log; the text is made at the edge.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformLine {
    /// A node is being made.
    CreatingNode,
    /// The node starts and joins.
    NodeJoining,
    /// GPUs are ready, the task is deployed.
    GpuReady,
    /// User code runs.
    Running,
}

/// One independent workload.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its id.
    pub id: TrialId,
    /// Row version, for the store's check.
    pub version: u64,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// Its job.
    pub job: JobId,
    /// Its place among the job's trials, from 0.
    pub index: u32,
    /// Where it is.
    pub state: TrialState,
    /// Since when.
    pub since: Timestamp,
    /// What is wanted of it.
    pub desired: Desired,
    /// When the stop or time-out was asked for.
    pub desired_at: Option<Timestamp>,
    /// Its present or last lease.
    pub lease: Option<LeaseId>,
    /// How many leases it has had.
    pub attempts: u32,
    /// How many of their nodes ended before their agents reported.
    #[serde(default)]
    pub node_failures: u32,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When user code started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How the program ended.
    pub exit: Option<Exit>,
    /// What the system said where the program could not be started, or which limit it passed.
    #[serde(default)]
    pub start_failure: Option<String>,
    /// Why it ended.
    pub end_reason: Option<EndReason>,
    /// What became of the outputs.
    pub outputs: OutputState,
    /// The sealed log.
    pub log: Option<LogSeal>,
    /// What was the last thing a provider refused, while it waits for capacity.
    pub waiting_for: Option<String>,
    /// The launches that providers refused, per offer and kind, the last one last.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
    /// Billed microseconds of its earlier leases, and of nodes that nobody wanted.
    #[serde(default)]
    pub past_billed_micros: u64,
    /// Exact cost of these, per currency.
    #[serde(default)]
    pub past_amounts: Vec<Money>,
    /// All its leases have ended with evidence.
    pub cleanup_confirmed: bool,
    /// That evidence.
    pub evidence: Vec<Evidence>,
    /// Highest agent event applied, so that repeats are harmless.
    pub agent_seq: u64,
    /// When it is to be woken next.
    pub next_at: Option<Timestamp>,
}

impl Trial {
    /// A trial that waits for its turn.
    pub fn queued(id: TrialId, job: &crate::job::Job, index: u32) -> Self {
        Self {
            id,
            version: 0,
            workspace: job.workspace.clone(),
            project: job.project.clone(),
            job: job.id.clone(),
            index,
            state: TrialState::Queued,
            since: job.created_at,
            desired: Desired::Run,
            desired_at: None,
            lease: None,
            attempts: 0,
            node_failures: 0,
            created_at: job.created_at,
            started_at: None,
            ended_at: None,
            exit: None,
            start_failure: None,
            end_reason: None,
            outputs: OutputState::Pending,
            log: None,
            waiting_for: None,
            refusals: Vec::new(),
            past_billed_micros: 0,
            past_amounts: Vec::new(),
            cleanup_confirmed: false,
            evidence: Vec::new(),
            agent_seq: 0,
            next_at: Some(job.created_at),
        }
    }

    /// Adds a cost that is final.
    pub fn add_past(&mut self, billed_micros: u64, cost: Money) {
        self.past_billed_micros = self.past_billed_micros.saturating_add(billed_micros);
        if cost.amount.is_zero() {
            return;
        }
        match self.past_amounts.iter_mut().find(|past| past.currency == cost.currency) {
            Some(past) => past.amount = past.amount.saturating_add(cost.amount),
            None => self.past_amounts.push(cost),
        }
    }

    /// Corrects what was final by the provider's bill.
    pub fn adjust_past(&mut self, billed_micros: i64, costs: &[Money]) {
        self.past_billed_micros = self.past_billed_micros.saturating_add_signed(billed_micros);
        costs.iter().for_each(|cost| self.add_past(0, *cost));
    }

    /// Platform lines that the trial's past and its lease imply, in order.
    pub fn platform_lines(&self, lease: Option<LeaseState>) -> &'static [PlatformLine] {
        use PlatformLine::{CreatingNode, GpuReady, NodeJoining, Running};
        const ALL: [PlatformLine; 4] = [CreatingNode, NodeJoining, GpuReady, Running];
        if self.started_at.is_some() {
            return &ALL;
        }
        match (self.state, lease) {
            (TrialState::Running | TrialState::Collecting, _) => &ALL,
            (TrialState::Preparing, _) => &ALL[..3],
            (TrialState::Provisioning, Some(LeaseState::Booting | LeaseState::Ready)) => &ALL[..2],
            (TrialState::Provisioning, _) => &ALL[..1],
            (
                TrialState::Queued
                | TrialState::Succeeded
                | TrialState::Failed
                | TrialState::Lost
                | TrialState::TimedOut
                | TrialState::Cancelled,
                _,
            ) => &[],
        }
    }
}
