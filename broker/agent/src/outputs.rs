//! Bringing outputs home: the checkpoint first, then everything new or changed.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use runwhere_failpoint::failpoint;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use sha2::Digest as _;
use tokio::sync::watch;

use crate::files::safe_folder;
use crate::glob;
use crate::journal::Journal;
use crate::link::{Link, LinkError, Target, transfer_timeout};
use crate::protocol::{Assignment, Digest, EventKind, SkippedFile, StoredOutput};
use crate::workfolder::{Originals, Stamp};

const MAX_SKIPPED: usize = 1000;
const CHUNK: usize = 256 << 10;
const TRIES: u32 = 5;
const PARALLEL: usize = 16;
const BUDGET_TICK: Duration = Duration::from_millis(200);
/// Worth a question whether the broker has it already.
const ASK_FIRST_BYTES: u64 = 1 << 20;
/// Files at least this long whose blocks hold less than half are called sparse.
const SPARSE_BYTES: u64 = 1 << 20;
/// Folders within folders, at most: what lies deeper is not collected, and named. A path of more
/// could be made again on no machine.
const MAX_DEPTH: usize = 512;
/// Bytes of a path below the work folder, at most, so that it also fits below another one.
const MAX_PATH: usize = 3072;
/// Folders that only hold what the interpreter makes again.
const IGNORED: [&str; 1] = ["__pycache__"];

#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    name: String,
    checkpoint: bool,
}

#[derive(Debug, Default)]
struct Found {
    files: Vec<Candidate>,
    skipped: Vec<SkippedFile>,
}

impl Found {
    fn skip(&mut self, path: &Path, reason: &str) {
        if self.skipped.len() < MAX_SKIPPED {
            let path = path.to_string_lossy().into_owned();
            self.skipped.push(SkippedFile { path, reason: reason.to_owned() });
        }
    }

    /// Keeps what declared patterns name. Names that not every client can store are left behind.
    fn keep(&mut self, patterns: &[String]) {
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

/// What one collection needs to know.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    pub(crate) link: &'a Link,
    pub(crate) journal: &'a Journal,
    pub(crate) assignment: &'a Assignment,
    pub(crate) work: &'a Path,
    /// Only files of this user are taken: another one's, which it may have no right to read, can
    /// have got there as a second name.
    pub(crate) owner: Option<u32>,
    pub(crate) originals: &'a Originals,
    /// Outputs that an earlier agent process has brought home.
    pub(crate) earlier: &'a [(String, u64)],
}

impl Collector<'_> {
    /// Collects within the bounds of the assignment and writes all of it into the journal. Time in
    /// which the broker cannot be reached does not count.
    pub(crate) async fn run(&self) {
        let (work, checkpoint) = (self.work.to_owned(), self.checkpoint());
        let found = tokio::task::spawn_blocking(move || find(&work, checkpoint.as_deref())).await;
        let mut found = found.unwrap_or_default();
        if let Some(task) = &self.assignment.runner {
            found.keep(&task.outputs);
        }
        let Found { files, mut skipped } = found;
        // A runner declares what it brings: a file among it that stays behind is a failure, while
        // links and pipes are no outputs.
        let declared = self.assignment.runner.is_some();
        let done: HashSet<&str> = self.earlier.iter().map(|(path, _)| path.as_str()).collect();
        let mut count = self.earlier.len() as u64;
        let mut bytes: u64 = self.earlier.iter().map(|(_, size)| size).sum();
        let unusable =
            |reason: &str| matches!(reason, "unsafe_name" | "name_not_utf8" | "unreadable");
        let mut failed = skipped
            .iter()
            .find(|skipped| declared && unusable(&skipped.reason))
            .map(|skipped| skipped.reason.clone());
        let mut note = |path: &str, reason: &str| {
            if skipped.len() < MAX_SKIPPED {
                let (path, reason) = (path.to_owned(), reason.to_owned());
                skipped.push(SkippedFile { path, reason });
            }
        };
        if let Some(path) = self.assignment.checkpoint.as_deref()
            && self.checkpoint().is_none()
        {
            note(path, "outside_work_folder");
        }
        let used = AtomicU64::new(bytes);
        let (over, _) = watch::channel(false);
        let budget = Duration::from_secs(self.assignment.collect.max_seconds.max(1));
        let clock = async {
            spend(self.link, budget).await;
            over.send_replace(true);
            std::future::pending().await
        };
        let brought = stream::iter(files)
            .filter(|candidate| std::future::ready(!done.contains(candidate.name.as_str())))
            .map(|candidate| async {
                let mut over = over.subscribe();
                let result = tokio::select! {
                    biased;
                    _ = over.wait_for(|over| *over) => Err(Problem::Late),
                    result = self.bring(&candidate, &used) => result,
                };
                (candidate, result)
            })
            .buffered(PARALLEL)
            // One fsync of the journal for all that has arrived meanwhile.
            .ready_chunks(PARALLEL);
        let store = async {
            let mut brought = std::pin::pin!(brought);
            while let Some(chunk) = brought.next().await {
                let mut outputs = Vec::new();
                for (candidate, result) in chunk {
                    let problem = match result {
                        Ok(None) => continue,
                        Ok(Some(StoredOutput { size, sha256 })) => {
                            let Candidate { name: path, checkpoint, .. } = candidate;
                            let output = EventKind::Output { path, sha256, size, checkpoint };
                            outputs.push(output);
                            count += 1;
                            bytes += size;
                            continue;
                        }
                        Err(problem) => problem,
                    };
                    let (reason, whole) = match problem {
                        Problem::Skip("over_max_bytes") => {
                            ("over_max_bytes", Some("over_max_bytes".to_owned()))
                        }
                        Problem::Skip(reason) => (reason, declared.then(|| reason.to_owned())),
                        Problem::Late => ("over_max_seconds", Some("over_max_seconds".to_owned())),
                        Problem::NotStored => {
                            ("not_uploaded", Some("the broker did not store it whole".to_owned()))
                        }
                        Problem::Link(LinkError::Closed(_)) => return false,
                        Problem::Link(error) => ("not_uploaded", Some(error.to_string())),
                    };
                    failed = whole.or(failed.take());
                    note(&candidate.name, reason);
                }
                if !outputs.is_empty() {
                    self.journal.append_all(outputs).await;
                }
            }
            true
        };
        let whole = tokio::select! {
            whole = store => whole,
            () = clock => false,
        };
        if whole {
            self.journal
                .append(EventKind::Collected { files: count, bytes, skipped, failed })
                .await;
        }
    }

    fn checkpoint(&self) -> Option<PathBuf> {
        let path = self.assignment.checkpoint.as_deref()?;
        if let Ok(inside) = Path::new(path).strip_prefix(self.work) {
            return safe_folder(inside.to_str()?).ok();
        }
        Some(safe_folder(&self.assignment.workdir).ok()?.join(safe_folder(path).ok()?))
    }

    // None where the file is the sync's own.
    async fn bring(
        &self,
        candidate: &Candidate,
        used: &AtomicU64,
    ) -> Result<Option<StoredOutput>, Problem> {
        let (work, path) = (self.work.to_owned(), candidate.path.clone());
        let original = self.originals.get(&candidate.name).copied();
        let max_bytes = self.assignment.collect.max_bytes;
        let owner = self.owner;
        let room = max_bytes.saturating_sub(used.load(Ordering::Relaxed));
        let measured = tokio::task::spawn_blocking(move || {
            let mut file = open_beneath(&work, &path, owner)?;
            let before = file.metadata()?;
            if let Some(original) = original
                && original.stamp == Some(Stamp::of(&before))
            {
                return Ok(Measured::Unchanged);
            }
            if before.len() > room {
                // Not worth reading, unless it is the sync's own and only its stamp differs.
                if original.is_none_or(|original| original.size != before.len()) {
                    return Ok(Measured::TooLarge);
                }
            }
            if before.len() >= SPARSE_BYTES && before.blocks() * 512 < before.len() / 2 {
                return Ok(Measured::Sparse);
            }
            let (sha256, size) = hash(&mut file)?;
            if Stamp::of(&file.metadata()?) != Stamp::of(&before) || size != before.len() {
                return Ok(Measured::Changing);
            }
            if original.is_some_and(|original| original.sha256 == sha256) {
                return Ok(Measured::Unchanged);
            }
            Ok::<_, io::Error>(Measured::New(StoredOutput { size, sha256 }))
        })
        .await;
        let stored = match measured {
            Ok(Ok(Measured::New(stored))) => stored,
            Ok(Ok(Measured::Unchanged)) => return Ok(None),
            Ok(Ok(Measured::TooLarge)) => return Err(Problem::Skip("over_max_bytes")),
            Ok(Ok(Measured::Sparse)) => return Err(Problem::Skip("sparse")),
            Ok(Ok(Measured::Changing)) => return Err(Problem::Skip("changed_while_read")),
            Ok(Err(_)) | Err(_) => return Err(Problem::Skip("unreadable")),
        };
        let take = |used: u64| used.checked_add(stored.size).filter(|sum| *sum <= max_bytes);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Err(Problem::Skip("over_max_bytes"));
        }
        if stored.size >= ASK_FIRST_BYTES && self.read_back(&stored).await? {
            return Ok(Some(stored));
        }
        failpoint!("agent.output.measured");
        for _ in 0..TRIES {
            match self.upload(candidate, &stored).await {
                // What arrives is not what was hashed: either the file or the line has changed it.
                Err(Problem::Link(LinkError::Refused { status, .. }))
                    if matches!(status.as_u16(), 400 | 409 | 422) => {}
                result => result?,
            }
            failpoint!("agent.output.uploaded");
            if self.read_back(&stored).await? {
                failpoint!("agent.output.read_back");
                return Ok(Some(stored));
            }
        }
        Err(Problem::NotStored)
    }

    async fn upload(&self, candidate: &Candidate, stored: &StoredOutput) -> Result<(), Problem> {
        let path = format!("outputs/{}?size={}", stored.sha256, stored.size);
        let open = |target: &Target| {
            let request = self
                .link
                .request(target, reqwest::Method::PUT, &path)
                .header("content-type", "application/octet-stream")
                .header("content-length", stored.size)
                .timeout(transfer_timeout(stored.size));
            match open_beneath(self.work, &candidate.path, self.owner) {
                Ok(file) => request.body(reqwest::Body::wrap_stream(chunks(file, stored.size))),
                Err(_) => request.body(Bytes::new()),
            }
        };
        self.link.retry("outputs", open).await?;
        Ok(())
    }

    async fn read_back(&self, stored: &StoredOutput) -> Result<bool, Problem> {
        let path = format!("outputs/{}", stored.sha256);
        match self.link.get::<StoredOutput>("outputs", &path).await {
            Ok(there) => Ok(there == *stored),
            Err(LinkError::Refused { status, .. }) if status == reqwest::StatusCode::NOT_FOUND => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

enum Measured {
    Unchanged,
    New(StoredOutput),
    TooLarge,
    Sparse,
    Changing,
}

#[derive(Debug)]
enum Problem {
    Skip(&'static str),
    Late,
    NotStored,
    Link(LinkError),
}

impl From<LinkError> for Problem {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

// Returns once `budget` is used up, not counting the time in which the broker is away.
async fn spend(link: &Link, budget: Duration) {
    let mut left = budget;
    while !left.is_zero() {
        let tick = BUDGET_TICK.min(left);
        tokio::time::sleep(tick).await;
        if !link.failing() {
            left -= tick;
        }
    }
}

fn hash(file: &mut File) -> io::Result<(Digest, u64)> {
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((Digest::finish(hash), size)),
            len => {
                hash.update(&buffer[..len]);
                size += len as u64;
            }
        }
    }
}

// At most `size` bytes, so that a growing file breaks no length.
fn chunks(
    file: File,
    size: u64,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
    let file = Arc::new(file);
    futures_util::stream::try_unfold(size, move |left| {
        let file = Arc::clone(&file);
        async move {
            if left == 0 {
                return Ok(None);
            }
            let read = tokio::task::spawn_blocking(move || {
                let mut buffer = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
                let len = (&*file).read(&mut buffer)?;
                buffer.truncate(len);
                Ok::<_, io::Error>(buffer)
            });
            let buffer = read.await.map_err(io::Error::other)??;
            if buffer.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let left = left - buffer.len() as u64;
            Ok(Some((Bytes::from(buffer), left)))
        }
    })
}

// No part of the path may be a link: user code could have put one there at any time.
fn open_beneath(work: &Path, path: &Path, owner: Option<u32>) -> io::Result<File> {
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

fn find(work: &Path, checkpoint: Option<&Path>) -> Found {
    let mut found = Found::default();
    let mut folders = vec![(PathBuf::new(), 0)];
    // A list, no recursion: how deep folders lie is the program's choice.
    while let Some((folder, depth)) = folders.pop() {
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
                    found.files.push(Candidate { name: name.to_owned(), path, checkpoint });
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
        let found = walk.spawn(move || find(&path, None)).unwrap().join().unwrap();
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
