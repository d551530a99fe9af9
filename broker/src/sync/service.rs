//! Comparing, completing and reading syncs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use runwhere_agent::protocol::Digest;
use runwhere_engine::SyncManifest;
use runwhere_failpoint::failpoint;
use runwhere_model::{ProjectId, SyncId};
use runwhere_providers::Clock;

use super::manifest::Manifest;
use super::ticket::{Ticket, TicketError, Tickets};
use crate::accounts::Caller;
use crate::blobs::{BlobError, BlobWriter, Blobs, Encoding};
use crate::ports::Ids;
use crate::store::{Row, Store, StoreError, Transition};

/// A file that the server lacks, with the ticket to upload it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// Its path in the manifest; one of them where several have the same content.
    pub path: String,
    /// The upload's permission.
    pub ticket: String,
}

/// Paths whose content the server lacks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Missing(pub Vec<String>);

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// Not everything was uploaded.
    #[error("content is missing")]
    Missing(Missing),
    /// The blob store.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Syncs of a store.
#[derive(Clone, Debug)]
pub struct Syncs {
    store: Arc<dyn Store>,
    blobs: Blobs,
    tickets: Tickets,
    valid_for: Duration,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
}

impl Syncs {
    /// Syncs over a store and its blobs; an upload can be begun for `valid_for` after the comparison.
    pub fn new(
        store: Arc<dyn Store>,
        blobs: Blobs,
        tickets: Tickets,
        valid_for: Duration,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Self {
        Self { store, blobs, tickets, valid_for, clock, ids }
    }

    /// What has to be uploaded so that a manifest is complete; each content once.
    pub async fn diff(
        &self,
        project: &ProjectId,
        manifest: &Manifest,
    ) -> Result<Vec<Wanted>, SyncError> {
        let lacking = self.blobs.lacking(project, manifest.contents()).await?;
        let mut lacking: HashSet<Digest> = lacking.into_iter().map(|(digest, _)| digest).collect();
        let expires = self.clock.now().as_second() + self.valid_for.as_secs() as i64;
        let mut wanted = Vec::new();
        for (path, sha256, size) in manifest.files() {
            if lacking.remove(sha256) {
                let project = project.clone();
                let ticket = Ticket { project, sha256: *sha256, size: *size, expires };
                wanted.push(Wanted { path: path.clone(), ticket: self.tickets.sign(&ticket) });
            }
        }
        Ok(wanted)
    }

    /// Starts an upload.
    pub async fn upload(
        &self,
        ticket: &str,
        encoding: Encoding,
    ) -> Result<Result<(Ticket, BlobWriter), TicketError>, BlobError> {
        let ticket = match self.tickets.check(ticket, self.clock.now()) {
            Ok(ticket) => ticket,
            Err(error) => return Ok(Err(error)),
        };
        let writer =
            self.blobs.begin(&ticket.project, ticket.sha256, ticket.size, encoding).await?;
        Ok(Ok((ticket, writer)))
    }

    /// Makes a sync of a manifest whose content is all here.
    pub async fn complete(
        &self,
        caller: &Caller,
        job_name: String,
        manifest: Manifest,
        yaml: Option<String>,
    ) -> Result<SyncManifest, SyncError> {
        let lacking = self.blobs.lacking(&caller.project, manifest.contents()).await?;
        if !lacking.is_empty() {
            let lacking: HashSet<Digest> = lacking.into_iter().map(|(digest, _)| digest).collect();
            let files = manifest.files().iter().filter(|(_, digest, _)| lacking.contains(digest));
            return Err(SyncError::Missing(Missing(
                files.map(|(path, ..)| path.clone()).collect(),
            )));
        }
        let sync = SyncManifest {
            id: SyncId::new(format!("sync-{}", self.ids.hex(8)))
                .expect("hexadecimal is a valid id"),
            workspace: caller.workspace.clone(),
            project: caller.project.clone(),
            job_name,
            created_at: self.clock.now(),
            files: manifest.into_synced(),
            yaml,
        };
        let rows = vec![Row::Sync(sync.clone())];
        failpoint!("sync.before_commit");
        self.store.commit(Transition { rows, events: Vec::new() }).await?;
        failpoint!("sync.committed");
        Ok(sync)
    }

    /// A sync of the project.
    pub async fn get(
        &self,
        project: &ProjectId,
        id: &SyncId,
    ) -> Result<Option<SyncManifest>, StoreError> {
        self.store.sync(project, id).await
    }
}
