//! Watching how much disk a trial uses. No file system bounds a folder everywhere, so what is
//! written between two looks comes on top of the limit.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::engine::Engine;
use crate::workfolder::Folders;

/// Between two looks, where looking takes no time.
const LOOK: Duration = Duration::from_secs(1);
/// Looking takes at most one part in so many.
const SHARE: u32 = 10;
/// Looks at the folders for one at the container's own files, which engines count slowly.
const OWN_FILES_EVERY: u32 = 5;
const MIB: u64 = 1 << 20;
/// What a file takes on disk is counted in these.
const BLOCK: u64 = 512;

/// Returns, with a sentence, once more than the limit in MiB is used.
pub(super) async fn over(engine: &Engine, folders: &Folders, limit: u64) -> String {
    let watched = [folders.work.clone(), folders.home.clone(), folders.temp.clone()];
    let mut own = 0;
    for look in 0.. {
        let since = Instant::now();
        if look % OWN_FILES_EVERY == 0 {
            own = engine.written().await.unwrap_or(own);
        }
        let folders = watched.to_vec();
        let counted = tokio::task::spawn_blocking(move || used(folders)).await;
        let used = counted.unwrap_or_default().saturating_add(own);
        if used > limit.saturating_mul(MIB) {
            return format!(
                "disk: {} MiB are in use, the limit is {limit} MiB",
                used.div_ceil(MIB)
            );
        }
        tokio::time::sleep(LOOK.max(since.elapsed() * SHARE)).await;
    }
    std::future::pending().await
}

/// Bytes on disk of everything in some folders. What vanishes meanwhile does not count; a file of
/// several names counts once for each, as a copy would.
fn used(mut open: Vec<PathBuf>) -> u64 {
    let mut sum = 0_u64;
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            // Of the entry itself: links are not followed.
            let Ok(data) = entry.metadata() else { continue };
            sum = sum.saturating_add(data.blocks().saturating_mul(BLOCK));
            if data.is_dir() {
                open.push(entry.path());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_disk_counts_and_holes_and_links_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let empty = used(vec![folder.path().to_owned()]);
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/x"), vec![7; 3 << 20]).unwrap();
        let sparse = fs::File::create(folder.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
        let now = used(vec![folder.path().to_owned(), folder.path().join("none")]);
        let grown = now - empty;
        assert!((3 << 20..4 << 20).contains(&grown), "{grown}");
    }
}
