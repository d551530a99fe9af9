//! What lies in a work folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::glob;
use crate::protocol::SkippedFile;
use crate::workfolder::Originals;

/// How many left files are named.
pub(super) const MAX_SKIPPED: usize = 1000;
/// Folders within folders, at most: what lies deeper is not collected, and named. A path of more
/// could be made again on no machine.
const MAX_DEPTH: usize = 512;
/// Bytes of a path below the work folder, at most, so that it also fits below another one.
const MAX_PATH: usize = 3072;
/// New files that are collected, at most, and the bytes of their paths: what a program leaves must
/// fit the memory of those that keep account of it. What is beyond stays behind, and that is a
/// failure of the collection. The checkpoint is counted apart, so that nothing else crowds it out.
const BOUNDS: Bounds = Bounds { files: 100_000, names: 24 << 20 };
/// Folders that only hold what the interpreter makes again.
const IGNORED: [&str; 1] = ["__pycache__"];

#[derive(Debug)]
pub(super) struct Candidate {
    /// Its path below the work folder.
    pub(super) name: String,
    pub(super) checkpoint: bool,
}

/// What has been found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<Candidate>,
    /// Why not everything was looked at or kept, where that is so.
    pub(super) cut: Option<&'static str>,
    /// Why the first file, or folder where one may lie, that is among the wanted was left behind.
    pub(super) left: Option<&'static str>,
    pub(super) skipped: Vec<SkippedFile>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    files: usize,
    names: usize,
}

impl Bounds {
    /// Whether a name still fits, which is then counted.
    fn take(&mut self, name: &str) -> bool {
        match (self.files.checked_sub(1), self.names.checked_sub(name.len())) {
            (Some(files), Some(names)) => {
                *self = Self { files, names };
                true
            }
            _ => false,
        }
    }
}

/// One look at a work folder.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) work: &'a Path,
    pub(super) checkpoint: Option<&'a Path>,
    /// Patterns of what a runner declares; everything without. What they do not name is not counted.
    pub(super) wanted: Option<&'a [String]>,
    /// What lay there before. These files are known already, and are not counted either.
    pub(super) originals: &'a Originals,
    /// It ends then.
    pub(super) until: Instant,
}

// No part of the path may be a link: user code could have put one there at any time.
pub(super) fn open_beneath(work: &Path, path: &Path, owner: Option<u32>) -> io::Result<File> {
    let root = File::open(work)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(&root, path, flags, Mode::empty(), resolve)?);
    let data = file.metadata()?;
    if owner.is_some_and(|owner| data.uid() != owner) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if data.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

impl Walk<'_> {
    /// Looks at everything, or at as much as the bounds allow: then only on for the checkpoint.
    pub(super) fn find(&self) -> Found {
        self.find_within(BOUNDS)
    }

    fn find_within(&self, bounds: Bounds) -> Found {
        let mut found = Found::default();
        let (mut plain, mut checkpoint) = (bounds, bounds);
        let mut folders = vec![(PathBuf::new(), 0)];
        // A list, no recursion: how deep folders lie is the program's choice.
        while let Some((folder, depth)) = folders.pop() {
            if Instant::now() > self.until {
                found.cut = Some("over_max_seconds");
                self.skip_folder(&mut found, &folder, "over_max_seconds");
                break;
            }
            if found.cut.is_some() && !self.leads_to_checkpoint(&folder) {
                continue;
            }
            for below in self.look(&folder, [&mut plain, &mut checkpoint], &mut found) {
                if depth >= MAX_DEPTH {
                    self.skip_folder(&mut found, &below, "too_deep");
                } else if folders.len() < bounds.files || self.leads_to_checkpoint(&below) {
                    folders.push((below, depth + 1));
                } else {
                    found.cut = Some("too_many_files");
                    self.skip_folder(&mut found, &below, "too_many_files");
                }
            }
        }
        found.files.sort_by(|a, b| (!a.checkpoint, &a.name).cmp(&(!b.checkpoint, &b.name)));
        found
    }

    fn leads_to_checkpoint(&self, folder: &Path) -> bool {
        self.checkpoint.is_some_and(|checkpoint| {
            checkpoint.starts_with(folder) || folder.starts_with(checkpoint)
        })
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.is_none_or(|patterns| patterns.iter().any(|one| glob::matches(one, name)))
    }

    /// Whether something in a folder can be wanted, or the folder itself.
    fn leads_to_wanted(&self, folder: &str) -> bool {
        self.wanted.is_none_or(|patterns| patterns.iter().any(|one| glob::reaches(one, folder)))
    }

    /// A file is left behind.
    fn skip(&self, found: &mut Found, path: &Path, reason: &'static str) {
        let path = path.to_string_lossy();
        if self.is_wanted(&path) {
            found.left.get_or_insert(reason);
            Self::name(found, &path, reason);
        }
    }

    /// A folder is left behind with all that it may hold.
    fn skip_folder(&self, found: &mut Found, path: &Path, reason: &'static str) {
        let path = path.to_string_lossy();
        if self.leads_to_wanted(&path) {
            found.left.get_or_insert(reason);
            Self::name(found, &path, reason);
        }
    }

    fn name(found: &mut Found, path: &str, reason: &str) {
        if found.skipped.len() < MAX_SKIPPED {
            let (path, reason) = (path.to_owned(), reason.to_owned());
            found.skipped.push(SkippedFile { path, reason });
        }
    }

    /// Notes what lies in one folder and returns the folders in it.
    fn look(
        &self,
        below: &Path,
        [plain, checkpoint]: [&mut Bounds; 2],
        found: &mut Found,
    ) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        let Ok(entries) = fs::read_dir(self.work.join(below)) else {
            self.skip_folder(found, below, "unreadable");
            return folders;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.skip_folder(found, below, "unreadable");
                continue;
            };
            let path = below.join(entry.file_name());
            let Ok(kind) = entry.file_type() else {
                self.skip(found, &path, "unreadable");
                continue;
            };
            if kind.is_dir() && IGNORED.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            if path.as_os_str().len() > MAX_PATH {
                match kind.is_dir() {
                    true => self.skip_folder(found, &path, "path_too_long"),
                    false => self.skip(found, &path, "path_too_long"),
                }
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let Some(name) = path.to_str() else {
                    self.skip(found, &path, "name_not_utf8");
                    continue;
                };
                if !self.is_wanted(name) {
                    continue;
                }
                // Names that not every client can store are left behind where they are declared.
                if self.wanted.is_some() && !glob::is_portable(name) {
                    self.skip(found, &path, "unsafe_name");
                    continue;
                }
                let is_checkpoint = self.checkpoint.is_some_and(|one| path.starts_with(one));
                let bounds = if is_checkpoint { &mut *checkpoint } else { &mut *plain };
                if self.originals.contains_key(name) || bounds.take(name) {
                    found
                        .files
                        .push(Candidate { name: name.to_owned(), checkpoint: is_checkpoint });
                } else {
                    found.cut = Some("too_many_files");
                    self.skip(found, &path, "too_many_files");
                }
            } else {
                let reason = if kind.is_symlink() {
                    "symlink"
                } else if kind.is_socket() {
                    "socket"
                } else if kind.is_fifo() {
                    "fifo"
                } else {
                    "device"
                };
                // No file, and so nothing that was to be brought. A link may stand where a folder was
                // to be.
                let path = path.to_string_lossy();
                if self.is_wanted(&path) || (kind.is_symlink() && self.leads_to_wanted(&path)) {
                    Self::name(found, &path, reason);
                }
            }
        }
        folders
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::protocol::Digest;
    use crate::workfolder::{Original, Stamp};

    fn look<'a>(work: &'a Path, originals: &'a Originals) -> Walk<'a> {
        let until = Instant::now() + Duration::from_secs(600);
        Walk { work, checkpoint: None, wanted: None, originals, until }
    }

    fn names(found: &Found) -> Vec<&str> {
        found.files.iter().map(|file| file.name.as_str()).collect()
    }

    /// Makes a folder in each of the last one, and a file in each of some of them.
    fn nest(work: &Path, name: &str, depth: usize, with_file: &[usize]) {
        let mut at = File::open(work).unwrap();
        for level in 1..=depth {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            at = rustix::fs::openat(&at, name, flags, Mode::empty()).unwrap().into();
            if with_file.contains(&level) {
                let flags = OFlags::CREATE | OFlags::WRONLY;
                rustix::fs::openat(&at, "f", flags, Mode::RUSR | Mode::WUSR).unwrap();
            }
        }
    }

    #[test]
    fn depth_takes_no_stack_and_what_is_too_deep_is_named() {
        let work = tempfile::tempdir().unwrap();
        let long = "x".repeat(255);
        nest(work.path(), "d", 1_100, &[1, MAX_DEPTH, MAX_DEPTH + 1, 1_100]);
        nest(work.path(), &long, 13, &[11, 12, 13]);
        fs::write(work.path().join("top"), "").unwrap();
        let path = work.path().to_owned();
        let walk = std::thread::Builder::new().stack_size(96 << 10);
        let found =
            walk.spawn(move || look(&path, &Originals::new()).find()).unwrap().join().unwrap();
        let below = |name: &str, depth| format!("{}f", format!("{name}/").repeat(depth));
        let mut expected: Vec<String> = [1, MAX_DEPTH].map(|depth| below("d", depth)).into();
        expected.extend(["top".to_owned(), below(&long, 11)]);
        expected.sort();
        let names: Vec<_> = found.files.iter().map(|file| file.name.clone()).collect();
        assert_eq!(names, expected);
        let skipped: HashSet<(usize, &str)> =
            found.skipped.iter().map(|file| (file.path.len(), file.reason.as_str())).collect();
        let lengths = [
            ((MAX_DEPTH + 1) * 2 - 1, "too_deep"),
            (12 * 256 + 1, "path_too_long"),
            (13 * 256 - 1, "path_too_long"),
        ];
        assert_eq!(skipped, lengths.into());
        // In parts: what removes the rest has a file open for each level.
        let (top, rest) = (work.path().join("d"), work.path().join("rest"));
        while fs::rename(top.join("d/".repeat(500)), &rest).is_ok() {
            fs::remove_dir_all(&top).unwrap();
            fs::rename(&rest, &top).unwrap();
        }
    }

    #[test]
    fn what_is_beyond_the_bounds_is_cut_and_the_checkpoint_never_by_others() {
        let work = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = work.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for n in 0..8 {
            write(&format!("data/{n}/f"));
        }
        for path in ["run/ckpt/a", "run/ckpt/deep/b", "run/other"] {
            write(path);
        }
        let none = Originals::new();
        let bounds = |files, names| Bounds { files, names };
        let checkpoint = Some(Path::new("run/ckpt"));
        let walk = Walk { checkpoint, ..look(work.path(), &none) };

        let whole = walk.find_within(bounds(9, 1000));
        assert_eq!((whole.files.len(), whole.cut, whole.skipped.len()), (11, None, 0));
        assert_eq!(names(&whole)[..2], ["run/ckpt/a", "run/ckpt/deep/b"]);
        for bounds in [bounds(3, 1000), bounds(1000, 32)] {
            let found = walk.find_within(bounds);
            assert_eq!(found.cut, Some("too_many_files"));
            assert_eq!(names(&found)[..2], ["run/ckpt/a", "run/ckpt/deep/b"]);
            let plain = found.files.iter().filter(|file| !file.checkpoint).count();
            assert!((1..=5).contains(&plain), "{plain}");
            assert!(found.skipped.iter().any(|file| file.reason == "too_many_files"));
        }
        // The checkpoint has bounds of its own.
        let found = walk.find_within(bounds(1, 1000));
        assert_eq!(found.files.iter().filter(|file| file.checkpoint).count(), 1);

        // What lay there before is known already; what a runner does not declare is nobody's.
        let file = tempfile::NamedTempFile::new().unwrap();
        let stamp = Stamp::of(&file.as_file().metadata().unwrap());
        let digest = Digest::finish(sha2::Sha256::default());
        let original = Original { sha256: digest, size: 1, stamp: Some(stamp) };
        let known: Originals = (0..8).map(|n| (format!("data/{n}/f"), original)).collect();
        let found = Walk { originals: &known, ..walk }.find_within(bounds(9, 40));
        assert_eq!((found.files.len(), found.cut), (11, None));
        // A pattern that names a folder names all below it: 35 bytes, and none of the other 64.
        let declared = ["run/*".to_owned()];
        let walk = Walk { wanted: Some(&declared), ..look(work.path(), &none) };
        let found = walk.find_within(bounds(12, 35));
        let expected = ["run/ckpt/a", "run/ckpt/deep/b", "run/other"];
        assert_eq!((names(&found), found.cut), (expected.into(), None));

        let late =
            Walk { until: Instant::now() - Duration::from_secs(1), ..look(work.path(), &none) };
        assert_eq!(late.find().cut, Some("over_max_seconds"));
    }

    #[test]
    fn what_was_wanted_and_left_behind_is_known_however_much_is_named() {
        let work = tempfile::tempdir().unwrap();
        let out = work.path().join("out");
        fs::create_dir(&out).unwrap();
        let none = Originals::new();
        let found = |pattern: &str| {
            let declared = [pattern.to_owned()];
            let found = Walk { wanted: Some(&declared), ..look(work.path(), &none) }.find();
            let named = found.skipped.first().map(|file| (file.path.clone(), file.reason.clone()));
            (found.left, found.skipped.len(), named)
        };
        for n in 0..=MAX_SKIPPED {
            std::os::unix::fs::symlink("/nowhere", out.join(n.to_string())).unwrap();
        }
        assert_eq!((found("out/**").0, found("out/**").1), (None, MAX_SKIPPED));
        fs::write(out.join("a\\b"), "").unwrap();
        assert_eq!((found("out/**").0, found("out/**").1), (Some("unsafe_name"), MAX_SKIPPED));
        assert_eq!(found("other/**"), (None, 0, None));
        // Where a folder of outputs was to be.
        fs::remove_dir_all(&out).unwrap();
        std::os::unix::fs::symlink("/nowhere", &out).unwrap();
        let link = Some(("out".to_owned(), "symlink".to_owned()));
        assert_eq!(found("out/**"), (None, 1, link.clone()));
        assert_eq!(found("out/*.bin"), (None, 1, link));
        assert_eq!(found("outer/*.bin"), (None, 0, None));
        fs::remove_file(&out).unwrap();
        // What lies too deep can be any file.
        nest(work.path(), "d", MAX_DEPTH + 2, &[]);
        assert_eq!(found("d/**/model.bin").0, Some("too_deep"));
        assert_eq!(found("e/**/model.bin").0, None);
        let long = "x".repeat(255);
        nest(work.path(), &long, 13, &[]);
        assert_eq!(found("x*/**").0, Some("path_too_long"));
    }

    #[test]
    fn a_file_of_another_user_is_not_opened() {
        let work = tempfile::tempdir().unwrap();
        fs::write(work.path().join("f"), "x").unwrap();
        let own = fs::metadata(work.path().join("f")).unwrap().uid();
        let open = |owner| open_beneath(work.path(), Path::new("f"), owner).map_err(|e| e.kind());
        assert!(open(None).is_ok() && open(Some(own)).is_ok());
        assert_eq!(open(Some(own + 1)).unwrap_err(), io::ErrorKind::PermissionDenied);
    }
}
