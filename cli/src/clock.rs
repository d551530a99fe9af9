//! The machine's clock, as far as this package needs it.

use std::time::Duration;

use runwhere_providers::{Clock, SystemClock};

/// Time since 1970-01-01 UTC; zero if the machine's clock stands before it.
#[must_use]
pub fn since_epoch() -> Duration {
    let seconds = u64::try_from(SystemClock.now().as_second()).unwrap_or_default();
    Duration::from_secs(seconds)
}
