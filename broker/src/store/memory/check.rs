//! Transitions: what each row may change, and undoing all when one may not.

use runwhere_engine::{ApiKey, Job, Lease, Trial};

use super::tables::{Change, Pos, State};
use crate::store::{Row, StoreError, Transition};

impl State {
    pub(super) fn commit(&mut self, transition: Transition) -> Result<(), StoreError> {
        let mut undo = Vec::new();
        let result = self.write(transition, &mut undo);
        if result.is_err() {
            for change in undo.into_iter().rev() {
                self.apply(change);
            }
        }
        result
    }

    fn write(&mut self, transition: Transition, undo: &mut Vec<Change>) -> Result<(), StoreError> {
        for row in transition.rows {
            if let Some(change) = self.check(row)? {
                undo.push(self.apply(change));
            }
        }
        for event in transition.events {
            let pos = self.next_pos();
            undo.push(self.apply(Change::Event(pos, Some(event))));
        }
        Ok(())
    }

    fn next_pos(&mut self) -> Pos {
        self.last_pos += 1;
        self.last_pos
    }

    /// The change a row asks for; `None` when it is there already.
    fn check(&mut self, row: Row) -> Result<Option<Change>, StoreError> {
        Ok(Some(match row {
            Row::Workspace(row) => {
                let label = || format!("workspace {}", row.id);
                if !is_new(self.workspaces.get(&row.id), &row, label)? {
                    return Ok(None);
                }
                Change::Workspace(row.id.clone(), Some(row))
            }
            Row::Principal(row) => {
                let label = || format!("principal {}", row.id);
                if !is_new(self.principals.get(&row.id), &row, label)? {
                    return Ok(None);
                }
                Change::Principal(row.id.clone(), Some(row))
            }
            Row::Project(mut row) => {
                let stored = self.projects.get(&row.id).map(|stored| stored.version);
                row.version = next_version(stored, row.version, || format!("project {}", row.id))?;
                Change::Project(row.id.clone(), Some(row))
            }
            Row::Budget(mut row) => {
                let stored = self.budgets.get(&row.project).map(|stored| stored.version);
                row.version =
                    next_version(stored, row.version, || format!("budget of {}", row.project))?;
                Change::Budget(row.project.clone(), Some(row))
            }
            Row::Stray(mut row) => {
                let id = (row.provider.clone(), row.node().clone());
                let stored = self.strays.get(&id).map(|stored| stored.version);
                let label = || format!("stray {} of {}", row.node(), row.provider);
                row.version = next_version(stored, row.version, label)?;
                Change::Stray(id, Some(row))
            }
            Row::Sweeper(mut row) => {
                let stored = self.sweepers.get(&row.provider).map(|stored| stored.version);
                let label = || format!("sweeper of {}", row.provider);
                row.version = next_version(stored, row.version, label)?;
                Change::Sweeper(row.provider.clone(), Some(row))
            }
            Row::ApiKey(row) => self.check_key(row)?,
            Row::Job(row) => self.check_job(row)?,
            Row::Trial(row) => self.check_trial(row)?,
            Row::Lease(row) => self.check_lease(row)?,
            Row::Sync(row) => {
                let pos = self.sync_pos.get(&(row.project.clone(), row.id.clone())).copied();
                let stored = pos.and_then(|pos| self.syncs.get(&pos));
                if !is_new(stored, &row, || format!("sync {}", row.id))? {
                    return Ok(None);
                }
                Change::Sync(self.next_pos(), Some(row))
            }
            Row::Segment(row) => {
                let pos = self.segment_pos.get(&row.id).copied();
                let stored = pos.and_then(|pos| self.segments.get(&pos));
                if !is_new(stored, &row, || format!("segment {}", row.id))? {
                    return Ok(None);
                }
                Change::Segment(self.next_pos(), Some(row))
            }
            Row::Entry(row) => {
                if !row.is_balanced() {
                    return Err(StoreError::Unbalanced(format!("entry {}", row.id)));
                }
                let pos = self.entry_pos.get(&row.id).copied();
                let stored = pos.and_then(|pos| self.entries.get(&pos));
                if !is_new(stored, &row, || format!("entry {}", row.id))? {
                    return Ok(None);
                }
                Change::Entry(self.next_pos(), Some(row))
            }
            Row::Publication(row) => {
                let key = (row.kind, row.name.clone(), row.revision.clone());
                let pos = self.publication_pos.get(&key).copied();
                let stored = pos.and_then(|pos| self.publications.get(&pos));
                let label = || format!("{} {}@{}", row.kind.as_str(), row.name, row.revision);
                if !is_new(stored, &row, label)? {
                    return Ok(None);
                }
                let namespace = row.namespace();
                let holder = self.publications.values().find(|one| one.namespace() == namespace);
                if holder.is_some_and(|holder| holder.workspace != row.workspace) {
                    return Err(StoreError::Exists { row: format!("namespace {namespace}") });
                }
                Change::Publication(self.next_pos(), Some(row))
            }
            Row::Output(trial, row) => {
                if !self.trials.contains_key(&trial) {
                    return Err(StoreError::Failed(format!("an output has no trial {trial}")));
                }
                Change::Output((trial, row.path.clone()), Some(row))
            }
        }))
    }

    fn check_key(&mut self, mut row: ApiKey) -> Result<Change, StoreError> {
        let pos = self.key_pos.get(&row.id).copied();
        if self.key_secrets.get(&row.secret_sha256).is_some_and(|other| Some(*other) != pos) {
            return Err(StoreError::Exists { row: format!("the secret of key {}", row.id) });
        }
        let label = || format!("key {}", row.id);
        let stored = pos.and_then(|pos| self.keys.get(&pos));
        if stored.is_some_and(|stored| stored.project != row.project) {
            return Err(stale(label()));
        }
        row.version = next_version(stored.map(|stored| stored.version), row.version, label)?;
        let pos = pos.unwrap_or_else(|| self.next_pos());
        Ok(Change::Key(pos, Some(row)))
    }

    fn check_job(&mut self, mut row: Job) -> Result<Change, StoreError> {
        let pos = self.job_pos.get(&(row.project.clone(), row.id.clone())).copied();
        let other = |found: Option<&Pos>| {
            found.filter(|found| Some(**found) != pos).and_then(|found| self.jobs.get(found))
        };
        // The key first: a repeated submit is the same job, not a rival for its name.
        if let Some(key) = &row.idempotency_key
            && let Some(job) = other(self.job_keys.get(&(row.project.clone(), key.clone())))
        {
            return Err(StoreError::KeyUsed { existing: job.id.clone() });
        }
        if row.active
            && let Some(job) =
                other(self.active_names.get(&(row.project.clone(), row.name.clone())))
        {
            return Err(StoreError::NameTaken { existing: job.id.clone() });
        }
        let stored = pos.and_then(|pos| self.jobs.get(&pos)).map(|stored| stored.version);
        row.version = next_version(stored, row.version, || format!("job {}", row.id))?;
        let pos = pos.unwrap_or_else(|| self.next_pos());
        Ok(Change::Job(pos, Some(row)))
    }

    fn check_trial(&self, mut row: Trial) -> Result<Change, StoreError> {
        if !self.job_pos.contains_key(&(row.project.clone(), row.job.clone())) {
            return Err(StoreError::Failed(format!("trial {} has no job {}", row.id, row.job)));
        }
        let label = || format!("trial {}", row.id);
        let stored = self.trials.get(&row.id);
        if stored.is_some_and(|stored| (&stored.project, &stored.job) != (&row.project, &row.job)) {
            return Err(stale(label()));
        }
        row.version = next_version(stored.map(|stored| stored.version), row.version, label)?;
        Ok(Change::Trial(row.id.clone(), Some(row)))
    }

    fn check_lease(&self, mut row: Lease) -> Result<Change, StoreError> {
        if self.trials.get(&row.trial).is_none_or(|trial| trial.project != row.project) {
            return Err(StoreError::Failed(format!("lease {} has no trial {}", row.id, row.trial)));
        }
        let label = || format!("lease {}", row.id);
        let stored = self.leases.get(&row.id);
        if stored.is_some_and(|stored| stored.trial != row.trial) {
            return Err(stale(label()));
        }
        row.version = next_version(stored.map(|stored| stored.version), row.version, label)?;
        Ok(Change::Lease(row.id.clone(), Some(row)))
    }
}

fn stale(row: String) -> StoreError {
    StoreError::Stale { row }
}

/// The version a row gets when the stored one allows it.
fn next_version(
    stored: Option<u64>,
    given: u64,
    label: impl FnOnce() -> String,
) -> Result<u64, StoreError> {
    match (stored, given) {
        (None, 0) => Ok(1),
        (Some(stored), given) if stored == given && given > 0 => Ok(given + 1),
        _ => Err(stale(label())),
    }
}

/// Whether an insert-only row is to be inserted; an identical one is fine.
fn is_new<T: PartialEq>(
    stored: Option<&T>,
    row: &T,
    label: impl FnOnce() -> String,
) -> Result<bool, StoreError> {
    match stored {
        None => Ok(true),
        Some(stored) if stored == row => Ok(false),
        Some(_) => Err(StoreError::Exists { row: label() }),
    }
}
