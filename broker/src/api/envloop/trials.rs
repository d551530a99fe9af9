//! Trials: list, get, detail, result, snapshot, stop.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use runwhere_engine::{Job, Lease, Permission, Trial};
use runwhere_model::{JobId, TrialId};
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use super::{checkpoints, jobs, view};
use crate::accounts::Caller;
use crate::api::text::words;
use crate::runners::Code;

/// The refusal of a trial that is not there.
pub(super) fn missing() -> Error {
    let why = words!("此项目中没有这个 Trial", "there is no such trial in this project");
    Error::new(Code::TrialNotFound, why)
}

/// A trial of the caller's project that this door made.
pub(super) async fn visible(
    el: &El,
    caller: &Caller,
    id: &str,
) -> Result<(Job, Trial, Option<Lease>), Error> {
    let id = TrialId::new(id).map_err(|_| missing())?;
    let unit = el.parts.store.unit(&id).await?;
    unit.filter(|(job, ..)| {
        job.project == caller.project && !job.trial_specs.is_empty() && job.deleted_at.is_none()
    })
    .ok_or_else(missing)
}

pub(super) async fn list(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let limit = page::limit(&parameters)?;
    let cursor = page::cursor(&parameters)?;
    let words = ["pending", "running", "succeeded", "failed", "cancelled"];
    let status = given(&parameters, "status");
    if status.is_some_and(|status| !words.contains(&status)) {
        return Err(page::status_unknown(Code::InvalidTrialStatus, &words));
    }
    if !page::is_train(&parameters)? {
        return ok(json!({ "items": [], "next_cursor": null }));
    }
    // The last trial of the page before: its job, and its place in it.
    let from = cursor.as_deref().map(|text| {
        let (job, index) = text.rsplit_once('.')?;
        Some((JobId::new(job).ok()?, index.parse::<u32>().ok()?))
    });
    let from = match from {
        None => None,
        Some(Some(from)) => Some(from),
        Some(None) => return Err(page::foreign_cursor()),
    };
    let mut views = Vec::new();
    let mut more = None;
    if let Some(id) = given(&parameters, "job_id") {
        views.push(jobs::visible(&el, &caller, id).await?);
    } else {
        if let Some((job, _)) = &from
            && let Some(view) = el.parts.store.job(&caller.project, job).await?
        {
            views.push(view);
        }
        let start = from.as_ref().map(|(job, _)| job.clone());
        let (rows, next) = jobs::after(&el, &caller, start, |_| true, limit).await?;
        views.extend(rows);
        more = next;
    }
    let mut items = Vec::new();
    let mut last = None;
    for row in &views {
        for (trial, lease) in &row.trials {
            let seen = from
                .as_ref()
                .is_some_and(|(job, index)| *job == row.job.id && trial.index <= *index);
            if seen || status.is_some_and(|status| view::trial_status(trial) != status) {
                continue;
            }
            if items.len() == limit {
                return ok(json!({ "items": items, "next_cursor": last }));
            }
            items.push(view::trial(&row.job, trial, lease.as_ref()));
            last = Some(page::opaque(trial.id.as_str()));
        }
    }
    let next = more.map(|job| page::opaque(&format!("{job}.{}", u32::MAX)));
    ok(json!({ "items": items, "next_cursor": next }))
}

pub(super) async fn get(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let (place, known) = el.known(&caller, format!("trial {id}"));
    if let Some(known) = known {
        return Ok(known);
    }
    let (job, trial, lease) = visible(&el, &caller, &id).await?;
    el.keep(place, &view::trial(&job, &trial, lease.as_ref()))
}

/// A trial with what was collected of it.
pub(super) async fn result(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let (job, trial, lease) = visible(&el, &caller, &id).await?;
    let mut reply = view::trial(&job, &trial, lease.as_ref());
    let (found, others) = checkpoints::of_trial_with_others(&el, &job, &trial).await?;
    let left = left_behind(&el, &job, &trial).await?;
    if let Value::Object(map) = &mut reply {
        map.insert("checkpoints".to_owned(), found.into());
        map.insert("not_checkpoints".to_owned(), others.into());
        map.insert("not_collected".to_owned(), left.into());
    }
    ok(reply)
}

/// Files that were left behind, and why.
async fn left_behind(el: &El, job: &Job, trial: &Trial) -> Result<Vec<Value>, Error> {
    let events = el.parts.store.events(&job.project, &job.id).await?;
    let newest = events.iter().rfind(|event| {
        event.kind == "outputs.left_behind" && event.subject.trial.as_ref() == Some(&trial.id)
    });
    let newest = newest.and_then(|event| event.payload["files"].as_array().cloned());
    Ok(newest.unwrap_or_default())
}

pub(super) async fn snapshot(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let (job, trial, _) = visible(&el, &caller, &id).await?;
    ok(view::snapshot(&job, &trial))
}

pub(super) async fn nothing_measured(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    visible(&el, &caller, &id).await?;
    // Logs are never read for numbers.
    ok(json!({ "trial_id": id, "items": [], "next_cursor": null }))
}

pub(super) async fn stop(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.any(&[Permission::TrainingStop])?;
    let (_, trial, _) = visible(&el, &caller, &id).await?;
    if !trial.state.is_terminal() {
        jobs::stop_trials(&el, [trial.id.clone()]).await?;
    }
    let (job, trial, lease) = visible(&el, &caller, &id).await?;
    let reply = Json(view::trial(&job, &trial, lease.as_ref()));
    Ok((StatusCode::ACCEPTED, reply).into_response())
}

pub(super) async fn checkpoints(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let (job, trial, _) = visible(&el, &caller, &id).await?;
    let items = checkpoints::of_trial(&el, &job, &trial).await?;
    ok(json!({ "items": items, "next_cursor": null }))
}
