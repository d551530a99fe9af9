//! Joining: a lease token becomes a session.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Digest;

/// Body of `POST /agent/v1/redeem`. The session key itself stays on the node until the first
/// authorised call; repeating this with the same hash gives the same answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeemRequest {
    /// [`super::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Lease to join.
    pub lease_id: String,
    /// Token of the bootstrap.
    pub lease_token: String,
    /// SHA-256 of the 32 raw bytes of the session key.
    pub session_key_sha256: Digest,
    /// Version of the agent program.
    pub agent_version: String,
    /// The provider's id of the agent's node, where the node knows it: of several nodes of one
    /// launch it tells which one asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
}

impl fmt::Debug for RedeemRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedeemRequest")
            .field("protocol", &self.protocol)
            .field("lease_id", &self.lease_id)
            .field("agent_version", &self.agent_version)
            .field("node_id", &self.node_id)
            .finish_non_exhaustive()
    }
}

/// Reply to [`RedeemRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeemReply {
    /// Fencing number of this session; every later call carries it.
    pub epoch: u64,
    /// Trial that the lease serves.
    pub trial_id: String,
}
