//! What can go wrong inside, and what the caller is told.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// Less free space than this explains an input/output error.
const FULL_BELOW_BYTES: u64 = 1 << 20;

/// A failure inside the store.
#[derive(Debug)]
pub(super) enum Fault {
    /// The transition or the row itself is at fault; the database is fine.
    Refused(StoreError),
    /// SQLite failed.
    Database(rusqlite::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl Fault {
    /// Whether a commit that ended so may have left its pages in the write-ahead log, where a
    /// restart would take them for committed.
    pub(super) fn is_ambiguous(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::Database(error) => !matches!(
                error.sqlite_error_code(),
                // Both are known before the last page is written.
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy)
            ),
        }
    }

    /// What the caller is told; `path` is the database file.
    pub(super) fn told(self, path: &Path) -> StoreError {
        let error = match self {
            Self::Refused(error) => return error,
            Self::Database(error) => error,
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full,
            // SQLite reports no space for some files (its shared index, the directory) as a plain
            // input/output error.
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_full(path) => {
                StoreError::Full
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Failed(
                "the database is in use by another process; try again".to_owned(),
            ),
            // The message alone: other variants carry values.
            _ => match error {
                rusqlite::Error::SqliteFailure(code, message) => {
                    StoreError::Failed(message.unwrap_or_else(|| code.to_string()))
                }
                other => StoreError::Failed(other.to_string()),
            },
        }
    }
}

fn is_full(path: &Path) -> bool {
    rustix::fs::statvfs(
        path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")),
    )
    .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FULL_BELOW_BYTES)
}
