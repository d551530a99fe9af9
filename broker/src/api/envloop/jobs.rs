//! Jobs: submit, list, get, result, stop, events.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use runwhere_engine::{JobKind, Permission, TrialState};
use runwhere_model::JobId;
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::checkpoints;
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use super::{trials, view};
use crate::accounts::Caller;
use crate::api::body;
use crate::api::text::words;
use crate::driver::DriveError;
use crate::runners::{Code, Refused};
use crate::store::{JobQuery, JobView};

/// Bound of a request: sixteen commands of the largest size, escaped.
const BODY: usize = 8 << 20;
/// Rows that are looked at for one page at most.
const SCAN: usize = 2000;

/// A job of the caller's project that this door made and that is not deleted.
pub(super) async fn visible(el: &El, caller: &Caller, id: &str) -> Result<JobView, Error> {
    let missing = || {
        let why = words!("此项目中没有这个任务", "there is no such job in this project");
        Error::new(Code::JobNotFound, why)
    };
    let id = JobId::new(id).map_err(|_| missing())?;
    let view = el.parts.store.job(&caller.project, &id).await?;
    view.filter(is_ours).ok_or_else(missing)
}

/// Whether this door made a job and nobody deleted it.
pub(super) fn is_ours(view: &JobView) -> bool {
    !view.job.trial_specs.is_empty() && view.job.deleted_at.is_none()
}

/// Jobs of this door after one, newest first, and the last one that was looked at where there may
/// be more.
pub(super) async fn after(
    el: &El,
    caller: &Caller,
    from: Option<JobId>,
    wanted: impl Fn(&JobView) -> bool,
    limit: usize,
) -> Result<(Vec<JobView>, Option<JobId>), Error> {
    let (mut found, mut from, mut seen) = (Vec::new(), from, 0);
    loop {
        let step = u32::try_from(limit.max(25)).unwrap_or(100);
        let query = JobQuery {
            kind: Some(JobKind::Training),
            limit: Some(step),
            after: from.clone(),
            ..JobQuery::default()
        };
        let rows = el.parts.store.jobs(&caller.project, &query).await?;
        let last = rows.len() < step as usize;
        for row in rows {
            if found.len() == limit {
                return Ok((found, from));
            }
            seen += 1;
            from = Some(row.job.id.clone());
            if is_ours(&row) && wanted(&row) {
                found.push(row);
            }
        }
        if last {
            return Ok((found, None));
        }
        if seen >= SCAN {
            return Ok((found, from));
        }
    }
}

pub(super) async fn submit(State(el): State<Arc<El>>, signed: Signed, sent: Body) -> Answer {
    let sent = body::read(sent, BODY).await.map_err(|problem| {
        let status = problem.into_response().status();
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Error::new(
                Code::RequestTooLarge,
                words!("请求超过 8 MiB", "the request is larger than 8 MiB"),
            ),
            _ => Error::new(
                Code::BadRequest,
                words!("请求体不完整", "the request body is not complete"),
            ),
        }
    })?;
    let accepted = el.parts.training.submit(&signed.0, &sent).await?;
    let mut reply = view::job(&accepted.view, el.parts.clock.now(), true);
    if let Value::Object(map) = &mut reply {
        map.insert("request_id".to_owned(), accepted.request_id.into());
        map.insert("repeated".to_owned(), accepted.repeated.into());
    }
    let status = if accepted.repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(reply)).into_response())
}

pub(super) async fn list(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let limit = page::limit(&parameters)?;
    let status = given(&parameters, "status");
    let words = ["pending", "running", "stopping", "completed", "failed", "cancelled"];
    if status.is_some_and(|status| !words.contains(&status)) {
        return Err(page::status_unknown(Code::InvalidJobStatus, &words));
    }
    let from = page::cursor(&parameters)?;
    let from = from.map(JobId::new).transpose();
    let from = from.map_err(|_| page::foreign_cursor())?;
    if !page::is_train(&parameters)? {
        return ok(json!({ "items": [], "next_cursor": null }));
    }
    let now = el.parts.clock.now();
    if let Some(id) = given(&parameters, "request_id") {
        let found = el.parts.store.job_by_key(&caller.project, &format!("el:{id}")).await?;
        let items: Vec<Value> = found
            .iter()
            .filter(|view| is_ours(view))
            .map(|row| view::job(row, now, false))
            .collect();
        return ok(json!({ "items": items, "next_cursor": null }));
    }
    let wanted = |row: &JobView| status.is_none_or(|status| view::job_status(row) == status);
    let (rows, next) = after(&el, &caller, from, wanted, limit).await?;
    let items: Vec<Value> = rows.iter().map(|row| view::job(row, now, false)).collect();
    ok(json!({ "items": items, "next_cursor": next.map(|id| page::opaque(id.as_str())) }))
}

pub(super) async fn get(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let (place, known) = el.known(&caller, format!("job {id}"));
    if let Some(known) = known {
        return Ok(known);
    }
    let row = visible(&el, &caller, &id).await?;
    el.keep(place, &view::job(&row, el.parts.clock.now(), true))
}

pub(super) async fn result(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let row = visible(&el, &caller, &id).await?;
    let found = checkpoints::of_job(&el, &row).await?;
    let mut reply = view::job(&row, el.parts.clock.now(), true);
    if let Value::Object(map) = &mut reply {
        map.insert("checkpoints".to_owned(), found.into());
    }
    ok(reply)
}

/// Stops all trials of a job that have not ended; harmless when repeated.
pub(super) async fn stop_trials(
    el: &El,
    ids: impl IntoIterator<Item = runwhere_model::TrialId>,
) -> Result<(), Error> {
    for id in ids {
        match el.core().step_to_end(id, false, runwhere_engine::Unit::stop).await {
            Ok(_) => {}
            Err(DriveError::NotFound) => {
                return Err(trials::missing());
            }
            Err(DriveError::Store(error)) => return Err(error.into()),
            Err(error @ (DriveError::Step(_) | DriveError::Broken)) => {
                tracing::error!(%error, "A trial could not be stopped");
                let why =
                    words!("停止请求未能记录，请重试", "the stop could not be recorded; repeat it");
                let refused = Refused::new(Code::StopFailed, why);
                return Err(Error(refused.retry(2)));
            }
        }
    }
    el.core().signals().ring();
    Ok(())
}

pub(super) async fn stop(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.any(&[Permission::TrainingStop])?;
    let row = visible(&el, &caller, &id).await?;
    let running = row.trials.iter().filter(|(trial, _)| !trial.state.is_terminal());
    stop_trials(&el, running.map(|(trial, _)| trial.id.clone()).collect::<Vec<_>>()).await?;
    let row = visible(&el, &caller, &id).await?;
    let reply = Json(view::job(&row, el.parts.clock.now(), true));
    Ok((StatusCode::ACCEPTED, reply).into_response())
}

pub(super) async fn unsupported(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    visible(&el, &caller, &id).await?;
    Err(Error::new(
        Code::JobActionUnsupported,
        words!(
            "训练任务可以停止，但不能暂停、恢复或唤醒",
            "a training job can be stopped, but neither paused, resumed nor woken"
        ),
    ))
}

pub(super) async fn events(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let row = visible(&el, &caller, &id).await?;
    let events = el.parts.store.events(&caller.project, &row.job.id).await?;
    let items: Vec<Value> = events
        .iter()
        .map(|event| {
            let subject = &event.subject;
            let id = subject
                .lease
                .as_ref()
                .filter(|_| event.kind.starts_with("lease."))
                .map(ToString::to_string)
                .or_else(|| subject.trial.as_ref().map(ToString::to_string))
                .unwrap_or_else(|| row.job.id.to_string());
            let (source, word) = event.kind.split_once('.').unwrap_or(("job", &event.kind));
            let state = TrialState::ALL.into_iter().find(|state| state.as_str() == word);
            let status = match state.filter(|_| source == "trial") {
                Some(TrialState::Lost | TrialState::TimedOut) => "failed",
                _ => word,
            };
            json!({
                "resource_id": id,
                "status": status,
                "at": event.at.to_string(),
                "source": source,
                "kind": event.kind,
                "detail": event.payload,
            })
        })
        .collect();
    ok(json!({ "items": items }))
}
