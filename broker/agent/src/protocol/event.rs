//! What the agent reports.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Digest, LogStream};

/// Body of `POST /agent/v1/events`: a run of events with contiguous numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsRequest {
    /// In order; the first may repeat what is known already.
    pub events: Vec<Event>,
}

/// Reply to [`EventsRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsReply {
    /// Every event up to this number is durable at the broker; 0 for none.
    pub acked_seq: u64,
}

/// One event. It is durable on the node before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// From 1, without gaps, for one node.
    pub seq: u64,
    /// The node's clock, for display; order is by `seq`.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened; `"kind"` in JSON, its fields beside it.
///
/// Usual order: `booted`, `gpus_ready`, `preparing`, `started`, `exited`, `log_sealed`, `collecting`,
/// `output` (any number), `collected`, `done`. `failed` replaces everything between `booted` and
/// `log_sealed`; `lost` stands for `exited` where a restarted agent finds its program gone. A stop
/// before user code started gives `exited` with the reason `stopped` and neither code nor signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// An agent process has joined; once for each start of it.
    Booted {
        /// Version of the agent program.
        agent_version: String,
        /// The kernel's id of this boot; a new one means the node was rebooted.
        boot_id: String,
    },
    /// The wanted GPUs are there.
    GpusReady {
        /// As the driver names them.
        gpus: Vec<Gpu>,
        /// They are not real.
        pretended: bool,
    },
    /// The work folder is being filled.
    Preparing,
    /// User code runs from here on; durable before its first instruction.
    Started {
        /// Of the program, also its session and process group.
        pid: u32,
    },
    /// The program has ended.
    Exited {
        /// Exit code, where it ended by itself.
        code: Option<i32>,
        /// Signal, where it was ended by one.
        signal: Option<i32>,
        /// Why, where it was not its own end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<ExitReason>,
        /// What the system said, for a program that could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// No frame follows; what the whole log is.
    LogSealed {
        /// Number of the last frame; 0 for none.
        frames: u64,
        /// Stored bytes of all streams.
        bytes: u64,
        /// Bytes that the program wrote and nobody keeps.
        #[serde(default)]
        dropped_bytes: u64,
        /// One entry for each stream that has frames.
        sha256_per_stream: Vec<StreamSeal>,
    },
    /// Outputs are being searched.
    Collecting,
    /// One output is stored at the broker and was read back.
    Output {
        /// Relative to the work folder, `/` between parts.
        path: String,
        /// Of the content.
        sha256: Digest,
        /// Bytes.
        size: u64,
        /// It lies under the checkpoint path.
        checkpoint: bool,
    },
    /// The collection has ended.
    Collected {
        /// Number of `output` events.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// What was left behind, and why; at most 1,000 entries.
        skipped: Vec<SkippedFile>,
        /// Why the collection is incomplete, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// User code could not be started.
    Failed {
        /// `gpu`, `sync`, `restore`, `runner`, `image`, `spawn` or `agent`.
        stage: String,
        /// One sentence.
        reason: String,
    },
    /// The program was started once and is gone; it is not started again.
    Lost {
        /// One sentence.
        reason: String,
    },
    /// The machine was told that its provider takes it back; what else happens goes on meanwhile.
    ReclaimNotice {
        /// When it will be taken.
        reclaim_at: Timestamp,
    },
    /// All logs and outputs are at the broker; the agent waits for its release.
    Done,
    /// Something that only later versions know of; it changes nothing.
    #[serde(other)]
    Unknown,
}

/// Why a program ended other than by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The broker said stop because the time was used up.
    Timeout,
    /// The broker said stop.
    Stopped,
    /// The system could not start it.
    SpawnFailed,
    /// It used more memory or disk than it may; the detail says which.
    Limit,
    /// The broker was silent for too long.
    BrokerSilent,
}

/// One GPU as the driver names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// e.g. `NVIDIA A100-SXM4-80GB`.
    pub name: String,
    /// Total memory in MiB; 0 for a pretended one.
    pub memory_mib: u64,
}

/// Sum of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSeal {
    /// Which stream.
    pub stream: LogStream,
    /// Stored bytes of it.
    pub bytes: u64,
    /// Over the stored bytes in order; absent when a restarted agent sealed the log.
    pub sha256: Option<Digest>,
}

/// A file that was left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFile {
    /// Relative to the work folder; replacement characters where it is not UTF-8.
    pub path: String,
    /// `symlink`, `socket`, `fifo`, `device`, `sparse`, `changed_while_read`, `unreadable`,
    /// `name_not_utf8`, `unsafe_name`, `path_too_long`, `too_deep`, `too_many_files`,
    /// `outside_work_folder`, `over_max_bytes`, `over_max_seconds` or `not_uploaded`.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_later_versions_know_of_keeps_its_place() {
        let text = r#"{"events":[
            {"seq":1,"at":"2026-01-01T00:00:00Z","kind":"preparing"},
            {"seq":2,"at":"2026-01-01T00:00:00Z","kind":"temperature_noted","celsius":[71]},
            {"seq":3,"at":"2026-01-01T00:00:01Z","kind":"started","pid":7,"later":true}]}"#;
        let request: EventsRequest = serde_json::from_str(text).unwrap();
        let kinds: Vec<_> = request.events.into_iter().map(|event| event.kind).collect();
        assert_eq!(
            kinds,
            [EventKind::Preparing, EventKind::Unknown, EventKind::Started { pid: 7 }]
        );
    }
}
