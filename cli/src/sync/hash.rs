//! Hashes files on all cores.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::{FileStamp, FoundFile, HashCache};
use crate::failure::Failure;
use crate::texts;

const BUFFER: usize = 256 << 10;
/// How often a file that changes while it is read is read again.
const READINGS: usize = 3;

/// A file with its hash.
#[derive(Clone, Debug)]
pub struct Hashed {
    /// SHA-256 as 64 hexadecimal digits.
    pub sha256: String,
    /// State of the file that the hash belongs to.
    pub stamp: FileStamp,
}

/// Hashes `files`, taking from `cache` what it knows; `progress` is told the bytes read.
///
/// # Errors
/// Exit code 1 for a file that cannot be read, or that keeps changing.
pub fn hash_all(
    files: &BTreeMap<String, FoundFile>,
    cache: &HashCache,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<BTreeMap<String, Hashed>, Failure> {
    let mut hashed = BTreeMap::new();
    let mut work = Vec::new();
    for (path, file) in files {
        match cache.get(path, &file.stamp) {
            Some(sha256) => {
                hashed
                    .insert(path.clone(), Hashed { sha256: sha256.to_owned(), stamp: file.stamp });
            }
            None => work.push((path, file)),
        }
    }
    // Large files first, so that none is left for the end on one core.
    work.sort_by_key(|(_, file)| std::cmp::Reverse(file.stamp.size));
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
                    let Some((path, file)) = work.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        break;
                    };
                    let result = settled(path, file, &mut buffer, progress);
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    own.push(((*path).clone(), result));
                }
                results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).append(&mut own);
            });
        }
    });
    for (path, result) in results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        hashed.insert(path, result?);
    }
    Ok(hashed)
}

fn settled(
    path: &str,
    file: &FoundFile,
    buffer: &mut [u8],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Hashed, Failure> {
    for _ in 0..READINGS {
        match once(file, buffer, progress) {
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
    file: &FoundFile,
    buffer: &mut [u8],
    progress: &(dyn Fn(u64) + Sync),
) -> std::io::Result<Option<Hashed>> {
    let open = File::open(&file.disk)?;
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
    let after = FileStamp::of(&std::fs::metadata(&file.disk)?);
    let settled = before == after && bytes == before.size;
    Ok(settled.then(|| Hashed { sha256: hex::encode(digest.finalize()), stamp: before }))
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
        let files = scan(root.path(), &[".".into()]).unwrap().files;
        let hashed = hash_all(&files, &HashCache::default(), &quiet).unwrap();
        assert_eq!(
            hashed["abc"].sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hashed["empty"].sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_file_that_keeps_changing_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("growing.log");
        fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
        let files = scan(root.path(), &[".".into()]).unwrap().files;
        let file = Arc::new(Mutex::new(fs::OpenOptions::new().append(true).open(&path).unwrap()));
        // Every piece read makes the file longer: no reading can settle.
        let grow = move |_| file.lock().unwrap().write_all(b"y").unwrap();
        let failure = hash_all(&files, &HashCache::default(), &grow).unwrap_err();
        assert_eq!(failure.code, "file_changing");
        assert_eq!(failure.details["path"], "growing.log");
    }

    #[test]
    fn a_file_that_changed_once_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        fs::write(&path, "old").unwrap();
        let files = scan(root.path(), &[".".into()]).unwrap().files;
        fs::write(&path, "newer").unwrap();
        let hashed = hash_all(&files, &HashCache::default(), &quiet).unwrap();
        assert_eq!(hashed["a"].stamp.size, 5);
    }
}
