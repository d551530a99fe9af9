//! Who this agent is: bootstrap, the folder's lock and the session key.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use runwhere_failpoint::failpoint;

use crate::AgentError;
use crate::files::write_durable;
use crate::protocol::{BOOTSTRAP_FILE, Bootstrap, Digest, PROTOCOL_VERSION};

/// The secret of this node's session; made on the node, kept 0600, never in a log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    /// The key of the folder; made and stored first where there is none. It must be durable before
    /// it is used: a key that is lost after it was redeemed locks the node out.
    pub(crate) fn of_folder(node_dir: &Path) -> Result<Self, AgentError> {
        let path = node_dir.join("session.key");
        let failed = |source: io::Error| AgentError::file(&path, source);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let mut key = [0; 32];
                hex::decode_to_slice(text.trim(), &mut key).map_err(|_| {
                    failed(io::Error::new(io::ErrorKind::InvalidData, "not 64 hex digits"))
                })?;
                Ok(Self(key))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; 32];
                getrandom::fill(&mut key)
                    .map_err(|error| failed(io::Error::other(error.to_string())))?;
                failpoint!("agent.key.before_store");
                write_durable(&path, hex::encode(key).as_bytes()).map_err(failed)?;
                failpoint!("agent.key.stored");
                Ok(Self(key))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// What the broker keeps of it.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }

    /// For the authorisation header.
    pub(crate) fn reveal(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// Reads and checks the bootstrap.
pub(crate) fn read_bootstrap(node_dir: &Path) -> Result<Bootstrap, AgentError> {
    let path = node_dir.join(BOOTSTRAP_FILE);
    let text = fs::read(&path).map_err(|source| AgentError::file(&path, source))?;
    // It holds a token, and user code may run as somebody who could read it otherwise.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
        .map_err(|source| AgentError::file(&path, source))?;
    let bootstrap: Bootstrap = serde_json::from_slice(&text).map_err(|source| {
        AgentError::file(&path, io::Error::new(io::ErrorKind::InvalidData, source.to_string()))
    })?;
    if bootstrap.protocol != PROTOCOL_VERSION {
        return Err(AgentError::Protocol(bootstrap.protocol));
    }
    if bootstrap.drop_to.is_some_and(|to| to.uid == 0 || to.gid == 0) {
        return Err(AgentError::DropToRoot);
    }
    if let Some(work_dir) = bootstrap.work_dir.as_ref().filter(|folder| !folder.is_absolute()) {
        let reason = "work_dir of the bootstrap is not an absolute path";
        let source = io::Error::new(io::ErrorKind::InvalidInput, reason);
        return Err(AgentError::file(work_dir, source));
    }
    Ok(bootstrap)
}

/// Where the bootstrap says the broker is now; nothing else of it counts after the start. `None`
/// where the file cannot be read or is of another lease.
pub(crate) async fn broker_url_of(node_dir: &Path, lease_id: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Place {
        lease_id: String,
        broker_url: String,
    }
    let text = tokio::fs::read(node_dir.join(BOOTSTRAP_FILE)).await.ok()?;
    let place: Place = serde_json::from_slice(&text).ok()?;
    (place.lease_id == lease_id).then_some(place.broker_url)
}

/// Makes this the only agent of the folder for as long as the value lives.
pub(crate) fn lock(node_dir: &Path) -> Result<File, AgentError> {
    let path = node_dir.join("agent.lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| AgentError::file(&path, source))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(AgentError::AlreadyRunning),
        Err(error) => Err(AgentError::file(&path, error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = SessionKey::of_folder(dir.path()).unwrap();
        assert_eq!(SessionKey::of_folder(dir.path()).unwrap(), first);
        let mode = fs::metadata(dir.path().join("session.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!format!("{first:?}").contains(&first.reveal()[..8]));
    }

    #[tokio::test]
    async fn the_place_of_the_broker_is_read_of_the_same_lease_only() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(broker_url_of(dir.path(), "a").await, None);
        let text = r#"{"protocol":9,"lease_id":"a","broker_url":"http://127.0.0.1:1"}"#;
        fs::write(dir.path().join(BOOTSTRAP_FILE), text).unwrap();
        assert_eq!(broker_url_of(dir.path(), "a").await.as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(broker_url_of(dir.path(), "b").await, None);
        fs::write(dir.path().join(BOOTSTRAP_FILE), &text[..20]).unwrap();
        assert_eq!(broker_url_of(dir.path(), "a").await, None);
    }

    #[test]
    fn a_folder_has_one_agent() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        assert!(matches!(lock(dir.path()), Err(AgentError::AlreadyRunning)));
        drop(held);
        lock(dir.path()).unwrap();
    }
}
