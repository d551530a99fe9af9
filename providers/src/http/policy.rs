//! How patient a session is.

use std::time::Duration;

/// Limits of one session with one provider.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Attempts for one call, the first included.
    pub attempts: u32,
    /// Wait before the first repetition; doubled each time.
    pub first_wait: Duration,
    /// No single wait is longer; a provider that asks for more ends the call.
    pub longest_wait: Duration,
    /// All waits of a session together.
    pub patience: Duration,
    /// Least span between two calls, where the provider states a rate.
    pub interval: Option<Duration>,
    /// The longest time for one attempt, its whole answer included: a server that drips bytes must
    /// not hold a reading for ever.
    pub longest_attempt: Duration,
    /// Most bytes of one answer.
    pub max_body: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 4,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            patience: Duration::from_secs(180),
            interval: None,
            longest_attempt: Duration::from_secs(300),
            max_body: 64 << 20,
        }
    }
}

impl Policy {
    /// With a least span between two calls.
    pub fn every(interval: Duration) -> Self {
        Self { interval: Some(interval), ..Self::default() }
    }

    /// With another limit for one answer.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }
}
