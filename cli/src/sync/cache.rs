//! Remembers the hashes of unchanged files between syncs of one folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FileStamp, FoundFile, Hashed};
use crate::settings::write_private;

const FORMAT: u32 = 1;
/// A file written this shortly before the scan may be written again within the same tick of its time stamps.
const RACY: Duration = Duration::from_secs(2);

/// Hashes by path, believed only while size, times and inode are the same.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashCache {
    format: u32,
    files: BTreeMap<String, Entry>,
}

/// size, mtime (ns), ctime (ns), inode, SHA-256
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry(u64, i64, i64, u64, String);

impl Entry {
    /// Whether a file in this state is the one that was hashed.
    fn matches(&self, stamp: &FileStamp) -> bool {
        let Self(size, mtime, ctime, inode, sha256) = self;
        *size == stamp.size
            && i128::from(*mtime) == stamp.mtime_ns
            && i128::from(*ctime) == stamp.ctime_ns
            && *inode == stamp.inode
            && sha256.len() == 64
    }
}

impl HashCache {
    /// Reads the cache at `path`; a missing, damaged or foreign one is empty.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok())
            .filter(|cache| cache.format == FORMAT)
            .unwrap_or_default()
    }

    /// The cache of exactly these files (what is gone is forgotten), without those too fresh to trust at `now` (since 1970).
    #[must_use]
    pub fn of(hashed: &BTreeMap<String, Hashed>, now: Duration) -> Self {
        let fresh = i128::try_from(now.saturating_sub(RACY).as_nanos()).unwrap_or(i128::MAX);
        let entry = |(path, file): (&String, &Hashed)| {
            let stamp = &file.stamp;
            if stamp.mtime_ns >= fresh || stamp.ctime_ns >= fresh {
                return None;
            }
            let (mtime, ctime) =
                (i64::try_from(stamp.mtime_ns).ok()?, i64::try_from(stamp.ctime_ns).ok()?);
            Some((path.clone(), Entry(stamp.size, mtime, ctime, stamp.inode, file.sha256.clone())))
        };
        Self { format: FORMAT, files: hashed.iter().filter_map(entry).collect() }
    }

    /// The hash of `path`, if the file is in the state it was hashed in.
    #[must_use]
    pub fn get(&self, path: &str, stamp: &FileStamp) -> Option<&str> {
        let entry = self.files.get(path)?;
        entry.matches(stamp).then_some(&entry.4)
    }

    /// Whether it knows exactly these files, each in its present state.
    #[must_use]
    pub fn covers(&self, files: &BTreeMap<String, FoundFile>) -> bool {
        // Both are sorted by path, so one walk over both tells.
        self.files.len() == files.len()
            && self
                .files
                .iter()
                .zip(files)
                .all(|((known, entry), (path, file))| known == path && entry.matches(&file.stamp))
    }

    /// How many hashes it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Stores the cache in one step. Two syncs of one folder take turns.
    ///
    /// # Errors
    /// What the file system answers; the old cache then stands.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        let _turn = lock(path)?;
        write_private(path, &bytes)
    }
}

fn lock(path: &Path) -> io::Result<File> {
    let mut name: PathBuf = path.to_owned();
    name.set_extension("lock");
    if let Some(dir) = name.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(name)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::sync::{hash_all, scan};

    fn hashed(root: &Path) -> BTreeMap<String, Hashed> {
        let files = scan(root, &[".".into()]).unwrap().files;
        hash_all(&files, &HashCache::default(), &|_| {}).unwrap()
    }

    #[test]
    fn fresh_files_are_not_trusted_and_older_ones_are() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        let files = hashed(root.path());
        let now = clock::since_epoch();
        assert!(HashCache::of(&files, now).is_empty());
        let later = HashCache::of(&files, now + Duration::from_secs(10));
        assert_eq!(later.get("a", &files["a"].stamp), Some(files["a"].sha256.as_str()));
    }

    #[test]
    fn any_difference_of_the_stamp_makes_a_hash_worthless() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        let files = hashed(root.path());
        let cache = HashCache::of(&files, clock::since_epoch() + Duration::from_secs(10));
        let stamp = files["a"].stamp;
        for changed in [
            FileStamp { size: stamp.size + 1, ..stamp },
            FileStamp { mtime_ns: stamp.mtime_ns + 1, ..stamp },
            FileStamp { ctime_ns: stamp.ctime_ns + 1, ..stamp },
            FileStamp { inode: stamp.inode + 1, ..stamp },
        ] {
            assert_eq!(cache.get("a", &changed), None);
        }
    }

    #[test]
    fn only_the_same_files_in_the_same_state_are_covered() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        fs::write(root.path().join("b"), "b").unwrap();
        let files = scan(root.path(), &[".".into()]).unwrap().files;
        let later = clock::since_epoch() + Duration::from_secs(10);
        let cache = HashCache::of(&hashed(root.path()), later);
        assert!(cache.covers(&files));
        let mut fewer = files.clone();
        fewer.remove("a");
        assert!(!cache.covers(&fewer));
        let mut changed = files;
        changed.get_mut("b").unwrap().stamp.size += 1;
        assert!(!cache.covers(&changed));
    }

    #[test]
    fn a_stored_cache_is_pruned_and_a_damaged_one_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache/x.cache");
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("a"), "a").unwrap();
        fs::write(tree.join("b"), "b").unwrap();
        let later = clock::since_epoch() + Duration::from_secs(10);
        HashCache::of(&hashed(&tree), later).save(&path).unwrap();
        assert_eq!(HashCache::load(&path).len(), 2);
        fs::remove_file(tree.join("b")).unwrap();
        HashCache::of(&hashed(&tree), later).save(&path).unwrap();
        assert_eq!(HashCache::load(&path).len(), 1);

        fs::write(&path, b"{\"format\":1,\"files\":{\"a\":[1").unwrap();
        assert!(HashCache::load(&path).is_empty());
    }
}
