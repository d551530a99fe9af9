//! The heartbeat and what the broker wants.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest time a poll may be held open.
pub const MAX_POLL_WAIT_MS: u64 = 20_000;

/// Body of `POST /agent/v1/poll`. The broker answers at once where `desired` differs from
/// `seen`, else when it changes or `wait_ms` is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollRequest {
    /// Where the agent is.
    pub state: AgentState,
    /// Last event in the agent's journal.
    pub last_event_seq: u64,
    /// Last frame in the agent's spool.
    pub last_log_seq: u64,
    /// How long the broker may wait, at most [`MAX_POLL_WAIT_MS`].
    pub wait_ms: u64,
    /// What the agent was told last; absent in the first poll of an agent process, which is
    /// answered at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Desired>,
}

/// Reply to [`PollRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollReply {
    /// What the agent is to do.
    pub desired: Desired,
    /// Why, as a code; `timeout` makes the exit reason `timeout`, everything else `stopped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the broker will give up on this lease, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// Last durable event.
    pub acked_event_seq: u64,
    /// Last durable frame.
    pub durable_log_seq: u64,
}

/// What the broker wants. It only ever moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// Go on.
    Run,
    /// End the program, bring logs and outputs home, then wait.
    Stop,
    /// End everything, the agent too.
    Release,
}

/// Where the agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// Joined, checking GPUs.
    Booting,
    /// Filling the work folder.
    Preparing,
    /// User code runs.
    Running,
    /// User code is being ended.
    Stopping,
    /// Logs and outputs are on their way.
    Collecting,
    /// Nothing left to do but to be released.
    Done,
}
