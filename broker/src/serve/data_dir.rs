//! The data folder: what lies where, who may use it, and its secrets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use runwhere_failpoint::failpoint;
use runwhere_model::{DeploymentId, Secret};

use crate::ports::Ids;

/// An open data folder. While it lives no other server opens the same one.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    /// Holds the lock; released by the system however the process ends.
    _lock: File,
    deployment: DeploymentId,
    key: Secret,
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another server uses it.
    #[error("{} is used by another server (pid {pid}); stop it or choose another --data-dir", root.display())]
    Locked {
        /// The folder.
        root: PathBuf,
        /// The other server's process id; `unknown` when it did not write it.
        pid: String,
    },
    /// It belongs to somebody else: its secrets would not be ours alone.
    #[error("{} belongs to another user; choose another --data-dir", .0.display())]
    Foreign(PathBuf),
    /// A file in it does not hold what it should.
    #[error("{} is damaged; restore it from a backup", .0.display())]
    Damaged(PathBuf),
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was accessed.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl DataDir {
    /// Opens or makes the folder (0700), takes its lock, and makes what a first start needs.
    pub fn open(root: &Path, ids: &dyn Ids) -> Result<Self, DataDirError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| DataDirError::Io { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(fail(root))?;
        let root = root.canonicalize().map_err(fail(root))?;
        let owner = fs::metadata(&root).map_err(fail(&root))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(DataDirError::Foreign(root));
        }
        let lock_path = root.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(fail(&lock_path))?;
        let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&lock, exclusive).is_err() {
            let mut text = String::new();
            let _ = lock.read_to_string(&mut text);
            let pid = text.trim();
            let known = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
            let pid = if known { pid.to_owned() } else { "unknown".to_owned() };
            return Err(DataDirError::Locked { root, pid });
        }
        lock.set_len(0).map_err(fail(&lock_path))?;
        write!(lock, "{}", std::process::id()).map_err(fail(&lock_path))?;
        let deployment_path = root.join("deployment");
        let deployment = keep(&deployment_path, || format!("rw-{}", ids.hex(6)))?;
        let deployment =
            DeploymentId::new(deployment).map_err(|_| DataDirError::Damaged(deployment_path))?;
        failpoint!("start.folder_named");
        let key_path = root.join("server.key");
        let key = keep(&key_path, || ids.hex(32))?;
        if key.len() != 64 || !key.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(DataDirError::Damaged(key_path));
        }
        Ok(Self { root, _lock: lock, deployment, key: Secret::new(key) })
    }

    /// Takes the right to enter from other users, as which jobs may run. Every file that the server
    /// makes here is closed to them anyway; others, such as the settings, need not be.
    pub fn close_to_others(&self) {
        let root = self.root.display();
        let closed = fs::metadata(&self.root).and_then(|data| {
            let mode = data.permissions().mode();
            if mode & 0o1000 != 0 {
                tracing::warn!("Jobs can enter {root}: it is shared by all users; use another");
            } else if mode & 0o077 != 0 {
                fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700))?;
                tracing::info!("{root} is now closed to other users");
            }
            Ok(())
        });
        if let Err(error) = closed {
            tracing::warn!("Jobs may be able to enter {root}: {error}");
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.root.join("broker.db")
    }

    /// Stored file contents.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// Stored logs.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The local provider's allocations.
    pub fn local(&self) -> PathBuf {
        self.root.join("local")
    }

    /// The first token, 0600.
    pub fn first_token(&self) -> PathBuf {
        self.root.join("first-token")
    }

    /// The address the server listens on, for programs that started it on a free port.
    pub fn address(&self) -> PathBuf {
        self.root.join("address")
    }

    /// How far the database had come, to notice when an older copy of it is restored.
    pub fn generation(&self) -> PathBuf {
        self.root.join("generation")
    }

    /// Settings, where there are any.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// This installation's name on every node.
    pub fn deployment(&self) -> &DeploymentId {
        &self.deployment
    }

    /// The key from which tokens and signatures are derived.
    pub fn key(&self) -> &Secret {
        &self.key
    }
}

/// Writes a small file whole: readers see the old or the new content, never a part; 0600.
pub(crate) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// The content of a file that is made once and then kept.
fn keep(path: &Path, make: impl FnOnce() -> String) -> Result<String, DataDirError> {
    let fail = |source| DataDirError::Io { path: path.to_owned(), source };
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = make();
            write_whole(path, &text).map_err(fail)?;
            Ok(text)
        }
        Err(error) => Err(fail(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemIds;

    #[test]
    fn a_second_server_is_told_who_has_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("data");
        let first = DataDir::open(&root, &SystemIds).unwrap();
        match DataDir::open(&root, &SystemIds) {
            Err(DataDirError::Locked { pid, .. }) => {
                assert_eq!(pid, std::process::id().to_string());
            }
            other => panic!("{other:?}"),
        }
        let (name, key) = (first.deployment().clone(), first.key().clone());
        drop(first);
        let again = DataDir::open(&root, &SystemIds).unwrap();
        assert_eq!((again.deployment(), again.key()), (&name, &key));
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(root.clone()), 0o700);
        assert_eq!(mode(root.join("server.key")), 0o600);
        assert!(!format!("{again:?}").contains(key.expose()));
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        drop(DataDir::open(folder.path(), &SystemIds).unwrap());
        fs::write(folder.path().join("server.key"), "short").unwrap();
        let result = DataDir::open(folder.path(), &SystemIds);
        assert!(matches!(result, Err(DataDirError::Damaged(_))), "{result:?}");
    }
}
