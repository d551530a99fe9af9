//! Synchronised work directories: manifests, presigned uploads, immutable syncs.
//!
//! A client sends the whole manifest, uploads what its project lacks to signed URLs, then sends
//! the manifest again; only when every content is there does it become a sync, which never changes
//! and which a submit pins.

mod manifest;
mod routes;
mod ticket;
mod upload;

pub use manifest::{Manifest, ManifestProblem};
pub use routes::{SyncParts, router};
pub use ticket::{Ticket, TicketError, Tickets};
pub use upload::upload_router;
