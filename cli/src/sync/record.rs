//! What the user's folder remembers of syncs: hash caches and the last sync of each folder and task.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{HashCache, Manifest};
use crate::settings::write_private;

/// The last complete sync of one task from one folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastSync {
    /// Id that the server gave.
    pub sync_id: Option<String>,
    /// What was synced.
    pub manifest: Manifest,
}

/// The files of one sync root in the user's folder.
#[derive(Debug)]
pub struct Records {
    home: PathBuf,
    key: String,
}

impl Records {
    /// The records of `root`, below the user's folder `home`.
    #[must_use]
    pub fn new(home: &Path, root: &Path) -> Self {
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let digest = Sha256::digest(real.as_os_str().as_encoded_bytes());
        Self { home: home.to_owned(), key: hex::encode(&digest[..8]) }
    }

    fn cache_path(&self) -> PathBuf {
        // Not `.json`: the published client keeps files of that name here, in another format.
        self.home.join("sync-cache").join(format!("{}.cache", self.key))
    }

    fn last_path(&self, server: &str, job: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{server}\n{job}"));
        let name = format!("{}-{}.last", self.key, hex::encode(&digest[..8]));
        self.home.join("sync-cache").join(name)
    }

    /// The hash cache.
    #[must_use]
    pub fn cache(&self) -> HashCache {
        HashCache::load(&self.cache_path())
    }

    /// Stores the hash cache.
    ///
    /// # Errors
    /// What the file system answers, with the path.
    pub fn save_cache(&self, cache: &HashCache) -> Result<(), (PathBuf, io::Error)> {
        let path = self.cache_path();
        cache.save(&path).map_err(|error| (path, error))
    }

    /// The last sync of `job` to `server`.
    #[must_use]
    pub fn last(&self, server: &str, job: &str) -> Option<LastSync> {
        serde_json::from_slice(&fs::read(self.last_path(server, job)).ok()?).ok()
    }

    /// Stores the last sync of `job` to `server`, and, when it is `latest` of all, its id where the published client keeps it.
    ///
    /// # Errors
    /// What the file system answers, with the path.
    pub fn save_last(
        &self,
        server: &str,
        job: &str,
        last: &LastSync,
        latest: bool,
    ) -> Result<(), (PathBuf, io::Error)> {
        let path = self.last_path(server, job);
        let bytes = serde_json::to_vec(last).map_err(|error| (path.clone(), error.into()))?;
        write_private(&path, &bytes).map_err(|error| (path, error))?;
        if let Some(id) = last.sync_id.as_ref().filter(|_| latest) {
            let path = self.home.join("last-sync-id");
            write_private(&path, id.as_bytes()).map_err(|error| (path, error))?;
        }
        Ok(())
    }

    /// The id of the latest sync of any task.
    #[must_use]
    pub fn latest_id(&self) -> Option<String> {
        let text = fs::read_to_string(self.home.join("last-sync-id")).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_syncs_are_kept_apart_by_folder_server_and_task() {
        let home = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(home.path(), root.path());
        let last = LastSync { sync_id: Some("sync-1".into()), manifest: Manifest::default() };
        records.save_last("http://a", "job", &last, true).unwrap();
        assert_eq!(records.last("http://a", "job").unwrap().sync_id.as_deref(), Some("sync-1"));
        assert!(records.last("http://b", "job").is_none());
        assert!(records.last("http://a", "other").is_none());
        assert!(Records::new(home.path(), home.path()).last("http://a", "job").is_none());
        assert_eq!(records.latest_id().as_deref(), Some("sync-1"));
    }
}
