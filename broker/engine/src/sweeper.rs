//! Who sweeps a provider, and when: one row per provider.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::ProviderId;
use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::sweep::SweepCounts;
use crate::unit::{add, backoff};

/// The sweeper of one provider. Its row version fences: a process that lost the row to another
/// one cannot write what it found.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SweeperState {
    /// Which provider.
    pub provider: ProviderId,
    /// Row version, for the store's check.
    pub version: u64,
    /// Counts the turns.
    pub epoch: u64,
    /// Which process has the turn.
    pub owner: Option<String>,
    /// Until when.
    pub until: Option<Timestamp>,
    /// When the cloud is to be listed next.
    pub next_at: Timestamp,
    /// What the last list came to.
    pub last: Option<SweepCounts>,
    /// When the last complete list was asked for.
    pub complete_at: Option<Timestamp>,
    /// Lists in a row that failed.
    pub failures: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
}

/// The answer to a process that wants to sweep.
#[derive(Clone, Debug)]
pub enum Claim {
    /// It has the turn once this row is written.
    Mine(Box<SweeperState>),
    /// Another one has it until then.
    Held(Timestamp),
}

impl SweeperState {
    /// A provider that was never swept: due at once.
    pub fn new(provider: ProviderId, now: Timestamp) -> Self {
        Self {
            provider,
            version: 0,
            epoch: 0,
            owner: None,
            until: None,
            next_at: now,
            last: None,
            complete_at: None,
            failures: 0,
            last_error: None,
        }
    }

    /// Takes the turn for a process, if nobody else has it.
    pub fn claim(&self, owner: &str, now: Timestamp, span: Duration) -> Claim {
        match (&self.owner, self.until) {
            (Some(other), Some(until)) if other != owner && now < until => Claim::Held(until),
            _ => Claim::Mine(Box::new(Self {
                epoch: self.epoch + 1,
                owner: Some(owner.to_owned()),
                until: Some(add(now, span)),
                ..self.clone()
            })),
        }
    }

    /// Gives the turn back.
    pub fn released(mut self) -> Self {
        self.owner = None;
        self.until = None;
        self
    }

    /// Takes in a list: the next one follows after the usual pause, or when a second look is due.
    pub fn swept(&mut self, counts: SweepCounts, again_at: Option<Timestamp>, policy: &Policy) {
        let at = counts.listed_at;
        if counts.complete {
            self.complete_at = Some(at);
        }
        self.failures = 0;
        self.last_error = None;
        self.last = Some(counts);
        let usual = add(at, policy.sweep_every);
        self.next_at = again_at.map_or(usual, |again| again.max(at).min(usual));
    }

    /// Takes in a failed list: again after a pause that grows.
    pub fn failed(&mut self, error: &str, wanted: Duration, policy: &Policy, now: Timestamp) {
        let pause = backoff(policy.poll * 5, policy.sweep_every * 4, self.failures);
        self.failures = self.failures.saturating_add(1);
        self.last_error = Some(error.to_owned());
        self.next_at = add(now, pause.max(wanted));
    }
}
