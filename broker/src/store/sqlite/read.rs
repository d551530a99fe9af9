//! The queries. Only rows that are returned are parsed.

use std::fmt::{Display, Write as _};

use jiff::Timestamp;
use runwhere_engine::{
    ApiKey, Budget, EventRecord, Job, Lease, LeaseState, LedgerEntry, Output, Principal, Project,
    Publication, PublicationKind, Stray, SweeperState, SyncManifest, Trial, TrialState,
    UsageSegment, Workspace,
};
use runwhere_model::{
    JobId, KeyId, LeaseId, NodeId, PrincipalId, ProjectId, ProviderId, SyncId, TrialId, WorkspaceId,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, params, params_from_iter};
use serde::de::DeserializeOwned;

use super::document::{self, instant, nanos, position};
use super::fault::Fault;
use crate::store::{
    Counts, DEFAULT_JOBS, Due, JobQuery, JobView, SegmentQuery, StoreError, StrayQuery,
};

pub(super) const BY_NAME: &str =
    "SELECT pos FROM jobs WHERE project_id = ?1 AND name = ?2 AND deleted = 0
               ORDER BY pos DESC LIMIT 1";
pub(super) const UNIT: &str =
    "SELECT j.doc, t.doc, l.doc FROM trials t JOIN jobs j ON j.pos = t.job_pos
         LEFT JOIN leases l ON l.id = t.lease_id WHERE t.id = ?1";
pub(super) const OPEN_LEASES: &str = "SELECT doc FROM leases WHERE ended = 0 ORDER BY id";
pub(super) const DUE: &str = "SELECT kind, id FROM (
             SELECT * FROM (SELECT 0 AS kind, next_at, id FROM trials
                 WHERE next_at IS NOT NULL AND next_at <= ?1 ORDER BY next_at, id LIMIT ?2)
             UNION ALL
             SELECT * FROM (SELECT 1 AS kind, next_at, id FROM leases
                 WHERE next_at IS NOT NULL AND next_at <= ?1 ORDER BY next_at, id LIMIT ?2)
         ) ORDER BY next_at, kind, id LIMIT ?2";
pub(super) const NEXT_DUE: &str = "SELECT min(next_at) FROM (
                 SELECT * FROM (SELECT next_at FROM trials WHERE next_at IS NOT NULL
                     ORDER BY next_at LIMIT 1)
                 UNION ALL
                 SELECT * FROM (SELECT next_at FROM leases WHERE next_at IS NOT NULL
                     ORDER BY next_at LIMIT 1))";

/// At most one document.
fn one<T: DeserializeOwned>(
    c: &Connection,
    table: &str,
    sql: &str,
    params: impl Params,
) -> Result<Option<T>, Fault> {
    let mut statement = c.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => Ok(Some(document::read(table, row.get_ref(0)?.as_str().map_err(failed)?)?)),
        None => Ok(None),
    }
}

/// All documents of a query.
fn all<T: DeserializeOwned>(
    c: &Connection,
    table: &str,
    sql: &str,
    params: impl Params,
) -> Result<Vec<T>, Fault> {
    let mut statement = c.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(document::read(table, row.get_ref(0)?.as_str().map_err(failed)?)?);
    }
    Ok(found)
}

/// Documents after their positions.
fn placed<T: DeserializeOwned>(
    c: &Connection,
    table: &str,
    sql: &str,
    params: impl Params,
) -> Result<Vec<(u64, T)>, Fault> {
    let mut statement = c.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let document = document::read(table, row.get_ref(1)?.as_str().map_err(failed)?)?;
        found.push((position(row.get(0)?), document));
    }
    Ok(found)
}

/// A stored value is not what it must be.
fn failed(error: impl Display) -> StoreError {
    StoreError::Failed(error.to_string())
}

/// The jobs at these positions, in this order. Two statements a job: in process each costs less
/// than the sorting that one statement for all would need.
fn views(c: &Connection, positions: &[i64]) -> Result<Vec<JobView>, Fault> {
    let mut of_job = c.prepare_cached("SELECT doc FROM jobs WHERE pos = ?1")?;
    let mut of_trials = c.prepare_cached(
        "SELECT t.doc, l.doc FROM trials t LEFT JOIN leases l ON l.id = t.lease_id
         WHERE t.job_pos = ?1 ORDER BY t.idx",
    )?;
    let mut found = Vec::with_capacity(positions.len());
    for pos in positions {
        let mut rows = of_job.query([pos])?;
        let Some(row) = rows.next()? else { continue };
        let job: Job = document::read("jobs", row.get_ref(0)?.as_str().map_err(failed)?)?;
        drop(rows);
        let mut rows = of_trials.query([pos])?;
        let mut trials = Vec::with_capacity(job.trials.len());
        while let Some(row) = rows.next()? {
            let trial: Trial = document::read("trials", row.get_ref(0)?.as_str().map_err(failed)?)?;
            let lease: Option<Lease> = match row.get_ref(1)?.as_str_or_null().map_err(failed)? {
                Some(lease) => Some(document::read("leases", lease)?),
                None => None,
            };
            trials.push((trial, lease));
        }
        found.push(JobView { job, trials });
    }
    Ok(found)
}

fn view(c: &Connection, sql: &str, params: impl Params) -> Result<Option<JobView>, Fault> {
    let pos: Option<i64> = c.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()?;
    match pos {
        Some(pos) => Ok(views(c, &[pos])?.pop()),
        None => Ok(None),
    }
}

pub(super) fn job(
    c: &Connection,
    project: &ProjectId,
    id: &JobId,
) -> Result<Option<JobView>, Fault> {
    let sql = "SELECT pos FROM jobs WHERE project_id = ?1 AND id = ?2";
    view(c, sql, [project.as_str(), id.as_str()])
}

pub(super) fn job_by_name(
    c: &Connection,
    project: &ProjectId,
    name: &str,
) -> Result<Option<JobView>, Fault> {
    view(c, BY_NAME, [project.as_str(), name])
}

pub(super) fn job_by_key(
    c: &Connection,
    project: &ProjectId,
    key: &str,
) -> Result<Option<JobView>, Fault> {
    let sql = "SELECT pos FROM jobs WHERE project_id = ?1 AND idempotency_key = ?2";
    view(c, sql, [project.as_str(), key])
}

pub(super) fn lineage(
    c: &Connection,
    project: &ProjectId,
    lineage: &JobId,
) -> Result<Vec<JobView>, Fault> {
    let sql = "SELECT pos FROM jobs WHERE project_id = ?1 AND lineage = ?2 ORDER BY pos DESC";
    let positions = c
        .prepare_cached(sql)?
        .query_map([project.as_str(), lineage.as_str()], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    views(c, &positions)
}

pub(super) fn active_job(
    c: &Connection,
    project: &ProjectId,
    name: &str,
) -> Result<Option<JobId>, Fault> {
    let sql = "SELECT id FROM jobs WHERE project_id = ?1 AND name = ?2 AND active = 1";
    let id: Option<String> =
        c.prepare_cached(sql)?.query_row([project.as_str(), name], |row| row.get(0)).optional()?;
    id.map(JobId::new).transpose().map_err(|error| StoreError::Failed(error.to_string()).into())
}

pub(super) fn jobs(
    c: &Connection,
    project: &ProjectId,
    query: &JobQuery,
) -> Result<Vec<JobView>, Fault> {
    let before = match &query.after {
        None => i64::MAX,
        Some(id) => {
            let sql = "SELECT pos FROM jobs WHERE project_id = ?1 AND id = ?2";
            let pos = c
                .prepare_cached(sql)?
                .query_row([project.as_str(), id.as_str()], |row| row.get(0))
                .optional()?;
            match pos {
                Some(pos) => pos,
                None => return Ok(Vec::new()),
            }
        }
    };
    let limit = query.limit.unwrap_or(DEFAULT_JOBS);
    let states: Vec<TrialState> =
        TrialState::ALL.into_iter().filter(|state| query.states.contains(state)).collect();
    let sql = positions_sql(&states, query.kind.is_some(), query.limit.is_none());
    let mut values: Vec<Value> =
        vec![project.as_str().to_owned().into(), before.into(), i64::from(limit).into()];
    values.extend(query.kind.map(|kind| kind.as_str().to_owned().into()));
    let positions = c
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    views(c, &positions)
}

/// Positions of listed jobs, newest first; ?1 project, ?2 before this position, ?3 limit of the
/// newest, ?4 kind. With states each one is read newest first from the index of first trials, so
/// that a rare state is not looked for among all jobs.
pub(super) fn positions_sql(states: &[TrialState], kind: bool, and_active: bool) -> String {
    let kind = if kind { " AND j.kind = ?4" } else { "" };
    let shown = format!("j.project_id = ?1 AND j.deleted = 0 AND j.pos < ?2{kind}");
    let mut sql = "SELECT pos FROM (SELECT pos FROM (".to_owned();
    if states.is_empty() {
        let _ = write!(sql, "SELECT j.pos FROM jobs j WHERE {shown} ORDER BY j.pos DESC LIMIT ?3");
    }
    for (place, state) in states.iter().enumerate() {
        let union = if place == 0 { "" } else { " UNION ALL " };
        let _ = write!(
            sql,
            "{union}SELECT pos FROM (
                 SELECT t.job_pos AS pos FROM trials t CROSS JOIN jobs j ON j.pos = t.job_pos
                 WHERE t.project_id = ?1 AND t.state = '{}' AND t.idx = 0 AND t.job_pos < ?2
                     AND {shown}
                 ORDER BY t.job_pos DESC LIMIT ?3)",
            state.as_str()
        );
    }
    sql.push_str(") ORDER BY pos DESC LIMIT ?3)");
    if and_active {
        let _ = write!(sql, " UNION SELECT j.pos FROM jobs j WHERE j.active = 1 AND {shown}");
        if !states.is_empty() {
            let words: Vec<String> =
                states.iter().map(|state| format!("'{}'", state.as_str())).collect();
            let _ = write!(
                sql,
                " AND EXISTS (SELECT 1 FROM trials t WHERE t.job_pos = j.pos AND t.idx = 0
                      AND t.state IN ({}))",
                words.join(", ")
            );
        }
    }
    sql.push_str(" ORDER BY pos DESC");
    sql
}

pub(super) fn unit(
    c: &Connection,
    trial: &TrialId,
) -> Result<Option<(Job, Trial, Option<Lease>)>, Fault> {
    let mut statement = c.prepare_cached(UNIT)?;
    let mut rows = statement.query([trial.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let job = document::read("jobs", row.get_ref(0)?.as_str().map_err(failed)?)?;
    let trial = document::read("trials", row.get_ref(1)?.as_str().map_err(failed)?)?;
    let lease = match row.get_ref(2)?.as_str_or_null().map_err(failed)? {
        Some(lease) => Some(document::read("leases", lease)?),
        None => None,
    };
    Ok(Some((job, trial, lease)))
}

pub(super) fn lease(c: &Connection, id: &LeaseId) -> Result<Option<Lease>, Fault> {
    one(c, "leases", "SELECT doc FROM leases WHERE id = ?1", [id.as_str()])
}

pub(super) fn open_leases(c: &Connection) -> Result<Vec<Lease>, Fault> {
    all(c, "leases", OPEN_LEASES, [])
}

pub(super) fn leases(c: &Connection, ids: &[LeaseId]) -> Result<Vec<Lease>, Fault> {
    let mut ids: Vec<&LeaseId> = ids.iter().collect();
    ids.sort();
    ids.dedup();
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(lease(c, id)?);
    }
    Ok(found)
}

pub(super) fn newest_leases(
    c: &Connection,
    project: Option<&ProjectId>,
    limit: u32,
) -> Result<Vec<Lease>, Fault> {
    match project {
        None => all(c, "leases", "SELECT doc FROM leases ORDER BY rowid DESC LIMIT ?1", [limit]),
        Some(project) => {
            let sql = "SELECT doc FROM leases WHERE project_id = ?1 ORDER BY rowid DESC LIMIT ?2";
            all(c, "leases", sql, params![project.as_str(), limit])
        }
    }
}

pub(super) fn strays(c: &Connection, query: &StrayQuery) -> Result<Vec<Stray>, Fault> {
    let shown = if query.open { " AND open = 1" } else { "" };
    let provider = query.provider.as_ref().map(ProviderId::as_str);
    let Some(nodes) = &query.nodes else {
        let sql = format!(
            "SELECT doc FROM strays WHERE (?1 IS NULL OR provider_id = ?1){shown}
             ORDER BY provider_id, node_id"
        );
        return all(c, "strays", &sql, [provider]);
    };
    let mut nodes: Vec<&NodeId> = nodes.iter().collect();
    nodes.sort();
    nodes.dedup();
    let sql = format!(
        "SELECT doc FROM strays WHERE (?1 IS NULL OR provider_id = ?1) AND node_id = ?2{shown}
         ORDER BY provider_id"
    );
    let mut found: Vec<Stray> = Vec::new();
    for node in nodes {
        found.extend(all::<Stray>(c, "strays", &sql, params![provider, node.as_str()])?);
    }
    found.sort_by(|a, b| (&a.provider, a.node()).cmp(&(&b.provider, b.node())));
    Ok(found)
}

pub(super) fn sweepers(c: &Connection) -> Result<Vec<SweeperState>, Fault> {
    all(c, "sweepers", "SELECT doc FROM sweepers ORDER BY provider_id", [])
}

pub(super) fn counts(c: &Connection) -> Result<Counts, Fault> {
    let grouped = |sql: &str| -> Result<Vec<(String, u64)>, Fault> {
        let mut statement = c.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((row.get(0)?, position(row.get(1)?)));
        }
        Ok(found)
    };
    let leases = grouped(
        "SELECT json_extract(doc, '$.state'), count(*) FROM leases WHERE ended = 0 GROUP BY 1",
    )?;
    let trials = grouped(
        "SELECT t.state, count(*) FROM jobs j JOIN trials t ON t.job_pos = j.pos
         WHERE j.active = 1 GROUP BY t.state",
    )?;
    let of = |counted: &[(String, u64)], word: &str| {
        counted.iter().find(|(state, _)| state == word).map(|(_, count)| *count)
    };
    let releasing = "SELECT doc FROM leases
                     WHERE ended = 0 AND json_extract(doc, '$.state') = 'releasing'";
    let releasing: Vec<Lease> = all(c, "leases", releasing, [])?;
    Ok(Counts {
        leases: LeaseState::ALL
            .into_iter()
            .filter_map(|state| of(&leases, state.as_str()).map(|count| (state, count)))
            .collect(),
        trials: TrialState::ALL
            .into_iter()
            .filter_map(|state| of(&trials, state.as_str()).map(|count| (state, count)))
            .collect(),
        releasing_since: releasing.iter().map(|lease| lease.since).min(),
    })
}

pub(super) fn newest_position(c: &Connection) -> Result<u64, Fault> {
    let sql = "SELECT max(pos) FROM events";
    let pos: Option<i64> = c.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(pos.map_or(0, position))
}

pub(super) fn due(c: &Connection, now: Timestamp, limit: u32) -> Result<Vec<Due>, Fault> {
    let mut statement = c.prepare_cached(DUE)?;
    let mut rows = statement.query(params![nanos(now), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id: String = row.get(1)?;
        found.push(match row.get::<_, i64>(0)? {
            0 => Due::Trial(TrialId::new(id).map_err(failed)?),
            _ => Due::Lease(LeaseId::new(id).map_err(failed)?),
        });
    }
    Ok(found)
}

pub(super) fn next_due(c: &Connection) -> Result<Option<Timestamp>, Fault> {
    let first: Option<i64> = c.prepare_cached(NEXT_DUE)?.query_row([], |row| row.get(0))?;
    Ok(first.map(instant))
}

pub(super) fn outputs(c: &Connection, trial: &TrialId) -> Result<Vec<Output>, Fault> {
    let sql = "SELECT doc FROM outputs WHERE trial_id = ?1 ORDER BY path";
    all(c, "outputs", sql, [trial.as_str()])
}

pub(super) fn outputs_after(
    c: &Connection,
    trial: &TrialId,
    after: &str,
    limit: u32,
) -> Result<Vec<Output>, Fault> {
    let sql = "SELECT doc FROM outputs WHERE trial_id = ?1 AND path > ?2 ORDER BY path LIMIT ?3";
    all(c, "outputs", sql, params![trial.as_str(), after, limit])
}

pub(super) fn output(c: &Connection, trial: &TrialId, path: &str) -> Result<Option<Output>, Fault> {
    let sql = "SELECT doc FROM outputs WHERE trial_id = ?1 AND path = ?2";
    one(c, "outputs", sql, [trial.as_str(), path])
}

pub(super) fn sync(
    c: &Connection,
    project: &ProjectId,
    id: &SyncId,
) -> Result<Option<SyncManifest>, Fault> {
    let sql = "SELECT doc FROM syncs WHERE project_id = ?1 AND id = ?2";
    one(c, "syncs", sql, [project.as_str(), id.as_str()])
}

pub(super) fn newest_sync(
    c: &Connection,
    project: &ProjectId,
    job_name: Option<&str>,
) -> Result<Option<SyncManifest>, Fault> {
    match job_name {
        Some(name) => one(
            c,
            "syncs",
            "SELECT doc FROM syncs WHERE project_id = ?1 AND job_name = ?2
             ORDER BY pos DESC LIMIT 1",
            [project.as_str(), name],
        ),
        None => one(
            c,
            "syncs",
            "SELECT doc FROM syncs WHERE project_id = ?1 ORDER BY pos DESC LIMIT 1",
            [project.as_str()],
        ),
    }
}

/// A caller's position; nothing follows one that SQLite cannot have given.
fn cursor(after: Option<u64>) -> i64 {
    i64::try_from(after.unwrap_or(0)).unwrap_or(i64::MAX)
}

pub(super) fn segments(
    c: &Connection,
    project: &ProjectId,
    query: &SegmentQuery,
) -> Result<Vec<(u64, UsageSegment)>, Fault> {
    let mut sql = "SELECT pos, doc FROM segments
                   WHERE project_id = ?1 AND pos > ?2 AND end_at > ?3 AND start_at < ?4"
        .to_owned();
    let mut values: Vec<Value> = vec![
        project.as_str().to_owned().into(),
        cursor(query.after).into(),
        query.from.map_or(i64::MIN, nanos).into(),
        query.to.map_or(i64::MAX, nanos).into(),
        i64::from(query.limit).into(),
    ];
    if let Some(job) = &query.job {
        sql.push_str(" AND job_id = ?6");
        values.push(job.as_str().to_owned().into());
    }
    sql.push_str(" ORDER BY pos LIMIT ?5");
    placed(c, "segments", &sql, params_from_iter(values))
}

pub(super) fn entries(
    c: &Connection,
    project: &ProjectId,
    after: Option<u64>,
    limit: u32,
) -> Result<Vec<(u64, LedgerEntry)>, Fault> {
    let sql = "SELECT pos, doc FROM entries WHERE project_id = ?1 AND pos > ?2
               ORDER BY pos LIMIT ?3";
    placed(c, "entries", sql, params![project.as_str(), cursor(after), limit])
}

pub(super) fn events(
    c: &Connection,
    project: &ProjectId,
    job: &JobId,
) -> Result<Vec<EventRecord>, Fault> {
    let sql = "SELECT doc FROM events WHERE project_id = ?1 AND job_id = ?2 ORDER BY pos";
    all(c, "events", sql, [project.as_str(), job.as_str()])
}

pub(super) fn budget(c: &Connection, project: &ProjectId) -> Result<Option<Budget>, Fault> {
    one(c, "budgets", "SELECT doc FROM budgets WHERE project_id = ?1", [project.as_str()])
}

pub(super) fn key_by_secret(c: &Connection, secret_sha256: &str) -> Result<Option<ApiKey>, Fault> {
    one(c, "keys", "SELECT doc FROM keys WHERE secret_sha256 = ?1", [secret_sha256])
}

pub(super) fn key(c: &Connection, id: &KeyId) -> Result<Option<ApiKey>, Fault> {
    one(c, "keys", "SELECT doc FROM keys WHERE id = ?1", [id.as_str()])
}

pub(super) fn keys(c: &Connection) -> Result<Vec<ApiKey>, Fault> {
    all(c, "keys", "SELECT doc FROM keys ORDER BY pos", [])
}

pub(super) fn project(c: &Connection, id: &ProjectId) -> Result<Option<Project>, Fault> {
    one(c, "projects", "SELECT doc FROM projects WHERE id = ?1", [id.as_str()])
}

pub(super) fn workspace(c: &Connection, id: &WorkspaceId) -> Result<Option<Workspace>, Fault> {
    one(c, "workspaces", "SELECT doc FROM workspaces WHERE id = ?1", [id.as_str()])
}

pub(super) fn publication(
    c: &Connection,
    kind: PublicationKind,
    name: &str,
    revision: &str,
) -> Result<Option<Publication>, Fault> {
    let sql = "SELECT doc FROM publications WHERE kind = ?1 AND name = ?2 AND revision = ?3";
    one(c, "publications", sql, [kind.as_str(), name, revision])
}

pub(super) fn publications(
    c: &Connection,
    kind: PublicationKind,
    name: Option<&str>,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<(u64, Publication)>, Fault> {
    let before = before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
    let order = "ORDER BY pos DESC LIMIT ?3";
    match name {
        Some(name) => {
            let sql = format!(
                "SELECT pos, doc FROM publications WHERE kind = ?1 AND pos < ?2 AND name = ?4 {order}"
            );
            placed(c, "publications", &sql, params![kind.as_str(), before, limit, name])
        }
        None => {
            let sql =
                format!("SELECT pos, doc FROM publications WHERE kind = ?1 AND pos < ?2 {order}");
            placed(c, "publications", &sql, params![kind.as_str(), before, limit])
        }
    }
}

pub(super) fn namespace_holder(
    c: &Connection,
    namespace: &str,
) -> Result<Option<Publication>, Fault> {
    let sql = "SELECT doc FROM publications WHERE namespace = ?1 ORDER BY pos LIMIT 1";
    one(c, "publications", sql, [namespace])
}

pub(super) fn principal(c: &Connection, id: &PrincipalId) -> Result<Option<Principal>, Fault> {
    one(c, "principals", "SELECT doc FROM principals WHERE id = ?1", [id.as_str()])
}

/// Changes with every commit of another connection.
pub(super) fn data_version(c: &Connection) -> Result<u64, Fault> {
    let mut statement = c.prepare_cached("PRAGMA data_version")?;
    let version: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(version.cast_unsigned())
}
