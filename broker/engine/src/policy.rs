//! The bounds and pauses the engine works with, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Timings and limits. The defaults are what `serve` uses.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// How long one provider call may take before its outcome counts as unknown.
    pub call_timeout: Duration,
    /// First pause after a refused launch; doubled per attempt up to `launch_retry_max`.
    pub launch_retry: Duration,
    /// Longest pause between launch attempts.
    pub launch_retry_max: Duration,
    /// How long a trial may wait for capacity before it is given up.
    pub queue_limit: Duration,
    /// Pause between reads while something is unsettled.
    pub poll: Duration,
    /// Longest pause between release attempts; they never end.
    pub release_retry_max: Duration,
    /// An agent silent this long makes the broker ask the provider about the node.
    pub agent_silence: Duration,
    /// How often a lease with a connected agent is looked at all the same.
    pub agent_check: Duration,
    /// A running node whose agent stays silent this long is given up.
    pub agent_lost: Duration,
    /// How long the work folder may take to be prepared.
    pub prepare_limit: Duration,
    /// Time from SIGTERM to SIGKILL.
    pub stop_grace: Duration,
    /// Bound on the time to collect outputs.
    pub collect_limit: Duration,
    /// Bound on the bytes to collect.
    pub collect_bytes: u64,
    /// Largest stored log of one trial in bytes.
    pub log_bytes: u64,
    /// How long an agent goes on without its broker.
    pub agent_ttl: Duration,
    /// A node whose end, or whose very existence, is unproven for so long is told to people; told
    /// again after twice the time, four times, and so on, a day at most between two.
    pub release_alert: Duration,
    /// Pause between two sweeps of a provider.
    pub sweep_every: Duration,
    /// Younger nodes are never ended by the sweeper.
    pub sweep_age: Duration,
    /// Longest span between the two looks before a node is ended; where reads lag less it is as
    /// long as they do.
    pub sweep_gap: Duration,
    /// How long one process keeps others from sweeping the same provider.
    pub sweep_lock: Duration,
    /// How long after a lease's end the provider's bill is first asked for.
    pub usage_after: Duration,
    /// First pause before it is asked for again; doubled up to `usage_retry_max`.
    pub usage_retry: Duration,
    /// Longest pause between two such questions.
    pub usage_retry_max: Duration,
    /// From when on after the end a final bill without a line means that nothing is billed.
    pub usage_absent: Duration,
    /// How long after the end the bill is waited for; the estimate stays after that.
    pub usage_limit: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            call_timeout: Duration::from_secs(120),
            launch_retry: Duration::from_secs(2),
            launch_retry_max: Duration::from_secs(60),
            queue_limit: Duration::from_secs(24 * 3600),
            poll: Duration::from_secs(2),
            release_retry_max: Duration::from_secs(60),
            agent_silence: Duration::from_secs(5),
            agent_check: Duration::from_secs(60),
            agent_lost: Duration::from_secs(600),
            prepare_limit: Duration::from_secs(3600),
            stop_grace: Duration::from_secs(10),
            collect_limit: Duration::from_secs(600),
            collect_bytes: 20 * GIB,
            log_bytes: 10 * GIB,
            agent_ttl: Duration::from_secs(24 * 3600),
            release_alert: Duration::from_secs(600),
            sweep_every: Duration::from_secs(120),
            sweep_age: Duration::from_secs(300),
            sweep_gap: Duration::from_secs(60),
            sweep_lock: Duration::from_secs(300),
            usage_after: Duration::from_secs(600),
            usage_retry: Duration::from_secs(300),
            usage_retry_max: Duration::from_secs(6 * 3600),
            usage_absent: Duration::from_secs(24 * 3600),
            usage_limit: Duration::from_secs(35 * 24 * 3600),
        }
    }
}
