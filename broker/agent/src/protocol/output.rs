//! Outputs at the broker.

use serde::{Deserialize, Serialize};

use super::Digest;

/// Reply of `GET /agent/v1/outputs/{sha256}`, computed from what the broker reads from its store.
/// 404 where there is no such output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOutput {
    /// Bytes.
    pub size: u64,
    /// Of the bytes as read back.
    pub sha256: Digest,
}
