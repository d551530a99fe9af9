//! The audit: what happened, never updated.

use jiff::Timestamp;
use runwhere_model::{JobId, LeaseId, ProjectId, TrialId, WorkspaceId};
use serde::{Deserialize, Serialize};

/// The version of the payloads written today.
pub const EVENT_VERSION: u32 = 1;

/// What an event is about.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// The job.
    pub job: Option<JobId>,
    /// The trial.
    pub trial: Option<TrialId>,
    /// The lease.
    pub lease: Option<LeaseId>,
}

/// One recorded event.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Payload version.
    pub version: u32,
    /// When.
    pub at: Timestamp,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// About what.
    pub subject: Subject,
    /// What, for example `trial.running` or `lease.released`.
    pub kind: String,
    /// Details.
    pub payload: serde_json::Value,
}

/// Kinds of events that people must see: money may be lost.
const ALERTS: [&str; 5] = [
    "lease.cleanup_blocked",
    "lease.release_overdue",
    "lease.stray_node",
    "node.unowned",
    "node.resurrected",
];

impl EventRecord {
    /// Whether people must see it.
    pub fn is_alert(&self) -> bool {
        ALERTS.contains(&self.kind.as_str())
    }
}
