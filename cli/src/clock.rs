//! The one real clock of the command line.

use std::time::{Duration, UNIX_EPOCH};

/// Time since 1970-01-01 UTC; zero if the machine's clock stands before it.
#[must_use]
pub fn since_epoch() -> Duration {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the machine's clock"
    )]
    std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
