//! `/api/v1/jobs/{target}/outputs`: what a job left, as a list and file by file.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use runwhere_agent::protocol::Digest;
use runwhere_engine::Permission;
use serde::Deserialize;
use serde_json::{Value, json};

use super::jobs::first_trial;
use super::wire;
use crate::api::download;
use crate::api::problem::Problem;
use crate::api::state::{Api, Signed};
use crate::api::text::Words;
use crate::blobs::BlobError;

const MAX_PAGE: u32 = 1000;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/api/v1/jobs/{target}/outputs", get(list))
        .route("/api/v1/jobs/{target}/outputs/{*path}", get(content))
}

#[derive(Deserialize)]
struct Parameters {
    limit: Option<String>,
    cursor: Option<String>,
}

async fn list(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(target): Path<String>,
    Query(wanted): Query<Parameters>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let limit = match wanted.limit.as_deref().filter(|text| !text.is_empty()) {
        None => MAX_PAGE,
        Some(text) => {
            text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit)).ok_or_else(|| {
                Problem::invalid("limit 必须在 1 到 1000 之间", "limit is a number from 1 to 1000")
            })?
        }
    };
    let (report, trial) = first_trial(&api, &caller, &target).await?;
    // The cursor is the last path of the page before.
    let after = wanted.cursor.as_deref().filter(|cursor| !cursor.is_empty());
    // One more tells whether there is a next page.
    let mut page = api.parts.store.outputs_after(&trial, after, limit + 1).await?;
    let more = page.len() > limit as usize;
    page.truncate(limit as usize);
    let next = page.last().filter(|_| more).map(|last| last.path.clone());
    let data: Vec<Value> = page
        .into_iter()
        .map(|output| {
            json!({
                "path": output.path,
                "size": output.size,
                "sha256": output.sha256,
                "checkpoint": output.checkpoint,
            })
        })
        .collect();
    let body = json!({
        "job_id": report.view.job.id.to_string(),
        "data": data,
        "next_cursor": next,
        "ended": wire::has_ended(&report),
    });
    Ok(Json(body).into_response())
}

async fn content(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path((target, path)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let (report, trial) = first_trial(&api, &caller, &target).await?;
    let Some(output) = api.parts.store.output(&trial, &path).await? else {
        return Err(absent(match wire::has_ended(&report) {
            true => Words::new("该任务没有这个输出文件", "the job has no such output file"),
            false => Words::new(
                "没有这个输出文件；输出在程序结束后才收集",
                "there is no such output file; outputs are collected once the program has ended",
            ),
        }));
    };
    let gone = || absent(Words::new("该文件已不再保存", "the file is not kept any more"));
    let sha256: Digest = output.sha256.parse().map_err(|_| gone())?;
    match api.parts.blobs.read(&caller.project, &sha256).await {
        Ok(opened) => Ok(download::blob(opened, &sha256)),
        Err(BlobError::Missing) => Err(gone()),
        Err(error) => Err(error.into()),
    }
}

fn absent(message: Words) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, message)
}
