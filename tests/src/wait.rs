//! Waiting by polling, with a deadline.

use std::time::{Duration, Instant};

/// Calls `probe` until it gives a value, for at most 30 seconds.
///
/// # Panics
/// When the time is over; `what` says what never happened.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(30), what, probe)
}

/// As [`eventually`], with a time limit of its own.
///
/// # Panics
/// When the time is over.
pub fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
