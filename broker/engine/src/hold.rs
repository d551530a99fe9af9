//! What keeps a node from being ended now.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{ErrorKind, OfferKey};
use serde::{Deserialize, Serialize};

/// A release is asked for at least this often, however long the provider says it will refuse it.
pub(crate) const HOLD_POLL: Duration = Duration::from_secs(600);

/// The end of a node that the provider refuses now. The release goes on all the same.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// What it was refused for: `auth` for credentials, `conflict` for a reservation or protection.
    pub kind: ErrorKind,
    /// Since when.
    pub since: Timestamp,
    /// Until when, where the provider says it.
    pub until: Option<Timestamp>,
    /// The provider's words.
    pub detail: String,
}

impl Hold {
    /// Whether an error of this kind means that only somebody else, or time, can help.
    pub fn is_one(kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Auth
            | ErrorKind::Balance
            | ErrorKind::Conflict
            | ErrorKind::Invalid
            | ErrorKind::Quota
            | ErrorKind::Unsupported => true,
            ErrorKind::Capacity
            | ErrorKind::Malformed
            | ErrorKind::NotFound
            | ErrorKind::Throttle
            | ErrorKind::Transient => false,
        }
    }
}

/// A launch that a provider refused, kept for the answer to "why is there no machine?".
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// What was asked for.
    pub offer: OfferKey,
    /// What it was refused for.
    pub kind: ErrorKind,
    /// How often, in all.
    pub times: u32,
    /// When it was last.
    pub at: Timestamp,
    /// The provider's last words.
    pub detail: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offer, kind, times, detail, .. } = self;
        write!(f, "{offer}: {} ({times}x): {detail}", kind.as_str())
    }
}
