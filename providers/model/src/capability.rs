//! What a provider can do and promises, as data instead of trial and error.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::metering::Metering;

/// How a launch whose answer was lost is found again.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The same token with the same parameters returns the first node.
    Token,
    /// Names are unique: a second launch of a name is refused.
    UniqueName,
    /// Only our label, set in the launch call itself, tells; list before any retry.
    LabelOnly,
}

/// What the cloud's "stop" does to the bill. We terminate; this is for nodes found stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopEffect {
    /// No stop state.
    None,
    /// Compute is no longer billed (disks may be).
    EndsCompute,
    /// A stopped node is billed on.
    KeepsBilling,
}

/// What ends the bill when we are gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadman {
    /// The cloud ends the node at a time given with the launch.
    Cloud,
    /// Powering off from inside ends the bill; the agent does it.
    PowerOffEndsBilling,
    /// Nothing: the quote says so and the project must consent.
    None,
}

/// How our agent gets onto the node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bootstrapping {
    /// Started by the machine's first boot (user data).
    UserData,
    /// Started inside the user's image (container clouds).
    Container,
    /// Started by the provider itself on a host it reaches (local machine, clusters).
    Direct,
}

/// A provider's abilities and guarantees.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// How a lost launch answer is resolved.
    pub identity: Identity,
    /// How long after a launch reads may still miss the node: absence counts only after it.
    pub settle: Duration,
    /// Complete reads without the node that absence takes: after `settle` where a launch was not
    /// answered, spread over it where the node was known. Not so many in a row miss one that is there.
    pub absent_reads: u32,
    /// Whether nodes carry our labels from the launch call on.
    pub tags: bool,
    /// Whether spot offers can be launched.
    pub spot: bool,
    /// Notice before a spot node is taken back.
    pub reclaim_notice: Option<Duration>,
    /// Whether offers state stock.
    pub states_stock: bool,
    /// Whether [`NodeState`](crate::NodeState) carries the provider's own start and stop times.
    pub states_times: bool,
    /// Whether `usage` returns the provider's own bill.
    pub states_usage: bool,
    /// What a stop does.
    pub stop: StopEffect,
    /// For how long after its launch the end of a node is refused; `None` = it can always be ended.
    #[serde(default)]
    pub minimum_reservation: Option<Duration>,
    /// What ends the bill without us.
    pub deadman: Deadman,
    /// How the agent arrives.
    pub bootstrapping: Bootstrapping,
    /// Whether the broker must be reachable from outside (a public URL) for the agent.
    pub needs_public_url: bool,
    /// The billing clock.
    pub metering: Metering,
    /// How long a launch may take until the agent reports; after it the node is given up.
    pub boot_timeout: Duration,
}
