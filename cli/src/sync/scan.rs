//! Walks the work directories and lists their files.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::{Rules, walk};
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
    /// Where its bytes are, if it is a link: there it is resolved.
    pub link: Option<PathBuf>,
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
    /// The folder it is all below: absolute, without links.
    pub root: PathBuf,
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
        let folder = below(&root, folder)?;
        let walker = Walker { root: &root, rules: &rules };
        // Listing and looking cost about the same, and sorting is shared, too.
        let parts = walk::walk(
            folder.strip_prefix(&root).unwrap_or(&folder).to_path_buf(),
            |folder, more, part| walker.list(folder, more, part),
            |part: &mut Part| part.files.sort_unstable_by(|(a, _), (b, _)| a.cmp(b)),
        );
        let mut files = Vec::with_capacity(parts.iter().map(|part| part.files.len()).sum());
        for part in parts {
            files.extend(part.files);
            scan.skipped.extend(part.skipped);
        }
        scan.files.append(&mut files.into_iter().collect());
    }
    scan.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    scan.skipped.dedup();
    scan.root = root;
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

/// What one thread of a walk has seen.
#[derive(Debug, Default)]
struct Part {
    files: Vec<(String, FoundFile)>,
    skipped: Vec<Skip>,
}

#[derive(Clone, Copy, Debug)]
struct Walker<'a> {
    root: &'a Path,
    rules: &'a Rules,
}

impl Walker<'_> {
    /// Looks at what is in a folder, whose path is relative to the root. Folders themselves are nothing to sync.
    fn list(self, folder: PathBuf, more: &mut Vec<PathBuf>, part: &mut Part) {
        let entries = match fs::read_dir(self.root.join(&folder)) {
            Ok(entries) => entries,
            Err(error) => return part.skip(&folder, unreadable(error)),
        };
        let mut path = folder;
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    part.skip(&path, unreadable(error));
                    continue;
                }
            };
            path.push(entry.file_name());
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match self.rules.excludes(&path, is_dir) {
                true => {}
                false if is_dir => more.push(path.clone()),
                false => match self.look(&path, &entry) {
                    Ok(found) => match manifest_path(&path) {
                        Some(name) => part.files.push((name, found)),
                        None => part.skip(&path, SkipReason::Name),
                    },
                    Err(reason) => part.skip(&path, reason),
                },
            }
            path.pop();
        }
    }

    fn look(self, path: &Path, entry: &DirEntry) -> Result<FoundFile, SkipReason> {
        // Of the entry itself, not of what a link names; the open folder makes that a short way.
        let metadata = entry.metadata().map_err(unreadable)?;
        if metadata.is_file() {
            return Ok(FoundFile { link: None, stamp: FileStamp::of(&metadata) });
        }
        if !metadata.is_symlink() {
            return Err(SkipReason::Special);
        }
        let disk = self.root.join(path).canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => unreadable(error),
            _ => SkipReason::BrokenLink,
        })?;
        let metadata = fs::symlink_metadata(&disk).map_err(unreadable)?;
        if metadata.is_dir() {
            Err(SkipReason::LinkedFolder)
        } else if !metadata.is_file() {
            Err(SkipReason::Special)
        } else if !disk.starts_with(self.root) {
            Err(SkipReason::Outside)
        } else {
            Ok(FoundFile { stamp: FileStamp::of(&metadata), link: Some(disk) })
        }
    }
}

impl Part {
    fn skip(&mut self, path: &Path, reason: SkipReason) {
        self.skipped.push(Skip { path: printable(path), reason });
    }
}

fn unreadable(error: std::io::Error) -> SkipReason {
    SkipReason::Unreadable(error.to_string())
}

fn manifest_path(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    let good = !path.is_empty() && !path.chars().any(|c| c.is_control() || c == '\\');
    good.then(|| path.to_owned())
}

fn printable(path: &Path) -> String {
    path.to_string_lossy().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
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
