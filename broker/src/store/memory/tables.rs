//! Tables, the indexes that follow from them, and changes that can be undone.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LedgerEntry, Output, Principal, Project, Publication,
    PublicationKind, Stray, SweeperState, SyncManifest, Trial, UsageSegment, Workspace,
};
use runwhere_model::{
    JobId, KeyId, LeaseId, NodeId, PrincipalId, ProjectId, ProviderId, SyncId, TrialId, WorkspaceId,
};

use crate::store::Due;

/// A place among rows of its kind, in the order of recording.
pub(super) type Pos = u64;

/// An index: the members of each key, in order.
pub(super) type Groups<K, V> = BTreeMap<K, BTreeSet<V>>;

/// Tables, and indexes that follow from them.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) last_pos: Pos,
    pub(super) workspaces: BTreeMap<WorkspaceId, Workspace>,
    pub(super) projects: BTreeMap<ProjectId, Project>,
    pub(super) principals: BTreeMap<PrincipalId, Principal>,
    pub(super) keys: BTreeMap<Pos, ApiKey>,
    pub(super) key_pos: BTreeMap<KeyId, Pos>,
    pub(super) key_secrets: BTreeMap<String, Pos>,
    pub(super) budgets: BTreeMap<ProjectId, Budget>,
    pub(super) jobs: BTreeMap<Pos, Job>,
    pub(super) job_pos: BTreeMap<(ProjectId, JobId), Pos>,
    pub(super) listed_jobs: Groups<ProjectId, Pos>,
    pub(super) active_jobs: Groups<ProjectId, Pos>,
    pub(super) active_names: BTreeMap<(ProjectId, String), Pos>,
    pub(super) job_keys: BTreeMap<(ProjectId, String), Pos>,
    /// Jobs that are not deleted, by name.
    pub(super) named_jobs: Groups<(ProjectId, String), Pos>,
    pub(super) lineages: Groups<(ProjectId, JobId), Pos>,
    pub(super) trials: BTreeMap<TrialId, Trial>,
    pub(super) job_trials: Groups<Pos, (u32, TrialId)>,
    pub(super) leases: BTreeMap<LeaseId, Lease>,
    pub(super) open_leases: BTreeSet<LeaseId>,
    pub(super) lease_order: BTreeMap<Pos, LeaseId>,
    pub(super) lease_pos: BTreeMap<LeaseId, Pos>,
    pub(super) strays: BTreeMap<(ProviderId, NodeId), Stray>,
    pub(super) sweepers: BTreeMap<ProviderId, SweeperState>,
    pub(super) due: BTreeSet<(Timestamp, Due)>,
    pub(super) outputs: BTreeMap<(TrialId, String), Output>,
    pub(super) syncs: BTreeMap<Pos, SyncManifest>,
    pub(super) sync_pos: BTreeMap<(ProjectId, SyncId), Pos>,
    pub(super) segments: BTreeMap<Pos, UsageSegment>,
    pub(super) segment_pos: BTreeMap<String, Pos>,
    pub(super) entries: BTreeMap<Pos, LedgerEntry>,
    pub(super) entry_pos: BTreeMap<String, Pos>,
    pub(super) publications: BTreeMap<Pos, Publication>,
    pub(super) publication_pos: BTreeMap<(PublicationKind, String, String), Pos>,
    pub(super) events: BTreeMap<Pos, EventRecord>,
    pub(super) job_events: Groups<(ProjectId, JobId), Pos>,
}

/// One row set or, to undo an insert, removed.
#[expect(clippy::large_enum_variant, reason = "few at a time, moved once")]
pub(super) enum Change {
    Workspace(WorkspaceId, Option<Workspace>),
    Project(ProjectId, Option<Project>),
    Principal(PrincipalId, Option<Principal>),
    Key(Pos, Option<ApiKey>),
    Budget(ProjectId, Option<Budget>),
    Job(Pos, Option<Job>),
    Trial(TrialId, Option<Trial>),
    Lease(LeaseId, Option<Lease>),
    Output((TrialId, String), Option<Output>),
    Sync(Pos, Option<SyncManifest>),
    Segment(Pos, Option<UsageSegment>),
    Entry(Pos, Option<LedgerEntry>),
    Publication(Pos, Option<Publication>),
    Event(Pos, Option<EventRecord>),
    Stray((ProviderId, NodeId), Option<Stray>),
    Sweeper(ProviderId, Option<SweeperState>),
}

impl State {
    /// Makes a change, with the indexes, and returns the change that undoes it.
    pub(super) fn apply(&mut self, change: Change) -> Change {
        match change {
            Change::Workspace(id, row) => {
                Change::Workspace(id.clone(), set(&mut self.workspaces, id, row))
            }
            Change::Project(id, row) => {
                Change::Project(id.clone(), set(&mut self.projects, id, row))
            }
            Change::Principal(id, row) => {
                Change::Principal(id.clone(), set(&mut self.principals, id, row))
            }
            Change::Budget(id, row) => Change::Budget(id.clone(), set(&mut self.budgets, id, row)),
            Change::Stray(id, row) => Change::Stray(id.clone(), set(&mut self.strays, id, row)),
            Change::Sweeper(id, row) => {
                Change::Sweeper(id.clone(), set(&mut self.sweepers, id, row))
            }
            Change::Output(id, row) => Change::Output(id.clone(), set(&mut self.outputs, id, row)),
            Change::Key(pos, row) => {
                let new = row.as_ref().map(|row| (row.id.clone(), row.secret_sha256.clone()));
                let old = set(&mut self.keys, pos, row);
                if let Some(old) = &old {
                    self.key_pos.remove(&old.id);
                    self.key_secrets.remove(&old.secret_sha256);
                }
                if let Some((id, secret)) = new {
                    self.key_pos.insert(id, pos);
                    self.key_secrets.insert(secret, pos);
                }
                Change::Key(pos, old)
            }
            Change::Job(pos, row) => {
                let old = self.jobs.remove(&pos);
                if let Some(old) = &old {
                    self.index_job(pos, old, false);
                }
                if let Some(row) = row {
                    self.index_job(pos, &row, true);
                    self.jobs.insert(pos, row);
                }
                Change::Job(pos, old)
            }
            Change::Trial(id, row) => {
                let old = self.trials.remove(&id);
                if let Some(old) = &old {
                    self.index_trial(old, false);
                }
                if let Some(row) = row {
                    self.index_trial(&row, true);
                    self.trials.insert(id.clone(), row);
                }
                Change::Trial(id, old)
            }
            Change::Lease(id, row) => {
                let old = self.leases.remove(&id);
                if let Some(old) = &old {
                    self.index_lease(old, false);
                }
                match (&old, &row) {
                    (None, Some(_)) => {
                        self.last_pos += 1;
                        self.lease_order.insert(self.last_pos, id.clone());
                        self.lease_pos.insert(id.clone(), self.last_pos);
                    }
                    (Some(_), None) => {
                        let pos = self.lease_pos.remove(&id);
                        pos.and_then(|pos| self.lease_order.remove(&pos));
                    }
                    (_, _) => {}
                }
                if let Some(row) = row {
                    self.index_lease(&row, true);
                    self.leases.insert(id.clone(), row);
                }
                Change::Lease(id, old)
            }
            Change::Sync(pos, row) => {
                let new = row.as_ref().map(|row| (row.project.clone(), row.id.clone()));
                let old = set(&mut self.syncs, pos, row);
                if let Some(old) = &old {
                    self.sync_pos.remove(&(old.project.clone(), old.id.clone()));
                }
                if let Some(id) = new {
                    self.sync_pos.insert(id, pos);
                }
                Change::Sync(pos, old)
            }
            Change::Segment(pos, row) => {
                let new = row.as_ref().map(|row| row.id.clone());
                let old = set(&mut self.segments, pos, row);
                if let Some(old) = &old {
                    self.segment_pos.remove(&old.id);
                }
                if let Some(id) = new {
                    self.segment_pos.insert(id, pos);
                }
                Change::Segment(pos, old)
            }
            Change::Entry(pos, row) => {
                let new = row.as_ref().map(|row| row.id.clone());
                let old = set(&mut self.entries, pos, row);
                if let Some(old) = &old {
                    self.entry_pos.remove(&old.id);
                }
                if let Some(id) = new {
                    self.entry_pos.insert(id, pos);
                }
                Change::Entry(pos, old)
            }
            Change::Publication(pos, row) => {
                let key = |row: &Publication| (row.kind, row.name.clone(), row.revision.clone());
                let new = row.as_ref().map(key);
                let old = set(&mut self.publications, pos, row);
                if let Some(old) = &old {
                    self.publication_pos.remove(&key(old));
                }
                if let Some(key) = new {
                    self.publication_pos.insert(key, pos);
                }
                Change::Publication(pos, old)
            }
            Change::Event(pos, row) => {
                let key = |row: &EventRecord| {
                    row.subject.job.clone().map(|job| (row.project.clone(), job))
                };
                let new = row.as_ref().and_then(key);
                let old = set(&mut self.events, pos, row);
                if let Some(key) = old.as_ref().and_then(key) {
                    group(&mut self.job_events, key, pos, false);
                }
                if let Some(key) = new {
                    group(&mut self.job_events, key, pos, true);
                }
                Change::Event(pos, old)
            }
        }
    }

    fn index_job(&mut self, pos: Pos, job: &Job, there: bool) {
        let project = || job.project.clone();
        let shown = job.deleted_at.is_none();
        group(&mut self.listed_jobs, project(), pos, there && shown);
        group(&mut self.active_jobs, project(), pos, there && shown && job.active);
        group(&mut self.named_jobs, (project(), job.name.clone()), pos, there && shown);
        group(&mut self.lineages, (project(), job.lineage.clone()), pos, there);
        let place = there.then_some(pos);
        set(&mut self.job_pos, (project(), job.id.clone()), place);
        if job.active {
            set(&mut self.active_names, (project(), job.name.clone()), place);
        }
        if let Some(key) = &job.idempotency_key {
            set(&mut self.job_keys, (project(), key.clone()), place);
        }
    }

    fn index_trial(&mut self, trial: &Trial, there: bool) {
        let job = (trial.project.clone(), trial.job.clone());
        if let Some(pos) = self.job_pos.get(&job) {
            group(&mut self.job_trials, *pos, (trial.index, trial.id.clone()), there);
        }
        if let Some(at) = trial.next_at {
            put(&mut self.due, (at, Due::Trial(trial.id.clone())), there);
        }
    }

    fn index_lease(&mut self, lease: &Lease, there: bool) {
        put(&mut self.open_leases, lease.id.clone(), there && !lease.state.is_terminal());
        if let Some(at) = lease.next_at {
            put(&mut self.due, (at, Due::Lease(lease.id.clone())), there);
        }
    }
}

fn set<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => table.insert(key, value),
        None => table.remove(&key),
    }
}

fn put<T: Ord>(index: &mut BTreeSet<T>, key: T, there: bool) {
    if there {
        index.insert(key);
    } else {
        index.remove(&key);
    }
}

fn group<K: Ord, V: Ord>(index: &mut Groups<K, V>, key: K, member: V, there: bool) {
    if there {
        index.entry(key).or_default().insert(member);
    } else if let Entry::Occupied(mut members) = index.entry(key) {
        members.get_mut().remove(&member);
        if members.get().is_empty() {
            members.remove();
        }
    }
}

pub(super) fn members<'a, K: Ord, V>(
    index: &'a Groups<K, V>,
    key: &K,
) -> impl DoubleEndedIterator<Item = &'a V> + use<'a, K, V> {
    index.get(key).into_iter().flatten()
}
