//! Durable small files, the reserve for a full disk, and safe relative paths.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Writes `content` to `path` (0600) so that a crash leaves either the old file or the new one.
pub(crate) fn write_durable(path: &Path, content: &[u8]) -> io::Result<()> {
    let temp = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, path)?;
    sync_folder_of(path)
}

/// Makes a new name in the folder of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Whether an error says that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Space that is set aside so that the result and the last log lines survive a full disk.
#[derive(Debug)]
pub(crate) struct Reserve(Mutex<Option<PathBuf>>);

impl Reserve {
    const BYTES: u64 = 4 << 20;

    /// Sets the space aside; without room for it the agent works without a reserve.
    pub(crate) fn set_aside(node_dir: &Path) -> Self {
        let path = node_dir.join("reserve");
        let kept = Self::fill(&path);
        if let Err(error) = &kept {
            tracing::warn!(%error, "no reserve for a full disk");
            let _ = fs::remove_file(&path);
        }
        Self(Mutex::new(kept.is_ok().then_some(path)))
    }

    fn fill(path: &Path) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let allocated =
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, Self::BYTES);
        if allocated.is_err() {
            // Not every file system can allocate; written bytes reserve as well.
            let block = vec![0_u8; 1 << 16];
            for _ in 0..Self::BYTES / (1 << 16) {
                file.write_all(&block)?;
            }
        }
        file.sync_all()
    }

    /// Gives the space back; true where this call did so.
    pub(crate) fn release(&self) -> bool {
        let taken = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        taken.is_some_and(|path| fs::remove_file(path).is_ok())
    }
}

/// A relative path of a manifest as a path below the work folder.
///
/// # Errors
/// Why it is refused.
pub(crate) fn safe_path(text: &str) -> Result<PathBuf, &'static str> {
    if text.is_empty() {
        return Err("path is empty");
    }
    if text.len() > 4096 || text.split('/').any(|part| part.len() > 255) {
        return Err("path is too long");
    }
    if text.contains('\0') {
        return Err("path contains a NUL");
    }
    if text.starts_with('/') {
        return Err("path is absolute");
    }
    if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("path has an empty part, `.` or `..`");
    }
    Ok(PathBuf::from(text))
}

/// A relative folder where `.` and trailing slashes are fine, but nothing leads out.
///
/// # Errors
/// Why it is refused.
pub(crate) fn safe_folder(text: &str) -> Result<PathBuf, &'static str> {
    if text.starts_with('/') {
        return Err("path is absolute");
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() { Ok(PathBuf::new()) } else { safe_path(&parts.join("/")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_folder_are_safe() {
        for good in ["a", "a/b.py", "..a", "a b/#", "[/x]", "日志"] {
            assert_eq!(safe_path(good), Ok(PathBuf::from(good)));
        }
        let long = "x".repeat(256);
        for bad in ["", "/", "/a", "..", "a/../b", "a//b", "./a", "a/", "a\0b", &long] {
            assert!(safe_path(bad).is_err(), "{bad:?}");
        }
        assert_eq!(safe_folder("./a/"), Ok(PathBuf::from("a")));
        assert_eq!(safe_folder("."), Ok(PathBuf::new()));
        assert!(safe_folder("a/../..").is_err());
        assert!(safe_folder("/tmp").is_err());
    }

    #[test]
    fn the_reserve_is_given_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::set_aside(dir.path());
        assert_eq!(fs::metadata(dir.path().join("reserve")).unwrap().len(), Reserve::BYTES);
        assert!(reserve.release());
        assert!(!reserve.release());
        assert!(!dir.path().join("reserve").exists());
    }
}
