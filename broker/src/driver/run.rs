//! The wake-up loop: what is due is woken, nothing is scanned.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::TrialId;

use super::core::{Core, DriveError, provider_missing};
use crate::store::{Due, StoreError};

/// How many due rows are taken at a time.
const BATCH: u32 = 256;
/// Longest sleep, so that a changed clock is noticed.
const LONGEST: Duration = Duration::from_secs(30);

impl Core {
    /// Takes up what an earlier process left: its calls are taken for lost, everything else goes
    /// on where it was. To be called once, before anything else changes units.
    pub async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        for lease in self.parts.store.open_leases().await? {
            if provider_missing(self, &lease) {
                tracing::error!(
                    lease.id = %lease.id, provider.id = %lease.offer.provider,
                    "A lease of a provider that is not connected any more is held; connect it again to release the node"
                );
            }
            match self.step(&lease.trial, true, |unit, context| unit.wake(context)).await {
                Ok(_) | Err(DriveError::NotFound) => {}
                Err(DriveError::Store(error)) => return Err(error),
                Err(DriveError::Step(error)) => {
                    tracing::error!(lease.id = %lease.id, %error, "Lease could not be recovered");
                }
            }
        }
        Ok(())
    }

    /// Wakes what is due, for ever.
    pub async fn run(self: Arc<Self>) {
        let busy: Arc<Mutex<HashSet<TrialId>>> = Arc::default();
        loop {
            let now = self.parts.clock.now();
            let pause = match self.wake_due(now, &busy).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(%error, "The store cannot say what is due");
                    self.after(Duration::from_secs(1))
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
        busy: &Arc<Mutex<HashSet<TrialId>>>,
    ) -> Result<Timestamp, StoreError> {
        let due = self.parts.store.due(now, BATCH).await?;
        for due in due {
            let trial = match due {
                Due::Trial(trial) => trial,
                Due::Lease(lease) => match self.parts.store.lease(&lease).await? {
                    Some(lease) => lease.trial,
                    None => continue,
                },
            };
            if !busy.lock().unwrap_or_else(PoisonError::into_inner).insert(trial.clone()) {
                continue;
            }
            let (core, busy) = (Arc::clone(self), Arc::clone(busy));
            tokio::spawn(async move {
                let result = core.step(&trial, false, |unit, context| unit.wake(context)).await;
                match result {
                    Ok(stepped) if stepped.changed => {}
                    // Nothing to do or nothing could be written: not again at once.
                    Ok(_) => core.parts.clock.sleep(Duration::from_millis(200)).await,
                    Err(error) => {
                        tracing::warn!(trial.id = %trial, %error, "Wake-up failed");
                        core.parts.clock.sleep(Duration::from_secs(1)).await;
                    }
                }
                busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&trial);
                core.signals.ring();
            });
        }
        let next = self.parts.store.next_due().await?;
        let longest = self.after(LONGEST);
        // What is due now is being worked on; its end rings.
        Ok(next.filter(|at| *at > now).map_or(longest, |at| at.min(longest)))
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
