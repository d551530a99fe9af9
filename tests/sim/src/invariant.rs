//! What must hold.

use std::fmt;

/// A promise of the broker.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Invariant {
    /// At most one attempt of a trial has live nodes, and no token is launched twice.
    OneAttempt,
    /// Every node belongs to a lease that was durable before it.
    Owned,
    /// An ended lease, or a confirmed clean-up, has evidence and no live node.
    ProvenEnd,
    /// What is charged is what the cloud's own meter says.
    Metered,
    /// Segments, entries and budgets are whole and balanced.
    Books,
    /// What has ended stays as it ended.
    Final,
    /// A log has neither gaps nor repeats, and its seal.
    Logged,
    /// Nodes of others are left alone.
    Foreign,
    /// Who has lost a lease can do nothing to it any more.
    Fenced,
    /// Everything settles in bounded time after the last trouble.
    Settled,
    /// Nothing is launched beyond the budget.
    Budget,
    /// Nothing is launched above its price ceiling.
    Ceiling,
    /// One submit makes one job, and its user hears of it.
    OneJob,
    /// What nothing disturbed is not lost.
    Kept,
    /// No task of a process breaks off.
    Sound,
    /// No second launch while the fate of the first is open.
    NoRelaunch,
}

/// A promise that was not kept, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What was seen.
    pub detail: String,
}

impl Invariant {
    pub(crate) fn broken(self, detail: impl fmt::Display) -> Violation {
        Violation { invariant: self, detail: detail.to_string() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.detail)
    }
}
