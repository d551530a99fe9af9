//! The driver's parts and its one way to change a unit.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_engine::event::EVENT_VERSION;
use runwhere_engine::{
    Block, Blocks, BudgetContext, Context, EventRecord, FreshLease, Job, Lease, Policy,
    PriceSnapshot, Step, StepError, Subject, Trial, TrialState, Unit, sabotage,
};
use runwhere_failpoint::failpoint;
use runwhere_model::{DeploymentId, LeaseId, OfferKey, Secret, TrialId};
use runwhere_providers::{Clock, Registry};
use sha2::Digest;

use super::line::Lines;
use super::metrics::Metrics;
use super::points;
use super::run::Busy;
use super::signals::{AgentPresence, Signals};
use super::transition::transition;
use crate::ports::{Generation, Ids, PlatformLog, Prices};
use crate::store::{Store, StoreError};

/// What a driver is made of.
#[derive(Debug)]
pub struct CoreParts {
    /// Rows.
    pub store: Arc<dyn Store>,
    /// Connected providers.
    pub registry: Registry,
    /// The catalogue.
    pub prices: Arc<dyn Prices>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn Ids>,
    /// Lines that the platform adds to logs.
    pub log: Arc<dyn PlatformLog>,
    /// Timings and limits.
    pub policy: Policy,
    /// This installation.
    pub deployment: DeploymentId,
    /// Where agents reach us.
    pub broker_url: String,
    /// A certificate agents are to trust in addition, PEM.
    pub ca_pem: Option<String>,
    /// Key from which lease tokens are derived.
    pub token_key: Secret,
}

/// How often a step is decided anew because a row was changed meanwhile, before the caller waits.
const STALE_TRIES: u32 = 64;

/// Why a unit could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// There is no such trial.
    #[error("no such trial")]
    NotFound,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine refused.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The step broke off; nothing is known to be written.
    #[error("the step broke off")]
    Broken,
}

/// A unit before and after a change.
#[derive(Debug)]
pub struct Stepped {
    /// The unit as it is now.
    pub unit: Unit,
    /// Something was written.
    pub changed: bool,
}

/// The driver: one per process, shared by the HTTP routes and the wake-up loop.
#[derive(Debug)]
pub struct Core {
    pub(crate) parts: CoreParts,
    pub(crate) signals: Signals,
    pub(crate) presence: Arc<AgentPresence>,
    /// Held while a job is admitted, by whatever door: two at once must not both take the last of
    /// a quota or a budget.
    pub(crate) admitting: tokio::sync::Mutex<()>,
    pub(crate) owner: String,
    pub(super) busy: Arc<Busy>,
    pub(super) metrics: Metrics,
    held: AtomicBool,
    /// No other process works on the rows.
    pub(super) alone: AtomicBool,
    generation: OnceLock<Arc<dyn Generation>>,
    started_at: Timestamp,
    pub(super) lines: Lines,
    blocks: Mutex<Blocks>,
    locks: Mutex<HashMap<TrialId, Weak<tokio::sync::Mutex<()>>>>,
    /// Trials with a commit of unknown outcome.
    untold: Mutex<HashSet<TrialId>>,
}

impl Core {
    /// A driver over its parts.
    pub fn new(parts: CoreParts) -> Arc<Self> {
        let owner = parts.ids.hex(8);
        let started_at = parts.clock.now();
        Arc::new(Self {
            started_at,
            parts,
            signals: Signals::default(),
            presence: Arc::default(),
            admitting: tokio::sync::Mutex::default(),
            owner,
            busy: Arc::default(),
            metrics: Metrics::default(),
            held: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            generation: OnceLock::new(),
            lines: Lines::default(),
            blocks: Mutex::default(),
            locks: Mutex::default(),
            untold: Mutex::default(),
        })
    }

    /// Holds launches, and the ending of nodes that nobody owns: after a restore the rows may be
    /// older than what really runs.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
        self.signals.ring();
    }

    /// From now on `generation` is told before each launch. To be called once, at the start.
    pub fn keep_generation(&self, generation: Arc<dyn Generation>) {
        // A second one would be told the same.
        let _ = self.generation.set(generation);
    }

    /// What is launched is known to every copy of the database that is not older than this.
    pub(super) async fn note_launch(&self) {
        let Some(generation) = self.generation.get() else { return };
        match self.parts.store.position().await {
            Ok(position) => generation.launching(position).await,
            Err(error) => tracing::warn!(%error, "How far the database is cannot be told"),
        }
    }

    /// Whether launches are held.
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Counters for monitoring.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How many trials are left alone for a while because they cannot be stepped.
    pub fn quarantined(&self) -> usize {
        self.busy.failing()
    }

    /// Whether a provider is connected.
    pub fn is_connected(&self, provider: &runwhere_model::ProviderId) -> bool {
        self.parts.registry.get(provider).is_some()
    }

    /// Change counters.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.parts.store
    }

    /// The one way to change a unit: loads it, lets `decide` step it, writes the step whole,
    /// tells everyone and makes the provider call that it asks for. Another writer's change in
    /// between means: read again and decide anew.
    pub(crate) async fn step(
        self: &Arc<Self>,
        trial: &TrialId,
        recovering: bool,
        decide: impl Fn(Unit, &Context<'_>) -> Result<Step, StepError> + Send + Sync,
    ) -> Result<Stepped, DriveError> {
        let lock = self.lock_of(trial);
        let _guard = lock.lock().await;
        let mut tries = 0;
        loop {
            let loaded = self.parts.store.unit(trial).await?;
            let Some((job, row, lease)) = loaded else { return Err(DriveError::NotFound) };
            let unit = Unit { job, trial: row, lease };
            let offer = unit.job.terms(unit.trial.index).offer;
            let capabilities = self.parts.registry.get(&offer.provider).map(|p| p.capabilities());
            let launching = match &unit.lease {
                None => unit.trial.state == TrialState::Queued,
                Some(lease) => lease.state.is_terminal() && unit.trial.state == TrialState::Queued,
            };
            let now = self.parts.clock.now();
            let blocked = self.block_of(&unit, now);
            let context = Context {
                now,
                policy: &self.parts.policy,
                owner: &self.owner,
                started_at: self.started_at,
                recovering,
                alone: self.alone.load(Ordering::Acquire),
                price: self.price_of(offer),
                capabilities,
                blocked: blocked.as_ref(),
                budget: self.budget_of(&unit).await?,
                fresh: launching.then(|| self.fresh_lease()),
                agent_seen: unit
                    .lease
                    .as_ref()
                    .and_then(|lease| self.presence.seen(&lease.id, now)),
                siblings_ended: self.siblings_ended(&unit).await?,
                held: self.is_held(),
            };
            let step = decide(unit.clone(), &context)?;
            drop(context);
            let transition = transition(&unit, &step, now);
            let changed = !transition.rows.is_empty() || !transition.events.is_empty();
            if sabotage!(CallBeforeCommit)
                && let Some(call) = &step.call
            {
                self.spawn_call(step.unit.clone(), call.clone());
            }
            if changed {
                failpoint!("driver.step.decided");
                if step.unit.trial.state.is_terminal() && !unit.trial.state.is_terminal() {
                    // If this process ends before it has told of the end, the next one does.
                    self.parts.log.begin(&unit.trial.id).await;
                }
                match self.parts.store.commit(transition).await {
                    Ok(()) => {}
                    // Somebody else was quicker: again, but never for ever under the lock.
                    Err(StoreError::Stale { .. }) if tries < STALE_TRIES => {
                        tries += 1;
                        continue;
                    }
                    Err(error) => {
                        // It may be written all the same: then nobody was told.
                        if matches!(error, StoreError::Failed(_)) {
                            self.tell_later(trial.clone());
                        }
                        return Err(error.into());
                    }
                }
            }
            points::entered(&unit, &step.unit, changed);
            self.tell_people(&step.events);
            // The call first: it is waited for, and telling can take its time.
            if let Some(call) = step.call.filter(|_| !sabotage!(CallBeforeCommit)) {
                self.spawn_call(step.unit.clone(), call);
            }
            self.tell(&step.unit, changed).await;
            failpoint!("driver.step.told");
            return Ok(Stepped { unit: step.unit, changed });
        }
    }

    /// [`step`](Self::step) in a task of its own, so that a caller who goes away meanwhile (a
    /// closed connection) cannot break it off between the commit and what follows from it.
    pub(crate) async fn step_to_end(
        self: &Arc<Self>,
        trial: TrialId,
        recovering: bool,
        decide: impl Fn(Unit, &Context<'_>) -> Result<Step, StepError> + Send + Sync + 'static,
    ) -> Result<Stepped, DriveError> {
        let core = Arc::clone(self);
        let step = tokio::spawn(async move { core.step(&trial, recovering, decide).await });
        step.await.unwrap_or(Err(DriveError::Broken))
    }

    /// Steps until it is durable: for outcomes that must not be lost while the store is full or
    /// failing.
    pub(crate) async fn step_until_durable(
        self: &Arc<Self>,
        trial: &TrialId,
        decide: impl Fn(Unit, &Context<'_>) -> Result<Step, StepError> + Send + Sync,
    ) {
        loop {
            match self.step(trial, false, &decide).await {
                Ok(_) | Err(DriveError::NotFound) => return,
                Err(error @ (DriveError::Step(_) | DriveError::Broken)) => {
                    // The call counts as lost once its time is over.
                    tracing::error!(trial.id = %trial, %error, "Outcome could not be applied");
                    return;
                }
                Err(DriveError::Store(error)) => {
                    tracing::warn!(trial.id = %trial, %error, "Outcome is held until it can be stored");
                    self.parts.clock.sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Says aloud what people must see.
    pub(super) fn tell_people(&self, events: &[EventRecord]) {
        for event in events.iter().filter(|event| event.is_alert()) {
            self.metrics.alert(&event.kind);
            let of = |id: Option<&str>| id.unwrap_or("-").to_owned();
            tracing::error!(
                kind = event.kind,
                project.id = %event.project,
                job.id = of(event.subject.job.as_ref().map(|id| id.as_str())),
                lease.id = of(event.subject.lease.as_ref().map(|id| id.as_str())),
                details = %event.payload,
                "A node may cost money that nobody wants to pay; see `runwhere admin leases`"
            );
        }
    }

    /// Tells of a trial as it is stored, once that can be read.
    fn tell_later(self: &Arc<Self>, trial: TrialId) {
        let untold = || self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        if !untold().insert(trial.clone()) {
            return;
        }
        let core = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                core.parts.clock.sleep(Duration::from_secs(1)).await;
                if let Ok(stored) = core.parts.store.unit(&trial).await {
                    core.untold.lock().unwrap_or_else(PoisonError::into_inner).remove(&trial);
                    if let Some((job, trial, lease)) = stored {
                        core.tell(&Unit { job, trial, lease }, true).await;
                    }
                    return;
                }
            }
        });
    }

    /// Closes the logs of trials that ended when there was no process to do it.
    pub(super) async fn close_logs(self: Arc<Self>) {
        for trial in self.parts.log.unsealed().await {
            match self.parts.store.unit(&trial).await {
                Ok(Some((job, trial, lease))) if trial.state.is_terminal() => {
                    self.parts.log.observe(&Unit { job, trial, lease }).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(trial.id = %trial, %error, "A log could not be closed");
                }
            }
        }
    }

    async fn tell(&self, unit: &Unit, changed: bool) {
        if changed {
            self.parts.log.observe(unit).await;
        }
        if changed {
            if let Some(lease) = &unit.lease
                && lease.state.is_terminal()
            {
                self.presence.forget(&lease.id);
            }
            self.signals.changed(unit.trial.id.as_str());
            self.signals.changed(unit.job.id.as_str());
            self.signals.ring();
        }
    }

    async fn siblings_ended(&self, unit: &Unit) -> Result<bool, StoreError> {
        if unit.job.trials.len() <= 1 {
            return Ok(true);
        }
        let view = self.parts.store.job(&unit.job.project, &unit.job.id).await?;
        Ok(view.is_none_or(|view| {
            view.trials
                .iter()
                .filter(|(trial, _)| trial.id != unit.trial.id)
                .all(|(trial, _)| trial.state.is_terminal())
        }))
    }

    async fn budget_of(&self, unit: &Unit) -> Result<Option<BudgetContext>, StoreError> {
        // Only a step that begins, charges or ends a lease touches the budget.
        let Some(budget) = self.parts.store.budget(&unit.job.project).await? else {
            return Ok(None);
        };
        let rate = self
            .parts
            .prices
            .rate(unit.job.terms(unit.trial.index).ceiling.currency, budget.currency);
        Ok(Some(BudgetContext { budget, rate }))
    }

    pub(super) fn price_of(&self, key: &OfferKey) -> Option<PriceSnapshot> {
        let offer = self.parts.prices.offer(key).filter(|offer| offer.launchable)?;
        Some(PriceSnapshot {
            price: offer.price.state.known()?,
            source: offer.price.source,
            observed_at: offer.price.observed_at,
            snapshot: self.parts.prices.snapshot(),
        })
    }

    fn fresh_lease(&self) -> FreshLease {
        let id = LeaseId::new(format!("lease-{}", self.parts.ids.hex(8)))
            .expect("hexadecimal digits are valid in an id");
        let lease_token_sha256 = sha256_hex(self.lease_token(&id).expose().as_bytes());
        FreshLease { id, lease_token_sha256 }
    }

    /// The one-time token of a lease's agent. It is derived, not stored: a restarted broker can
    /// launch with the same token, and the database never holds it.
    pub(super) fn lease_token(&self, lease: &LeaseId) -> Secret {
        use hmac::{Hmac, KeyInit, Mac};
        let mut mac =
            Hmac::<sha2::Sha256>::new_from_slice(self.parts.token_key.expose().as_bytes())
                .expect("HMAC takes keys of any length");
        mac.update(b"lease-token\0");
        mac.update(lease.as_str().as_bytes());
        Secret::new(hex::encode(mac.finalize().into_bytes()))
    }

    /// The audit event of an accepted job.
    pub(crate) fn created_event(&self, job: &Job, trial: &Trial) -> EventRecord {
        let mut event = self.job_event(job, "job.created");
        event.subject.trial = Some(trial.id.clone());
        event.payload = serde_json::json!({
            "offer": job.terms(trial.index).offer,
            "ceiling": job.terms(trial.index).ceiling,
            "max_price": job.spec.max_price,
            "decided": job.spec.decided,
            "snapshot": self.parts.prices.snapshot(),
            "sync": job.spec.sync,
            "resumed": job.resumed,
        });
        event
    }

    /// An audit event of a job.
    pub(crate) fn job_event(&self, job: &Job, kind: &str) -> EventRecord {
        EventRecord {
            version: EVENT_VERSION,
            at: self.parts.clock.now(),
            workspace: job.workspace.clone(),
            project: job.project.clone(),
            subject: Subject { job: Some(job.id.clone()), ..Subject::default() },
            kind: kind.to_owned(),
            payload: serde_json::json!({}),
        }
    }

    /// What was refused lately, to change or to read.
    pub(super) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block_of(&self, unit: &Unit, now: Timestamp) -> Option<Block> {
        let offer = &unit.job.terms(unit.trial.index).offer;
        self.blocks().of(offer, now).cloned()
    }

    fn lock_of(&self, trial: &TrialId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(trial).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() > 1024 {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(trial.clone(), Arc::downgrade(&lock));
        lock
    }
}

/// Lower-case hexadecimal SHA-256.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(sha2::Sha256::digest(bytes))
}

/// Whether a lease belongs to the connected providers; a lease of a removed one is held, never
/// forgotten.
pub(super) fn provider_missing(core: &Core, lease: &Lease) -> bool {
    core.parts.registry.get(&lease.offer.provider).is_none()
}
