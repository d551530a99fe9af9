//! What becomes of each provider call: decided by the seed, the verb and the number of the call
//! alone, so that taking away one fault leaves the others as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use runwhere_model::ErrorKind;
use runwhere_providers::testing::{Outcome, Verb};

use crate::rng::Rng;

/// What can become of a call.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Class {
    Ok,
    DoneReplyLost,
    NotDoneReplyLost,
    FailedButDone,
    Refused,
    ServerError,
    Throttled,
    Auth,
    /// Answered before the caller gives up.
    Slow,
    /// Answered after that, if anybody is still there.
    Late,
    CapacityLater,
    Surplus,
    /// A launch makes nodes that nobody hears of for a while.
    SurplusLater,
    AckButLives,
    /// A node seems to end, and runs on.
    Resurrects,
    Incomplete,
    /// A launch makes nothing, and its answer cannot be understood.
    NoneMade,
    Duplicates,
    /// A listing misses a row and does not know it.
    Gap,
}

impl Class {
    /// Classes that a call of a verb can have.
    pub(crate) fn of(verb: Verb) -> &'static [Self] {
        use Class as C;
        match verb {
            Verb::Launch => &[
                C::Ok,
                C::DoneReplyLost,
                C::NotDoneReplyLost,
                C::FailedButDone,
                C::Refused,
                C::ServerError,
                C::Throttled,
                C::Auth,
                C::Slow,
                C::Late,
                C::CapacityLater,
                C::Surplus,
                C::SurplusLater,
                C::NoneMade,
            ],
            Verb::Terminate => &[
                C::Ok,
                C::DoneReplyLost,
                C::NotDoneReplyLost,
                C::FailedButDone,
                C::Refused,
                C::ServerError,
                C::Throttled,
                C::Auth,
                C::Slow,
                C::Late,
                C::AckButLives,
                C::Resurrects,
            ],
            Verb::Find | Verb::Nodes => &[
                C::Ok,
                C::NotDoneReplyLost,
                C::ServerError,
                C::Throttled,
                C::Auth,
                C::Slow,
                C::Late,
                C::Incomplete,
                C::Duplicates,
                C::Gap,
            ],
            Verb::Describe | Verb::Offers | Verb::Usage => &[
                C::Ok,
                C::NotDoneReplyLost,
                C::ServerError,
                C::Throttled,
                C::Auth,
                C::Slow,
                C::Late,
            ],
        }
    }

    fn outcome(self, verb: Verb, rng: &Rng) -> Outcome {
        let refusals = [ErrorKind::Capacity, ErrorKind::Quota, ErrorKind::Conflict];
        let kind = *rng.one_of(&refusals);
        let after = |seconds: u64| Duration::from_millis(rng.below(seconds * 1000));
        let then = || {
            let then = [Outcome::Ok, Outcome::DoneReplyLost, Outcome::NotDoneReplyLost];
            Box::new(rng.one_of(&then).clone())
        };
        match self {
            Self::Ok => Outcome::Ok,
            Self::DoneReplyLost => Outcome::DoneReplyLost,
            Self::NotDoneReplyLost => Outcome::NotDoneReplyLost,
            Self::FailedButDone => Outcome::FailedButDone(kind),
            Self::Refused if verb == Verb::Launch => match rng.below(8) {
                0 => Outcome::FailedNotDone(ErrorKind::Balance),
                1 => Outcome::FailedNotDone(ErrorKind::Invalid),
                _ => Outcome::FailedNotDone(kind),
            },
            Self::Refused => Outcome::FailedNotDone(ErrorKind::Conflict),
            Self::ServerError => Outcome::FailedNotDone(ErrorKind::Transient),
            Self::Throttled => Outcome::Throttle(rng.percent(50).then(|| after(60))),
            Self::Auth => Outcome::Auth,
            Self::Slow => Outcome::Delay(after(90), then()),
            Self::Late => Outcome::Delay(after(120) + Duration::from_secs(110), then()),
            Self::CapacityLater => Outcome::CapacityLater,
            Self::Surplus => Outcome::Surplus(1 + u32::from(rng.percent(50))),
            Self::SurplusLater => {
                let unseen = after(180) + Duration::from_secs(20);
                Outcome::SurplusLater(1 + u32::from(rng.percent(20)), unseen)
            }
            Self::AckButLives => Outcome::AckButLives,
            Self::Resurrects => Outcome::Resurrects(after(120)),
            Self::Incomplete => Outcome::Incomplete,
            Self::NoneMade => Outcome::NoneMade,
            Self::Duplicates => Outcome::Duplicates,
            Self::Gap => Outcome::Gap,
        }
    }
}

/// A call: its verb and how many of that verb came before it.
pub(crate) type CallNumber = (Verb, u64);

/// The faults of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    seed: u64,
    /// So many of 100 calls go wrong ...
    percent: u64,
    /// ... among the first so many of each verb.
    horizon: u64,
    /// Only this verb, if one is named.
    only: Option<Verb>,
    /// Most early calls of these verbs go wrong in these ways.
    favourites: BTreeMap<Verb, Class>,
    /// Calls that go right after all.
    pub(crate) spared: BTreeSet<CallNumber>,
    /// Calls that go wrong in this way.
    named: BTreeMap<CallNumber, Class>,
}

impl Faults {
    pub(crate) fn of(rng: &Rng) -> Self {
        let percent = *rng.one_of(&[0, 10, 20, 40, 60, 90]);
        let only = *rng.one_of(&[Some(Verb::Launch), Some(Verb::Terminate), None, None, None]);
        let horizon = if only.is_some() { 60 } else { 5 + rng.below(40) };
        let mut favourites = BTreeMap::new();
        if rng.percent(50) {
            // What happens to one verb often matters only together with what happens to another:
            // lists are read where a launch was not answered.
            favourites.insert(Verb::Launch, *rng.one_of(&Class::of(Verb::Launch)[1..]));
            let other = *rng.one_of(&[Verb::Find, Verb::Find, Verb::Describe, Verb::Terminate]);
            favourites.insert(other, *rng.one_of(&Class::of(other)[1..]));
        }
        Self { seed: rng.next(), percent, horizon, only, favourites, ..Self::default() }
    }

    /// From now on also: the first launch makes nodes that nobody hears of before their time, and
    /// what becomes of ends is mostly this.
    pub(crate) fn surplus_later(&mut self, of_ends: Class) {
        self.named.insert((Verb::Launch, 0), Class::SurplusLater);
        self.favourites.insert(Verb::Terminate, of_ends);
        self.favourites.remove(&Verb::Launch);
        self.horizon = self.horizon.max(40);
    }

    /// From now on also: the first launch is not answered, and what becomes of looks for its nodes
    /// is mostly this.
    pub(crate) fn launch_unanswered(&mut self, of_looks: Class) {
        self.named.insert((Verb::Launch, 0), Class::DoneReplyLost);
        self.favourites.insert(Verb::Find, of_looks);
        self.favourites.remove(&Verb::Launch);
        self.horizon = self.horizon.max(40);
    }

    /// From now on also: the first launch takes its time.
    pub(crate) fn launch_slow(&mut self) {
        self.named.insert((Verb::Launch, 0), Class::Slow);
        self.favourites.remove(&Verb::Launch);
    }

    /// These calls and no others.
    pub(crate) fn named(calls: &[(Verb, u64, Class)]) -> Self {
        let named = calls.iter().map(|(verb, number, class)| ((*verb, *number), *class));
        Self { named: named.collect(), ..Self::default() }
    }

    /// What becomes of a call.
    pub(crate) fn of_call(&self, (verb, number): CallNumber) -> (Class, Outcome) {
        let rng = Rng::new(self.seed, number * 16 + verb as u64 + 1);
        // A bill is asked for ever more rarely: it must come before patience ends.
        let horizon = if verb == Verb::Usage { self.horizon.min(4) } else { self.horizon };
        let wrong = number < horizon
            && self.only.is_none_or(|only| only == verb)
            && rng.percent(self.percent)
            && !self.spared.contains(&(verb, number));
        let classes = Class::of(verb);
        // The first one is that it works.
        let class = if wrong { classes[1 + rng.index(classes.len() - 1)] } else { Class::Ok };
        let early = number < self.horizon / 2 && !self.spared.contains(&(verb, number));
        let class = match self.favourites.get(&verb) {
            // A launch goes wrong once and again, not each time: then nothing would ever run.
            Some(favourite) if early && rng.percent(if verb == Verb::Launch { 40 } else { 75 }) => {
                *favourite
            }
            _ => class,
        };
        let class = self.named.get(&(verb, number)).copied().unwrap_or(class);
        (class, class.outcome(verb, &rng))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
