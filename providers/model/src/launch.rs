//! A launch: everything a provider needs, decided and durable before the call.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gpu::{GpuCount, GpuModelId};
use crate::ids::{DeploymentId, LeaseId, NodeId, ProjectId, TrialId};
use crate::key::OfferKey;
use crate::price::HourlyPrice;

/// A text that must never be shown.
#[derive(Clone, Eq, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself; for the wire only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// What the agent needs to find its broker.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Where the agent reaches the broker.
    pub broker_url: String,
    /// Redeemed once for a session key.
    pub lease_token: Secret,
    /// SHA-256 of the agent program, where it has to be fetched.
    pub agent_sha256: Option<String>,
    /// A certificate to trust in addition, PEM.
    pub ca_pem: Option<String>,
    /// How long the agent goes on without its broker.
    pub agent_ttl_seconds: u64,
}

/// One launch of one node for one lease.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// Our installation, set as a label.
    pub deployment: DeploymentId,
    /// The lease, set as a label.
    pub lease: LeaseId,
    /// The tenant's project, set as a label.
    pub project: ProjectId,
    /// The trial, set as a label.
    pub trial: TrialId,
    /// Idempotency token, made from the lease; the same for every repeat of this launch.
    pub token: String,
    /// What to launch.
    pub offer: OfferKey,
    /// GPUs the trial needs.
    pub gpus: GpuCount,
    /// Their model.
    pub gpu_model: Option<GpuModelId>,
    /// The highest price per hour that may be launched.
    pub ceiling: HourlyPrice,
    /// When the node should end at the latest, where the provider can enforce it.
    pub end_by: Option<Timestamp>,
    /// Further labels.
    pub labels: BTreeMap<String, String>,
    /// How the agent starts.
    pub bootstrap: Bootstrap,
}

/// An accepted launch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Launched {
    /// The node; durable before anything is waited for.
    pub node: NodeId,
    /// Nodes beyond the one asked for; they are ended at once.
    pub surplus: Vec<NodeId>,
    /// When billing started, where the answer says so.
    pub started_at: Option<Timestamp>,
    /// What the provider says it charges.
    pub billed_price: Option<HourlyPrice>,
}
