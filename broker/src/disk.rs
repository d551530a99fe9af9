//! What blobs and logs share about files.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::ports::Room;

/// Whether an error says that there is no space: the disk, the quota or the file size limit.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// The disk of a folder, less a part that is kept for what runs already: a new job or file is
/// refused while the log lines and events of the earlier ones can still be stored.
#[derive(Clone, Debug)]
pub(crate) struct DiskRoom(PathBuf);

/// Kept back at most.
const MOST_KEPT: u64 = 64 << 20;
/// Kept back of a small disk: one part in so many.
const KEPT_PART: u64 = 16;
/// Files (inodes) kept back at most.
const MOST_FILES_KEPT: u64 = 1000;

impl DiskRoom {
    /// The room on the disk of an existing folder.
    pub(crate) fn of(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }
}

impl Room for DiskRoom {
    fn fits(&self, bytes: u64) -> bool {
        let Ok(disk) = rustix::fs::statvfs(&self.0) else {
            // Whoever writes hears the reason.
            return true;
        };
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let kept = MOST_KEPT.min(total / KEPT_PART);
        // Some file systems have no such bound and state none at all.
        let files_kept = MOST_FILES_KEPT.min(disk.f_files / KEPT_PART);
        let files_fit = disk.f_files == 0 || disk.f_favail > files_kept;
        files_fit && free.checked_sub(kept).is_some_and(|left| left > bytes)
    }
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a folder that only we can enter, and its parents, durably.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    path.parent().map_or(Ok(()), sync_folder)
}

/// Runs blocking file work outside the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| io::Error::other("the file work was interrupted"))
}
