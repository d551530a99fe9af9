//! What lies in a work folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::glob;
use crate::protocol::SkippedFile;

/// How many left files are named.
pub(super) const MAX_SKIPPED: usize = 1000;
/// Folders within folders, at most: what lies deeper is not collected, and named. A path of more
/// could be made again on no machine.
const MAX_DEPTH: usize = 512;
/// Bytes of a path below the work folder, at most, so that it also fits below another one.
const MAX_PATH: usize = 3072;
/// Files that are collected, at most, and the bytes of all their paths: what a program leaves must fit the memory of those
/// that keep account of it. What is beyond stays behind, and that is a failure of the collection.
const MAX_FILES: usize = 100_000;
const MAX_NAMES: usize = 24 << 20;
/// Folders that only hold what the interpreter makes again.
const IGNORED: [&str; 1] = ["__pycache__"];

#[derive(Debug)]
pub(super) struct Candidate {
    /// Its path below the work folder.
    pub(super) name: String,
    pub(super) checkpoint: bool,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<Candidate>,
    /// Bytes of their names.
    names: usize,
    /// There are more than can be kept account of, or than there was time to look at.
    pub(super) too_many: bool,
    pub(super) skipped: Vec<SkippedFile>,
}

impl Found {
    fn skip(&mut self, path: &Path, reason: &str) {
        if self.skipped.len() < MAX_SKIPPED {
            let path = path.to_string_lossy().into_owned();
            self.skipped.push(SkippedFile { path, reason: reason.to_owned() });
        }
    }

    fn take(&mut self, name: &str, checkpoint: bool) {
        if self.files.len() >= MAX_FILES || self.names + name.len() > MAX_NAMES {
            self.too_many = true;
            return self.skip(Path::new(name), "too_many_files");
        }
        self.names += name.len();
        self.files.push(Candidate { name: name.to_owned(), checkpoint });
    }

    /// Keeps what declared patterns name. Names that not every client can store are left behind.
    pub(super) fn keep(&mut self, patterns: &[String]) {
        let wanted = |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name));
        self.skipped.retain(|skipped| wanted(&skipped.path));
        let mut unsafe_names = Vec::new();
        self.files.retain(|file| {
            if !wanted(&file.name) {
                return false;
            }
            let good = glob::is_portable(&file.name);
            if !good && unsafe_names.len() < MAX_SKIPPED {
                let (path, reason) = (file.name.clone(), "unsafe_name".to_owned());
                unsafe_names.push(SkippedFile { path, reason });
            }
            good
        });
        self.skipped.extend(unsafe_names);
        self.skipped.truncate(MAX_SKIPPED);
    }
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

pub(super) fn find(work: &Path, checkpoint: Option<&Path>, until: Instant) -> Found {
    let mut found = Found::default();
    let mut folders = vec![(PathBuf::new(), 0)];
    // A list, no recursion: how deep folders lie is the program's choice.
    while let Some((folder, depth)) = folders.pop() {
        if found.too_many || folders.len() > MAX_FILES || Instant::now() > until {
            found.too_many = true;
            found.skip(&folder, "too_many_files");
            break;
        }
        for below in look(work, &folder, checkpoint, &mut found) {
            if depth < MAX_DEPTH {
                folders.push((below, depth + 1));
            } else {
                found.skip(&below, "too_deep");
            }
        }
    }
    found.files.sort_by(|a, b| (!a.checkpoint, &a.name).cmp(&(!b.checkpoint, &b.name)));
    found
}

/// Notes what lies in one folder and returns the folders in it.
fn look(work: &Path, below: &Path, checkpoint: Option<&Path>, found: &mut Found) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let Ok(entries) = fs::read_dir(work.join(below)) else {
        found.skip(below, "unreadable");
        return folders;
    };
    for entry in entries {
        let Ok(entry) = entry else {
            found.skip(below, "unreadable");
            continue;
        };
        let path = below.join(entry.file_name());
        let Ok(kind) = entry.file_type() else {
            found.skip(&path, "unreadable");
            continue;
        };
        if kind.is_dir() && IGNORED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if path.as_os_str().len() > MAX_PATH {
            found.skip(&path, "path_too_long");
        } else if kind.is_dir() {
            folders.push(path);
        } else if kind.is_file() {
            match path.to_str() {
                Some(name) => {
                    let checkpoint = checkpoint.is_some_and(|folder| path.starts_with(folder));
                    found.take(name, checkpoint);
                }
                None => found.skip(&path, "name_not_utf8"),
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
            found.skip(&path, reason);
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use std::time::Duration;

    use super::*;

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
        let found = walk
            .spawn(move || find(&path, None, Instant::now() + Duration::from_secs(600)))
            .unwrap()
            .join()
            .unwrap();
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
    fn a_file_of_another_user_is_not_opened() {
        let work = tempfile::tempdir().unwrap();
        fs::write(work.path().join("f"), "x").unwrap();
        let own = fs::metadata(work.path().join("f")).unwrap().uid();
        let open = |owner| open_beneath(work.path(), Path::new("f"), owner).map_err(|e| e.kind());
        assert!(open(None).is_ok() && open(Some(own)).is_ok());
        assert_eq!(open(Some(own + 1)).unwrap_err(), io::ErrorKind::PermissionDenied);
    }
}
