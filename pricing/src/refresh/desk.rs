//! The desk: where a reading is judged, taken or turned away, and kept. All of it works a processor or a
//! disk for a while, so it runs beside the threads that answer questions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{OfferSheet, ProviderError, ProviderId, SourceTerms};

use super::runner::Outcome;
use super::stage::{Staged, stage};
use super::state::SourceState;
use crate::catalogue::Trouble;
use crate::history::changes;
use crate::service::PriceService;
use crate::shard::{Limits, Shard};

/// The present state is written at least this often while only reading times change.
const SAVE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug)]
pub(super) struct Desk {
    service: Arc<PriceService>,
    states: Mutex<BTreeMap<ProviderId, SourceState>>,
    saved_at: Mutex<Option<Timestamp>>,
}

impl Desk {
    pub(super) fn new(
        service: Arc<PriceService>,
        states: BTreeMap<ProviderId, SourceState>,
    ) -> Self {
        Self { service, states: Mutex::new(states), saved_at: Mutex::new(None) }
    }

    pub(super) fn states(&self) -> MutexGuard<'_, BTreeMap<ProviderId, SourceState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a provider itself stated last.
    pub(super) fn live(&self, provider: &ProviderId) -> Option<Arc<Shard>> {
        self.service.catalogue().shard(provider).filter(|shard| shard.is_live()).cloned()
    }

    /// Judges what came of a reading, and takes it or keeps the last prices.
    pub(super) fn judge(
        &self,
        provider: &ProviderId,
        terms: &SourceTerms,
        last: Option<&Shard>,
        read: Result<OfferSheet, ProviderError>,
    ) -> Outcome {
        let now = self.service.now();
        let sheet = match read {
            Ok(sheet) => sheet,
            Err(error) => {
                tracing::warn!(%provider, %error, "Prices could not be read; the last ones stay");
                let trouble = Trouble::Failing { reason: error.to_string() };
                let after = error.retry_after.and_then(|d| SignedDuration::try_from(d).ok());
                return self.kept(provider, trouble, after);
            }
        };
        let unchanged = sheet.unchanged;
        // Held throughout: a decision that comes meanwhile must not be overwritten.
        let staged = {
            let mut states = self.states();
            let state = states.entry(provider.clone()).or_default();
            stage(last, sheet, terms, state, now)
        };
        match staged {
            Staged::Refuse(reason) => {
                tracing::warn!(%provider, reason, "A reading of prices is not believable; the last ones stay");
                self.kept(provider, Trouble::Refused { reason }, None)
            }
            Staged::Take(sheet) => {
                let limits = Limits {
                    max_age: signed(terms.max_age),
                    spot_max_age: signed(terms.spot_max_age),
                };
                self.take(provider, sheet, limits, last, unchanged, now)
            }
        }
    }

    fn take(
        &self,
        provider: &ProviderId,
        sheet: OfferSheet,
        limits: Limits,
        last: Option<&Shard>,
        unchanged: bool,
        now: Timestamp,
    ) -> Outcome {
        let complete = sheet.complete;
        let trouble = (!complete).then_some(Trouble::Partial { gaps: sheet.gaps.len() });
        self.service.take_sheet(provider, sheet, Some(limits), trouble.clone());
        self.states().entry(provider.clone()).or_default().taken(trouble, now);
        if unchanged {
            return Outcome::Unchanged;
        }
        let new = self.live(provider);
        let changed = self.note(provider, last, new.as_deref());
        let rows = new.map_or(0, |shard| shard.len());
        Outcome::Taken { rows, changed, complete }
    }

    /// Takes what a file states of a provider: no source is judged, but what changed is noted.
    pub(super) fn import(&self, provider: &ProviderId, sheet: OfferSheet) {
        let last = self.live(provider);
        self.service.replace_sheet(provider.clone(), sheet);
        self.note(provider, last.as_deref(), self.live(provider).as_deref());
    }

    /// Notes which prices changed; how many.
    fn note(&self, provider: &ProviderId, last: Option<&Shard>, new: Option<&Shard>) -> usize {
        let same = last.map(Shard::content) == new.map(Shard::content);
        let changed = if same { Vec::new() } else { changes(last, new) };
        // The first reading is no change.
        if last.is_some() {
            self.service.note_changes(provider, &changed);
        }
        changed.len()
    }

    /// Keeps the last prices, and says why.
    pub(super) fn kept(
        &self,
        provider: &ProviderId,
        trouble: Trouble,
        retry_after: Option<SignedDuration>,
    ) -> Outcome {
        self.service.set_trouble(provider, Some(trouble.clone()));
        let mut states = self.states();
        let state = states.entry(provider.clone()).or_default();
        state.failed(trouble.clone(), retry_after, self.service.now());
        Outcome::Kept(trouble)
    }

    /// Takes over what other processes put into the folder.
    pub(super) fn look(&self) {
        self.service.look(&self.states);
    }

    /// Keeps the state on disk where something changed, or where that was long ago.
    pub(super) fn save(&self, changed: bool) -> std::io::Result<()> {
        let now = self.service.now();
        let mut saved = self.saved_at.lock().unwrap_or_else(PoisonError::into_inner);
        let due = saved.is_none_or(|at| now.duration_since(at) >= SAVE);
        if changed || due {
            self.service.save(&self.states)?;
            *saved = Some(now);
        }
        Ok(())
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
