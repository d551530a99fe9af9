//! Filling the work folder: every file verified while it is written, nothing outside the folder.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::Digest as _;

use crate::files::safe_path;
use crate::link::{Link, LinkError, Pause, cause};
use crate::protocol::{Assignment, Digest, DropTo, RunnerTask, SyncFile};

/// The job's command in the runner's folder.
pub(crate) const RUN_COMMAND_FILE: &str = "run_command";
/// The job's profile in the runner's folder.
pub(crate) const PROFILE_FILE: &str = "profile.json";

const PARALLEL: usize = 6;
const TRIES: u32 = 5;

/// Folders of a trial.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    pub(crate) work: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) temp: PathBuf,
    pub(crate) incoming: PathBuf,
    /// A published runner's files, which its program reads.
    pub(crate) runner: PathBuf,
}

/// Why the folder could not be filled.
#[derive(Debug)]
pub(crate) struct Unprepared {
    /// `sync` or `restore`.
    pub(crate) stage: &'static str,
    pub(crate) reason: String,
}

/// A file of the sync as it lay there before user code ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Original {
    pub(crate) sha256: Digest,
    pub(crate) size: u64,
    /// Inode and change time (which user code cannot forge); absent after a restart of the agent.
    pub(crate) stamp: Option<Stamp>,
}

/// What changes with every change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    changed: (i64, i64),
    size: u64,
}

impl Stamp {
    pub(crate) fn of(data: &fs::Metadata) -> Self {
        Self { inode: data.ino(), changed: (data.ctime(), data.ctime_nsec()), size: data.len() }
    }
}

/// The sync as it was, by path.
pub(crate) type Originals = HashMap<String, Original>;

impl Folders {
    /// All of them below one folder, so that what has come in is moved within a file system.
    pub(crate) fn below(folder: &Path) -> Self {
        Self {
            work: folder.join("work"),
            home: folder.join("home"),
            temp: folder.join("tmp"),
            incoming: folder.join("incoming"),
            runner: folder.join("runner"),
        }
    }
}

/// The sync without what cannot lie beside the restored files: a program may have made a folder of
/// a file, or a file of a folder, and what it made counts.
fn beside_restored(assignment: &Assignment) -> impl Iterator<Item = &SyncFile> {
    let restored: HashSet<&str> = assignment.restore.iter().map(|f| f.path.as_str()).collect();
    let folders: HashSet<&str> = restored.iter().flat_map(|path| above(path)).collect();
    assignment.sync.iter().filter(move |file| {
        let becomes_a_folder = folders.contains(file.path.as_str());
        let within_a_file = above(&file.path).any(|folder| restored.contains(folder));
        !becomes_a_folder && !within_a_file
    })
}

/// The folders that a path goes through.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// The sync of an assignment without looking at the folder.
pub(crate) fn originals(assignment: &Assignment) -> Originals {
    beside_restored(assignment)
        .map(|file| {
            let original = Original { sha256: file.sha256, size: file.size, stamp: None };
            (file.path.clone(), original)
        })
        .collect()
}

/// Fills fresh folders. Must not be called once user code has started.
pub(crate) async fn prepare(
    link: &Arc<Link>,
    assignment: &Assignment,
    folders: &Folders,
    drop_to: Option<DropTo>,
) -> Result<Originals, Unprepared> {
    let failed = |stage| move |reason: String| Unprepared { stage, reason };
    for folder in [&folders.work, &folders.home, &folders.temp, &folders.incoming] {
        fresh(folder).map_err(|error| Unprepared {
            stage: "sync",
            reason: format!("cannot make the work folder: {error}"),
        })?;
    }
    let sync = checked(&assignment.sync, beside_restored(assignment)).map_err(failed("sync"))?;
    let restore = checked(&assignment.restore, &assignment.restore).map_err(failed("restore"))?;
    fetch_all(link, folders, &folders.work, sync).await.map_err(failed("sync"))?;
    // Restored files are written over the sync; so only now is the sync's own state known to count.
    fetch_all(link, folders, &folders.work, restore).await.map_err(failed("restore"))?;
    if let Some(task) = &assignment.runner {
        runner_folder(link, folders, task).await.map_err(failed("runner"))?;
    }
    let _ = fs::remove_dir_all(&folders.incoming);
    if let Some(to) = drop_to {
        for folder in [&folders.work, &folders.home, &folders.temp] {
            give(folder, to).map_err(|error| Unprepared {
                stage: "sync",
                reason: format!("cannot hand over the work folder: {error}"),
            })?;
        }
    }
    let restored: HashSet<&str> =
        assignment.restore.iter().map(|file| file.path.as_str()).collect();
    let mut originals = originals(assignment);
    for (path, original) in &mut originals {
        if !restored.contains(path.as_str()) {
            let data = fs::symlink_metadata(folders.work.join(path));
            original.stamp = data.ok().map(|data| Stamp::of(&data));
        }
    }
    Ok(originals)
}

fn fresh(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Makes `path` and what is missing above it, down from `work`, for the user's program.
pub(crate) fn make(work: &Path, path: &Path, drop_to: Option<DropTo>) -> io::Result<()> {
    let mut missing: Vec<&Path> =
        path.ancestors().take_while(|above| *above != work && !above.exists()).collect();
    while let Some(folder) = missing.pop() {
        fs::create_dir(folder)?;
        if let Some(to) = drop_to {
            std::os::unix::fs::lchown(folder, Some(to.uid), Some(to.gid))?;
        }
    }
    Ok(())
}

fn give(path: &Path, to: DropTo) -> io::Result<()> {
    all_below(path, |path, _| std::os::unix::fs::lchown(path, Some(to.uid), Some(to.gid)))
}

/// Calls `each` with a path and everything below it, and whether that is a folder.
fn all_below(path: &Path, each: impl Fn(&Path, bool) -> io::Result<()>) -> io::Result<()> {
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        let folder = fs::symlink_metadata(&path)?.is_dir();
        each(&path, folder)?;
        if folder {
            for entry in fs::read_dir(&path)? {
                paths.push(entry?.path());
            }
        }
    }
    Ok(())
}

/// Those of a manifest that are `wanted`; all of it must be good.
fn checked<'a>(
    all: &[SyncFile],
    wanted: impl IntoIterator<Item = &'a SyncFile>,
) -> Result<Vec<(PathBuf, SyncFile)>, String> {
    let mut seen = HashSet::new();
    for file in all {
        safe_path(&file.path)
            .map_err(|problem| format!("`{}`: {problem}", file.path.escape_debug()))?;
        if !seen.insert(&file.path) {
            return Err(format!("`{}` is there twice", file.path.escape_debug()));
        }
    }
    Ok(wanted.into_iter().map(|file| (PathBuf::from(&file.path), file.clone())).collect())
}

/// Fills the runner's folder: what the program may read and, as another user, not change.
async fn runner_folder(
    link: &Arc<Link>,
    folders: &Folders,
    task: &RunnerTask,
) -> Result<(), String> {
    let told = |error: io::Error| error.to_string();
    fresh(&folders.runner).map_err(told)?;
    for (name, files) in [("runner", &task.files), ("profile", &task.inputs)] {
        let folder = folders.runner.join(name);
        fs::create_dir(&folder).map_err(told)?;
        fetch_all(link, folders, &folder, checked(files, files)?).await?;
    }
    let texts =
        [(RUN_COMMAND_FILE, task.command.as_deref()), (PROFILE_FILE, task.profile.as_deref())];
    for (name, text) in texts {
        if let Some(text) = text {
            fs::write(folders.runner.join(name), text).map_err(told)?;
        }
    }
    readable(&folders.runner).map_err(told)
}

/// Lets everybody read and nobody write; only who owns a folder could replace what is in it.
fn readable(path: &Path) -> io::Result<()> {
    all_below(path, |path, folder| {
        let mode = if folder { 0o755 } else { 0o444 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    })
}

async fn fetch_all(
    link: &Arc<Link>,
    folders: &Folders,
    target: &Path,
    files: Vec<(PathBuf, SyncFile)>,
) -> Result<(), String> {
    stream::iter(files.into_iter().enumerate())
        .map(|(number, (path, file))| async move {
            fetch(link, folders, number, &target.join(path), &file)
                .await
                .map_err(|problem| format!("`{}`: {problem}", file.path.escape_debug()))
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

async fn fetch(
    link: &Link,
    folders: &Folders,
    number: usize,
    target: &Path,
    file: &SyncFile,
) -> Result<(), String> {
    let temp = folders.incoming.join(number.to_string());
    let mut wrong = 0;
    let mut pause = Pause::default();
    loop {
        match download(link, &temp, file).await {
            Ok(()) => return place(&temp, target, file).map_err(|error| error.to_string()),
            Err(Broken::Final(reason)) => return Err(reason),
            Err(Broken::Content(reason)) => {
                wrong += 1;
                if wrong >= TRIES {
                    return Err(reason.to_owned());
                }
            }
            Err(Broken::Line(problem)) => tracing::debug!(problem, "download will be repeated"),
        }
        tokio::time::sleep(pause.next()).await;
    }
}

enum Broken {
    /// The line: repeated for as long as the session lives.
    Line(String),
    /// Not what was asked for: repeated a few times.
    Content(&'static str),
    /// Cannot get better.
    Final(String),
}

async fn download(link: &Link, temp: &Path, file: &SyncFile) -> Result<(), Broken> {
    let local = |error: io::Error| Broken::Final(error.to_string());
    let mut out = File::create(temp).map_err(local)?;
    let mut response =
        link.open_blob(&file.sha256, file.size).await.map_err(|error| match error {
            LinkError::Refused { status, .. } if status == reqwest::StatusCode::NOT_FOUND => {
                Broken::Final("the broker does not have its content".to_owned())
            }
            error => Broken::Final(error.to_string()),
        })?;
    let mut hash = sha2::Sha256::new();
    let mut size = 0;
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                size += chunk.len() as u64;
                if size > file.size {
                    return Err(Broken::Content("is longer than the manifest says"));
                }
                hash.update(&chunk);
                out.write_all(&chunk).map_err(local)?;
            }
            Ok(None) => break,
            Err(error) => return Err(Broken::Line(cause(&error))),
        }
    }
    if size != file.size || Digest::finish(hash) != file.sha256 {
        return Err(Broken::Content("is not what the manifest says"));
    }
    let mode = file.mode.unwrap_or(0o644) & 0o777;
    // Without its owner's right to read, the file could not even be collected.
    out.set_permissions(fs::Permissions::from_mode(mode | 0o400)).map_err(local)
}

fn place(temp: &Path, target: &Path, file: &SyncFile) -> io::Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    // No user code has run and manifests cannot make links, so nothing here leads elsewhere.
    fs::rename(temp, target)?;
    debug_assert_eq!(fs::metadata(target)?.len(), file.size);
    Ok(())
}
