//! The store's door: calls go to the threads, or straight to the database.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LedgerEntry, Output, Principal, Project, Publication,
    PublicationKind, Stray, SweeperState, SyncManifest, Trial, UsageSegment, Workspace,
};
use runwhere_model::{JobId, KeyId, LeaseId, PrincipalId, ProjectId, SyncId, TrialId, WorkspaceId};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::database::Database;
use super::fault::Fault;
use super::read;
use super::schema::{self, OpenError};
use crate::store::{
    Counts, Due, JobQuery, JobView, SegmentQuery, Store, StoreError, StrayQuery, Transition,
};

/// Transitions that share one commit at most.
const BATCH: usize = 256;
/// Calls that may wait for a thread; beyond it callers wait to be let in.
const QUEUE: usize = 1024;

/// A transition that waits for its commit.
type Write = (Transition, oneshot::Sender<Result<(), StoreError>>);
/// A query that waits for the reading thread.
type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    mode: Mode,
    /// Sees only that something was committed; none where one connection does everything.
    watch: Option<Mutex<Connection>>,
}

#[derive(Debug)]
enum Mode {
    Inline(Mutex<Database>),
    Threads {
        /// All are `Some` until the store is dropped.
        writes: Option<mpsc::Sender<Write>>,
        writer: Option<JoinHandle<()>>,
        reads: Option<mpsc::Sender<Read>>,
        reader: Option<JoinHandle<()>>,
    },
}

impl SqliteStore {
    /// Opens or makes the database; one thread writes, another reads. Blocks while it opens.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let database = Database::open(path)?;
        let connection = schema::open_reader(path)?;
        let (writes, write_queue) = mpsc::channel(QUEUE);
        let (reads, read_queue) = mpsc::channel(QUEUE);
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(|source| OpenError::Io { path: path.into(), source })
        };
        let writer = spawn("store-write", Box::new(move || write_loop(database, write_queue)))?;
        let reader = spawn("store-read", Box::new(move || read_loop(&connection, read_queue)))?;
        let mode = Mode::Threads {
            writes: Some(writes),
            writer: Some(writer),
            reads: Some(reads),
            reader: Some(reader),
        };
        let watch = Some(Mutex::new(schema::open_reader(path)?));
        Ok(Self { path: path.into(), mode, watch })
    }

    /// Opens or makes the database for use on the caller's thread: every call is done when it
    /// returns and nothing runs beside it, as a simulation needs.
    pub fn open_inline(path: &Path) -> Result<Self, OpenError> {
        let database = Database::open(path)?;
        Ok(Self { path: path.into(), mode: Mode::Inline(Mutex::new(database)), watch: None })
    }

    async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let result = match &self.mode {
            Mode::Inline(database) => {
                let database = database.lock().unwrap_or_else(PoisonError::into_inner);
                snapshot(database.connection(), query)
            }
            Mode::Threads { reads, .. } => {
                let (reply, answer) = oneshot::channel();
                let work: Read = Box::new(move |connection| {
                    // A caller that went away wants no answer.
                    let _ = reply.send(snapshot(connection, query));
                });
                let reads = reads.as_ref().ok_or_else(stopped)?;
                reads.send(work).await.map_err(|_| stopped())?;
                answer.await.map_err(|_| stopped())?
            }
        };
        result.map_err(|fault| fault.told(&self.path))
    }

    /// Uses the writing connection of an inline store.
    #[cfg(test)]
    pub(super) fn with_connection<T>(&self, use_it: impl FnOnce(&Connection) -> T) -> T {
        match &self.mode {
            Mode::Inline(database) => use_it(database.lock().unwrap().connection()),
            Mode::Threads { .. } => panic!("the store is not inline"),
        }
    }
}

impl Drop for SqliteStore {
    /// Ends the threads once they have done what was queued, the writing one last: the last to
    /// close the file tidies it up.
    fn drop(&mut self) {
        let join = |thread: &mut Option<JoinHandle<()>>| {
            if thread.take().is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("a thread of the store panicked");
            }
        };
        if let Mode::Threads { writes, writer, reads, reader } = &mut self.mode {
            drop(reads.take());
            join(reader);
            drop(writes.take());
            join(writer);
        }
    }
}

fn stopped() -> StoreError {
    StoreError::Failed("the store has stopped".to_owned())
}

/// Runs a query whose statements all see the same state.
fn snapshot<T>(
    connection: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let transaction = connection.unchecked_transaction()?;
    let result = query(&transaction)?;
    transaction.finish()?;
    Ok(result)
}

fn write_loop(mut database: Database, mut queue: mpsc::Receiver<Write>) {
    while let Some(first) = queue.blocking_recv() {
        let (mut batch, mut replies) = (vec![first.0], vec![first.1]);
        while batch.len() < BATCH
            && let Ok((transition, reply)) = queue.try_recv()
        {
            batch.push(transition);
            replies.push(reply);
        }
        for (reply, result) in replies.into_iter().zip(database.commit(&batch)) {
            // A caller that went away wants no answer; its transition counts all the same.
            let _ = reply.send(result);
        }
    }
}

fn read_loop(connection: &Connection, mut queue: mpsc::Receiver<Read>) {
    while let Some(query) = queue.blocking_recv() {
        query(connection);
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, transition: Transition) -> Result<(), StoreError> {
        match &self.mode {
            Mode::Inline(database) => database
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .commit(std::slice::from_ref(&transition))
                .pop()
                .unwrap_or(Ok(())),
            Mode::Threads { writes, .. } => {
                let (reply, answer) = oneshot::channel();
                let writes = writes.as_ref().ok_or_else(stopped)?;
                writes.send((transition, reply)).await.map_err(|_| stopped())?;
                answer.await.map_err(|_| stopped())?
            }
        }
    }

    fn version(&self) -> Option<u64> {
        let connection = self.watch.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        read::data_version(&connection).ok()
    }

    async fn job(&self, project: &ProjectId, id: &JobId) -> Result<Option<JobView>, StoreError> {
        let (project, id) = (project.clone(), id.clone());
        self.read(move |c| read::job(c, &project, &id)).await
    }

    async fn job_by_name(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<JobView>, StoreError> {
        let (project, name) = (project.clone(), name.to_owned());
        self.read(move |c| read::job_by_name(c, &project, &name)).await
    }

    async fn lineage(
        &self,
        project: &ProjectId,
        lineage: &JobId,
    ) -> Result<Vec<JobView>, StoreError> {
        let (project, lineage) = (project.clone(), lineage.clone());
        self.read(move |c| read::lineage(c, &project, &lineage)).await
    }

    async fn jobs(
        &self,
        project: &ProjectId,
        query: &JobQuery,
    ) -> Result<Vec<JobView>, StoreError> {
        let (project, query) = (project.clone(), query.clone());
        self.read(move |c| read::jobs(c, &project, &query)).await
    }

    async fn active_job(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<JobId>, StoreError> {
        let (project, name) = (project.clone(), name.to_owned());
        self.read(move |c| read::active_job(c, &project, &name)).await
    }

    async fn job_by_key(
        &self,
        project: &ProjectId,
        key: &str,
    ) -> Result<Option<JobView>, StoreError> {
        let (project, key) = (project.clone(), key.to_owned());
        self.read(move |c| read::job_by_key(c, &project, &key)).await
    }

    async fn unit(
        &self,
        trial: &TrialId,
    ) -> Result<Option<(Job, Trial, Option<Lease>)>, StoreError> {
        let trial = trial.clone();
        self.read(move |c| read::unit(c, &trial)).await
    }

    async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>, StoreError> {
        let id = id.clone();
        self.read(move |c| read::lease(c, &id)).await
    }

    async fn open_leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.read(read::open_leases).await
    }

    async fn leases(&self, ids: &[LeaseId]) -> Result<Vec<Lease>, StoreError> {
        let ids = ids.to_vec();
        self.read(move |c| read::leases(c, &ids)).await
    }

    async fn newest_leases(
        &self,
        project: Option<&ProjectId>,
        limit: u32,
    ) -> Result<Vec<Lease>, StoreError> {
        let project = project.cloned();
        self.read(move |c| read::newest_leases(c, project.as_ref(), limit)).await
    }

    async fn strays(&self, query: &StrayQuery) -> Result<Vec<Stray>, StoreError> {
        let query = query.clone();
        self.read(move |c| read::strays(c, &query)).await
    }

    async fn sweepers(&self) -> Result<Vec<SweeperState>, StoreError> {
        self.read(read::sweepers).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.read(read::counts).await
    }

    async fn position(&self) -> Result<u64, StoreError> {
        self.read(read::newest_position).await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        self.read(move |c| read::due(c, now, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(read::next_due).await
    }

    async fn outputs(&self, trial: &TrialId) -> Result<Vec<Output>, StoreError> {
        let trial = trial.clone();
        self.read(move |c| read::outputs(c, &trial)).await
    }

    async fn outputs_after(
        &self,
        trial: &TrialId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Output>, StoreError> {
        // No path is empty.
        let (trial, after) = (trial.clone(), after.unwrap_or_default().to_owned());
        self.read(move |c| read::outputs_after(c, &trial, &after, limit)).await
    }

    async fn output(&self, trial: &TrialId, path: &str) -> Result<Option<Output>, StoreError> {
        let (trial, path) = (trial.clone(), path.to_owned());
        self.read(move |c| read::output(c, &trial, &path)).await
    }

    async fn sync(
        &self,
        project: &ProjectId,
        id: &SyncId,
    ) -> Result<Option<SyncManifest>, StoreError> {
        let (project, id) = (project.clone(), id.clone());
        self.read(move |c| read::sync(c, &project, &id)).await
    }

    async fn newest_sync(
        &self,
        project: &ProjectId,
        job_name: Option<&str>,
    ) -> Result<Option<SyncManifest>, StoreError> {
        let (project, job_name) = (project.clone(), job_name.map(str::to_owned));
        self.read(move |c| read::newest_sync(c, &project, job_name.as_deref())).await
    }

    async fn segments(
        &self,
        project: &ProjectId,
        query: &SegmentQuery,
    ) -> Result<Vec<(u64, UsageSegment)>, StoreError> {
        let (project, query) = (project.clone(), query.clone());
        self.read(move |c| read::segments(c, &project, &query)).await
    }

    async fn entries(
        &self,
        project: &ProjectId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, LedgerEntry)>, StoreError> {
        let project = project.clone();
        self.read(move |c| read::entries(c, &project, after, limit)).await
    }

    async fn events(
        &self,
        project: &ProjectId,
        job: &JobId,
    ) -> Result<Vec<EventRecord>, StoreError> {
        let (project, job) = (project.clone(), job.clone());
        self.read(move |c| read::events(c, &project, &job)).await
    }

    async fn budget(&self, project: &ProjectId) -> Result<Option<Budget>, StoreError> {
        let project = project.clone();
        self.read(move |c| read::budget(c, &project)).await
    }

    async fn key_by_secret(&self, secret_sha256: &str) -> Result<Option<ApiKey>, StoreError> {
        let secret_sha256 = secret_sha256.to_owned();
        self.read(move |c| read::key_by_secret(c, &secret_sha256)).await
    }

    async fn key(&self, id: &KeyId) -> Result<Option<ApiKey>, StoreError> {
        let id = id.clone();
        self.read(move |c| read::key(c, &id)).await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.read(read::keys).await
    }

    async fn project(&self, id: &ProjectId) -> Result<Option<Project>, StoreError> {
        let id = id.clone();
        self.read(move |c| read::project(c, &id)).await
    }

    async fn workspace(&self, id: &WorkspaceId) -> Result<Option<Workspace>, StoreError> {
        let id = id.clone();
        self.read(move |c| read::workspace(c, &id)).await
    }

    async fn publication(
        &self,
        kind: PublicationKind,
        name: &str,
        revision: &str,
    ) -> Result<Option<Publication>, StoreError> {
        let (name, revision) = (name.to_owned(), revision.to_owned());
        self.read(move |c| read::publication(c, kind, &name, &revision)).await
    }

    async fn publications(
        &self,
        kind: PublicationKind,
        name: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, Publication)>, StoreError> {
        let name = name.map(str::to_owned);
        self.read(move |c| read::publications(c, kind, name.as_deref(), before, limit)).await
    }

    async fn namespace_holder(&self, namespace: &str) -> Result<Option<Publication>, StoreError> {
        let namespace = namespace.to_owned();
        self.read(move |c| read::namespace_holder(c, &namespace)).await
    }

    async fn principal(&self, id: &PrincipalId) -> Result<Option<Principal>, StoreError> {
        let id = id.clone();
        self.read(move |c| read::principal(c, &id)).await
    }
}
