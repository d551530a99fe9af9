//! Time as a port: nothing else reads a clock or sleeps on its own.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

/// The one owner of `now` and of waiting.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// Returns once `now` has reached `deadline`; at once if it already has.
    async fn sleep_until(&self, deadline: Timestamp);

    /// Waits for a span of time.
    async fn sleep(&self, span: Duration) {
        let deadline = self.now().checked_add(span).unwrap_or(Timestamp::MAX);
        self.sleep_until(deadline).await;
    }
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        // Microseconds are what meters, ledgers and files keep; finer digits would be lost later.
        let now = Timestamp::now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }

    async fn sleep_until(&self, deadline: Timestamp) {
        // Slept in slices: after a suspend or a clock change the deadline is judged anew.
        loop {
            let left = deadline.as_microsecond().saturating_sub(self.now().as_microsecond());
            let Ok(left) = u64::try_from(left) else { return };
            if left == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_micros(left).min(Duration::from_secs(60))).await;
        }
    }
}
