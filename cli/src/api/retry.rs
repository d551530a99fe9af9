//! When a call is made again, and after how long.

use std::time::Duration;

/// Calls are made at most this often.
pub(super) const ATTEMPTS: u32 = 4;
/// A server that asks for a longer pause than this is reported instead of waited for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Whether a call may be made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Reading, or an operation that the server recognises (an idempotency key, a hash): always.
    Safe,
    /// Only when the first request certainly never arrived.
    IfNotSent,
}

/// What became of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attempt {
    /// No connection was made.
    NotSent,
    /// The connection broke after the request was, perhaps, sent.
    Broken,
    /// The server answered with this status and this `Retry-After`.
    Status(u16, Option<Duration>),
}

/// The pause before the next attempt, or `None` to give up. `jitter` is in 0..=1000 (thousandths).
#[must_use]
pub(crate) fn pause(repeat: Repeat, made: u32, attempt: Attempt, jitter: u32) -> Option<Duration> {
    if made >= ATTEMPTS {
        return None;
    }
    let backoff = Duration::from_millis(500 * (1 << made.min(5)) / 2);
    let backoff = backoff / 2 + backoff.mul_f64(f64::from(jitter.min(1000)) / 1000.0);
    match (attempt, repeat) {
        (Attempt::NotSent, _) | (Attempt::Broken, Repeat::Safe) => Some(backoff),
        (Attempt::Broken, Repeat::IfNotSent) => None,
        // Throttled requests had no effect, whatever they were.
        (Attempt::Status(429, after), _) => bounded(after, backoff),
        (Attempt::Status(502..=504, after), Repeat::Safe) => bounded(after, backoff),
        // A server that names a time says that it did nothing yet.
        (Attempt::Status(503, after @ Some(_)), Repeat::IfNotSent) => bounded(after, backoff),
        (Attempt::Status(500, None), Repeat::Safe) => Some(backoff),
        (Attempt::Status(..), _) => None,
    }
}

fn bounded(after: Option<Duration>, backoff: Duration) -> Option<Duration> {
    match after {
        Some(after) if after > LONGEST_PAUSE => None,
        Some(after) => Some(after.max(backoff / 4)),
        None => Some(backoff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_answer_is_repeated_only_where_that_is_harmless() {
        assert!(pause(Repeat::Safe, 1, Attempt::Broken, 0).is_some());
        assert!(pause(Repeat::IfNotSent, 1, Attempt::Broken, 0).is_none());
        assert!(pause(Repeat::IfNotSent, 1, Attempt::NotSent, 0).is_some());
        assert!(pause(Repeat::IfNotSent, 1, Attempt::Status(502, None), 0).is_none());
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_minute() {
        let ask = |seconds| Attempt::Status(429, Some(Duration::from_secs(seconds)));
        assert_eq!(pause(Repeat::IfNotSent, 1, ask(7), 0), Some(Duration::from_secs(7)));
        assert_eq!(pause(Repeat::Safe, 1, ask(3600), 0), None);
    }

    #[test]
    fn errors_of_the_request_are_final_and_attempts_are_counted() {
        assert!(pause(Repeat::Safe, 1, Attempt::Status(404, None), 0).is_none());
        assert!(pause(Repeat::Safe, ATTEMPTS, Attempt::Broken, 0).is_none());
    }

    #[test]
    fn pauses_grow() {
        let at = |made| pause(Repeat::Safe, made, Attempt::Broken, 500).unwrap();
        assert!(at(1) < at(2) && at(2) < at(3));
    }
}
