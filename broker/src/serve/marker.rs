//! The marker outside the database that tells a restored older copy of it.
//!
//! `<data-dir>/generation` holds how far the audit had come: its newest position, which only grows.
//! The database is written first, the marker afterwards, so after any crash the database is at
//! least as far as the marker. One that is not is an older copy: it does not know what was launched
//! since, and whatever it would end or launch might be wrong. The marker is brought forward before
//! each launch, so a copy that lacks one is always noticed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_providers::Clock;
use serde::{Deserialize, Serialize};

use super::data_dir::write_whole;
use crate::ports::Generation;
use crate::store::{Store, StoreError};

const VERSION: u32 = 1;
/// How often the marker follows the database when nothing is launched.
const PACE: Duration = Duration::from_secs(5);

/// What was noticed about the database at a start.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Restored {
    /// How far the database is.
    pub found: u64,
    /// How far it had been; `None` when the marker cannot be read.
    pub expected: Option<u64>,
    /// When it was noticed.
    pub noticed_at: Timestamp,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// The newest position of the audit.
    position: u64,
    /// Counts the starts.
    starts: u64,
    /// Noticed and not confirmed by an operator.
    restored: Option<Restored>,
}

/// The marker of a data folder.
#[derive(Debug)]
pub struct Marker {
    path: PathBuf,
    content: Mutex<Content>,
}

/// Why a marker cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum MarkerError {
    /// The file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The marker.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Marker {
    /// Compares the marker with a database that has come as far as `position`, and advances it.
    pub fn open(path: &Path, position: u64, now: Timestamp) -> Result<Self, MarkerError> {
        let fail = |source| MarkerError::Io { path: path.to_owned(), source };
        let restored = |expected| Some(Restored { found: position, expected, noticed_at: now });
        let old: Option<Content> = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
            // Writing it is all or nothing: one that cannot be read was not left by us.
            Ok(text) => Some(serde_json::from_str(&text).unwrap_or_else(|_| Content {
                version: VERSION,
                position: 0,
                starts: 0,
                restored: restored(None),
            })),
        };
        let mut content =
            old.unwrap_or(Content { version: VERSION, position, starts: 0, restored: None });
        content.starts = content.starts.saturating_add(1);
        if position < content.position && content.restored.is_none() {
            content.restored = restored(Some(content.position));
        }
        if content.restored.is_none() {
            content.position = position;
        }
        let marker = Self { path: path.to_owned(), content: Mutex::new(content) };
        marker.write(&marker.content())?;
        Ok(marker)
    }

    /// What was noticed at a start and is not confirmed yet.
    pub fn restored(&self) -> Option<Restored> {
        self.content().restored.clone()
    }

    /// An operator knows about it: the database counts from here on. False when there was nothing
    /// to confirm.
    pub fn confirm(&self, position: u64) -> Result<bool, MarkerError> {
        let mut content = self.content();
        if content.restored.is_none() {
            return Ok(false);
        }
        let confirmed = Content { position, restored: None, ..content.clone() };
        self.write(&confirmed)?;
        *content = confirmed;
        Ok(true)
    }

    /// The database has come as far as this.
    pub fn advance(&self, position: u64) -> Result<(), MarkerError> {
        let mut content = self.content();
        if content.restored.is_some() || position <= content.position {
            return Ok(());
        }
        let advanced = Content { position, ..content.clone() };
        self.write(&advanced)?;
        *content = advanced;
        Ok(())
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, content: &Content) -> Result<(), MarkerError> {
        let fail = |source| MarkerError::Io { path: self.path.clone(), source };
        let text = serde_json::to_string(content).map_err(|error| fail(error.into()))?;
        write_whole(&self.path, &format!("{text}\n")).map_err(fail)
    }
}

/// The marker as the driver tells it.
#[derive(Debug)]
pub(super) struct BeforeLaunch(pub(super) Arc<Marker>);

#[async_trait]
impl Generation for BeforeLaunch {
    async fn launching(&self, position: u64) {
        let marker = Arc::clone(&self.0);
        // It waits for the disk.
        let advanced = tokio::task::spawn_blocking(move || marker.advance(position)).await;
        if let Err(error) = advanced.unwrap_or(Ok(())) {
            tracing::warn!(%error, "The marker of the data folder could not be advanced");
        }
    }
}

/// Lets the marker follow the database, for ever.
pub(super) async fn follow(marker: Arc<Marker>, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    loop {
        clock.sleep(PACE).await;
        let advanced = match store.position().await {
            Ok(position) => {
                let marker = Arc::clone(&marker);
                // It waits for the disk.
                let work = move || marker.advance(position);
                tokio::task::spawn_blocking(work).await.unwrap_or(Ok(()))
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = advanced {
            tracing::warn!(%error, "The marker of the data folder could not be advanced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_older_database_is_noticed_until_it_is_confirmed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("generation");
        let open = |position| Marker::open(&path, position, at(5)).unwrap();
        // A folder of an earlier version, or a new one.
        assert_eq!(open(40).restored(), None);
        // Further than the marker: the last moments before a crash.
        assert_eq!(open(70).restored(), None);
        open(70).advance(100).unwrap();
        assert_eq!(open(100).restored(), None);
        let restored = Restored { found: 99, expected: Some(100), noticed_at: at(5) };
        let marker = open(99);
        assert_eq!(marker.restored(), Some(restored.clone()));
        // It goes on from there, past where it had been, and is still not confirmed.
        marker.advance(150).unwrap();
        assert_eq!(open(150).restored(), Some(restored));
        let marker = open(151);
        assert!(marker.confirm(151).unwrap());
        assert!(!marker.confirm(151).unwrap());
        assert_eq!(marker.restored(), None);
        assert_eq!(open(151).restored(), None);
        assert!(open(150).restored().is_some());
    }

    #[test]
    fn a_lost_database_and_a_damaged_marker_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("generation");
        Marker::open(&path, 12, at(0)).unwrap();
        let lost = Marker::open(&path, 0, at(1)).unwrap().restored().unwrap();
        assert_eq!((lost.found, lost.expected), (0, Some(12)));
        std::fs::write(&path, "{").unwrap();
        let damaged = Marker::open(&path, 12, at(1)).unwrap().restored().unwrap();
        assert_eq!(damaged.expected, None);
    }
}
