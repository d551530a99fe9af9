//! One collection.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use runwhere_failpoint::failpoint;
use tokio::sync::watch;

use super::stream::{Sent, chunks, hash, hashed};
use super::walk::{Candidate, Found, MAX_SKIPPED, Walk, open_beneath};
use crate::files::safe_folder;
use crate::journal::Journal;
use crate::link::{Link, LinkError, Target, transfer_timeout};
use crate::protocol::{Assignment, EventKind, SkippedFile, StoredOutput};
use crate::workfolder::{Originals, Stamp};

const TRIES: u32 = 5;
const PARALLEL: usize = 16;
const BUDGET_TICK: Duration = Duration::from_millis(200);
/// Worth a question whether the broker has it already.
const ASK_FIRST_BYTES: u64 = 1 << 20;
/// From here on a file is hashed while it is sent: reading it twice takes longer than a repeat of
/// what the broker happens to have.
const STREAMED_BYTES: u64 = 16 << 20;
/// Files at least this long whose blocks hold less than half are called sparse.
const SPARSE_BYTES: u64 = 1 << 20;

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
    pub(crate) originals: &'a Arc<Originals>,
    /// Outputs that an earlier agent process has brought home.
    pub(crate) earlier: &'a [(String, u64)],
}

impl Collector<'_> {
    /// Collects within the bounds of the assignment and writes all of it into the journal. Time in
    /// which the broker cannot be reached does not count.
    pub(crate) async fn run(&self) {
        let Found { files, mut skipped, cut, left } = self.look().await;
        // A runner declares what it brings: a file among it that stays behind is a failure, while
        // links and pipes are no outputs.
        let declared = self.assignment.runner.is_some();
        let done: HashSet<&str> = self.earlier.iter().map(|(path, _)| path.as_str()).collect();
        let mut count = self.earlier.len() as u64;
        let mut bytes: u64 = self.earlier.iter().map(|(_, size)| size).sum();
        let mut failed = left.filter(|_| declared).or(cut).map(str::to_owned);
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
        let budget = self.budget();
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

    /// What lies in the work folder.
    async fn look(&self) -> Found {
        let (work, checkpoint) = (self.work.to_owned(), self.checkpoint());
        let wanted = self.assignment.runner.as_ref().map(|task| task.outputs.clone());
        let originals = Arc::clone(self.originals);
        let until = Instant::now() + self.budget();
        let look = move || {
            let (checkpoint, wanted) = (checkpoint.as_deref(), wanted.as_deref());
            Walk { work: &work, checkpoint, wanted, originals: &originals, until }.find()
        };
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    fn budget(&self) -> Duration {
        Duration::from_secs(self.assignment.collect.max_seconds.max(1))
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
        match self.measure(candidate, used, true).await? {
            Measured::New(stored) => self.bring_hashed(candidate, used, stored).await,
            Measured::Large(size, stamp) => self.bring_large(candidate, used, size, stamp).await,
            Measured::Unchanged => Ok(None),
            Measured::TooLarge => Err(Problem::Skip("over_max_bytes")),
            Measured::Sparse => Err(Problem::Skip("sparse")),
            Measured::Changing => Err(Problem::Skip("changed_while_read")),
        }
    }

    /// Looks at a file. Where it may be `streamed`, a large one is not read yet.
    async fn measure(
        &self,
        candidate: &Candidate,
        used: &AtomicU64,
        streams: bool,
    ) -> Result<Measured, Problem> {
        let (work, path) = (self.work.to_owned(), PathBuf::from(&candidate.name));
        let original = self.originals.get(&candidate.name).copied();
        let owner = self.owner;
        let max_bytes = self.assignment.collect.max_bytes;
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
            let can_be_original = original.is_some_and(|original| original.size == before.len());
            if before.len() >= STREAMED_BYTES && streams && !can_be_original {
                return Ok(Measured::Large(before.len(), Stamp::of(&before)));
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
        match measured {
            Ok(Ok(measured)) => Ok(measured),
            Ok(Err(_)) | Err(_) => Err(Problem::Skip("unreadable")),
        }
    }

    fn take(&self, used: &AtomicU64, size: u64) -> Result<(), Problem> {
        let max_bytes = self.assignment.collect.max_bytes;
        let take = |used: u64| used.checked_add(size).filter(|sum| *sum <= max_bytes);
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(|_| ()).map_err(|_| Problem::Skip("over_max_bytes"))
    }

    /// Sends a file and hashes it meanwhile; the broker does the same, and both must agree.
    async fn bring_large(
        &self,
        candidate: &Candidate,
        used: &AtomicU64,
        size: u64,
        stamp: Stamp,
    ) -> Result<Option<StoredOutput>, Problem> {
        self.take(used, size)?;
        let path = format!("outputs?size={size}");
        let sent: Mutex<Arc<Sent>> = Mutex::default();
        let open = |target: &Target| {
            let request = self
                .link
                .request(target, reqwest::Method::POST, &path)
                .header("content-type", "application/octet-stream")
                .header("content-length", size)
                .timeout(transfer_timeout(size));
            let fresh = Arc::new(Sent::default());
            *sent.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
            match open_beneath(self.work, Path::new(&candidate.name), self.owner) {
                Ok(file) => request.body(reqwest::Body::wrap_stream(hashed(file, size, fresh))),
                Err(_) => request.body(Bytes::new()),
            }
        };
        let reply = match self.link.retry("outputs", open).await {
            Ok(reply) => reply,
            Err(LinkError::Refused { .. }) => {
                // Whatever it was, the careful way tells more, and knows what is there already.
                used.fetch_sub(size, Ordering::Relaxed);
                return self.bring_carefully(candidate, used).await;
            }
            Err(error) => return Err(error.into()),
        };
        let sent = Arc::clone(&sent.lock().unwrap_or_else(PoisonError::into_inner));
        let ours = sent.digest.get().copied();
        let (work, path, owner) =
            (self.work.to_owned(), PathBuf::from(&candidate.name), self.owner);
        let after = tokio::task::spawn_blocking(move || {
            open_beneath(&work, &path, owner)?.metadata().map(|data| Stamp::of(&data))
        });
        if sent.changed.load(Ordering::Relaxed)
            || !matches!(after.await, Ok(Ok(after)) if after == stamp)
        {
            return Err(Problem::Skip("changed_while_read"));
        }
        let there = serde_json::from_slice::<StoredOutput>(&reply).ok();
        let Some(stored) = ours.map(|sha256| StoredOutput { size, sha256 }) else {
            return Err(Problem::NotStored);
        };
        if there != Some(stored) || !self.read_back(&stored).await? {
            // The line has changed it, or the disk there.
            used.fetch_sub(size, Ordering::Relaxed);
            return self.bring_carefully(candidate, used).await;
        }
        Ok(Some(stored))
    }

    async fn bring_carefully(
        &self,
        candidate: &Candidate,
        used: &AtomicU64,
    ) -> Result<Option<StoredOutput>, Problem> {
        match self.measure(candidate, used, false).await? {
            Measured::New(stored) => self.bring_hashed(candidate, used, stored).await,
            Measured::Unchanged => Ok(None),
            Measured::TooLarge => Err(Problem::Skip("over_max_bytes")),
            Measured::Sparse => Err(Problem::Skip("sparse")),
            Measured::Changing | Measured::Large(..) => Err(Problem::Skip("changed_while_read")),
        }
    }

    async fn bring_hashed(
        &self,
        candidate: &Candidate,
        used: &AtomicU64,
        stored: StoredOutput,
    ) -> Result<Option<StoredOutput>, Problem> {
        self.take(used, stored.size)?;
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
            match open_beneath(self.work, Path::new(&candidate.name), self.owner) {
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
    /// So large, with this stamp, and not read yet.
    Large(u64, Stamp),
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
