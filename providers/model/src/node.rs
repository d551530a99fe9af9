//! Nodes as a provider shows them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{DeploymentId, LeaseId, NodeId};
use crate::key::OfferKey;
use crate::price::HourlyPrice;

/// Where a node is in its life, by the provider's own answer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    /// Accepted, not yet running.
    Pending,
    /// Running.
    Running,
    /// On its way out.
    Stopping,
    /// Halted but still there: ended work, possibly billed on. Must still be terminated.
    Stopped,
    /// Terminal: the provider says that it ended.
    Gone,
}

/// Why a node stopped or ended, as far as the provider tells.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Somebody asked for it.
    Requested,
    /// The accepted launch could not be served: it never ran and is not billed.
    Capacity,
    /// A spot node was taken back.
    Reclaimed,
    /// The account is out of money.
    Balance,
    /// Its end time had come.
    TimeLimit,
    /// The host broke down.
    HostFailed,
}

/// One read of one node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// The node.
    pub node: NodeId,
    /// Its phase.
    pub phase: NodePhase,
    /// When billing started, by the provider's own clock, where it states it.
    pub started_at: Option<Timestamp>,
    /// When billing ended, by the provider's own clock, where it states it.
    pub stopped_at: Option<Timestamp>,
    /// Why it is where it is, in the provider's words (no secrets).
    pub reason: Option<String>,
    /// The same as a code, where the provider's words can be told apart.
    #[serde(default)]
    pub cause: Option<EndCause>,
    /// What the provider says it charges, where it says so.
    pub billed_price: Option<HourlyPrice>,
    /// The region it is in, by the provider's own name, where the answer says so.
    #[serde(default)]
    pub region: Option<String>,
    /// The zone it is in, by the provider's own name, where the answer says so.
    #[serde(default)]
    pub zone: Option<String>,
}

impl NodeState {
    /// Whether the provider says that the node is in another region or zone than its offer names.
    pub fn is_elsewhere(&self, offer: &OfferKey) -> bool {
        let differs = |stated: &Option<String>, wanted: &Option<String>| match (stated, wanted) {
            (Some(stated), Some(wanted)) => !stated.eq_ignore_ascii_case(wanted),
            _ => false,
        };
        differs(&self.region, &offer.region) || differs(&self.zone, &offer.zone)
    }
}

/// A node in a listing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SeenNode {
    /// Its state.
    pub state: NodeState,
    /// Whose it is, by its label.
    pub deployment: Option<DeploymentId>,
    /// For which lease, by its label.
    pub lease: Option<LeaseId>,
    /// When it was made, where the provider says so.
    pub created_at: Option<Timestamp>,
}

/// What a search for one lease's nodes brought.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Nodes with the lease's label, ended ones included where the provider still shows them.
    pub nodes: Vec<NodeState>,
    /// Whether everything was read: only then does absence mean anything.
    pub complete: bool,
}

/// All nodes of our deployment.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// The nodes with our deployment label.
    pub nodes: Vec<SeenNode>,
    /// How many others there are (counted, never touched).
    pub foreign: u64,
    /// Whether everything was read.
    pub complete: bool,
}

/// The answer to a termination.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminated {
    /// The provider says that it has ended, and possibly when.
    Gone {
        /// When billing ended, where stated.
        stopped_at: Option<Timestamp>,
    },
    /// Accepted; a later read must show the end.
    Requested,
}
