//! The billed time of a lease and its cutting into segments.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// When billing ran, and how much of it is already in the ledger.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// When billing started.
    pub started_at: Option<Timestamp>,
    /// When billing ended.
    pub stopped_at: Option<Timestamp>,
    /// A time is our own observation, not the provider's word.
    pub estimated: bool,
    /// Billed microseconds already cut into segments.
    pub charged_micros: u64,
    /// Up to which instant they are cut.
    pub charged_to: Option<Timestamp>,
    /// Number of segments cut so far.
    pub segments: u32,
}
