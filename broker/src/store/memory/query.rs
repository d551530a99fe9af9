//! The store's door, and its queries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LeaseState, LedgerEntry, Output, Principal, Project,
    Publication, PublicationKind, Stray, SweeperState, SyncManifest, Trial, TrialState,
    UsageSegment, Workspace,
};
use runwhere_model::{JobId, KeyId, LeaseId, PrincipalId, ProjectId, SyncId, TrialId, WorkspaceId};

use super::tables::{Pos, State, members};
use crate::store::{
    Counts, DEFAULT_JOBS, Due, JobQuery, JobView, SegmentQuery, Store, StoreError, StrayQuery,
    Transition,
};

/// A store that forgets everything when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    commits: AtomicU64,
    #[cfg(test)]
    keys_fail: std::sync::atomic::AtomicBool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on keys cannot be read, or can again. What was read before is out of date.
    #[cfg(test)]
    pub(crate) fn fail_keys(&self, fail: bool) {
        self.keys_fail.store(fail, Ordering::Release);
        self.commits.fetch_add(1, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave it half changed: changes are undone or complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn trials_of(&self, pos: Pos) -> impl Iterator<Item = &Trial> {
        members(&self.job_trials, &pos).filter_map(|(_, id)| self.trials.get(id))
    }

    fn view(&self, pos: Pos) -> Option<JobView> {
        let job = self.jobs.get(&pos)?.clone();
        let trials = self
            .trials_of(pos)
            .map(|trial| {
                let lease = trial.lease.as_ref().and_then(|id| self.leases.get(id));
                (trial.clone(), lease.cloned())
            })
            .collect();
        Some(JobView { job, trials })
    }

    fn jobs(&self, project: &ProjectId, query: &JobQuery) -> Vec<JobView> {
        let before = match &query.after {
            None => Pos::MAX,
            Some(id) => match self.job_pos.get(&(project.clone(), id.clone())) {
                Some(pos) => *pos,
                None => return Vec::new(),
            },
        };
        let wanted = |pos: &Pos| {
            let Some(job) = self.jobs.get(pos) else { return false };
            query.kind.is_none_or(|kind| job.kind == kind)
                && (query.states.is_empty()
                    || self
                        .trials_of(*pos)
                        .any(|trial| trial.index == 0 && query.states.contains(&trial.state)))
        };
        let newest = |index| -> Vec<Pos> {
            members(index, project).rev().copied().filter(|pos| *pos < before).collect()
        };
        let limit = usize::try_from(query.limit.unwrap_or(DEFAULT_JOBS)).unwrap_or(usize::MAX);
        let mut found: BTreeSet<Pos> =
            newest(&self.listed_jobs).into_iter().filter(wanted).take(limit).collect();
        if query.limit.is_none() {
            found.extend(newest(&self.active_jobs).into_iter().filter(wanted));
        }
        found.into_iter().rev().filter_map(|pos| self.view(pos)).collect()
    }

    fn newest(&self, project: &ProjectId, name: &str) -> Option<Pos> {
        members(&self.named_jobs, &(project.clone(), name.to_owned())).next_back().copied()
    }
}

/// At most `limit` rows after a position that fit.
fn page<T: Clone>(
    table: &BTreeMap<Pos, T>,
    after: Option<u64>,
    limit: u32,
    fits: impl Fn(&T) -> bool,
) -> Vec<(u64, T)> {
    table
        .range((Bound::Excluded(after.unwrap_or(0)), Bound::Unbounded))
        .filter(|(_, row)| fits(row))
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|(pos, row)| (*pos, row.clone()))
        .collect()
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, transition: Transition) -> Result<(), StoreError> {
        let result = self.state().commit(transition);
        self.commits.fetch_add(1, Ordering::Release);
        result
    }

    fn version(&self) -> Option<u64> {
        Some(self.commits.load(Ordering::Acquire))
    }

    async fn job(&self, project: &ProjectId, id: &JobId) -> Result<Option<JobView>, StoreError> {
        let state = self.state();
        let pos = state.job_pos.get(&(project.clone(), id.clone()));
        Ok(pos.and_then(|pos| state.view(*pos)))
    }

    async fn job_by_name(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<JobView>, StoreError> {
        let state = self.state();
        Ok(state.newest(project, name).and_then(|pos| state.view(pos)))
    }

    async fn lineage(
        &self,
        project: &ProjectId,
        lineage: &JobId,
    ) -> Result<Vec<JobView>, StoreError> {
        let state = self.state();
        let jobs = members(&state.lineages, &(project.clone(), lineage.clone()));
        Ok(jobs.rev().filter_map(|pos| state.view(*pos)).collect())
    }

    async fn jobs(
        &self,
        project: &ProjectId,
        query: &JobQuery,
    ) -> Result<Vec<JobView>, StoreError> {
        Ok(self.state().jobs(project, query))
    }

    async fn active_job(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> Result<Option<JobId>, StoreError> {
        let state = self.state();
        let pos = state.active_names.get(&(project.clone(), name.to_owned()));
        Ok(pos.and_then(|pos| state.jobs.get(pos)).map(|job| job.id.clone()))
    }

    async fn job_by_key(
        &self,
        project: &ProjectId,
        key: &str,
    ) -> Result<Option<JobView>, StoreError> {
        let state = self.state();
        let pos = state.job_keys.get(&(project.clone(), key.to_owned()));
        Ok(pos.and_then(|pos| state.view(*pos)))
    }

    async fn unit(
        &self,
        trial: &TrialId,
    ) -> Result<Option<(Job, Trial, Option<Lease>)>, StoreError> {
        let state = self.state();
        let Some(trial) = state.trials.get(trial) else { return Ok(None) };
        let job = state.job_pos.get(&(trial.project.clone(), trial.job.clone()));
        let Some(job) = job.and_then(|pos| state.jobs.get(pos)) else { return Ok(None) };
        let lease = trial.lease.as_ref().and_then(|id| state.leases.get(id));
        Ok(Some((job.clone(), trial.clone(), lease.cloned())))
    }

    async fn lease(&self, id: &LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.state().leases.get(id).cloned())
    }

    async fn open_leases(&self) -> Result<Vec<Lease>, StoreError> {
        let state = self.state();
        Ok(state.open_leases.iter().filter_map(|id| state.leases.get(id)).cloned().collect())
    }

    async fn leases(&self, ids: &[LeaseId]) -> Result<Vec<Lease>, StoreError> {
        let state = self.state();
        let ids: BTreeSet<&LeaseId> = ids.iter().collect();
        Ok(ids.into_iter().filter_map(|id| state.leases.get(id)).cloned().collect())
    }

    async fn newest_leases(
        &self,
        project: Option<&ProjectId>,
        limit: u32,
    ) -> Result<Vec<Lease>, StoreError> {
        let state = self.state();
        let newest = state.lease_order.values().rev().filter_map(|id| state.leases.get(id));
        let fits = |lease: &&Lease| project.is_none_or(|project| lease.project == *project);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(newest.filter(fits).take(limit).cloned().collect())
    }

    async fn strays(&self, query: &StrayQuery) -> Result<Vec<Stray>, StoreError> {
        let state = self.state();
        let fits = |stray: &&Stray| {
            query.provider.as_ref().is_none_or(|provider| stray.provider == *provider)
                && query.nodes.as_ref().is_none_or(|nodes| nodes.contains(stray.node()))
                && (!query.open || stray.state.is_open())
        };
        Ok(state.strays.values().filter(fits).cloned().collect())
    }

    async fn sweepers(&self) -> Result<Vec<SweeperState>, StoreError> {
        Ok(self.state().sweepers.values().cloned().collect())
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        let state = self.state();
        let open = || state.open_leases.iter().filter_map(|id| state.leases.get(id));
        let releasing = open().filter(|lease| lease.state == LeaseState::Releasing);
        let trials: Vec<&Trial> = state
            .jobs
            .iter()
            .filter(|(_, job)| job.active)
            .flat_map(|(pos, _)| state.trials_of(*pos))
            .collect();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Ok(Counts {
            releasing_since: releasing.map(|lease| lease.since).min(),
            leases: LeaseState::ALL
                .into_iter()
                .map(|of| (of, number(open().filter(|lease| lease.state == of).count())))
                .filter(|(_, count)| *count > 0)
                .collect(),
            trials: TrialState::ALL
                .into_iter()
                .map(|of| (of, number(trials.iter().filter(|trial| trial.state == of).count())))
                .filter(|(_, count)| *count > 0)
                .collect(),
        })
    }

    async fn position(&self) -> Result<u64, StoreError> {
        Ok(self.state().events.last_key_value().map_or(0, |(pos, _)| *pos))
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        let state = self.state();
        let due = state.due.iter().take_while(|(at, _)| *at <= now);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(due.take(limit).map(|(_, due)| due.clone()).collect())
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.state().due.first().map(|(at, _)| *at))
    }

    async fn outputs(&self, trial: &TrialId) -> Result<Vec<Output>, StoreError> {
        let state = self.state();
        let outputs = state.outputs.range((trial.clone(), String::new())..);
        Ok(outputs.take_while(|((of, _), _)| of == trial).map(|(_, row)| row.clone()).collect())
    }

    async fn sync(
        &self,
        project: &ProjectId,
        id: &SyncId,
    ) -> Result<Option<SyncManifest>, StoreError> {
        let state = self.state();
        let pos = state.sync_pos.get(&(project.clone(), id.clone()));
        Ok(pos.and_then(|pos| state.syncs.get(pos)).cloned())
    }

    async fn newest_sync(
        &self,
        project: &ProjectId,
        job_name: Option<&str>,
    ) -> Result<Option<SyncManifest>, StoreError> {
        let state = self.state();
        let mut syncs = state.syncs.values().rev();
        let fits = |sync: &&SyncManifest| {
            sync.project == *project && job_name.is_none_or(|name| sync.job_name == name)
        };
        Ok(syncs.find(fits).cloned())
    }

    async fn segments(
        &self,
        project: &ProjectId,
        query: &SegmentQuery,
    ) -> Result<Vec<(u64, UsageSegment)>, StoreError> {
        Ok(page(&self.state().segments, query.after, query.limit, |row| {
            row.project == *project
                && query.from.is_none_or(|from| row.end > from)
                && query.to.is_none_or(|to| row.start < to)
                && query.job.as_ref().is_none_or(|job| row.job == *job)
        }))
    }

    async fn entries(
        &self,
        project: &ProjectId,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, LedgerEntry)>, StoreError> {
        Ok(page(&self.state().entries, after, limit, |row| row.project == *project))
    }

    async fn events(
        &self,
        project: &ProjectId,
        job: &JobId,
    ) -> Result<Vec<EventRecord>, StoreError> {
        let state = self.state();
        let events = members(&state.job_events, &(project.clone(), job.clone()));
        Ok(events.filter_map(|pos| state.events.get(pos)).cloned().collect())
    }

    async fn budget(&self, project: &ProjectId) -> Result<Option<Budget>, StoreError> {
        Ok(self.state().budgets.get(project).cloned())
    }

    async fn key_by_secret(&self, secret_sha256: &str) -> Result<Option<ApiKey>, StoreError> {
        #[cfg(test)]
        if self.keys_fail.load(Ordering::Acquire) {
            return Err(StoreError::Failed("keys cannot be read".to_owned()));
        }
        let state = self.state();
        let pos = state.key_secrets.get(secret_sha256);
        Ok(pos.and_then(|pos| state.keys.get(pos)).cloned())
    }

    async fn key(&self, id: &KeyId) -> Result<Option<ApiKey>, StoreError> {
        let state = self.state();
        Ok(state.key_pos.get(id).and_then(|pos| state.keys.get(pos)).cloned())
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.state().keys.values().cloned().collect())
    }

    async fn project(&self, id: &ProjectId) -> Result<Option<Project>, StoreError> {
        Ok(self.state().projects.get(id).cloned())
    }

    async fn workspace(&self, id: &WorkspaceId) -> Result<Option<Workspace>, StoreError> {
        Ok(self.state().workspaces.get(id).cloned())
    }

    async fn publication(
        &self,
        kind: PublicationKind,
        name: &str,
        revision: &str,
    ) -> Result<Option<Publication>, StoreError> {
        let state = self.state();
        let pos = state.publication_pos.get(&(kind, name.to_owned(), revision.to_owned()));
        Ok(pos.and_then(|pos| state.publications.get(pos)).cloned())
    }

    async fn publications(
        &self,
        kind: PublicationKind,
        name: Option<&str>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<(u64, Publication)>, StoreError> {
        let state = self.state();
        let rows = state.publications.range(..before.unwrap_or(u64::MAX)).rev();
        let fits = |row: &Publication| row.kind == kind && name.is_none_or(|name| row.name == name);
        let rows = rows.filter(|(_, row)| fits(row)).take(limit as usize);
        Ok(rows.map(|(pos, row)| (*pos, row.clone())).collect())
    }

    async fn namespace_holder(&self, namespace: &str) -> Result<Option<Publication>, StoreError> {
        let state = self.state();
        Ok(state.publications.values().find(|row| row.namespace() == namespace).cloned())
    }

    async fn principal(&self, id: &PrincipalId) -> Result<Option<Principal>, StoreError> {
        Ok(self.state().principals.get(id).cloned())
    }
}
