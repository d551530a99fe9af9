//! Logs of trials: `<data>/logs/<trial>/log`, append-only blocks of frames and platform notes.
//!
//! Bytes are stored as the program wrote them; lines are a reader's view. What was acknowledged is
//! on disk: a block is synced before its append returns, several at once where they meet. After a
//! crash an unfinished end is cut off at the next opening, after a full disk at once.

mod block;
mod cursor;
mod lines;
mod note;
mod observe;
mod reader;
mod store;
mod trial;

#[cfg(test)]
mod tests;

pub use cursor::{Cursor, CursorError};
pub use lines::{Line, MAX_LINE_BYTES, Source};
pub use note::{Note, NoteRecord};
pub use reader::{Export, Follower, Tail, TailLimits};
pub use store::Logs;
pub use trial::LogState;

/// Why a log was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Frames are missing before these.
    #[error("log frames after {durable_seq} are missing")]
    Gap {
        /// The last durable frame.
        durable_seq: u64,
    },
    /// A frame does not go on where its stream ended.
    #[error("log frame {seq} starts at offset {found} of its stream, expected {expected}")]
    Offset {
        /// The frame.
        seq: u64,
        /// Where its stream ends.
        expected: u64,
        /// What it says.
        found: u64,
    },
    /// The log is sealed: nothing may follow.
    #[error("the log is sealed")]
    Sealed,
    /// More bytes than a trial's log may have.
    #[error("the log is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// No space left; nothing of this append was kept.
    #[error("no space left for the data folder")]
    Full,
    /// What is on disk is not what was written.
    #[error("the stored log is damaged at byte {0}")]
    Damaged(u64),
    /// The disk.
    #[error("log store: {0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for LogError {
    fn from(error: std::io::Error) -> Self {
        if crate::disk::is_full(&error) { Self::Full } else { Self::Io(error) }
    }
}
