//! The writing connection: batches, commits, and what follows a failed one.

use std::path::{Path, PathBuf};

use runwhere_failpoint::failpoint;
use rusqlite::Connection;

use super::fault::Fault;
use super::schema::{self, OpenError};
use super::write;
use crate::store::{StoreError, Transition};

/// The one connection that writes.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    connection: Connection,
    /// A commit failed in a way that a restart might take for a success.
    suspect: bool,
}

impl Database {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self { path: path.into(), connection: schema::open_writer(path)?, suspect: false })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// As after a commit of unknown outcome.
    #[cfg(test)]
    pub(super) fn suspect(&mut self) {
        self.suspect = true;
    }

    /// Commits transitions together; each is written whole or not at all, and the refusal of one
    /// leaves the others alone. When this returns, what succeeded is on the disk.
    pub(super) fn commit(&mut self, batch: &[Transition]) -> Vec<Result<(), StoreError>> {
        match self.attempt(batch) {
            Ok(results) => results,
            Err(error) if batch.len() == 1 => vec![Err(error)],
            // One by one: what is too large for the space left must not keep out what fits.
            Err(_) => batch
                .iter()
                .map(|one| {
                    let mut results = self.attempt(std::slice::from_ref(one))?;
                    results.pop().unwrap_or(Ok(()))
                })
                .collect(),
        }
    }

    fn attempt(&mut self, batch: &[Transition]) -> Result<Vec<Result<(), StoreError>>, StoreError> {
        self.settle()?;
        self.transact(batch).map_err(|(fault, committing)| {
            self.suspect = committing && fault.is_ambiguous();
            if !self.connection.is_autocommit()
                && let Err(error) = self.connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "the database could not be rolled back");
                self.suspect = true;
            }
            let error = fault.told(&self.path);
            if error != StoreError::Full {
                tracing::error!(%error, "a commit failed");
            }
            error
        })
    }

    /// The results, or why nothing of the batch was committed and whether that was learnt from
    /// the commit itself.
    fn transact(&self, batch: &[Transition]) -> Result<Vec<Result<(), StoreError>>, (Fault, bool)> {
        let run = |sql: &str| -> Result<(), Fault> {
            self.connection.prepare_cached(sql)?.execute([])?;
            Ok(())
        };
        let before = |fault| (fault, false);
        run("BEGIN IMMEDIATE").map_err(before)?;
        let mut results = Vec::with_capacity(batch.len());
        for transition in batch {
            run("SAVEPOINT transition").map_err(before)?;
            match write::transition(&self.connection, transition) {
                Ok(()) => results.push(Ok(())),
                Err(Fault::Refused(error)) => {
                    run("ROLLBACK TO transition").map_err(before)?;
                    results.push(Err(error));
                }
                Err(fault) => return Err((fault, false)),
            }
            run("RELEASE transition").map_err(before)?;
        }
        failpoint!("store.commit.before");
        run("COMMIT").map_err(|fault| (fault, true))?;
        failpoint!("store.commit.after");
        Ok(results)
    }

    /// After an ambiguous commit: a new connection, and a log that is emptied into the file up to
    /// the last transaction that counts, so that no restart can find the failed one.
    fn settle(&mut self) -> Result<(), StoreError> {
        if !self.suspect {
            return Ok(());
        }
        self.connection = schema::open_writer(&self.path)
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        let busy: bool = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .map_err(|error| Fault::from(error).told(&self.path))?;
        if busy {
            return Err(StoreError::Failed("the database is in use; try again".to_owned()));
        }
        self.suspect = false;
        Ok(())
    }
}
