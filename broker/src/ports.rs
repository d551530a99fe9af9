//! What the driver needs of the world besides [`Store`](crate::store::Store),
//! [`Provider`](runwhere_providers::Provider) and [`Clock`](runwhere_providers::Clock).

use std::fmt;

use async_trait::async_trait;
use runwhere_engine::{FxRate, Unit};
use runwhere_model::{Currency, GpuCount, GpuModelId, Offer, OfferCode, OfferKey, TrialId};

/// Draws identifiers; the only source of randomness besides keys.
pub trait Ids: fmt::Debug + Send + Sync + 'static {
    /// So many random bytes as lower-case hexadecimal text.
    fn hex(&self, bytes: usize) -> String;
}

/// The machine's own randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    fn hex(&self, bytes: usize) -> String {
        let mut buffer = vec![0; bytes];
        getrandom::fill(&mut buffer).expect("the system's randomness is available");
        hex::encode(buffer)
    }
}

/// The catalogue, as far as submits and launches need it.
pub trait Prices: fmt::Debug + Send + Sync + 'static {
    /// An offer by its key.
    fn offer(&self, key: &OfferKey) -> Option<Offer>;
    /// The key a code stands for; `None` when unknown or ambiguous.
    fn by_code(&self, code: OfferCode) -> Option<OfferKey>;
    /// The best offers for whole GPUs of a model: launchable ones first.
    fn best(&self, model: GpuModelId, count: GpuCount) -> Vec<Offer>;
    /// Names what a typo may have meant.
    fn suggest(&self, text: &str) -> Vec<GpuModelId>;
    /// The rate to decide with; `None` when there is none or it is too old.
    fn rate(&self, from: Currency, to: Currency) -> Option<FxRate>;
    /// Names the catalogue as it is now.
    fn snapshot(&self) -> String;
}

/// Space for what is new, beside what running jobs still have to write.
pub trait Room: fmt::Debug + Send + Sync + 'static {
    /// Whether so many more bytes fit.
    fn fits(&self, bytes: u64) -> bool;
}

/// Space without end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl Room for Unbounded {
    fn fits(&self, _bytes: u64) -> bool {
        true
    }
}

/// Keeps, outside the database, how far it has come, so that a restored older copy is noticed.
#[async_trait]
pub trait Generation: fmt::Debug + Send + Sync + 'static {
    /// A launch follows; the database has come as far as `position`, its intent included.
    async fn launching(&self, position: u64);
}

/// Lines that the platform adds to a trial's log.
#[async_trait]
pub trait PlatformLog: fmt::Debug + Send + Sync + 'static {
    /// Takes note of a unit that changed: appends what its state implies and is not there yet, in
    /// order, and closes the log once nothing can follow. Harmless when repeated; a failure is
    /// made up for by the next call.
    async fn observe(&self, unit: &Unit);

    /// A trial is about to end: from here on [`unsealed`](Self::unsealed) names it, even if nothing
    /// was ever said of it, until its log is closed.
    async fn begin(&self, _trial: &TrialId) {}

    /// Trials whose logs are not closed, in a fixed order.
    async fn unsealed(&self) -> Vec<TrialId> {
        Vec::new()
    }
}

/// A log that keeps no platform lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlatformLog;

#[async_trait]
impl PlatformLog for NoPlatformLog {
    async fn observe(&self, _unit: &Unit) {}
}
