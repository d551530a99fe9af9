//! Node protocol, version 1. The agent dials the broker; bodies are JSON unless said otherwise.
//!
//! | call | request | reply |
//! | --- | --- | --- |
//! | `POST /agent/v1/redeem` | [`RedeemRequest`] | [`RedeemReply`]; 409 for another key |
//! | `GET /agent/v1/assignment` | | [`Assignment`] |
//! | `GET /agent/v1/blobs/{sha256}` | | the raw file |
//! | `POST /agent/v1/events` | [`EventsRequest`] | [`EventsReply`] |
//! | `POST /agent/v1/logs?from_seq=N` | a batch of frames, see [`encode_batch`] | [`LogsReply`]; 409 with [`LogsReply`] for a gap |
//! | `PUT /agent/v1/outputs/{sha256}?size=N` | the raw file | 200 once hashed and on disk |
//! | `POST /agent/v1/outputs?size=N` | the raw file, hashed by both sides as it passes | [`StoredOutput`] once on disk |
//! | `GET /agent/v1/outputs/{sha256}` | | [`StoredOutput`], read again from the broker's disk |
//! | `POST /agent/v1/poll` | [`PollRequest`] | [`PollReply`] |
//!
//! Every call after `redeem` carries `Authorization: Bearer <lease_id>.<session_key>` (the key as 64
//! hex digits) and [`EPOCH_HEADER`]. A reply of 401, 403 or 410 fences the agent: it ends its work
//! and itself. Every post may be repeated: events and frames are identified by their sequence
//! number, files by their SHA-256.
//!
//! Receivers ignore unknown fields, so that fields can be added within version 1.

mod assignment;
mod bootstrap;
mod digest;
mod event;
pub(crate) mod frame;
mod output;
mod poll;
mod session;

pub use assignment::{Assignment, CollectLimits, Exec, Gpus, RunnerTask, SyncFile};
pub use bootstrap::{Bootstrap, DockerPlace, DropTo, Runtime};
pub use digest::{Digest, InvalidDigest};
pub use event::{
    Event, EventKind, EventsReply, EventsRequest, ExitReason, Gpu, SkippedFile, StreamSeal,
};
pub use frame::{
    BatchPart, FRAME_HEADER_BYTES, FrameError, LogFrame, LogStream, LogsReply, MAX_BATCH_BYTES,
    MAX_BATCH_COMPRESSED_BYTES, MAX_FRAME_BYTES, decode_batch, decode_frames, decode_parts,
    encode_batch, encode_frames,
};
pub use output::{StoredOutput, is_output_path};
pub use poll::{AgentState, Desired, MAX_POLL_WAIT_MS, PollReply, PollRequest};
pub use session::{RedeemReply, RedeemRequest};

/// The version this package speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Header that carries the epoch of the session as a decimal number.
pub const EPOCH_HEADER: &str = "x-runwhere-epoch";

/// Environment variable that marks every process of a trial; its value is the lease id.
pub const LEASE_MARKER: &str = "RUNWHERE_LEASE_ID";

/// Name of the file that a provider writes into the node folder before it starts the agent.
pub const BOOTSTRAP_FILE: &str = "bootstrap.json";
