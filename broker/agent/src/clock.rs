//! The node's wall clock, for display only: order is by sequence number, spans are monotonic.

use jiff::Timestamp;

#[expect(clippy::disallowed_methods, reason = "the one place of the agent that reads the clock")]
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
