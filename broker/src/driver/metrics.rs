//! What the driver counts for monitoring.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use runwhere_model::{ProviderError, ProviderId};

/// Counters since the process began.
#[derive(Debug, Default)]
pub struct Metrics {
    counted: Mutex<Counted>,
}

/// A copy of the counters.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// Provider calls by provider, operation, and outcome: `ok`, or the kind of error, with
    /// `_unknown` behind it where the call may have had an effect.
    pub calls: BTreeMap<(ProviderId, &'static str, String), u64>,
    /// Alerts that people were told, by kind.
    pub alerts: BTreeMap<String, u64>,
}

impl Metrics {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a provider call.
    pub(super) fn call(
        &self,
        provider: &ProviderId,
        operation: &'static str,
        error: Option<&ProviderError>,
    ) {
        let outcome = match error {
            None => "ok".to_owned(),
            Some(error) => match error.effect {
                runwhere_model::Effect::None => error.kind.as_str().to_owned(),
                runwhere_model::Effect::Possible => format!("{}_unknown", error.kind.as_str()),
            },
        };
        let mut counted = self.counted();
        *counted.calls.entry((provider.clone(), operation, outcome)).or_default() += 1;
    }

    /// Counts an alert.
    pub(super) fn alert(&self, kind: &str) {
        let mut counted = self.counted();
        *counted.alerts.entry(kind.to_owned()).or_default() += 1;
    }

    /// The counters now.
    pub fn read(&self) -> Counted {
        self.counted().clone()
    }
}
