//! Writing a transition. Every rule is checked before the statement that would break it, so that
//! what remains is a failure of the database itself.

use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LedgerEntry, Output, Principal, Project, Publication,
    Stray, SweeperState, SyncManifest, Trial, UsageSegment, Workspace,
};
use runwhere_failpoint::failpoint;
use runwhere_model::{JobId, TrialId};
use rusqlite::{Connection, OptionalExtension, Params, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::document::{self, integer, nanos};
use super::fault::Fault;
use super::read;
use crate::store::{Row, StoreError, Transition};

/// Writes rows and events; a refusal may leave some of them written, the caller rolls back.
pub(super) fn transition(c: &Connection, transition: &Transition) -> Result<(), Fault> {
    for row in &transition.rows {
        match row {
            Row::Workspace(row) => workspace(c, row),
            Row::Project(row) => project(c, row),
            Row::Principal(row) => principal(c, row),
            Row::ApiKey(row) => api_key(c, row),
            Row::Job(row) => job(c, row),
            Row::Trial(row) => trial(c, row),
            Row::Lease(row) => lease(c, row).inspect(|()| failpoint!("store.lease.written")),
            Row::Sync(row) => sync(c, row),
            Row::Segment(row) => segment(c, row).inspect(|()| failpoint!("store.segment.written")),
            Row::Entry(row) => entry(c, row).inspect(|()| failpoint!("store.entry.written")),
            Row::Output(trial, row) => output(c, trial, row),
            Row::Budget(row) => budget(c, row),
            Row::Stray(row) => stray(c, row),
            Row::Sweeper(row) => sweeper(c, row),
            Row::Publication(row) => publication(c, row),
        }?;
    }
    transition.events.iter().try_for_each(|row| event(c, row))
}

fn run(c: &Connection, sql: &str, params: impl Params) -> Result<usize, Fault> {
    Ok(c.prepare_cached(sql)?.execute(params)?)
}

fn text(c: &Connection, sql: &str, params: impl Params) -> Result<Option<String>, Fault> {
    Ok(c.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()?)
}

/// What an insert or update of a versioned row came to: one row written, or somebody was faster.
fn fresh(written: usize, row: impl FnOnce() -> String) -> Result<(), Fault> {
    if written == 1 { Ok(()) } else { Err(StoreError::Stale { row: row() }.into()) }
}

/// Inserts an insert-only row: an identical one that is there is fine, another is refused.
fn keep<T: Serialize + DeserializeOwned + PartialEq>(
    row: &T,
    label: impl FnOnce() -> String,
    stored: Option<String>,
    insert: impl FnOnce(String) -> Result<usize, Fault>,
) -> Result<(), Fault> {
    match stored {
        Some(stored) if document::read::<T>("insert-only rows", &stored)? == *row => Ok(()),
        Some(_) => Err(StoreError::Exists { row: label() }.into()),
        None => insert(document::write(row)?).map(drop),
    }
}

fn workspace(c: &Connection, row: &Workspace) -> Result<(), Fault> {
    let id = row.id.as_str();
    let stored = text(c, "SELECT doc FROM workspaces WHERE id = ?1", [id])?;
    keep(
        row,
        || format!("workspace {id}"),
        stored,
        |doc| run(c, "INSERT INTO workspaces (id, doc) VALUES (?1, ?2)", params![id, doc]),
    )
}

fn principal(c: &Connection, row: &Principal) -> Result<(), Fault> {
    let id = row.id.as_str();
    let stored = text(c, "SELECT doc FROM principals WHERE id = ?1", [id])?;
    keep(
        row,
        || format!("principal {id}"),
        stored,
        |doc| run(c, "INSERT INTO principals (id, doc) VALUES (?1, ?2)", params![id, doc]),
    )
}

fn project(c: &Connection, row: &Project) -> Result<(), Fault> {
    let next = Project { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (id, old, new) = (row.id.as_str(), integer(row.version)?, integer(next.version)?);
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO projects (id, version, doc) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING",
            params![id, new, doc],
        )?
    } else {
        run(
            c,
            "UPDATE projects SET version = ?2, doc = ?3 WHERE id = ?1 AND version = ?4",
            params![id, new, doc, old],
        )?
    };
    fresh(written, || format!("project {id}"))
}

fn budget(c: &Connection, row: &Budget) -> Result<(), Fault> {
    let next = Budget { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (id, old, new) = (row.project.as_str(), integer(row.version)?, integer(next.version)?);
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO budgets (project_id, version, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (project_id) DO NOTHING",
            params![id, new, doc],
        )?
    } else {
        run(
            c,
            "UPDATE budgets SET version = ?2, doc = ?3 WHERE project_id = ?1 AND version = ?4",
            params![id, new, doc, old],
        )?
    };
    fresh(written, || format!("budget of {id}"))
}

fn api_key(c: &Connection, row: &ApiKey) -> Result<(), Fault> {
    let next = ApiKey { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (id, old, new) = (row.id.as_str(), integer(row.version)?, integer(next.version)?);
    let secret = row.secret_sha256.as_str();
    let sql = "SELECT id FROM keys WHERE secret_sha256 = ?1 AND id <> ?2";
    if text(c, sql, [secret, id])?.is_some() {
        return Err(StoreError::Exists { row: format!("the secret of key {id}") }.into());
    }
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO keys (id, project_id, version, secret_sha256, doc)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO NOTHING",
            params![id, row.project.as_str(), new, secret, doc],
        )?
    } else {
        run(
            c,
            "UPDATE keys SET version = ?3, secret_sha256 = ?4, doc = ?5
             WHERE id = ?1 AND project_id = ?2 AND version = ?6",
            params![id, row.project.as_str(), new, secret, doc, old],
        )?
    };
    fresh(written, || format!("key {id}"))
}

fn job(c: &Connection, row: &Job) -> Result<(), Fault> {
    let next = Job { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (old, new) = (integer(row.version)?, integer(next.version)?);
    let (project, id, name) = (row.project.as_str(), row.id.as_str(), row.name.as_str());
    let key = row.idempotency_key.as_deref();
    // The key first: a repeated submit is the same job, not a rival for its name.
    if let Some(key) = key {
        let sql = "SELECT id FROM jobs
                   WHERE project_id = ?1 AND idempotency_key = ?2 AND id <> ?3";
        if let Some(existing) = text(c, sql, [project, key, id])? {
            return Err(StoreError::KeyUsed { existing: job_id(existing)? }.into());
        }
    }
    if row.active {
        let sql = "SELECT id FROM jobs
                   WHERE project_id = ?1 AND name = ?2 AND active = 1 AND id <> ?3";
        if let Some(existing) = text(c, sql, [project, name, id])? {
            return Err(StoreError::NameTaken { existing: job_id(existing)? }.into());
        }
    }
    let (kind, lineage) = (row.kind.as_str(), row.lineage.as_str());
    let deleted = row.deleted_at.is_some();
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO jobs (project_id, id, version, name, kind, active, deleted, lineage,
                 idempotency_key, doc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (project_id, id) DO NOTHING",
            params![project, id, new, name, kind, row.active, deleted, lineage, key, doc],
        )?
    } else {
        run(
            c,
            "UPDATE jobs SET version = ?3, name = ?4, kind = ?5, active = ?6, deleted = ?7,
                 lineage = ?8, idempotency_key = ?9, doc = ?10
             WHERE project_id = ?1 AND id = ?2 AND version = ?11",
            params![project, id, new, name, kind, row.active, deleted, lineage, key, doc, old],
        )?
    };
    fresh(written, || format!("job {id}"))
}

fn job_id(text: String) -> Result<JobId, StoreError> {
    JobId::new(text).map_err(|error| StoreError::Failed(error.to_string()))
}

fn trial(c: &Connection, row: &Trial) -> Result<(), Fault> {
    let next = Trial { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (id, old, new) = (row.id.as_str(), integer(row.version)?, integer(next.version)?);
    let project = row.project.as_str();
    let job: Option<i64> = c
        .prepare_cached("SELECT pos FROM jobs WHERE project_id = ?1 AND id = ?2")?
        .query_row([project, row.job.as_str()], |found| found.get(0))
        .optional()?;
    let Some(job) = job else {
        return Err(StoreError::Failed(format!("trial {id} has no job {}", row.job)).into());
    };
    let (state, lease) = (row.state.as_str(), row.lease.as_ref().map(|lease| lease.as_str()));
    let next_at = row.next_at.map(nanos);
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO trials
                 (id, project_id, job_pos, idx, version, state, lease_id, next_at, doc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
            params![id, project, job, row.index, new, state, lease, next_at, doc],
        )?
    } else {
        run(
            c,
            "UPDATE trials SET idx = ?4, version = ?5, state = ?6, lease_id = ?7, next_at = ?8,
                 doc = ?9
             WHERE id = ?1 AND project_id = ?2 AND job_pos = ?3 AND version = ?10",
            params![id, project, job, row.index, new, state, lease, next_at, doc, old],
        )?
    };
    fresh(written, || format!("trial {id}"))
}

fn lease(c: &Connection, row: &Lease) -> Result<(), Fault> {
    let next = Lease { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (id, old, new) = (row.id.as_str(), integer(row.version)?, integer(next.version)?);
    let (project, trial) = (row.project.as_str(), row.trial.as_str());
    if trial_project(c, trial)?.as_deref() != Some(project) {
        return Err(StoreError::Failed(format!("lease {id} has no trial {trial}")).into());
    }
    let (ended, next_at) = (row.state.is_terminal(), row.next_at.map(nanos));
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO leases
                 (id, project_id, trial_id, version, ended, next_at, doc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
            params![id, project, trial, new, ended, next_at, doc],
        )?
    } else {
        run(
            c,
            "UPDATE leases SET version = ?4, ended = ?5, next_at = ?6, doc = ?7
             WHERE id = ?1 AND project_id = ?2 AND trial_id = ?3 AND version = ?8",
            params![id, project, trial, new, ended, next_at, doc, old],
        )?
    };
    fresh(written, || format!("lease {id}"))
}

fn stray(c: &Connection, row: &Stray) -> Result<(), Fault> {
    let next = Stray { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (old, new) = (integer(row.version)?, integer(next.version)?);
    let (provider, node) = (row.provider.as_str(), row.node().as_str());
    let open = row.state.is_open();
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO strays (provider_id, node_id, version, open, doc)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (provider_id, node_id) DO NOTHING",
            params![provider, node, new, open, doc],
        )?
    } else {
        run(
            c,
            "UPDATE strays SET version = ?3, open = ?4, doc = ?5
             WHERE provider_id = ?1 AND node_id = ?2 AND version = ?6",
            params![provider, node, new, open, doc, old],
        )?
    };
    fresh(written, || format!("stray {node} of {provider}"))
}

fn sweeper(c: &Connection, row: &SweeperState) -> Result<(), Fault> {
    let next = SweeperState { version: row.version + 1, ..row.clone() };
    let doc = document::write(&next)?;
    let (old, new) = (integer(row.version)?, integer(next.version)?);
    let provider = row.provider.as_str();
    let written = if row.version == 0 {
        run(
            c,
            "INSERT INTO sweepers (provider_id, version, doc) VALUES (?1, ?2, ?3)
             ON CONFLICT (provider_id) DO NOTHING",
            params![provider, new, doc],
        )?
    } else {
        run(
            c,
            "UPDATE sweepers SET version = ?2, doc = ?3 WHERE provider_id = ?1 AND version = ?4",
            params![provider, new, doc, old],
        )?
    };
    fresh(written, || format!("sweeper of {provider}"))
}

fn trial_project(c: &Connection, trial: &str) -> Result<Option<String>, Fault> {
    text(c, "SELECT project_id FROM trials WHERE id = ?1", [trial])
}

fn sync(c: &Connection, row: &SyncManifest) -> Result<(), Fault> {
    let (project, id) = (row.project.as_str(), row.id.as_str());
    let sql = "SELECT doc FROM syncs WHERE project_id = ?1 AND id = ?2";
    let stored = text(c, sql, [project, id])?;
    keep(
        row,
        || format!("sync {id}"),
        stored,
        |doc| {
            run(
                c,
                "INSERT INTO syncs (project_id, id, job_name, doc) VALUES (?1, ?2, ?3, ?4)",
                params![project, id, row.job_name, doc],
            )
        },
    )
}

fn segment(c: &Connection, row: &UsageSegment) -> Result<(), Fault> {
    let stored = text(c, "SELECT doc FROM segments WHERE id = ?1", [&row.id])?;
    keep(
        row,
        || format!("segment {}", row.id),
        stored,
        |doc| {
            run(
                c,
                "INSERT INTO segments (id, project_id, job_id, start_at, end_at, doc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    row.id,
                    row.project.as_str(),
                    row.job.as_str(),
                    nanos(row.start),
                    nanos(row.end),
                    doc
                ],
            )
        },
    )
}

fn entry(c: &Connection, row: &LedgerEntry) -> Result<(), Fault> {
    if !row.is_balanced() {
        return Err(StoreError::Unbalanced(format!("entry {}", row.id)).into());
    }
    let stored = text(c, "SELECT doc FROM entries WHERE id = ?1", [&row.id])?;
    keep(
        row,
        || format!("entry {}", row.id),
        stored,
        |doc| {
            run(
                c,
                "INSERT INTO entries (id, project_id, segment_id, doc) VALUES (?1, ?2, ?3, ?4)",
                params![row.id, row.project.as_str(), row.segment, doc],
            )
        },
    )
}

fn output(c: &Connection, trial: &TrialId, row: &Output) -> Result<(), Fault> {
    let Some(project) = trial_project(c, trial.as_str())? else {
        return Err(StoreError::Failed(format!("an output has no trial {trial}")).into());
    };
    run(
        c,
        "INSERT INTO outputs (trial_id, path, project_id, doc) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (trial_id, path) DO UPDATE SET doc = excluded.doc",
        params![trial.as_str(), row.path, project, document::write(row)?],
    )?;
    Ok(())
}

fn publication(c: &Connection, row: &Publication) -> Result<(), Fault> {
    let (kind, name, revision) = (row.kind.as_str(), row.name.as_str(), row.revision.as_str());
    let sql = "SELECT doc FROM publications WHERE kind = ?1 AND name = ?2 AND revision = ?3";
    let stored = text(c, sql, [kind, name, revision])?;
    let namespace = row.namespace();
    keep(
        row,
        || format!("{kind} {name}@{revision}"),
        stored,
        |doc| {
            let holder = read::namespace_holder(c, namespace)?;
            if holder.is_some_and(|holder| holder.workspace != row.workspace) {
                return Err(StoreError::Exists { row: format!("namespace {namespace}") }.into());
            }
            run(
                c,
                "INSERT INTO publications (kind, name, revision, namespace, project_id, doc)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![kind, name, revision, namespace, row.project.as_str(), doc],
            )
        },
    )
}

fn event(c: &Connection, row: &EventRecord) -> Result<(), Fault> {
    run(
        c,
        "INSERT INTO events (project_id, job_id, kind, at, doc) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            row.project.as_str(),
            row.subject.job.as_ref().map(|job| job.as_str()),
            row.kind,
            nanos(row.at),
            document::write(row)?
        ],
    )?;
    Ok(())
}
