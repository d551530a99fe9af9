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

/// Whether an output's path is one below the work folder: relative, no empty part, `.` or `..`, no
/// NUL, no part longer than a file system takes. A broker believes no other.
#[must_use]
pub fn is_output_path(path: &str) -> bool {
    crate::files::safe_path(path).is_ok()
}
