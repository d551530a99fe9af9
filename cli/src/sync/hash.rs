//! Hashes files on all cores.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use runwhere_agent::protocol::Digest;
use sha2::{Digest as _, Sha256};

use super::{FileStamp, FoundFile, HashCache, Scan};
use crate::failure::Failure;
use crate::texts;

const BUFFER: usize = 256 << 10;
/// How often a file that changes while it is read is read again.
const READINGS: usize = 3;

/// What is known of a file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Hashed {
    /// Their SHA-256.
    pub sha256: Digest,
    /// State of the file that the hash belongs to.
    pub stamp: FileStamp,
}

/// Hashes the files of `scan`, taking from `cache` what it knows; `progress` is told the bytes read. The result is in the order
/// of the files.
///
/// # Errors
/// Exit code 1 for a file that cannot be read, or that keeps changing.
pub fn hash_all(
    scan: &Scan,
    cache: &HashCache,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Hashed>, Failure> {
    let known = cache.known(&scan.files).zip(scan.files.values());
    let mut hashed: Vec<Option<Hashed>> =
        known.map(|(known, file)| Some(Hashed { sha256: known?, stamp: file.stamp })).collect();
    let unknown = |(index, _): &(usize, _)| hashed[*index].is_none();
    let mut work: Vec<_> = scan.files.iter().enumerate().filter(unknown).collect();
    // Large files first, so that none is left for the end on one core.
    work.sort_by_key(|(_, (_, file))| std::cmp::Reverse(file.stamp.size));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results = Mutex::new(Vec::with_capacity(work.len()));
    std::thread::scope(|scope| {
        for _ in 0..cores.min(work.len()) {
            scope.spawn(|| {
                let mut buffer = vec![0; BUFFER];
                let mut own = Vec::new();
                while !failed.load(Ordering::Relaxed) {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some((index, (path, file))) = work.get(turn) else { break };
                    let result = settled(&scan.root, path, file, &mut buffer, progress);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    own.push((*index, result));
                }
                results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).append(&mut own);
            });
        }
    });
    for (index, result) in results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        hashed[index] = Some(result?);
    }
    // Without a failure all work was done, so nothing is left out here.
    Ok(hashed.into_iter().flatten().collect())
}

fn settled(
    root: &Path,
    path: &str,
    file: &FoundFile,
    buffer: &mut [u8],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Hashed, Failure> {
    let disk = file.link.clone().unwrap_or_else(|| root.join(path));
    for _ in 0..READINGS {
        match once(&disk, buffer, progress) {
            Ok(Some(hashed)) => return Ok(hashed),
            Ok(None) => {}
            Err(error) => {
                return Err(Failure::other("file_unreadable", texts::file_lost(path, error))
                    .detail("path", path));
            }
        }
    }
    Err(Failure::other("file_changing", texts::file_changing(path))
        .hint(texts::file_changing_hint())
        .detail("path", path))
}

/// Reads the file once; `None` when it changed meanwhile.
fn once(
    disk: &Path,
    buffer: &mut [u8],
    progress: &(dyn Fn(u64) + Sync),
) -> std::io::Result<Option<Hashed>> {
    let open = File::open(disk)?;
    let before = FileStamp::of(&open.metadata()?);
    // One byte more than there should be: enough to see that a file grows, and no endless read of one that never stops.
    let mut open = open.take(before.size.saturating_add(1));
    let mut digest = Sha256::new();
    let mut bytes = 0_u64;
    loop {
        let read = open.read(buffer)?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        bytes += read as u64;
        progress(read as u64);
    }
    // Looked up by name again: a file replaced by a rename is a change, too.
    let after = FileStamp::of(&std::fs::metadata(disk)?);
    let settled = before == after && bytes == before.size;
    Ok(settled.then(|| Hashed { sha256: Digest::finish(digest), stamp: before }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use crate::sync::scan;

    fn quiet(_: u64) {}

    #[test]
    fn hashes_are_those_of_the_bytes() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("empty"), "").unwrap();
        fs::write(root.path().join("abc"), "abc").unwrap();
        let found = scan(root.path(), &[".".into()]).unwrap();
        let hashed = hash_all(&found, &HashCache::default(), &quiet).unwrap();
        let texts: Vec<_> = hashed.iter().map(|file| file.sha256.to_string()).collect();
        assert_eq!(texts[0], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(texts[1], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_file_that_keeps_changing_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("growing.log");
        fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
        let found = scan(root.path(), &[".".into()]).unwrap();
        let file = Arc::new(Mutex::new(fs::OpenOptions::new().append(true).open(&path).unwrap()));
        // Every piece read makes the file longer: no reading can settle.
        let grow = move |_| file.lock().unwrap().write_all(b"y").unwrap();
        let failure = hash_all(&found, &HashCache::default(), &grow).unwrap_err();
        assert_eq!(failure.code, "file_changing");
        assert_eq!(failure.details["path"], "growing.log");
    }

    #[test]
    fn a_file_that_changed_once_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, "old").unwrap();
        let found = scan(root.path(), &[".".into()]).unwrap();
        fs::write(&path, "newer").unwrap();
        let hashed = hash_all(&found, &HashCache::default(), &quiet).unwrap();
        assert_eq!(hashed[0].stamp.size, 5);
    }
}
