//! What proves that a lease holds nothing any more.

use jiff::Timestamp;
use runwhere_model::{ErrorKind, NodeId};
use serde::{Deserialize, Serialize};

/// Stored proof of the end of a lease: what was read, and when.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Evidence {
    /// The provider itself says that the node ended.
    TerminalRead {
        /// The node.
        node: NodeId,
        /// When it was read.
        at: Timestamp,
        /// Which call answered: `describe` or `terminate`.
        call: String,
        /// When billing ended by the provider's clock, where stated.
        stopped_at: Option<Timestamp>,
    },
    /// A node that had been seen was absent in complete reads over the settle window.
    AbsentReads {
        /// The node.
        node: NodeId,
        /// The reads.
        reads: Vec<Timestamp>,
    },
    /// The launch was definitely refused.
    Refused {
        /// When.
        at: Timestamp,
        /// Why.
        error: ErrorKind,
    },
    /// Complete finds over the settle window showed nothing for this lease.
    FoundNothing {
        /// The reads.
        reads: Vec<Timestamp>,
    },
    /// No launch was ever called.
    NothingLaunched {
        /// When that was decided.
        at: Timestamp,
    },
}

impl Evidence {
    /// The earliest instant for which it proves the end; `None` for reads that are not told.
    pub fn proven_at(&self) -> Option<Timestamp> {
        match self {
            Self::TerminalRead { at, .. }
            | Self::Refused { at, .. }
            | Self::NothingLaunched { at } => Some(*at),
            Self::AbsentReads { reads, .. } | Self::FoundNothing { reads } => {
                reads.first().copied()
            }
        }
    }
}
