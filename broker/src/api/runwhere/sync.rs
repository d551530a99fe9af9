//! `/api/v1/sync/*` and uploads.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_ENCODING, HeaderMap};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use runwhere_engine::Permission;
use runwhere_model::{Lang, SyncId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::wire;
use crate::api::body;
use crate::api::problem::Problem;
use crate::api::state::{Api, Signed};
use crate::api::text::{Words, plain};
use crate::blobs::Encoding;
use crate::sync::{ListedFile, Manifest, ManifestError, SyncError, TicketError};
use crate::task::check_job_name;

/// Paths named in a refusal.
const NAMED: usize = 100;

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/api/v1/sync/diff", post(diff))
        .route("/api/v1/sync/complete", post(complete))
        .route("/api/v1/sync/{id}/status", get(status))
        .route("/api/v1/uploads/{ticket}", put(upload))
}

#[derive(Deserialize)]
struct DiffRequest {
    job_name: String,
    files: Vec<ListedFile>,
    #[serde(default)]
    yaml_content: Option<String>,
    #[serde(default)]
    storage_declarations: Option<Value>,
}

async fn diff(
    State(api): State<Arc<Api>>,
    signed: Signed,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::TrainingRun)?;
    let request: DiffRequest = body::typed(&body::read(body, body::MANIFEST).await?)?;
    job_name(&request.job_name)?;
    if let Some(yaml) = request.yaml_content.as_deref().filter(|yaml| !yaml.is_empty()) {
        api.parts.jobs.check_task(&caller, yaml).await?;
    }
    let manifest = check(request.files).await?;
    let wanted = api.syncs.diff(&caller.project, &manifest).await?;
    let base = api.base_url(&headers);
    let uploads: Vec<_> = wanted
        .iter()
        .map(|wanted| {
            json!({
                "path": wanted.path,
                "presigned_url": format!("{base}/api/v1/uploads/{}", wanted.ticket),
                "content_type": "application/octet-stream",
            })
        })
        .collect();
    let folders = request.storage_declarations.as_ref().and_then(|all| all["workdirs"].as_array());
    let folders: Vec<_> =
        folders.into_iter().flatten().filter_map(Value::as_str).take(NAMED).map(plain).collect();
    let body = json!({
        "skipped": manifest.files().len() - uploads.len(),
        "files_to_upload": uploads,
        "env_status": null,
        "model_downloads": [],
        "workspace_dirs_created": folders,
    });
    Ok(Json(body).into_response())
}

#[derive(Deserialize)]
struct CompleteRequest {
    job_name: String,
    files: Vec<ListedFile>,
    #[serde(default)]
    files_count: Option<u64>,
    #[serde(default)]
    yaml_content: Option<String>,
}

async fn complete(
    State(api): State<Arc<Api>>,
    signed: Signed,
    body: Body,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::TrainingRun)?;
    let request: CompleteRequest = body::typed(&body::read(body, body::MANIFEST).await?)?;
    job_name(&request.job_name)?;
    if request.files_count.is_some_and(|count| count != request.files.len() as u64) {
        return Err(Problem::invalid(
            "files_count 与清单不一致",
            "files_count is not the number of files listed",
        ));
    }
    let manifest = check(request.files).await?;
    let count = manifest.files().len();
    let bytes: u64 = manifest.files().iter().map(|(.., size)| size).sum();
    let sync =
        api.syncs.complete(&caller, request.job_name, manifest, request.yaml_content).await?;
    let body = json!({
        "sync_id": sync.id.to_string(),
        "status": "complete",
        "files_count": count,
        "bytes": bytes,
        "created_at": wire::time(sync.created_at),
        "env_build_status": null,
        "model_downloads": [],
    });
    Ok(Json(body).into_response())
}

async fn status(
    State(api): State<Arc<Api>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let caller = signed.with(Permission::JobRead)?;
    let id = SyncId::new(id).map_err(|_| no_sync())?;
    let sync = api.syncs.get(&caller.project, &id).await?.ok_or_else(no_sync)?;
    let bytes: u64 = sync.files.iter().map(|file| file.size).sum();
    let body = json!({
        "sync_id": sync.id.to_string(),
        "job_name": sync.job_name,
        "status": "complete",
        "files_count": sync.files.len(),
        "bytes": bytes,
        "env_build_status": null,
        "env_hash": null,
        "model_downloads": [],
        "created_at": wire::time(sync.created_at),
    });
    Ok(Json(body).into_response())
}

async fn upload(
    State(api): State<Arc<Api>>,
    Path(ticket): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let named = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
    let encoding = match named.as_deref() {
        None | Some(b"identity" | b"") => Encoding::Identity,
        Some(b"gzip" | b"x-gzip") => Encoding::Gzip,
        Some(_) => {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Words::new(
                    "Content-Encoding 只支持 gzip",
                    "the only Content-Encoding served is gzip",
                ),
            ));
        }
    };
    let begun = api.syncs.upload(&ticket, encoding).await?;
    let (ticket, mut writer) = begun.map_err(|error| {
        let words = match error {
            TicketError::Invalid => Words::new("上传地址无效", "the upload address is not valid"),
            TicketError::Expired => Words::new("上传地址已过期", "the upload address has expired"),
        };
        Problem::new(StatusCode::FORBIDDEN, words)
            .suggest("重新执行 runwhere sync", "run `runwhere sync` again")
    })?;
    let mut stream = body.into_data_stream();
    while let Some(chunk) = body::next(&mut stream).await? {
        writer.write(chunk).await?;
    }
    writer.finish().await?;
    let body = json!({ "sha256": ticket.sha256.to_string(), "size": ticket.size });
    Ok(Json(body).into_response())
}

/// A sync is of a task's name, so it keeps the rule of those.
fn job_name(name: &str) -> Result<(), Problem> {
    check_job_name(name).map_err(|error| {
        Problem::invalid(error.message(Lang::Zh), error.message(Lang::En))
            .suggest(error.remedy(Lang::Zh), error.remedy(Lang::En))
            .with("field", "job_name")
    })
}

/// Checking a large manifest takes a while.
async fn check(files: Vec<ListedFile>) -> Result<Manifest, Problem> {
    let checked = tokio::task::spawn_blocking(move || Manifest::check(&files)).await;
    Ok(checked.map_err(Problem::internal)??)
}

fn no_sync() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        Words::new("同步记录不存在或无权访问", "there is no such sync, or it is not yours"),
    )
}

impl From<ManifestError> for Problem {
    fn from(error: ManifestError) -> Self {
        let Words { zh, en } = error.words();
        Self::invalid(zh, en)
            .suggest(
                "改名或写入 .runwignore 后重新执行 runwhere sync",
                "rename it or list it in .runwignore, then run `runwhere sync` again",
            )
            .reason("bad_manifest")
    }
}

impl From<SyncError> for Problem {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Missing(missing) => {
                let count = missing.0.len();
                let paths: Vec<_> = missing.0.into_iter().take(NAMED).collect();
                Self::new(
                    StatusCode::CONFLICT,
                    Words::new(
                        format!("{count} 个文件尚未上传"),
                        format!("{count} files are not uploaded yet"),
                    ),
                )
                .suggest("重新执行 runwhere sync", "run `runwhere sync` again")
                .reason("files_missing")
                .with("missing_count", count)
                .with("missing", paths)
            }
            SyncError::Blob(error) => error.into(),
            SyncError::Store(error) => error.into(),
        }
    }
}
