//! Work folders of user code that runs as a user of its own.
//!
//! They lie outside the data folder, which such a user must not even enter. A work folder belongs
//! to us and is passed through, by its group, by its one user: so user code owns what lies in it,
//! but cannot put a link in the place of it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use runwhere_model::{DeploymentId, NodeId};

use super::config::UidRange;
use super::tree::remove_tree;

/// Where work roots are by default: on a disk, kept over a restart, open to every user.
const SHARED: &str = "/var/tmp";
const PREFIX: &str = "runwhere-";
/// Held by whoever chooses a user id, of all servers on this machine.
const IDS_LOCK: &str = "/run/runwhere-uids.lock";
/// Looks at a busy lock before giving up, 5 ms apart: 15 s.
const LOCK_LOOKS: u32 = 3000;

/// The user ids of user code, and the folder with its work folders.
#[derive(Clone, Debug)]
pub(super) struct Users {
    pub(super) ids: UidRange,
    root: PathBuf,
}

/// The work root of an installation that names none.
pub(super) fn default_root(deployment: &DeploymentId) -> PathBuf {
    Path::new(SHARED).join(format!("{PREFIX}{deployment}"))
}

impl Users {
    /// Makes and tries the work root, so that what cannot work is said at the start.
    pub(super) fn open(root: &Path, ids: UidRange) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else {
            return Err(refused("it must be an absolute path of a folder of its own"));
        };
        let parent = fs::canonicalize(parent)?;
        for above in parent.ancestors() {
            let mode = fs::metadata(above)?.permissions().mode();
            if mode & 0o001 == 0 {
                return Err(refused(&format!("other users cannot enter {}", above.display())));
            }
            if mode & 0o022 != 0 && mode & 0o1000 == 0 {
                return Err(refused(&format!("other users can rename it in {}", above.display())));
            }
        }
        let users = Self { ids, root: parent.join(name) };
        users.ensure_root()?;
        users.probe()?;
        drop_root(&users.root);
        Ok(users)
    }

    fn ensure_root(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o711).create(&self.root) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if !ours(&self.root)? {
            return Err(refused("it is a link, or belongs to somebody else"));
        }
        // Whatever the process's mask says.
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o711))
    }

    /// Whether files can be given to these users: not so in a container without their ids.
    fn probe(&self) -> io::Result<()> {
        let probe = self.root.join(format!(".probe-{}", std::process::id()));
        match fs::remove_dir(&probe) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&probe)?;
        let last = self.ids.first.saturating_add(self.ids.count.saturating_sub(1));
        let given = [self.ids.first, last]
            .into_iter()
            .try_for_each(|id| lchown(&probe, Some(id), Some(id)));
        let removed = fs::remove_dir(&probe);
        given.map_err(|error| {
            let ids = format!("{}-{last}", self.ids.first);
            refused(&format!("nothing can be given to the user ids {ids} here ({error})"))
        })?;
        removed
    }

    /// The work folder of a node.
    pub(super) fn folder(&self, node: &NodeId) -> PathBuf {
        self.root.join(node.as_str())
    }

    /// Nobody else on this machine chooses a user id meanwhile.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = match options.open(IDS_LOCK) {
            Ok(file) => file,
            Err(error) => {
                // Then a second server at the same instant could choose the same id.
                tracing::debug!(%error, "cannot open {IDS_LOCK}");
                return Ok(None);
            }
        };
        for _ in 0..LOCK_LOOKS {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock of user ids"))
    }

    /// An id that nobody has. Not always the first one: what an earlier user left in shared folders
    /// must not become the next one's.
    pub(super) fn choose(&self, taken: &BTreeSet<u32>) -> io::Result<Option<u32>> {
        let mut bytes = [0; 4];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let start = u32::from_be_bytes(bytes) % self.ids.count;
        let id = |step| self.ids.first + (start + step) % self.ids.count;
        Ok((0..self.ids.count).map(id).find(|id| !taken.contains(id)))
    }

    /// Ids whose work folders are there, also those of other servers.
    pub(super) fn in_use(&self) -> io::Result<BTreeSet<u32>> {
        let mut roots = vec![self.root.clone()];
        for entry in fs::read_dir(SHARED).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                roots.push(entry.path());
            }
        }
        let mut ids = BTreeSet::new();
        for root in roots {
            // Anybody may make such a name there; only ours says anything.
            if !ours(&root).unwrap_or(false) {
                continue;
            }
            let entries = match fs::read_dir(&root) {
                Ok(entries) => entries,
                // It went with the last work folder in it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries.flatten() {
                ids.extend(entry.metadata().ok().map(|data| data.gid()).filter(|id| *id != 0));
            }
        }
        Ok(ids)
    }
}

/// Makes a work folder, unless it is there already.
pub(super) fn make(folder: &Path, id: u32) -> io::Result<()> {
    let Some(root) = folder.parent() else { return Err(refused("it has no folder above it")) };
    let users = Users { ids: UidRange { first: id, count: 1 }, root: root.to_owned() };
    // Whoever removes the last work folder at this moment removes the root with it.
    for last in [false, false, true] {
        users.ensure_root()?;
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !last => {}
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => break,
        }
    }
    if !ours(folder)? {
        return Err(refused("it is a link, or belongs to somebody else"));
    }
    lchown(folder, None, Some(id))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o710))
}

/// Removes the work folder of a node in which nothing runs any more; quiet where there is none.
pub(super) fn remove(folder: &Path, node: &NodeId) -> io::Result<()> {
    let Some(root) = folder.parent() else { return Err(refused("it has no folder above it")) };
    if folder.file_name() != Some(OsStr::new(node.as_str())) {
        return Err(refused("it does not have the node's name"));
    }
    match ours(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(true) => {}
        // What somebody else has put there is none of our folders.
        result => return result.map(drop),
    }
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(_) => remove_tree(folder)?,
    }
    drop_root(root);
    Ok(())
}

/// Leaves no empty folder behind in the place that everybody shares.
fn drop_root(root: &Path) {
    if root.parent() == Some(Path::new(SHARED)) {
        // With others' work in it, it stays.
        let _ = fs::remove_dir(root);
    }
}

/// A real folder that is ours and that nobody else can change.
fn ours(folder: &Path) -> io::Result<bool> {
    let data = fs::symlink_metadata(folder)?;
    let own = data.uid() == rustix::process::geteuid().as_raw();
    Ok(data.is_dir() && own && data.permissions().mode() & 0o022 == 0)
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason.to_owned())
}
