//! The wake-up loop: what is due is woken, nothing is scanned.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_engine::{Context, Unit, sabotage};
use runwhere_failpoint::failpoint;
use runwhere_model::{LeaseId, ProviderId, TrialId};

use super::core::{Core, DriveError, provider_missing};
use crate::store::{Due, Row, StoreError, Transition};

/// How many due rows are taken at a time.
const BATCH: u32 = 256;
/// Longest sleep, so that a changed clock is noticed.
const LONGEST: Duration = Duration::from_secs(30);
/// Pause after a failed wake-up.
const RETRY: Duration = Duration::from_secs(1);
/// Pause after a wake-up that changed nothing.
const IDLE: Duration = Duration::from_millis(200);
/// Longest pause of a trial that cannot be stepped.
const QUARANTINE: Duration = Duration::from_secs(600);

/// Trials that are being woken, or held for a while after it; and how often in a row one could
/// not be stepped.
#[derive(Debug, Default)]
pub(super) struct Busy {
    state: Mutex<BusyState>,
}

#[derive(Debug, Default)]
struct BusyState {
    trials: HashSet<TrialId>,
    /// Ended leases whose bill is being asked for.
    settling: HashSet<LeaseId>,
    failures: HashMap<TrialId, u32>,
}

impl Busy {
    fn state(&self) -> MutexGuard<'_, BusyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many rows can be due at most on account of those that are at work.
    fn hidden(&self) -> u32 {
        let state = self.state();
        // A trial can be due twice, by itself and by its lease.
        let rows = state.trials.len().saturating_mul(2).saturating_add(state.settling.len());
        u32::try_from(rows).unwrap_or(u32::MAX)
    }

    /// False when it is busy already.
    fn begin(&self, trial: &TrialId) -> bool {
        self.state().trials.insert(trial.clone())
    }

    fn end(&self, trial: &TrialId) {
        self.state().trials.remove(trial);
    }

    /// How many could not be stepped the last time.
    pub(super) fn failing(&self) -> usize {
        self.state().failures.len()
    }

    fn failed(&self, trial: &TrialId) -> u32 {
        let mut state = self.state();
        let failures = state.failures.entry(trial.clone()).or_default();
        *failures = failures.saturating_add(1);
        *failures
    }

    fn recovered(&self, trial: &TrialId) {
        self.state().failures.remove(trial);
    }
}

/// The other processes that have worked on the rows which one that starts finds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Others {
    /// All of them have ended: the rows are locked for the one that starts.
    Ended,
    /// They may be at work now.
    MayLive,
}

impl Core {
    /// Takes up what earlier processes left; everything goes on where it was. To be called once,
    /// before anything else changes units.
    ///
    /// Calls of processes that have ended are taken for lost. Those of processes that may live are
    /// theirs until the time of each is over: what one of them launches in this very moment must
    /// not be looked for, missed and launched again.
    ///
    /// One that cannot be taken up is left to the wake-ups: it holds up neither the others nor
    /// the start.
    pub async fn recover(self: &Arc<Self>, others: Others) -> Result<(), StoreError> {
        self.alone.store(others == Others::Ended, Ordering::Release);
        let ended = others == Others::Ended || sabotage!(LivingTakenForLost);
        self.line_up().await?;
        let leases = self.parts.store.open_leases().await?;
        let mut missing: BTreeMap<ProviderId, Vec<String>> = BTreeMap::new();
        for lease in leases.iter().filter(|lease| provider_missing(self, lease)) {
            missing.entry(lease.offer.provider.clone()).or_default().push(lease.id.to_string());
        }
        for (provider, leases) in missing {
            tracing::error!(
                provider.id = %provider, leases = leases.len(), lease.ids = leases.join(" "),
                "The clean-up of leases is blocked: their provider is not connected any more. \
                 Connect it again to release the nodes; see `runwhere admin leases`"
            );
        }
        for lease in leases {
            failpoint!("start.lease_found");
            let wake = |unit: Unit, context: &Context<'_>| unit.wake(context);
            match self.step_to_end(lease.trial.clone(), ended, wake).await {
                Ok(_) | Err(DriveError::NotFound) => {}
                Err(error) => {
                    tracing::error!(lease.id = %lease.id, %error, "Lease could not be recovered");
                }
            }
        }
        match ended {
            true => self.take_back_sweeps().await,
            false => Ok(()),
        }
    }

    /// Ends the turns of sweepers that an earlier process died in: what it was ending goes on now,
    /// not when the turn would have been over.
    async fn take_back_sweeps(&self) -> Result<(), StoreError> {
        for row in self.parts.store.sweepers().await? {
            if row.owner.as_ref().is_none_or(|owner| *owner == self.owner) {
                continue;
            }
            let rows = vec![Row::Sweeper(row.released())];
            match self.parts.store.commit(Transition { rows, events: Vec::new() }).await {
                Ok(()) | Err(StoreError::Stale { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Wakes what is due, for ever.
    pub async fn run(self: Arc<Self>) {
        let busy = Arc::clone(&self.busy);
        tokio::spawn(Arc::clone(&self).close_logs());
        loop {
            let now = self.parts.clock.now();
            let pause = match self.wake_due(now, &busy).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(%error, "The store cannot say what is due");
                    self.after(RETRY)
                }
            };
            tokio::select! {
                biased;
                () = self.signals.rung() => {}
                () = self.parts.clock.sleep_until(pause) => {}
            }
        }
    }

    async fn wake_due(
        self: &Arc<Self>,
        now: Timestamp,
        busy: &Arc<Busy>,
    ) -> Result<Timestamp, StoreError> {
        // Those at work, or held after a failure, are still due: they must not hide the others.
        let due = self.parts.store.due(now, BATCH.saturating_add(busy.hidden())).await?;
        let mut wanted = Vec::new();
        for due in due {
            let trial = match due {
                Due::Trial(trial) => trial,
                Due::Lease(lease) => match self.parts.store.lease(&lease).await? {
                    Some(lease) if lease.state.is_terminal() => {
                        if busy.state().settling.insert(lease.id.clone()) {
                            let (core, busy) = (Arc::clone(self), Arc::clone(busy));
                            tokio::spawn(async move { core.settle_one(lease.id, &busy).await });
                        }
                        continue;
                    }
                    Some(lease) => lease.trial,
                    None => continue,
                },
            };
            wanted.push(trial);
        }
        let starting: Vec<TrialId> = wanted.into_iter().filter(|trial| busy.begin(trial)).collect();
        self.put_in_line(&starting).await;
        for trial in starting {
            let (core, busy) = (Arc::clone(self), Arc::clone(busy));
            tokio::spawn(async move { core.wake_one(trial, &busy).await });
        }
        let next = self.parts.store.next_due().await?;
        let longest = self.after(LONGEST);
        // What is due now is being worked on; its end rings.
        Ok(next.filter(|at| *at > now).map_or(longest, |at| at.min(longest)))
    }

    /// Wakes one trial and keeps it busy for as long as it is better not woken again.
    async fn wake_one(self: Arc<Self>, trial: TrialId, busy: &Busy) {
        let step = self.wake_in_turn(trial.clone()).await;
        let pause = match step {
            Ok(stepped) => {
                busy.recovered(&trial);
                // Nothing to do: not again at once.
                if stepped.changed { Duration::ZERO } else { IDLE }
            }
            Err(DriveError::NotFound) => RETRY,
            Err(DriveError::Store(error)) => {
                tracing::warn!(trial.id = %trial, %error, "Wake-up could not be stored");
                RETRY
            }
            // One that cannot be stepped is left alone for longer and longer; the others go on.
            Err(error @ (DriveError::Step(_) | DriveError::Broken)) => {
                let failures = busy.failed(&trial);
                tracing::error!(trial.id = %trial, failures, %error, "Trial cannot be stepped");
                RETRY.saturating_mul(1 << failures.min(16)).min(QUARANTINE)
            }
        };
        if !pause.is_zero() {
            self.parts.clock.sleep(pause).await;
        }
        busy.end(&trial);
        self.signals.ring();
    }

    /// Settles one ended lease by its provider's bill.
    async fn settle_one(self: Arc<Self>, lease: LeaseId, busy: &Busy) {
        if let Err(error) = self.settle_lease(&lease).await {
            tracing::warn!(lease.id = %lease, %error, "A lease could not be settled");
            self.parts.clock.sleep(RETRY * 10).await;
        }
        busy.state().settling.remove(&lease);
        self.signals.ring();
    }

    /// Looks at a trial after a pause unless its agent has come back by then.
    pub(crate) fn wake_if_silent(self: &Arc<Self>, trial: TrialId, pause: Duration) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let core = Arc::downgrade(self);
        let clock = Arc::clone(&self.parts.clock);
        runtime.spawn(async move {
            clock.sleep(pause).await;
            let Some(core) = core.upgrade() else { return };
            if let Err(error) = core.wake_silent(&trial).await {
                tracing::warn!(trial.id = %trial, %error, "Wake-up failed");
            }
        });
    }

    async fn wake_silent(self: &Arc<Self>, trial: &TrialId) -> Result<(), DriveError> {
        let Some((_, _, Some(lease))) = self.parts.store.unit(trial).await? else { return Ok(()) };
        let now = self.parts.clock.now();
        let heard = self.presence.seen(&lease.id, now);
        if lease.state.is_terminal() || heard.is_some_and(|at| at >= now) {
            return Ok(());
        }
        self.step(trial, false, |unit, context| unit.wake(context)).await.map(|_| ())
    }

    fn after(&self, span: Duration) -> Timestamp {
        self.parts.clock.now().checked_add(span).unwrap_or(Timestamp::MAX)
    }
}
