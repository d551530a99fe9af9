//! Remembers the hashes of unchanged files between syncs of one folder.
//!
//! The file is one list in the order of the paths' bytes, all numbers little-endian:
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | `RWHASH2` and a line end |
//! | 8 | how many entries |
//! | 8, 8, 8, 8 | of each entry: size, modification and change time (ns since 1970), inode |
//! | 32 | its SHA-256 |
//! | 4, n | length of its path, and the path |
//! | 32 | after the last entry: SHA-256 of everything before |
//!
//! It is read as it is: a folder of many files is looked through faster than many small objects are made.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runwhere_agent::protocol::Digest;

use super::{FileStamp, FoundFile, Hashed};
use crate::settings::write_private;

const MAGIC: &[u8; 8] = b"RWHASH2\n";
const HEADER_BYTES: usize = 16;
const CHECK_BYTES: usize = 32;
/// A file written this shortly before the scan may be written again within the same tick of its time stamps.
const RACY: Duration = Duration::from_secs(2);

/// Hashes by path, believed only while size, times and inode are the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HashCache {
    // As in the file, without the check at its end.
    data: Vec<u8>,
    count: usize,
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    inode: u64,
    sha256: Digest,
    path: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes the first one off `data`.
    fn take(data: &mut &'a [u8]) -> Option<Self> {
        let mut rest = *data;
        let size = u64::from_le_bytes(chunk(&mut rest)?);
        let mtime_ns = i64::from_le_bytes(chunk(&mut rest)?);
        let ctime_ns = i64::from_le_bytes(chunk(&mut rest)?);
        let inode = u64::from_le_bytes(chunk(&mut rest)?);
        let sha256 = Digest::from_bytes(chunk(&mut rest)?);
        let length = usize::try_from(u32::from_le_bytes(chunk(&mut rest)?)).ok()?;
        let (path, rest) = rest.split_at_checked(length)?;
        *data = rest;
        Some(Self { size, mtime_ns, ctime_ns, inode, sha256, path })
    }

    fn put(&self, data: &mut Vec<u8>) -> Option<()> {
        let length = u32::try_from(self.path.len()).ok()?;
        data.extend(self.size.to_le_bytes());
        data.extend(self.mtime_ns.to_le_bytes());
        data.extend(self.ctime_ns.to_le_bytes());
        data.extend(self.inode.to_le_bytes());
        data.extend(self.sha256.as_bytes());
        data.extend(length.to_le_bytes());
        data.extend(self.path);
        Some(())
    }

    /// Whether a file in this state is the one that was hashed.
    fn matches(&self, stamp: &FileStamp) -> bool {
        self.size == stamp.size
            && i128::from(self.mtime_ns) == stamp.mtime_ns
            && i128::from(self.ctime_ns) == stamp.ctime_ns
            && self.inode == stamp.inode
    }
}

fn chunk<const N: usize>(data: &mut &[u8]) -> Option<[u8; N]> {
    let (chunk, rest) = data.split_first_chunk()?;
    *data = rest;
    Some(*chunk)
}

impl HashCache {
    /// Reads the cache at `path`; a missing, damaged or foreign one is empty.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        fs::read(path).ok().and_then(Self::parse).unwrap_or_default()
    }

    fn parse(mut data: Vec<u8>) -> Option<Self> {
        let end = data.len().checked_sub(CHECK_BYTES)?;
        let (body, check) = data.split_at(end);
        let mut rest = body.strip_prefix(MAGIC)?;
        let count = usize::try_from(u64::from_le_bytes(chunk(&mut rest)?)).ok()?;
        if Digest::of(body).as_bytes() != check {
            return None;
        }
        let mut before: Option<&[u8]> = None;
        for _ in 0..count {
            let entry = Entry::take(&mut rest)?;
            if before.is_some_and(|before| before >= entry.path) {
                return None;
            }
            before = Some(entry.path);
        }
        if !rest.is_empty() {
            return None;
        }
        data.truncate(end);
        Some(Self { data, count })
    }

    /// The cache of exactly these files and, in their order, what was hashed (what is gone is forgotten), without those too
    /// fresh to trust at `now` (since 1970).
    #[must_use]
    pub fn of(files: &BTreeMap<String, FoundFile>, hashed: &[Hashed], now: Duration) -> Self {
        let fresh = i128::try_from(now.saturating_sub(RACY).as_nanos()).unwrap_or(i128::MAX);
        let mut cache = Self { data: MAGIC.to_vec(), count: 0 };
        cache.data.extend(0_u64.to_le_bytes());
        for (path, Hashed { sha256, stamp }) in files.keys().zip(hashed) {
            if stamp.mtime_ns >= fresh || stamp.ctime_ns >= fresh {
                continue;
            }
            let (Ok(mtime_ns), Ok(ctime_ns)) =
                (i64::try_from(stamp.mtime_ns), i64::try_from(stamp.ctime_ns))
            else {
                continue;
            };
            let entry = Entry {
                size: stamp.size,
                mtime_ns,
                ctime_ns,
                inode: stamp.inode,
                sha256: *sha256,
                path: path.as_bytes(),
            };
            cache.count += usize::from(entry.put(&mut cache.data).is_some());
        }
        let count = (cache.count as u64).to_le_bytes();
        cache.data[MAGIC.len()..HEADER_BYTES].copy_from_slice(&count);
        cache
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = self.data.get(HEADER_BYTES..).unwrap_or_default();
        std::iter::from_fn(move || Entry::take(&mut rest))
    }

    /// The hash of each of `files`, in their order, that is in the state it was hashed in.
    pub fn known<'a>(
        &'a self,
        files: &'a BTreeMap<String, FoundFile>,
    ) -> impl Iterator<Item = Option<Digest>> + 'a {
        // Both are sorted by the bytes of the path, so one walk over both tells.
        let mut entries = self.entries().peekable();
        files.iter().map(move |(path, file)| {
            let path = path.as_bytes();
            while entries.next_if(|entry| entry.path < path).is_some() {}
            let entry = entries.next_if(|entry| entry.path == path)?;
            entry.matches(&file.stamp).then_some(entry.sha256)
        })
    }

    /// Whether it knows exactly these files, each in its present state.
    #[must_use]
    pub fn covers(&self, files: &BTreeMap<String, FoundFile>) -> bool {
        self.count == files.len() && self.known(files).all(|known| known.is_some())
    }

    /// How many hashes it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Stores the cache in one step. Two syncs of one folder take turns.
    ///
    /// # Errors
    /// What the file system answers; the old cache then stands.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(self.data.len() + CHECK_BYTES);
        bytes.extend_from_slice(&self.data);
        bytes.extend_from_slice(Digest::of(&self.data).as_bytes());
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
    use crate::sync::{Scan, hash_all, scan};

    fn scanned(root: &Path) -> (Scan, Vec<Hashed>) {
        let found = scan(root, &[".".into()]).unwrap();
        let hashed = hash_all(&found, &HashCache::default(), &|_| {}).unwrap();
        (found, hashed)
    }

    fn cache_of(root: &Path) -> HashCache {
        let (found, hashed) = scanned(root);
        HashCache::of(&found.files, &hashed, clock::since_epoch() + Duration::from_secs(10))
    }

    fn known(cache: &HashCache, found: &Scan) -> Vec<Option<Digest>> {
        cache.known(&found.files).collect()
    }

    #[test]
    fn fresh_files_are_not_trusted_and_older_ones_are() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        let (found, hashed) = scanned(root.path());
        assert!(HashCache::of(&found.files, &hashed, clock::since_epoch()).is_empty());
        assert_eq!(known(&cache_of(root.path()), &found), [Some(Digest::of(b"a"))]);
    }

    #[test]
    fn any_difference_of_the_stamp_makes_a_hash_worthless() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        let (mut found, _) = scanned(root.path());
        let cache = cache_of(root.path());
        let stamp = found.files["a"].stamp;
        for changed in [
            FileStamp { size: stamp.size + 1, ..stamp },
            FileStamp { mtime_ns: stamp.mtime_ns + 1, ..stamp },
            FileStamp { ctime_ns: stamp.ctime_ns + 1, ..stamp },
            FileStamp { inode: stamp.inode + 1, ..stamp },
        ] {
            found.files.get_mut("a").unwrap().stamp = changed;
            assert_eq!(known(&cache, &found), [None]);
        }
    }

    #[test]
    fn files_that_came_and_went_leave_the_others_known() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "d", "e-"] {
            fs::write(root.path().join(name), name).unwrap();
        }
        let cache = cache_of(root.path());
        fs::remove_file(root.path().join("a")).unwrap();
        fs::remove_file(root.path().join("d")).unwrap();
        for name in ["0", "c", "é", "zz"] {
            fs::write(root.path().join(name), name).unwrap();
        }
        let (found, _) = scanned(root.path());
        let names: Vec<_> = found
            .files
            .keys()
            .zip(cache.known(&found.files))
            .map(|(name, known)| (&**name, known))
            .collect();
        let expected = [
            ("0", None),
            ("b", Some(Digest::of(b"b"))),
            ("c", None),
            ("e-", Some(Digest::of(b"e-"))),
            ("zz", None),
            ("é", None),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn only_the_same_files_in_the_same_state_are_covered() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        fs::write(root.path().join("b"), "b").unwrap();
        let (found, _) = scanned(root.path());
        let cache = cache_of(root.path());
        assert!(cache.covers(&found.files));
        let mut fewer = found.files.clone();
        fewer.remove("a");
        assert!(!cache.covers(&fewer));
        let mut changed = found.files;
        changed.get_mut("b").unwrap().stamp.size += 1;
        assert!(!cache.covers(&changed));
    }

    #[test]
    fn a_stored_cache_reads_back_and_is_pruned() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache/x.cache");
        let tree = root.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("a"), "a").unwrap();
        fs::write(tree.join("b"), "b").unwrap();
        let cache = cache_of(&tree);
        cache.save(&path).unwrap();
        assert_eq!(HashCache::load(&path), cache);
        fs::remove_file(tree.join("b")).unwrap();
        cache_of(&tree).save(&path).unwrap();
        assert_eq!(HashCache::load(&path).len(), 1);
    }

    #[test]
    fn a_damaged_or_foreign_cache_is_empty() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        fs::write(root.path().join("b"), "b").unwrap();
        let path = root.path().join("x.cache");
        let (found, hashed) = scanned(root.path());
        let cache = HashCache::of(&found.files, &hashed, Duration::MAX);
        cache.save(&path).unwrap();
        let good = fs::read(&path).unwrap();
        assert_eq!(HashCache::parse(good.clone()), Some(cache));
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert_eq!(HashCache::parse(bad), None, "byte {place}");
            assert_eq!(HashCache::parse(good[..place].to_vec()), None, "cut at {place}");
        }
        assert_eq!(HashCache::parse(b"{\"format\":1,\"files\":{}}".to_vec()), None);
    }

    #[test]
    fn a_well_checked_list_that_is_none_is_empty() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        let (found, hashed) = scanned(root.path());
        let body = HashCache::of(&found.files, &hashed, Duration::MAX).data;
        let checked = |mut body: Vec<u8>| {
            let check = *Digest::of(&body).as_bytes();
            body.extend(check);
            HashCache::parse(body)
        };
        assert_eq!(checked(body.clone()).map(|cache| cache.len()), Some(1));
        // A count that promises more, the same path twice, something behind the last entry, a path that is longer than all.
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut body = body.clone();
            change(&mut body);
            checked(body)
        };
        assert_eq!(change(&|body| body[MAGIC.len()..HEADER_BYTES].fill(0xff)), None);
        assert_eq!(change(&|body| body.push(0)), None);
        let twice = |body: &mut Vec<u8>| {
            body[MAGIC.len()] = 2;
            body.extend_from_within(HEADER_BYTES..);
        };
        assert_eq!(change(&twice), None);
        let length_at = body.len() - 1 - 4;
        assert_eq!(change(&|body| body[length_at..length_at + 4].fill(0xff)), None);
    }
}
