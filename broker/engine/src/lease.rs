//! Leases: our hold on one node, from the durable launch intent to its proven end.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::{
    Capabilities, EndCause, GpuCount, GpuModelId, HourlyPrice, JobId, LeaseId, NodeId, OfferKey,
    ProjectId, TrialId, WorkspaceId,
};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::hold::Hold;
use crate::meter::Meter;
use crate::surplus::Surplus;

/// Where a lease is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// Durable, nothing called yet.
    Intended,
    /// The launch call is under way.
    Launching,
    /// The launch may or may not have made a node.
    Unknown,
    /// There is a node; its agent has not reported yet.
    Booting,
    /// The agent has reported usable GPUs.
    Ready,
    /// To be ended; the end is not proven yet.
    Releasing,
    /// Proven ended.
    Released,
    /// Proven that nothing was ever there.
    Void,
}

impl LeaseState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Intended,
        Self::Launching,
        Self::Unknown,
        Self::Booting,
        Self::Ready,
        Self::Releasing,
        Self::Released,
        Self::Void,
    ];

    /// Whether it has ended with evidence.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Released | Self::Void => true,
            Self::Intended
            | Self::Launching
            | Self::Unknown
            | Self::Booting
            | Self::Ready
            | Self::Releasing => false,
        }
    }

    /// The word used in logs and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Launching => "launching",
            Self::Unknown => "unknown",
            Self::Booting => "booting",
            Self::Ready => "ready",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Void => "void",
        }
    }
}

/// A provider call of a lease.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Launch the node.
    Launch,
    /// Look for nodes with the lease's label.
    Find,
    /// Read the node.
    Describe,
    /// End the node.
    Terminate,
}

/// A provider call under way, durable before it is made.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Which call.
    pub call: CallKind,
    /// Which process makes it: a call of another process is taken for lost once `until` has
    /// passed.
    pub owner: String,
    /// When it was begun.
    pub started_at: Timestamp,
    /// Until when its outcome is waited for.
    pub until: Timestamp,
}

/// The price a lease was made at, kept for every later report.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PriceSnapshot {
    /// The price per hour as the cloud stated it.
    pub price: HourlyPrice,
    /// Where it was read.
    pub source: String,
    /// When it was read.
    pub observed_at: Option<Timestamp>,
    /// The catalogue it is from.
    pub snapshot: String,
}

/// The agent's credential and last sign of life.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct AgentSession {
    /// SHA-256 of the lease token, lower-case hexadecimal.
    pub lease_token_sha256: String,
    /// SHA-256 of the session key once redeemed.
    pub session_key_sha256: Option<String>,
    /// Last time the agent was heard.
    pub seen_at: Option<Timestamp>,
    /// Which process heard it last. Only that one knows when it falls silent.
    #[serde(default)]
    pub heard_by: Option<String>,
    /// The node that it says it runs on.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// When one was first told to come again, because nobody could tell from which of several
    /// nodes it was.
    #[serde(default)]
    pub deferred_at: Option<Timestamp>,
}

/// Our hold on one node for one attempt of one trial.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Its id; token and labels derive from it.
    pub id: LeaseId,
    /// Row version, for the store's check.
    pub version: u64,
    /// Fencing epoch of the agent session.
    pub epoch: u32,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// The job.
    pub job: JobId,
    /// The trial.
    pub trial: TrialId,
    /// What is rented.
    pub offer: OfferKey,
    /// How many GPUs.
    pub gpu_count: GpuCount,
    /// Which model.
    pub gpu_model: Option<GpuModelId>,
    /// Where it is.
    pub state: LeaseState,
    /// Since when.
    pub since: Timestamp,
    /// Idempotency token of the launch.
    pub token: String,
    /// Highest price it may be launched at.
    pub ceiling: HourlyPrice,
    /// The price it is metered at.
    pub price: PriceSnapshot,
    /// What the provider promised when the intent was made.
    pub capabilities: Capabilities,
    /// When the intent was made.
    pub intended_at: Timestamp,
    /// When the launch was called first.
    pub launched_at: Option<Timestamp>,
    /// The node, once known.
    pub node: Option<NodeId>,
    /// Nodes beyond the one wanted; each is ended at once, and proven ended before the lease is.
    pub surplus: Vec<Surplus>,
    /// Those that were proven ended, with the end of their billed time.
    #[serde(default)]
    pub surplus_ended: BTreeMap<NodeId, Timestamp>,
    /// When the last one of them was proven ended.
    #[serde(default)]
    pub alone_since: Option<Timestamp>,
    /// The launch's own answer never came, so there may be nodes that nobody named: not before
    /// this instant a complete find is to show all of them. `None` = none is needed.
    #[serde(default)]
    pub recheck_at: Option<Timestamp>,
    /// When a read last showed the node in a phase that is billed.
    pub seen_at: Option<Timestamp>,
    /// It is to be ended, whatever comes back.
    pub release_wanted: bool,
    /// The provider has accepted the termination; reads must show the end.
    pub release_acked: bool,
    /// When complete reads without the node (or without any node) were begun, in order.
    pub absent_reads: Vec<Timestamp>,
    /// Calls in a row, since the state was entered, that failed or did not bring it further.
    pub release_failures: u32,
    /// How often people were told that its end is overdue.
    #[serde(default)]
    pub alerts: u32,
    /// What keeps its node from being ended now.
    #[serde(default)]
    pub hold: Option<Hold>,
    /// Since when its agent is silent, once the silence is long.
    #[serde(default)]
    pub unreachable_since: Option<Timestamp>,
    /// When the provider will take the node back, as the node was told.
    #[serde(default)]
    pub reclaim_at: Option<Timestamp>,
    /// Why the node stopped or ended, by the provider's word.
    #[serde(default)]
    pub end_cause: Option<EndCause>,
    /// The last provider error, for operators.
    pub last_error: Option<String>,
    /// The call under way.
    pub in_flight: Option<InFlight>,
    /// Its agent.
    pub agent: AgentSession,
    /// Its billed time.
    pub meter: Meter,
    /// What proves the end of its node; while surplus nodes are left it has not ended yet.
    pub evidence: Option<Evidence>,
    /// When the provider's own bill was held against it; `None` = not yet, or there is nothing to
    /// settle.
    #[serde(default)]
    pub settled_at: Option<Timestamp>,
    /// How often that bill was asked for in vain.
    #[serde(default)]
    pub settle_tries: u32,
    /// When it is to be woken next; once it has ended, when its provider's bill is asked for.
    pub next_at: Option<Timestamp>,
}
