//! Which combinations the seeds visited, and which they must visit.

use std::collections::BTreeMap;
use std::fmt;

use runwhere_engine::{LeaseState, TrialState};
use runwhere_providers::testing::Verb;

use crate::fault::Class;

/// What a user can do to a trial's job.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum UserAction {
    SubmitAgain,
    Stop,
    Delete,
    DeleteByForce,
    Resume,
}

impl UserAction {
    pub(crate) const ALL: [Self; 5] =
        [Self::SubmitAgain, Self::Stop, Self::Delete, Self::DeleteByForce, Self::Resume];
}

/// Counts of visited combinations. Places in [`LeaseState::ALL`] and [`TrialState::ALL`] stand for
/// the states.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    calls: BTreeMap<(usize, Verb, Class), u64>,
    actions: BTreeMap<(usize, UserAction), u64>,
}

impl Coverage {
    /// The answer of a call came in while the lease was in this state.
    pub(crate) fn call(&mut self, state: LeaseState, verb: Verb, class: Class) {
        let place = LeaseState::ALL.iter().position(|one| *one == state).unwrap_or(0);
        *self.calls.entry((place, verb, class)).or_default() += 1;
    }

    pub(crate) fn action(&mut self, state: TrialState, action: UserAction) {
        let place = TrialState::ALL.iter().position(|one| *one == state).unwrap_or(0);
        *self.actions.entry((place, action)).or_default() += 1;
    }

    /// Adds what others visited.
    pub fn add(&mut self, other: &Self) {
        for (key, count) in &other.calls {
            *self.calls.entry(*key).or_default() += count;
        }
        for (key, count) in &other.actions {
            *self.actions.entry(*key).or_default() += count;
        }
    }

    /// Legal combinations that nobody visited.
    pub fn missing(&self) -> Vec<String> {
        self.below(1)
    }

    /// Legal combinations that were visited, but less often than so.
    pub fn rare(&self, often: u64) -> Vec<String> {
        let missing = self.missing();
        let mut rare = self.below(often);
        rare.retain(|one| !missing.contains(one));
        rare
    }

    fn below(&self, often: u64) -> Vec<String> {
        let mut found = Vec::new();
        for (place, state) in LeaseState::ALL.iter().enumerate() {
            for verb in [Verb::Launch, Verb::Find, Verb::Describe, Verb::Terminate] {
                for class in
                    Class::of(verb).iter().filter(|_| legal(*state, verb) == Some(Visit::Needed))
                {
                    let count = self.calls.get(&(place, verb, *class)).copied().unwrap_or(0);
                    if count < often {
                        found.push(format!("{} x {} {class}", state.as_str(), verb.as_str()));
                    }
                }
            }
        }
        for (place, state) in TrialState::ALL.iter().enumerate() {
            for action in UserAction::ALL {
                if self.actions.get(&(place, action)).copied().unwrap_or(0) < often {
                    found.push(format!("{} x {action:?}", state.as_str()));
                }
            }
        }
        found
    }

    /// Visited combinations that the table says cannot be.
    pub fn unexpected(&self) -> Vec<String> {
        let calls = self
            .calls
            .iter()
            .filter(|((place, verb, _), _)| legal(LeaseState::ALL[*place], *verb).is_none());
        calls
            .map(|((place, verb, class), count)| {
                let state = LeaseState::ALL[*place].as_str();
                format!("{state} x {} {class}: {count}", verb.as_str())
            })
            .collect()
    }
}

/// What is wanted of a combination that can be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Visit {
    /// The seeds must visit it.
    Needed,
    /// Too rare for that.
    Rare,
}

/// Whether a call can end while its lease is in a state; `None` = it cannot.
///
/// A lease in `intended` has made no call. While `launching` it waits for its launch alone, and
/// `unknown` asks `find` alone. With a node it is read or ended; the nodes beyond the one wanted
/// are read, ended and looked for meanwhile, also while the wanted one boots or works. An ended
/// lease makes no calls, and gave up those before it ended; but a node of it that comes up later is
/// read and ended by the sweeper. Of a void one that is a node which ended before any read showed
/// it, and runs again by the cloud's doing.
fn legal(state: LeaseState, verb: Verb) -> Option<Visit> {
    match (state, verb) {
        (LeaseState::Launching, Verb::Launch) | (LeaseState::Unknown, Verb::Find) => {
            Some(Visit::Needed)
        }
        (
            LeaseState::Booting | LeaseState::Ready | LeaseState::Releasing,
            Verb::Find | Verb::Describe | Verb::Terminate,
        )
        | (LeaseState::Released, Verb::Describe | Verb::Terminate) => Some(Visit::Needed),
        (LeaseState::Void, Verb::Describe | Verb::Terminate) => Some(Visit::Rare),
        (_, _) => None,
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lease state x outcome of a call")?;
        for verb in [Verb::Launch, Verb::Find, Verb::Describe, Verb::Terminate] {
            write!(f, "  {:<18}", verb.as_str())?;
            for state in LeaseState::ALL {
                write!(f, "{:>11}", state.as_str())?;
            }
            writeln!(f)?;
            for class in Class::of(verb) {
                write!(f, "    {:<16}", class.to_string())?;
                for (place, state) in LeaseState::ALL.iter().enumerate() {
                    let count = self.calls.get(&(place, verb, *class)).copied().unwrap_or(0);
                    match (count, legal(*state, verb)) {
                        (0, None | Some(Visit::Rare)) => write!(f, "{:>11}", "-")?,
                        (count, Some(_)) => write!(f, "{count:>11}")?,
                        (count, None) => write!(f, "{:>11}", format!("!{count}"))?,
                    }
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "trial state x what a user does")?;
        write!(f, "  {:<18}", "")?;
        for action in UserAction::ALL {
            write!(f, "{:>14}", format!("{action:?}"))?;
        }
        writeln!(f)?;
        for (place, state) in TrialState::ALL.iter().enumerate() {
            write!(f, "  {:<18}", state.as_str())?;
            for action in UserAction::ALL {
                let count = self.actions.get(&(place, action)).copied().unwrap_or(0);
                write!(f, "{count:>14}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
