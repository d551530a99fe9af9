//! Sync: find the files of a task, hash them, upload what the server lacks.

mod cache;
mod hash;
mod manifest;
mod push;
mod record;
mod rules;
mod scan;
mod upload;
mod walk;

pub use cache::HashCache;
pub use hash::{Hashed, hash_all};
pub use manifest::{Changes, Manifest, ManifestFile, megabytes};
pub use push::{Local, Pushed, SyncTask, local, push};
pub use record::{LastSync, Records};
pub use rules::Rules;
pub use scan::{FileStamp, FoundFile, Scan, Skip, SkipReason, check_folders, scan};
