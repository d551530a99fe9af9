//! Walks the work directories and lists their files.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ignore::{DirEntry, WalkBuilder, WalkParallel, WalkState};

use super::Rules;
use crate::failure::Failure;
use crate::texts::{self, Text};

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Change time of the inode, nanoseconds since 1970; programs cannot set it back.
    pub ctime_ns: i128,
    /// Inode number.
    pub inode: u64,
}

impl FileStamp {
    /// The stamp in `metadata`.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            size: metadata.size(),
            mtime_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
}

/// A file to sync.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// Where its bytes are: links are resolved.
    pub disk: PathBuf,
    /// Its state when it was found.
    pub stamp: FileStamp,
}

/// Why a path was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// A symbolic link to nothing.
    BrokenLink,
    /// A symbolic link that leaves the root.
    Outside,
    /// A symbolic link to a folder.
    LinkedFolder,
    /// A FIFO, socket or device.
    Special,
    /// A name that cannot stand in a manifest.
    Name,
    /// It cannot be read.
    Unreadable(String),
}

impl SkipReason {
    /// The sentence for it.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::BrokenLink => texts::skip_broken_link(),
            Self::Outside => texts::skip_outside(),
            Self::LinkedFolder => texts::skip_linked_folder(),
            Self::Special => texts::skip_special(),
            Self::Name => texts::skip_name(),
            Self::Unreadable(error) => texts::skip_unreadable(error),
        }
    }
}

/// A path that was left out although no rule excludes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The path, made printable.
    pub path: String,
    /// Why.
    pub reason: SkipReason,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Files by their path in the manifest: relative to the root, with slashes.
    pub files: BTreeMap<String, FoundFile>,
    /// What was left out.
    pub skipped: Vec<Skip>,
}

impl Scan {
    /// Sum of sizes in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.stamp.size).sum()
    }
}

/// Whether every one of `folders` is there, below `root`. Looks at nothing inside them.
///
/// # Errors
/// As [`scan`], for folders and for the rules file.
pub fn check_folders(root: &Path, folders: &[String]) -> Result<(), Failure> {
    let root = real(root)?;
    Rules::read(&root)?;
    folders.iter().try_for_each(|folder| below(&root, folder).map(drop))
}

fn real(root: &Path) -> Result<PathBuf, Failure> {
    root.canonicalize().map_err(|error| {
        Failure::other("root_unreadable", texts::file_unreadable(root.display(), error))
    })
}

/// Walks `folders` below `root`.
///
/// # Errors
/// Exit code 2 for a folder that is missing or leaves the root, and for bad rules.
pub fn scan(root: &Path, folders: &[String]) -> Result<Scan, Failure> {
    let root = real(root)?;
    let rules = Rules::read(&root)?;
    let mut scan = Scan::default();
    for folder in folders {
        walk(&root, &below(&root, folder)?, &rules, &mut scan);
    }
    scan.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    scan.skipped.dedup();
    Ok(scan)
}

fn below(root: &Path, folder: &str) -> Result<PathBuf, Failure> {
    let outside = || {
        Failure::usage("workdir_outside", texts::workdir_outside(folder))
            .hint(texts::workdir_hint())
    };
    let missing = || {
        Failure::usage("workdir_missing", texts::workdir_missing(folder))
            .hint(texts::workdir_hint())
    };
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(folder).components().all(plain) {
        return Err(outside());
    }
    let named: PathBuf = root.join(folder).components().collect();
    let real = named.canonicalize().map_err(|_| missing())?;
    if !real.is_dir() {
        return Err(missing());
    }
    // A linked work directory would be listed under paths that do not exist on the node.
    if real != named {
        return Err(outside());
    }
    Ok(named)
}

/// A path with what it is, or why it stays out.
type Seen = (PathBuf, Result<FoundFile, SkipReason>);

/// What one thread of a walk has seen; handed over when the thread ends.
struct Batch<'a> {
    all: &'a Mutex<Vec<Seen>>,
    seen: Vec<Seen>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.seen);
    }
}

/// Walks a folder on all cores: listing and looking cost about the same.
fn walk(root: &Path, folder: &Path, rules: &Rules, scan: &mut Scan) {
    let relative = |path: &Path| path.strip_prefix(root).map(Path::to_path_buf).unwrap_or_default();
    let all = Mutex::new(Vec::new());
    walker(root, folder, rules).run(|| {
        let mut batch = Batch { all: &all, seen: Vec::new() };
        Box::new(move |entry| {
            batch.seen.extend(see(root, entry));
            WalkState::Continue
        })
    });
    for (path, looked) in all.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let path = relative(&path);
        match looked {
            Ok(found) => match manifest_path(&path) {
                Some(name) => {
                    scan.files.insert(name, found);
                }
                None => {
                    scan.skipped.push(Skip { path: printable(&path), reason: SkipReason::Name })
                }
            },
            Err(reason) => scan.skipped.push(Skip { path: printable(&path), reason }),
        }
    }
}

fn walker(root: &Path, folder: &Path, rules: &Rules) -> WalkParallel {
    // The filter must own what it uses.
    let (rules, root) = (rules.clone(), root.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    WalkBuilder::new(folder)
        .standard_filters(false)
        .follow_links(false)
        .threads(cores)
        .filter_entry(move |entry| {
            let relative = entry.path().strip_prefix(&root).unwrap_or(entry.path());
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            relative.as_os_str().is_empty() || !rules.excludes(relative, is_dir)
        })
        .build_parallel()
}

/// One entry of a walk; folders themselves are nothing to sync.
fn see(root: &Path, entry: Result<DirEntry, ignore::Error>) -> Option<Seen> {
    match entry {
        Err(error) => {
            let reason = SkipReason::Unreadable(io_reason(&error));
            Some((path_of(&error).unwrap_or_default(), Err(reason)))
        }
        Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_dir()) => None,
        Ok(entry) => {
            let path = entry.into_path();
            let looked = look(root, &path);
            Some((path, looked))
        }
    }
}

fn look(root: &Path, path: &Path) -> Result<FoundFile, SkipReason> {
    let unreadable = |error: std::io::Error| SkipReason::Unreadable(error.to_string());
    let metadata = fs::symlink_metadata(path).map_err(unreadable)?;
    if metadata.is_file() {
        return Ok(FoundFile { disk: path.to_owned(), stamp: FileStamp::of(&metadata) });
    }
    if !metadata.is_symlink() {
        return Err(SkipReason::Special);
    }
    let disk = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => unreadable(error),
        _ => SkipReason::BrokenLink,
    })?;
    let metadata = fs::symlink_metadata(&disk).map_err(unreadable)?;
    if metadata.is_dir() {
        Err(SkipReason::LinkedFolder)
    } else if !metadata.is_file() {
        Err(SkipReason::Special)
    } else if !disk.starts_with(root) {
        Err(SkipReason::Outside)
    } else {
        Ok(FoundFile { disk, stamp: FileStamp::of(&metadata) })
    }
}

fn manifest_path(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    let good = !path.is_empty() && !path.chars().any(|c| c.is_control() || c == '\\');
    good.then(|| path.to_owned())
}

fn printable(path: &Path) -> String {
    path.to_string_lossy().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn path_of(error: &ignore::Error) -> Option<PathBuf> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path.clone()),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            path_of(err)
        }
        _ => None,
    }
}

fn io_reason(error: &ignore::Error) -> String {
    error.io_error().map_or_else(|| "?".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        root
    }

    fn names(root: &tempfile::TempDir, folders: &[&str]) -> Vec<String> {
        let folders: Vec<_> = folders.iter().map(|folder| (*folder).to_owned()).collect();
        scan(root.path(), &folders).unwrap().files.into_keys().collect()
    }

    #[test]
    fn built_in_rules_and_runwignore_count_and_gitignore_does_not() {
        let root = tree(&[
            "a.py",
            ".git/config",
            "sub/__pycache__/x.pyc",
            "x.pyc",
            ".venv/bin/python",
            "venv/x",
            "node_modules/m/i.js",
            ".env",
            ".env.local",
            "wandb/run",
            ".cache/x",
            ".tox/x",
            ".ruff_cache/x",
            ".pytest_cache/x",
            ".ipynb_checkpoints/x",
            "data/big.bin",
            "data/keep.bin",
            "secret.txt",
            ".hidden",
            "p.egg-info/PKG",
        ]);
        fs::write(root.path().join(".gitignore"), "secret.txt\n").unwrap();
        fs::write(
            root.path().join(".runwignore"),
            "# large\n data/*.bin \n!data/keep.bin\n!.env.local\n\n",
        )
        .unwrap();
        let expected =
            [".env.local", ".gitignore", ".hidden", "a.py", "data/keep.bin", "secret.txt"];
        assert_eq!(names(&root, &["."]), expected);
    }

    #[test]
    fn only_the_named_folders_are_scanned_and_overlaps_count_once() {
        let root = tree(&["a/x", "a/b/y", "c/z", "top"]);
        assert_eq!(names(&root, &["a", "a/b/"]), ["a/b/y", "a/x"]);
    }

    #[test]
    fn folders_outside_the_root_are_refused() {
        let root = tree(&["a/x", "file"]);
        symlink("/etc", root.path().join("etc")).unwrap();
        for folder in ["..", "a/../..", "/etc", "etc", "missing", "file"] {
            let failure = scan(root.path(), &[folder.to_owned()]).unwrap_err();
            assert_eq!(failure.exit, crate::failure::Exit::Usage, "{folder}");
        }
    }

    #[test]
    fn links_and_special_files_are_followed_or_named() {
        let root = tree(&["real/data.txt"]);
        let at = |name: &str| root.path().join(name);
        symlink("real/data.txt", at("inside")).unwrap();
        symlink("/etc/hostname", at("outside")).unwrap();
        symlink("nowhere", at("broken")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("real", at("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        fs::write(at("bad\\name"), "").unwrap();
        fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"not-utf8-\xff")), "").unwrap();
        fs::write(at("new\nline"), "").unwrap();

        let scan = scan(root.path(), &[".".to_owned()]).unwrap();
        assert_eq!(scan.files.keys().collect::<Vec<_>>(), ["inside", "real/data.txt"]);
        assert_eq!(scan.files["inside"].stamp.size, 13);
        let reason =
            |path: &str| &scan.skipped.iter().find(|skip| skip.path == path).unwrap().reason;
        assert_eq!(reason("outside"), &SkipReason::Outside);
        assert_eq!(reason("broken"), &SkipReason::BrokenLink);
        assert_eq!(reason("loop"), &SkipReason::BrokenLink);
        assert_eq!(reason("folder"), &SkipReason::LinkedFolder);
        assert_eq!(reason("fifo"), &SkipReason::Special);
        assert_eq!(reason("socket"), &SkipReason::Special);
        assert_eq!(reason("bad\\name"), &SkipReason::Name);
        assert_eq!(scan.skipped.iter().filter(|skip| skip.reason == SkipReason::Name).count(), 3);
    }
}
