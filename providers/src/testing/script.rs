//! Scripted answers: what a cloud does and what it says about it, call by call.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{BlockScope, ErrorKind};

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
    /// Not done, and the answer is lost or a 5xx: the same error.
    NotDoneReplyLost,
    /// Done, and answered with an error that brings the node's id with it.
    FailedButDone(ErrorKind),
    /// Definitely refused.
    FailedNotDone(ErrorKind),
    /// Definitely refused, for everything in the scope, possibly with a time to come again.
    Refused(ErrorKind, BlockScope, Option<Duration>),
    /// Answered later; what it does is done at once.
    Delay(Duration, Box<Outcome>),
    /// Too many calls.
    Throttle(Option<Duration>),
    /// Credentials refused, for the whole account.
    Auth,
    /// A launch is accepted, then fails for want of capacity: nothing ever runs or is billed.
    CapacityLater,
    /// A launch makes so many nodes more than asked for.
    Surplus(u32),
    /// A launch makes so many nodes more than asked for, and says nothing of them: for so long no
    /// read shows them, and they begin to run only then.
    SurplusLater(u32, Duration),
    /// A launch is accepted and makes none; the answer cannot be understood.
    NoneMade,
    /// A termination is acknowledged and the node lives on.
    AckButLives,
    /// A termination is acknowledged, the node seems to end for so long, and runs on.
    Resurrects(Duration),
    /// A listing breaks off: what it shows is true, but not all.
    Incomplete,
    /// A listing shows rows twice, as when rows move to the next page during a walk.
    Duplicates,
    /// A listing misses a row and does not know it, as when rows move to an earlier page.
    Gap,
}

/// Outcomes in the order of the calls; when they run out, calls work. Standing ones come first.
#[derive(Debug, Default)]
pub(super) struct Script {
    queues: BTreeMap<Verb, VecDeque<Outcome>>,
    standing: Vec<Standing>,
    calls: BTreeMap<Verb, u64>,
}

#[derive(Debug)]
struct Standing {
    verb: Option<Verb>,
    from: Timestamp,
    until: Timestamp,
    outcome: Outcome,
}

impl Script {
    pub(super) fn push(&mut self, verb: Verb, outcome: Outcome) {
        self.queues.entry(verb).or_default().push_back(outcome);
    }

    /// For every call of the verb (of all when `None`) between two instants.
    pub(super) fn stand(
        &mut self,
        verb: Option<Verb>,
        from: Timestamp,
        until: Timestamp,
        outcome: Outcome,
    ) {
        self.standing.push(Standing { verb, from, until, outcome });
    }

    /// From now on every call works.
    pub(super) fn heal(&mut self) {
        self.queues.clear();
        self.standing.clear();
    }

    pub(super) fn next(&mut self, verb: Verb, now: Timestamp) -> Outcome {
        *self.calls.entry(verb).or_default() += 1;
        let standing = self.standing.iter().find(|one| {
            one.from <= now && now < one.until && one.verb.is_none_or(|wanted| wanted == verb)
        });
        if let Some(standing) = standing {
            return standing.outcome.clone();
        }
        self.queues.get_mut(&verb).and_then(VecDeque::pop_front).unwrap_or(Outcome::Ok)
    }

    pub(super) fn calls(&self, verb: Verb) -> u64 {
        self.calls.get(&verb).copied().unwrap_or(0)
    }

    pub(super) fn left(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }
}
