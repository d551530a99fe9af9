//! Refusals: of launches, and of ends.

use runwhere_model::{ErrorKind, ProviderError};
use serde_json::json;

use super::{StepError, Work, add};
use crate::block::Block;
use crate::hold::{Hold, Refusal};
use crate::job::EndReason;
use crate::lease::LeaseState;
use crate::trial::TrialState;

/// More refusals are not kept with a trial.
const REFUSALS: usize = 16;

impl Work<'_> {
    /// Keeps why no machine was to be had, per offer and kind.
    pub(super) fn note_refusal(&mut self, kind: ErrorKind, detail: &str) {
        let now = self.now();
        let offer = match &self.lease {
            Some(lease) => lease.offer.clone(),
            None => return,
        };
        let refusals = &mut self.trial.refusals;
        let same = refusals.iter().position(|one| one.offer == offer && one.kind == kind);
        let times = same.map_or(1, |at| refusals.remove(at).times.saturating_add(1));
        if refusals.len() >= REFUSALS {
            refusals.remove(0);
        }
        refusals.push(Refusal { offer, kind, times, at: now, detail: detail.to_owned() });
    }

    /// The answer to "why was there no machine?".
    pub(super) fn no_capacity(&self) -> EndReason {
        let refusals: Vec<String> = self.trial.refusals.iter().map(Refusal::to_string).collect();
        let detail = match (refusals.is_empty(), &self.trial.waiting_for) {
            (false, _) => refusals.join("; "),
            (true, Some(why)) => why.clone(),
            (true, None) => "queue".to_owned(),
        };
        EndReason::NoCapacity { detail }
    }

    /// Others were refused what this trial wants: it does not ask before the time is over. Where
    /// waiting does not help it ends as they did.
    pub(super) fn held_back(&mut self, block: &Block) -> Result<(), StepError> {
        let why = format!("{}: {}", block.kind.as_str(), block.detail);
        if block.is_final() {
            return self.end((TrialState::Failed, EndReason::LaunchRefused { detail: why }));
        }
        // Those who wait for the same thing do not all ask for it in one instant.
        let number: u32 = self.trial.id.as_str().bytes().map(u32::from).sum();
        let spread = block.pause / 64 * (number % 16);
        self.trial.waiting_for = Some(why);
        self.trial.next_at = Some(add(block.until, spread));
        Ok(())
    }

    /// The provider will not end the node now: said once, and shown until it does.
    pub(super) fn hold(&mut self, error: &ProviderError) {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return };
        if lease.state != LeaseState::Releasing || !Hold::is_one(error.kind) {
            return;
        }
        let until = error.retry_after.map(|pause| add(now, pause));
        let known = lease.hold.as_ref().filter(|hold| hold.kind == error.kind);
        let since = known.map_or(now, |hold| hold.since);
        let new = known.is_none();
        let detail = error.to_string();
        lease.hold = Some(Hold { kind: error.kind, since, until, detail: detail.clone() });
        let price = lease.price.price;
        if new {
            self.record(
                "lease.cleanup_blocked",
                json!({ "kind": error.kind, "error": detail, "until": until, "price": price }),
            );
        }
    }

    /// The provider takes the release again.
    pub(super) fn unhold(&mut self) {
        let held = self.lease.as_mut().and_then(|lease| lease.hold.take());
        if let Some(hold) = held {
            self.record("lease.cleanup_unblocked", json!({ "since": hold.since }));
        }
    }
}
