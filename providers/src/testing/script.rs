//! Scripted answers: what a cloud does and what it says about it, call by call.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use runwhere_model::ErrorKind;

/// A call of the provider contract.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Verb {
    /// `offers`.
    Offers,
    /// `launch`.
    Launch,
    /// `find`.
    Find,
    /// `nodes`.
    Nodes,
    /// `describe`.
    Describe,
    /// `terminate`.
    Terminate,
    /// `usage`.
    Usage,
}

impl Verb {
    /// The word used in errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Offers => "offers",
            Self::Launch => "launch",
            Self::Find => "find",
            Self::Nodes => "nodes",
            Self::Describe => "describe",
            Self::Terminate => "terminate",
            Self::Usage => "usage",
        }
    }

    /// Whether it changes something.
    pub fn acts(self) -> bool {
        matches!(self, Self::Launch | Self::Terminate)
    }
}

/// What becomes of one call. On a read nothing can be done or left undone: there, all of the
/// failing ones are plain failures without effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Works.
    Ok,
    /// Done, but the answer is lost: a transient error with a possible effect.
    DoneReplyLost,
    /// Not done, and the answer is lost: the same error.
    NotDoneReplyLost,
    /// Done, and answered with an error that brings the node's id with it.
    FailedButDone(ErrorKind),
    /// Definitely refused.
    FailedNotDone(ErrorKind),
    /// Answered later; meanwhile nothing has happened.
    Delay(Duration, Box<Outcome>),
    /// Too many calls.
    Throttle(Option<Duration>),
    /// Credentials refused, for the whole account.
    Auth,
    /// A launch is accepted, then fails for want of capacity: nothing ever runs or is billed.
    CapacityLater,
    /// A launch makes so many nodes more than asked for.
    Surplus(u32),
    /// A termination is acknowledged and the node lives on.
    AckButLives,
    /// A listing breaks off: what it shows is true, but not all.
    Incomplete,
}

/// Outcomes in the order of the calls; when they run out, calls work.
#[derive(Debug, Default)]
pub(super) struct Script {
    queues: BTreeMap<Verb, VecDeque<Outcome>>,
    calls: BTreeMap<Verb, u64>,
}

impl Script {
    pub(super) fn push(&mut self, verb: Verb, outcome: Outcome) {
        self.queues.entry(verb).or_default().push_back(outcome);
    }

    pub(super) fn next(&mut self, verb: Verb) -> Outcome {
        *self.calls.entry(verb).or_default() += 1;
        self.queues.get_mut(&verb).and_then(VecDeque::pop_front).unwrap_or(Outcome::Ok)
    }

    pub(super) fn calls(&self, verb: Verb) -> u64 {
        self.calls.get(&verb).copied().unwrap_or(0)
    }

    pub(super) fn left(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }
}
