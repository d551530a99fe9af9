//! How a source stands: what was tried, what it gave, what waits for a decision.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{HourlyPrice, OfferKey, ProviderId, SourceTerms};
use serde::{Deserialize, Serialize};

use crate::catalogue::Trouble;

/// A price that jumped and is not served until somebody decides.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Quarantined {
    /// What is served.
    pub last: HourlyPrice,
    /// What the source says.
    pub new: HourlyPrice,
    /// Since when.
    pub since: Timestamp,
    /// In how many readings.
    pub readings: u32,
}

/// A quarantined price, with whose it is.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Waiting {
    /// Provider.
    pub provider: ProviderId,
    /// Offer.
    pub offer_key: OfferKey,
    /// What is served.
    pub served: HourlyPrice,
    /// What the source says.
    pub stated: HourlyPrice,
    /// Since when.
    pub since: Timestamp,
    /// In how many readings.
    pub readings: u32,
}

impl Waiting {
    /// All of some sources.
    pub(crate) fn all(states: &BTreeMap<ProviderId, SourceState>) -> Vec<Self> {
        let of = |(provider, state): (&ProviderId, &SourceState)| {
            let waiting = state.quarantine.iter().map(|(key, price)| Self {
                provider: provider.clone(),
                offer_key: key.clone(),
                served: price.last,
                stated: price.new,
                since: price.since,
                readings: price.readings,
            });
            waiting.collect::<Vec<_>>()
        };
        states.iter().flat_map(of).collect()
    }
}

/// What an operator decided about a price.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The price that was judged.
    pub price: HourlyPrice,
    /// Whether it may be served.
    pub accepted: bool,
}

/// What is remembered of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceState {
    /// When it was tried last.
    pub tried_at: Option<Timestamp>,
    /// When a reading was last taken, whole or in part.
    pub taken_at: Option<Timestamp>,
    /// Failed or refused readings since.
    pub failures: u32,
    /// Not before this.
    pub next_try: Option<Timestamp>,
    /// What is wrong.
    pub trouble: Option<Trouble>,
    /// Remarks on the last reading that are no trouble.
    pub notices: Vec<String>,
    /// When readings were begun within the last hour.
    pub readings: Vec<Timestamp>,
    /// Prices that wait for a decision.
    pub quarantine: BTreeMap<OfferKey, Quarantined>,
    /// Decisions.
    pub verdicts: BTreeMap<OfferKey, Verdict>,
    /// An operator takes the next reading as it comes.
    pub accept_next: bool,
    /// The next reading must be a whole one.
    pub reread: bool,
}

impl SourceState {
    /// Why a source is not read now; `None` = it is due.
    pub fn not_due(&self, terms: &SourceTerms, now: Timestamp, forced: bool) -> Option<NotDue> {
        if let Some(at) = self.next_try.filter(|at| now < *at && self.failures > 0) {
            return Some(NotDue::CoolDown(at));
        }
        let budget = terms.readings_per_hour as usize;
        let recent = self.recent(now);
        if recent >= budget {
            return Some(NotDue::Budget);
        }
        let taken = self.taken_at.filter(|_| !forced)?;
        let refresh = SignedDuration::try_from(terms.refresh).unwrap_or(SignedDuration::MAX);
        (self.failures == 0 && now.duration_since(taken) < refresh).then_some(NotDue::Fresh)
    }

    fn recent(&self, now: Timestamp) -> usize {
        let hour = SignedDuration::from_hours(1);
        self.readings.iter().filter(|at| now.duration_since(**at) < hour).count()
    }

    /// Notes that a reading begins.
    pub fn begin(&mut self, now: Timestamp) {
        let hour = SignedDuration::from_hours(1);
        self.readings.retain(|at| now.duration_since(*at) < hour);
        self.readings.push(now);
        self.tried_at = Some(now);
    }

    /// Notes that a reading was of no use; the next waits longer each time, or as long as the source
    /// says.
    pub fn failed(
        &mut self,
        trouble: Trouble,
        retry_after: Option<SignedDuration>,
        now: Timestamp,
    ) {
        self.failures = self.failures.saturating_add(1);
        let wait = SignedDuration::from_secs(30 << self.failures.saturating_sub(1).min(6));
        let wait = retry_after.map_or(wait, |after| after.max(wait));
        self.next_try = now.checked_add(wait).ok();
        self.trouble = Some(trouble);
    }

    /// Takes over what another process noted: all of it where it tried later or nothing happened here since it was
    /// `seen`, else what was decided there.
    pub(crate) fn take_over(&mut self, theirs: Self, seen: &Self) {
        if *self == *seen || theirs.tried_at > self.tried_at {
            *self = theirs;
            return;
        }
        for (key, verdict) in theirs.verdicts {
            if seen.verdicts.get(&key) == Some(&verdict) {
                continue;
            }
            self.quarantine.remove(&key);
            self.verdicts.insert(key, verdict);
            if verdict.accepted {
                (self.taken_at, self.reread) = (None, true);
            }
        }
    }

    /// Notes that a reading was taken.
    pub fn taken(&mut self, trouble: Option<Trouble>, now: Timestamp) {
        self.failures = 0;
        self.next_try = None;
        self.taken_at = Some(now);
        self.trouble = trouble;
        self.accept_next = false;
        self.reread = false;
    }
}

/// Why a source is not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotDue {
    /// Its prices are fresh.
    Fresh,
    /// It failed; not before this.
    CoolDown(Timestamp),
    /// It was read as often as it may be within an hour.
    Budget,
}

/// A source for people and metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Which.
    pub provider: ProviderId,
    /// `ok`, `partial`, `failing`, `refused`, `never`, `bundled`.
    pub status: String,
    /// How many offers are served.
    pub rows: usize,
    /// How many rows did not fit.
    pub rejected: usize,
    /// GPU names that no model is known for.
    pub unmapped: BTreeMap<String, usize>,
    /// Rows that stood twice.
    pub doubles: usize,
    /// Prices that wait for a decision.
    pub quarantined: usize,
    /// When the served prices were read.
    pub observed_at: Option<Timestamp>,
    /// Their age in seconds.
    pub age: Option<i64>,
    /// The age is above what the source's prices are good for.
    pub stale: bool,
    /// When it was tried last.
    pub tried_at: Option<Timestamp>,
    /// When it will be tried again, after failures.
    pub next_try: Option<Timestamp>,
    /// What is wrong, in words.
    pub reason: Option<String>,
    /// Parts that were not read.
    pub gaps: Vec<runwhere_model::Gap>,
    /// Remarks.
    pub notices: Vec<String>,
}
