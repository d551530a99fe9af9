//! The runner: reads due sources, one flight each.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use moka::future::Cache;
use runwhere_model::{OfferKey, OfferScope, OfferSheet, ProviderId};
use runwhere_providers::OfferSource;

use serde::Serialize;

use super::desk::Desk;
use super::state::{NotDue, SourceState, SourceStatus, Verdict, Waiting};
use crate::catalogue::Trouble;
use crate::service::PriceService;
use crate::shard::{Limits, Shard};

/// How often sources are looked through for one that is due.
const LOOK: Duration = Duration::from_secs(10);

/// What came of an attempt.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "code", content = "params", rename_all = "snake_case")]
pub enum Outcome {
    /// The prices were swapped in.
    Taken {
        /// Offers served now.
        rows: usize,
        /// Prices that changed.
        changed: usize,
        /// The reading was whole.
        complete: bool,
    },
    /// The source said that nothing changed; nothing was downloaded.
    Unchanged,
    /// The last good prices stay.
    Kept(Trouble),
    /// Not tried.
    NotTried(NotDue),
}

/// Why something cannot be refreshed or decided.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RefreshError {
    /// No such source.
    #[error("no price source is named {0}")]
    Unknown(String),
    /// No such decision.
    #[error("no price of {0} waits for a decision")]
    NothingToDecide(OfferKey),
    /// Decided, but gone after a restart.
    #[error("the decision could not be kept on disk: {0}")]
    NotKept(String),
}

/// Reads sources and keeps their state.
#[derive(Debug)]
pub struct Refresher {
    service: Arc<PriceService>,
    sources: BTreeMap<ProviderId, Arc<dyn OfferSource>>,
    desk: Arc<Desk>,
    /// Attempts that are under way: who asks meanwhile gets the same outcome. Nothing stays in it,
    /// so that its own clock plays no part.
    flights: Cache<ProviderId, Arc<Outcome>>,
}

impl Refresher {
    /// A runner for sources; what the service keeps on disk says how they stood.
    pub fn new(
        service: Arc<PriceService>,
        sources: impl IntoIterator<Item = Arc<dyn OfferSource>>,
    ) -> Self {
        let sources: BTreeMap<ProviderId, Arc<dyn OfferSource>> =
            sources.into_iter().map(|source| (source.id().clone(), source)).collect();
        let mut states = service.kept_sources();
        states.retain(|provider, _| sources.contains_key(provider));
        for provider in sources.keys() {
            states.entry(provider.clone()).or_default();
        }
        // What an account or an own machine offered is not offered without it.
        for shard in service.catalogue().shards() {
            if shard.is_own() && !sources.contains_key(shard.provider()) {
                service.remove_sheet(shard.provider());
            }
        }
        let desk = Arc::new(Desk::new(Arc::clone(&service), states));
        Self { service, sources, desk, flights: Cache::new(1024) }
    }

    /// The service that is kept fresh.
    pub fn service(&self) -> &Arc<PriceService> {
        &self.service
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<ProviderId, SourceState>> {
        self.desk.states()
    }

    /// Reads every source that is due, all at once.
    pub async fn refresh_due(&self) -> Vec<(ProviderId, Outcome)> {
        let all = self.sources.keys().map(|provider| async move {
            let outcome = self.flight(provider, false).await;
            outcome.map(|outcome| (provider.clone(), outcome.as_ref().clone()))
        });
        let outcomes: Vec<_> = join_all(all).await.into_iter().flatten().collect();
        let tried = |(_, outcome): &(ProviderId, Outcome)| !matches!(outcome, Outcome::NotTried(_));
        if outcomes.iter().any(tried) {
            self.save(outcomes.iter().any(|(_, outcome)| changed(outcome))).await;
        }
        outcomes
    }

    /// Reads one source now, though its prices may be fresh; its cool-down and budget hold.
    pub async fn refresh(&self, provider: &ProviderId) -> Result<Outcome, RefreshError> {
        let outcome = self
            .flight(provider, true)
            .await
            .ok_or_else(|| RefreshError::Unknown(provider.to_string()))?;
        self.save(changed(&outcome)).await;
        Ok(outcome.as_ref().clone())
    }

    /// Reads every source now; cool-downs and budgets hold.
    pub async fn refresh_all(&self) -> Vec<(ProviderId, Outcome)> {
        let all = self.sources.keys().map(|provider| async move {
            let outcome = self.flight(provider, true).await;
            outcome.map(|outcome| (provider.clone(), outcome.as_ref().clone()))
        });
        let outcomes = join_all(all).await.into_iter().flatten().collect();
        self.save(true).await;
        outcomes
    }

    /// Keeps all sources fresh, for ever, and sees what other processes put into the folder.
    pub async fn keep_fresh(self: Arc<Self>) {
        loop {
            self.service.clock().sleep(LOOK).await;
            self.look().await;
            self.refresh_due().await;
        }
    }

    /// Takes over what other processes put into the folder: imports, decisions, readings.
    pub async fn look(&self) {
        let desk = Arc::clone(&self.desk);
        if let Err(error) = tokio::task::spawn_blocking(move || desk.look()).await {
            tracing::error!(%error, "The prices of other processes could not be read");
        }
    }

    async fn flight(&self, provider: &ProviderId, forced: bool) -> Option<Arc<Outcome>> {
        let source = self.sources.get(provider)?;
        let attempt = async { Arc::new(self.attempt(source.as_ref(), forced).await) };
        let outcome = self.flights.get_with(provider.clone(), attempt).await;
        self.flights.invalidate(provider).await;
        Some(outcome)
    }

    async fn attempt(&self, source: &dyn OfferSource, forced: bool) -> Outcome {
        let (provider, terms) = (source.id(), source.terms());
        let now = self.service.now();
        {
            let mut states = self.states();
            let state = states.entry(provider.clone()).or_default();
            if let Some(why) = state.not_due(&terms, now, forced) {
                return Outcome::NotTried(why);
            }
            state.begin(now);
        }
        let last = self.desk.live(provider);
        // After a decision "unchanged" would leave out what was decided about.
        let decided = self.states().get(provider).is_some_and(|state| state.reread);
        let validator = last
            .as_ref()
            .filter(|shard| shard.complete() && !decided)
            .and_then(|shard| shard.validator().map(str::to_owned));
        let scope = OfferScope { validator, ..OfferScope::default() };
        let read = source.offers(&scope).await;
        // Judging and ordering many rows takes a processor a while, and questions must not wait for it.
        let (desk, id) = (Arc::clone(&self.desk), provider.clone());
        let judged =
            tokio::task::spawn_blocking(move || desk.judge(&id, &terms, last.as_deref(), read));
        judged.await.unwrap_or_else(|error| {
            tracing::error!(%provider, %error, "A reading of prices could not be judged; the last ones stay");
            let reason = "the reading could not be judged".to_owned();
            self.desk.kept(provider, Trouble::Failing { reason }, None)
        })
    }

    /// Takes what a file states of a provider, in place of what it stated so far.
    pub fn import(&self, provider: &ProviderId, sheet: OfferSheet) {
        self.desk.import(provider, sheet);
    }

    /// Keeps the present prices and decisions on disk, as after an import.
    pub fn keep(&self) -> std::io::Result<()> {
        self.desk.save(true)
    }

    /// Keeps the state on disk, away from the threads that answer. A failure is a warning: prices can be read again.
    async fn save(&self, changed: bool) {
        let desk = Arc::clone(&self.desk);
        let saved = tokio::task::spawn_blocking(move || desk.save(changed)).await;
        if let Err(error) = saved.unwrap_or_else(|stopped| Err(stopped.into())) {
            tracing::warn!(%error, "The prices could not be kept on disk");
        }
    }

    /// How the sources stand, and the providers of bundled or imported prices.
    pub fn status(&self) -> Vec<SourceStatus> {
        let now = self.service.now();
        let catalogue = self.service.catalogue();
        let states = self.states();
        let mut providers: Vec<ProviderId> = self.sources.keys().cloned().collect();
        providers.extend(catalogue.shards().iter().map(|shard| shard.provider().clone()));
        providers.sort();
        providers.dedup();
        let none = SourceState::default();
        providers
            .into_iter()
            .map(|provider| {
                let state = states.get(&provider).unwrap_or(&none);
                let shard = catalogue.shard(&provider).map(Arc::as_ref);
                status(provider, state, shard, catalogue.troubles(), now)
            })
            .collect()
    }

    /// Prices that wait for a decision, as they are answered.
    pub fn waiting(&self) -> Vec<Waiting> {
        Waiting::all(&self.states())
    }

    /// Prices that wait for a decision.
    pub fn quarantine(&self) -> Vec<(ProviderId, OfferKey, super::Quarantined)> {
        let states = self.states();
        let of = |(provider, state): (&ProviderId, &SourceState)| {
            let provider = provider.clone();
            let waiting = state.quarantine.clone();
            waiting.into_iter().map(move |(key, price)| (provider.clone(), key, price))
        };
        states.iter().flat_map(of).collect()
    }

    /// Decides about a quarantined price. An accepted one is served from the next reading on, which
    /// is due at once.
    pub fn decide(&self, key: &OfferKey, accepted: bool) -> Result<(), RefreshError> {
        let missing = || RefreshError::NothingToDecide(key.clone());
        {
            let mut states = self.states();
            let state = states.get_mut(&key.provider).ok_or_else(missing)?;
            let waiting = state.quarantine.remove(key).ok_or_else(missing)?;
            state.verdicts.insert(key.clone(), Verdict { price: waiting.new, accepted });
            if accepted {
                (state.taken_at, state.reread) = (None, true);
            }
        }
        self.keep().map_err(|error| RefreshError::NotKept(error.to_string()))
    }

    /// Takes a source's next reading as it comes, whatever moved or vanished.
    pub fn accept_next(&self, provider: &ProviderId) -> Result<(), RefreshError> {
        if !self.sources.contains_key(provider) {
            return Err(RefreshError::Unknown(provider.to_string()));
        }
        let mut states = self.states();
        let state = states.entry(provider.clone()).or_default();
        (state.accept_next, state.reread) = (true, true);
        (state.taken_at, state.next_try) = (None, None);
        Ok(())
    }
}

fn changed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Taken { changed, .. } => *changed > 0,
        Outcome::Kept(_) => true,
        Outcome::Unchanged | Outcome::NotTried(_) => false,
    }
}

fn status(
    provider: ProviderId,
    state: &SourceState,
    shard: Option<&Shard>,
    troubles: &BTreeMap<ProviderId, Trouble>,
    now: Timestamp,
) -> SourceStatus {
    let trouble = troubles.get(&provider).or(state.trouble.as_ref());
    let observed_at = shard.and_then(Shard::observed_at);
    let age = observed_at.map(|at| now.duration_since(at));
    let limits = shard.map_or_else(Limits::default, Shard::limits);
    let word = match (trouble, observed_at, shard) {
        (Some(Trouble::Failing { .. }), ..) => "failing",
        (Some(Trouble::Refused { .. }), ..) => "refused",
        (Some(Trouble::Partial { .. }), ..) => "partial",
        (None, Some(_), _) => "ok",
        (None, None, Some(_)) => "bundled",
        (None, None, None) => "never",
    };
    SourceStatus {
        status: word.to_owned(),
        rows: shard.map_or(0, Shard::len),
        rejected: shard.map_or(0, |shard| shard.rejected().len()),
        unmapped: shard.map_or_else(BTreeMap::new, |shard| shard.unmapped().clone()),
        doubles: shard.map_or(0, Shard::doubles),
        quarantined: state.quarantine.len(),
        observed_at,
        age: age.map(|age| age.as_secs().max(0)),
        stale: age.is_some_and(|age| age > limits.max_age),
        tried_at: state.tried_at,
        next_try: state.next_try,
        reason: trouble.map(|trouble| match trouble {
            Trouble::Failing { reason } | Trouble::Refused { reason } => reason.clone(),
            Trouble::Partial { gaps } => format!("{gaps} parts were not read"),
        }),
        gaps: shard.map_or_else(Vec::new, |shard| shard.gaps().to_vec()),
        notices: state.notices.clone(),
        provider,
    }
}
