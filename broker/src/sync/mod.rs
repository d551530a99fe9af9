//! Work directories: manifests, uploads, immutable syncs.

mod manifest;
mod service;
mod ticket;

pub use manifest::{ListedFile, MAX_FILE_BYTES, MAX_FILES, Manifest, ManifestError};
pub use service::{Missing, SyncError, Syncs, Wanted};
pub use ticket::{Ticket, TicketError, Tickets};
