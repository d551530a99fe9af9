//! All allocations of this machine: the root folder, its lock, and what is taken.
//!
//! What is taken is read from the folders each time, under the lock, and never counted elsewhere:
//! so two servers on one folder cannot give a GPU away twice, whatever crashes.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_failpoint::failpoint;
use runwhere_model::{LaunchRequest, LeaseId, NodeId};

use super::archive::{self, Remains};
use super::folder::{self, Allocation, Grant};
use super::meter::{self, Reading};
use super::shared;
use super::tree::remove_tree;
use super::work;

const LOCK_FILE: &str = "lock";
/// A copy of each allocation's record, away from where its programs work: what they destroy in
/// their own folder must not make us forget what they hold.
const RECORDS_FOLDER: &str = "records";
const NODE_PREFIX: &str = "node-";
/// Folders that are being filled or thrown away; nobody's once the lock is free.
const SCRATCH_PREFIX: &str = ".scratch-";
/// Folders that are only to be removed, by whoever comes by, without the lock.
const TRASH_PREFIX: &str = ".trash-";
/// Ended allocations that are still shown, at most; the oldest go first.
const MOST_TOMBSTONES: usize = 1000;
/// Looks at a busy lock before giving up, 5 ms apart: 15 s.
const LOCK_LOOKS: u32 = 3000;

/// The root folder.
#[derive(Clone, Debug)]
pub(super) struct Store {
    root: PathBuf,
    /// Ended allocations never change: they are read once.
    ended: Arc<Mutex<HashMap<NodeId, Allocation>>>,
    /// Two readers must not restore one folder at once.
    restoring: Arc<Mutex<()>>,
}

/// What the folders say.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) allocations: Vec<Allocation>,
    /// Folders that could not be read: then absence proves nothing.
    pub(super) damaged: usize,
}

impl Scan {
    pub(super) fn live(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|allocation| !allocation.ended())
    }

    pub(super) fn taken_slots(&self) -> BTreeSet<u32> {
        self.live().flat_map(|allocation| allocation.record.slots.iter().copied()).collect()
    }

    pub(super) fn taken_uids(&self) -> BTreeSet<u32> {
        self.live().filter_map(|allocation| allocation.record.uid).collect()
    }

    /// The allocation that a launch already made, by its token or, whatever the token, its lease:
    /// a lease never has two.
    pub(super) fn launched(&self, request: &LaunchRequest) -> Option<&Allocation> {
        self.allocations.iter().find(|allocation| {
            allocation.record.deployment == request.deployment
                && (allocation.record.token == request.token
                    || allocation.record.lease == request.lease)
        })
    }

    pub(super) fn of_lease(&self, lease: &LeaseId) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(move |allocation| allocation.record.lease == *lease)
    }
}

/// Held until dropped.
pub(super) struct Locked {
    _file: File,
}

impl Store {
    /// Opens the folder, making it where needed; nobody else may enter it.
    pub(super) fn open(root: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
        let store = Self {
            root: fs::canonicalize(root)?,
            ended: Arc::default(),
            restoring: Arc::default(),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(store.records())?;
        // Fails now rather than at the first launch where the folder cannot be written.
        store.lock_file()?;
        Ok(store)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn folder(&self, node: &NodeId) -> PathBuf {
        self.root.join(node.as_str())
    }

    fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.root.join(LOCK_FILE))
    }

    /// Nobody else launches or ends an allocation meanwhile.
    pub(super) fn lock(&self) -> io::Result<Locked> {
        self.wait_for(File::try_lock)
    }

    /// Nobody is in the middle of a launch meanwhile: what is read is no half-made allocation.
    pub(super) fn lock_shared(&self) -> io::Result<Locked> {
        self.wait_for(File::try_lock_shared)
    }

    fn wait_for(&self, take: fn(&File) -> Result<(), TryLockError>) -> io::Result<Locked> {
        let file = self.lock_file()?;
        for _ in 0..LOCK_LOOKS {
            match take(&file) {
                Ok(()) => return Ok(Locked { _file: file }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the folder's lock"))
    }

    /// Reads all allocations.
    pub(super) fn scan(&self) -> io::Result<Scan> {
        let mut scan = Scan::default();
        let mut nodes = BTreeSet::new();
        for folder in [&self.root, &self.records()] {
            for entry in fs::read_dir(folder)? {
                nodes.extend(entry?.file_name().to_str().and_then(node_of_folder));
            }
        }
        for node in nodes {
            match self.read(&node) {
                Ok(Some(allocation)) => scan.allocations.push(allocation),
                // Pruned while we looked.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(node = %node, %error, "an allocation's folder is damaged");
                    scan.damaged += 1;
                }
            }
        }
        scan.allocations.sort_by(|a, b| a.record.node.cmp(&b.record.node));
        Ok(scan)
    }

    /// Reads one allocation; `None` where there is none (any more).
    pub(super) fn read(&self, node: &NodeId) -> io::Result<Option<Allocation>> {
        // Also keeps a hostile id such as `..` out of any path.
        if node_of_folder(node.as_str()).is_none() {
            return Ok(None);
        }
        if let Some(allocation) = self.remembered().get(node) {
            return Ok(Some(allocation.clone()));
        }
        let allocation = match folder::read(&self.folder(node)) {
            Ok(Some(allocation)) if allocation.meter.started_at.is_some() => Some(allocation),
            other => match folder::read_record(&self.record(node))? {
                None => other?,
                Some(record) => {
                    tracing::warn!(%node, "an allocation's folder lost its record; it is written again");
                    let _one =
                        self.restoring.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    folder::restore(&self.folder(node), &record)?;
                    folder::read(&self.folder(node))?
                }
            },
        };
        if let Some(allocation) = allocation.as_ref().filter(|allocation| allocation.ended()) {
            self.remembered().insert(node.clone(), allocation.clone());
        }
        Ok(allocation)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<NodeId, Allocation>> {
        self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// An id that no allocation has or had. Under the lock.
    pub(super) fn new_node_id(&self) -> io::Result<NodeId> {
        loop {
            let mut bytes = [0; 4];
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
            let text = format!("{NODE_PREFIX}{:08x}", u32::from_be_bytes(bytes));
            let node = NodeId::new(text).map_err(io::Error::other)?;
            if !self.folder(&node).try_exists()? && archive::of_node(&self.root, &node)?.is_none() {
                return Ok(node);
            }
        }
    }

    /// Makes an allocation in one step: afterwards it is there with its meter running, or nothing
    /// is. After a failure [`discard`](Self::discard) makes sure of that. Under the lock.
    /// What agents have found of images, by digest; made by them.
    pub(super) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(super) fn create(&self, request: &LaunchRequest, grant: &Grant) -> io::Result<PathBuf> {
        let scratch = self.scratch(&grant.node);
        let target = self.folder(&grant.node);
        folder::fill(&scratch, request, grant)?;
        fs::rename(&scratch, &target)?;
        failpoint!("local.create.renamed");
        self.sync()?;
        Ok(target)
    }

    /// Copies an allocation's record to where its programs do not work, once. Not part of making
    /// it: a copy without a folder would be taken for an allocation that was destroyed. A failure
    /// is for the log: the copy is made up for at the next opening.
    pub(super) fn keep_record(&self, node: &NodeId) {
        let copy = || -> io::Result<()> {
            let path = self.record(node);
            if folder::read_record(&path)?.is_none() {
                fs::copy(folder::record_of(&self.folder(node)), &path)?;
                failpoint!("local.record.copied");
                File::open(&path)?.sync_all()?;
                File::open(self.records())?.sync_all()?;
            }
            Ok(())
        };
        if let Err(error) = copy() {
            tracing::warn!(%node, %error, "cannot keep a copy of an allocation's record");
        }
    }

    /// Throws an allocation away in which nothing runs; quiet where there is none. Under the lock.
    pub(super) fn discard(&self, node: &NodeId) -> io::Result<()> {
        let scratch = self.scratch(node);
        // While a record still says where it is.
        for record in
            [folder::record_of(&scratch), folder::record_of(&self.folder(node)), self.record(node)]
        {
            if let Some(work_dir) = folder::read_record(&record)?.and_then(|r| r.work_dir) {
                work::remove(&work_dir, node)?;
            }
        }
        match fs::remove_file(self.record(node)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        match fs::rename(self.folder(node), &scratch) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => {
                moved?;
                self.sync()?;
            }
        }
        // From here on it is nobody's; a rest is swept later.
        let _ = self.throw_away(&scratch, node.as_str());
        Ok(())
    }

    /// Ends an allocation of which no process is left: it holds nothing of the machine any more but
    /// what [`clear`](Self::clear) removes. Under the lock. Returns when it ended.
    pub(super) fn stop(&self, allocation: &Allocation, now: Timestamp) -> io::Result<Timestamp> {
        let folder = self.folder(&allocation.record.node);
        let stopped_at = match allocation.meter.stopped_at {
            Some(at) => at,
            None => {
                // A clock that was set back must not make a span negative.
                let at = allocation.meter.started_at.map_or(now, |start| now.max(start));
                failpoint!("local.end.before_meter");
                meter::append(&folder, Reading::Stop, at)?;
                failpoint!("local.end.meter_stopped");
                at
            }
        };
        Ok(stopped_at)
    }

    /// Removes what an ended allocation has left: that can take as long as its programs wanted, so
    /// nobody may hold the lock for it. Its user id is taken until then, as its work folder shows.
    /// Failures are for the log; it is tried again.
    pub(super) fn clear(&self, allocation: &Allocation) {
        let record = &allocation.record;
        let folder = self.folder(&record.node);
        let Some(_held) = hold(&folder) else { return };
        if let Err(error) = folder::strip(&folder) {
            tracing::warn!(folder = %folder.display(), %error, "cannot remove an ended allocation's files");
        }
        failpoint!("local.end.stripped");
        if let Some(work_dir) = &record.work_dir {
            if let Some(uid) = record.uid
                && work_dir.exists()
            {
                shared::clear(uid);
            }
            if let Err(error) = work::remove(work_dir, &record.node) {
                tracing::warn!(folder = %work_dir.display(), %error, "cannot remove a work folder; it is tried again");
            }
        }
        failpoint!("local.end.work_removed");
    }

    /// Whether nothing is left of an ended allocation but its record and its meter.
    fn is_cleared(&self, allocation: &Allocation) -> bool {
        let work = allocation.record.work_dir.as_ref();
        folder::is_stripped(&self.folder(&allocation.record.node)).unwrap_or(false)
            && work.is_none_or(|work| work.try_exists().is_ok_and(|exists| !exists))
    }

    /// Removes what nobody's folders hold. Without the lock, as it can take long.
    pub(super) fn empty_trash(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(TRASH_PREFIX.as_bytes())
                && let Some(_held) = hold(&entry.path())
                && let Err(error) = remove_tree(&entry.path())
            {
                tracing::warn!(folder = %entry.path().display(), %error, "cannot remove a folder");
            }
        }
    }

    /// Sweeps rests of crashes, and archives ended allocations that were shown long enough. Under
    /// the lock. Failures are for the log: no launch fails for them. False where something is to be
    /// removed first, without the lock.
    pub(super) fn prune(&self, scan: &Scan, now: Timestamp, retention: Duration) -> bool {
        let mut clear = true;
        if let Err(error) = self.sweep_scratch() {
            tracing::warn!(%error, "cannot sweep the folder of the allocations");
        }
        let horizon = now.checked_sub(retention).unwrap_or(Timestamp::MIN);
        let ended = scan.allocations.iter().filter_map(|a| Some((a, Remains::of(a)?)));
        let mut ended: Vec<(&Allocation, Remains)> = ended.collect();
        ended.sort_by_key(|(_, remains)| std::cmp::Reverse(remains.stopped_at));
        let due: Vec<Remains> = ended
            .into_iter()
            .enumerate()
            .filter(|(rank, (_, remains))| *rank >= MOST_TOMBSTONES || remains.stopped_at < horizon)
            // Of which something is left is kept: only the record says where that is.
            .filter(|(_, (allocation, _))| {
                let cleared = self.is_cleared(allocation);
                clear &= cleared;
                cleared
            })
            .map(|(_, (_, remains))| remains)
            .collect();
        if due.is_empty() {
            return clear;
        }
        // The meter is in the archive before its folder goes.
        if let Err(error) = archive::append(&self.root, &due) {
            tracing::warn!(%error, "cannot archive meters; their folders stay");
            return clear;
        }
        for remains in &due {
            self.remembered().remove(&remains.node);
            if let Err(error) = self.discard(&remains.node) {
                tracing::warn!(node = %remains.node, %error, "cannot remove an archived allocation");
            }
        }
        clear
    }

    fn sweep_scratch(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            if let Some(name) = name.to_string_lossy().strip_prefix(SCRATCH_PREFIX) {
                let record = folder::read_record(&folder::record_of(&entry.path()))?;
                if let (Some(record), Ok(node)) = (record, NodeId::new(name)) {
                    record.work_dir.map_or(Ok(()), |work_dir| work::remove(&work_dir, &node))?;
                }
                self.throw_away(&entry.path(), name)?;
            }
        }
        Ok(())
    }

    /// Gives up a folder that nobody knows any more; [`empty_trash`](Self::empty_trash) removes it
    /// where it is not small.
    fn throw_away(&self, folder: &Path, name: &str) -> io::Result<()> {
        // Most hold a few files and nothing else.
        if fs::remove_dir(folder).is_ok() || folder::remove_small(folder) {
            return Ok(());
        }
        let mut number = 0;
        loop {
            let target = self.root.join(format!("{TRASH_PREFIX}{name}-{number}"));
            if !target.try_exists()? {
                return fs::rename(folder, target);
            }
            number += 1;
        }
    }

    fn records(&self) -> PathBuf {
        self.root.join(RECORDS_FOLDER)
    }

    fn record(&self, node: &NodeId) -> PathBuf {
        self.records().join(node.as_str())
    }

    fn scratch(&self, node: &NodeId) -> PathBuf {
        self.root.join(format!("{SCRATCH_PREFIX}{node}"))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.root)?.sync_all()
    }
}

/// Held by whoever removes what is in a folder; `None` while somebody else does, or where there is
/// none.
fn hold(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        // A file system without locks: at worst two do the same.
        Ok(()) | Err(TryLockError::Error(_)) => Some(file),
    }
}

/// `node-` and 8 hexadecimal digits; everything else in the folder is not ours.
fn node_of_folder(name: &str) -> Option<NodeId> {
    let digits = name.strip_prefix(NODE_PREFIX)?;
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == 8 && digits.bytes().all(hex)).then(|| NodeId::new(name).ok())?
}
