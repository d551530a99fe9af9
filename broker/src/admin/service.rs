//! The operators' side of the driver.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use runwhere_model::ProviderId;

use crate::driver::{Core, Counted, SweepError, SweepReport, Sweeper};
use crate::serve::Restored;
use crate::store::StoreError;

/// Remembers, outside the database, that it is an older copy.
pub trait RestoreGuard: fmt::Debug + Send + Sync + 'static {
    /// What was noticed and is not confirmed yet.
    fn restored(&self) -> Option<Restored>;
    /// An operator has confirmed it; the database has come as far as `position`.
    fn confirm(&self, position: u64) -> Result<bool, String>;
}

impl RestoreGuard for crate::serve::Marker {
    fn restored(&self) -> Option<Restored> {
        Self::restored(self)
    }

    fn confirm(&self, position: u64) -> Result<bool, String> {
        Self::confirm(self, position).map_err(|error| error.to_string())
    }
}

/// What the operators' routes need besides the store.
#[async_trait]
pub trait AdminService: fmt::Debug + Send + Sync + 'static {
    /// Whether a provider is connected.
    fn is_connected(&self, provider: &ProviderId) -> bool;
    /// The connected providers.
    fn providers(&self) -> Vec<ProviderId>;
    /// A restore that is not confirmed yet.
    fn restored(&self) -> Option<Restored>;
    /// Confirms it: launches and the sweeper go on. False when there was nothing to confirm.
    async fn confirm_restore(&self) -> Result<bool, StoreError>;
    /// Sweeps a provider now, or tells what a sweep would come to.
    async fn sweep(&self, provider: &ProviderId, apply: bool) -> Result<SweepReport, SweepError>;
    /// Counters since the server's start.
    fn counted(&self) -> Counted;
    /// Trials that cannot be stepped and are left alone for a while.
    fn quarantined(&self) -> usize;
}

/// The real one.
#[derive(Debug)]
pub struct Admin {
    core: Arc<Core>,
    sweeper: Arc<Sweeper>,
    guard: Arc<dyn RestoreGuard>,
}

impl Admin {
    /// Over a driver; holds its launches while a restore is not confirmed.
    pub fn new(core: Arc<Core>, sweeper: Arc<Sweeper>, guard: Arc<dyn RestoreGuard>) -> Self {
        core.hold(guard.restored().is_some());
        Self { core, sweeper, guard }
    }
}

#[async_trait]
impl AdminService for Admin {
    fn is_connected(&self, provider: &ProviderId) -> bool {
        self.core.is_connected(provider)
    }

    fn providers(&self) -> Vec<ProviderId> {
        self.sweeper.providers().cloned().collect()
    }

    fn restored(&self) -> Option<Restored> {
        self.guard.restored()
    }

    async fn confirm_restore(&self) -> Result<bool, StoreError> {
        let position = self.core.store().position().await?;
        let guard = Arc::clone(&self.guard);
        // It waits for the disk.
        let confirmed = tokio::task::spawn_blocking(move || guard.confirm(position)).await;
        let confirmed = confirmed.unwrap_or_else(|error| Err(error.to_string()));
        let confirmed = confirmed.map_err(StoreError::Failed)?;
        if confirmed {
            tracing::warn!("The restored database is confirmed: launches and the sweeper go on");
        }
        self.core.hold(self.guard.restored().is_some());
        Ok(confirmed)
    }

    async fn sweep(&self, provider: &ProviderId, apply: bool) -> Result<SweepReport, SweepError> {
        match apply {
            true => self.sweeper.sweep_now(provider).await,
            false => self.sweeper.dry_run(provider).await,
        }
    }

    fn counted(&self) -> Counted {
        self.core.metrics().read()
    }

    fn quarantined(&self) -> usize {
        self.core.quarantined()
    }
}
