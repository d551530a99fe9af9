//! What really happened in a simulated cloud, for invariants; no provider call shows it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::{DeploymentId, HourlyPrice, LeaseId, NodeId, NodePhase};

/// The truth at one instant.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Truth {
    /// Every node there ever was, in the order of their making.
    pub nodes: Vec<TruthNode>,
    /// Launch calls per token, refused ones included.
    pub launches: BTreeMap<String, u32>,
    /// When each launch call came, refused ones included.
    pub launched_at: Vec<Timestamp>,
    /// Calls that acted on a node of another installation: always a defect of the caller.
    pub touched_foreign: Vec<NodeId>,
}

/// One node as it really is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TruthNode {
    /// Its id.
    pub node: NodeId,
    /// Whose it is.
    pub deployment: DeploymentId,
    /// For which lease.
    pub lease: LeaseId,
    /// Its true phase.
    pub phase: NodePhase,
    /// Whether it can still cost anything.
    pub live: bool,
    /// The cloud meant to run it: not refused, and not out of capacity.
    pub served: bool,
    /// The cloud made it, or brought it back, without a word: nobody can know of it before reads
    /// show it.
    pub unsaid: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When the cloud will take it back, once that is said on the node.
    pub reclaim_at: Option<Timestamp>,
    /// When its bill began, if it did.
    pub billed_from: Option<Timestamp>,
    /// When its bill ended, if it did.
    pub billed_to: Option<Timestamp>,
    /// Its bill so far in microseconds, by the cloud's rule.
    pub meter_micros: u64,
    /// What an hour of it costs.
    pub price: HourlyPrice,
}

impl Truth {
    /// Nodes of a lease that are not gone.
    pub fn live_nodes(&self, lease: &LeaseId) -> Vec<&TruthNode> {
        self.nodes.iter().filter(|node| node.live && node.lease == *lease).collect()
    }

    /// All nodes that are not gone.
    pub fn live(&self) -> impl Iterator<Item = &TruthNode> {
        self.nodes.iter().filter(|node| node.live)
    }

    /// Launch calls with a token.
    pub fn launches_of(&self, token: &str) -> u32 {
        self.launches.get(token).copied().unwrap_or(0)
    }

    /// A node by its id.
    pub fn node(&self, node: &NodeId) -> Option<&TruthNode> {
        self.nodes.iter().find(|one| one.node == *node)
    }

    /// The true bill of a node in microseconds; 0 for an unknown one.
    pub fn meter_micros(&self, node: &NodeId) -> u64 {
        self.node(node).map_or(0, |node| node.meter_micros)
    }
}
