//! `diff`, `complete` and `status`.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use runwhere_engine::SyncManifest;
use runwhere_model::SyncId;
use runwhere_providers::Clock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::manifest::{Manifest, ManifestProblem, WireFile};
use super::ticket::Tickets;
use crate::accounts::Caller;
use crate::api::problem::Problem;
use crate::api::runwhere::{JobService, Refusal};
use crate::api::text::Words;
use crate::blobs::Blobs;
use crate::ports::Ids;
use crate::store::{Row, Store, Transition};

/// A manifest of the largest allowed number of files fits.
const MAX_BODY: usize = 64 << 20;
/// Missing files named in a refusal.
const NAMED_MISSING: usize = 20;

/// What the routes work with.
#[derive(Clone, Debug)]
pub struct SyncParts {
    /// Rows.
    pub store: Arc<dyn Store>,
    /// File contents.
    pub blobs: Blobs,
    /// Checks the task YAML.
    pub jobs: Arc<dyn JobService>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn Ids>,
    /// Upload permissions.
    pub tickets: Tickets,
    /// Where clients reach us when the request does not say: scheme and host, no trailing slash.
    pub base_url: String,
    /// The scheme that `base_url` has, for addresses made from the request's own host.
    pub scheme: &'static str,
}

/// The routes below `/api/v1/sync`; a caller must be in the request's extensions.
pub fn router(parts: SyncParts) -> Router {
    Router::new()
        .route("/api/v1/sync/diff", post(diff))
        .route("/api/v1/sync/complete", post(complete))
        .route("/api/v1/sync/{id}/status", get(status))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(parts)
}

impl From<ManifestProblem> for Problem {
    fn from(problem: ManifestProblem) -> Self {
        Refusal::Invalid { message: problem.message(), suggestion: Some(problem.remedy()) }.into()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Storage {
    workdirs: Vec<String>,
    checkpoint_path: Option<String>,
}

#[derive(Debug, Deserialize)]
struct DiffRequest {
    job_name: String,
    files: Vec<WireFile>,
    #[serde(default)]
    yaml_content: Option<String>,
    #[serde(default)]
    storage_declarations: Option<Storage>,
}

#[derive(Debug, Deserialize)]
struct CompleteRequest {
    job_name: String,
    files: Vec<WireFile>,
    #[serde(default)]
    yaml_content: Option<String>,
}

fn body<T: serde::de::DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal::Invalid {
        message: Words::new(
            format!("请求不是有效的 JSON：第 {} 行第 {} 列", error.line(), error.column()),
            format!(
                "the request is not the JSON expected here: line {}, column {}",
                error.line(),
                error.column()
            ),
        ),
        suggestion: Some(Words::new("更新客户端后重试", "update the client and try again")),
    })
}

fn check_name(name: &str) -> Result<(), Refusal> {
    crate::task::check_job_name(name).map_err(|error| Refusal::Invalid {
        message: Words::from_fn(|lang| error.message(lang)),
        suggestion: Some(Words::from_fn(|lang| error.remedy(lang))),
    })
}

async fn diff(
    State(parts): State<SyncParts>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, Problem> {
    Ok(Json(make_diff(&parts, &caller, &headers, &bytes).await?).into_response())
}

async fn make_diff(
    parts: &SyncParts,
    caller: &Caller,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> Result<Value, Problem> {
    let request: DiffRequest = body(bytes)?;
    check_name(&request.job_name)?;
    if let Some(yaml) = &request.yaml_content {
        parts.jobs.check_task(caller, yaml).await?;
    }
    let manifest = Manifest::check(request.files)?;
    let wanted = manifest.digests().map(|(file, digest)| (digest, file.size)).collect();
    let lacking: HashSet<_> =
        parts.blobs.lacking(&caller.project, wanted).await?.into_iter().collect();
    let base = base_url(parts, headers);
    let now = parts.clock.now();
    // One upload for each content, whatever the number of files that have it.
    let mut asked = HashSet::new();
    let mut uploads = Vec::new();
    for (file, digest) in manifest.digests() {
        if !lacking.contains(&(digest, file.size)) || !asked.insert((digest, file.size)) {
            continue;
        }
        let ticket = parts.tickets.issue(&caller.project, digest, file.size, now);
        uploads.push(json!({
            "path": file.path,
            "presigned_url": format!("{base}/api/v1/uploads/{ticket}"),
            "content_type": "application/octet-stream",
        }));
    }
    let total = manifest.files().count();
    let storage = request.storage_declarations.unwrap_or_default();
    let mut folders: Vec<String> = storage.workdirs.iter().map(|path| tidy(path)).collect();
    folders.extend(storage.checkpoint_path.as_deref().map(tidy));
    folders.dedup();
    Ok(json!({
        "files_to_upload": uploads,
        "skipped": total - asked.len(),
        "total": total,
        "env_status": null,
        "model_downloads": [],
        "workspace_dirs_created": folders,
    }))
}

fn tidy(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    let trimmed = trimmed.strip_prefix("./").unwrap_or(trimmed);
    match trimmed {
        "" => ".".to_owned(),
        path => crate::api::text::plain(path),
    }
}

/// Addresses are made from the host the client itself used: it certainly reaches that one.
fn base_url(parts: &SyncParts, headers: &HeaderMap) -> String {
    let host = headers.get("host").and_then(|value| value.to_str().ok()).filter(|host| {
        !host.is_empty()
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b))
    });
    match host {
        Some(host) => format!("{}://{host}", parts.scheme),
        None => parts.base_url.clone(),
    }
}

async fn complete(
    State(parts): State<SyncParts>,
    Extension(caller): Extension<Caller>,
    bytes: Bytes,
) -> Result<Response, Problem> {
    Ok(Json(make_sync(&parts, &caller, &bytes).await?).into_response())
}

async fn make_sync(parts: &SyncParts, caller: &Caller, bytes: &Bytes) -> Result<Value, Problem> {
    let request: CompleteRequest = body(bytes)?;
    check_name(&request.job_name)?;
    let manifest = Manifest::check(request.files)?;
    let wanted = manifest.digests().map(|(file, digest)| (digest, file.size)).collect();
    let lacking: HashSet<_> =
        parts.blobs.lacking(&caller.project, wanted).await?.into_iter().collect();
    if !lacking.is_empty() {
        let missing: Vec<String> = manifest
            .digests()
            .filter(|(file, digest)| lacking.contains(&(*digest, file.size)))
            .map(|(file, _)| crate::api::text::plain(&file.path))
            .collect();
        let shown = missing.iter().take(NAMED_MISSING).cloned().collect::<Vec<_>>().join(", ");
        return Err(Problem::from(Refusal::Conflict {
            message: Words::new(
                format!("有 {} 个文件尚未上传完整：{shown}", missing.len()),
                format!("{} files are not uploaded completely: {shown}", missing.len()),
            ),
            suggestion: Some(Words::new(
                "重新执行 runwhere sync -f <yaml>",
                "run `runwhere sync -f <yaml>` again",
            )),
        }));
    }
    let id = SyncId::new(format!("sync-{}", parts.ids.hex(6))).map_err(Problem::internal)?;
    let created_at = parts.clock.now();
    let files = manifest.into_files();
    let count = files.len();
    let sync = SyncManifest {
        id: id.clone(),
        workspace: caller.workspace.clone(),
        project: caller.project.clone(),
        job_name: request.job_name,
        created_at,
        files,
        yaml: request.yaml_content,
    };
    let transition = Transition { rows: vec![Row::Sync(sync)], events: Vec::new() };
    parts.store.commit(transition).await?;
    Ok(json!({ "sync_id": id, "files_count": count, "created_at": rfc3339(created_at) }))
}

async fn status(
    State(parts): State<SyncParts>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    Ok(Json(read_status(&parts, &caller, &id).await?).into_response())
}

async fn read_status(parts: &SyncParts, caller: &Caller, id: &str) -> Result<Value, Problem> {
    let id = SyncId::new(id).map_err(|_| no_sync())?;
    let sync = parts.store.sync(&caller.project, &id).await?.ok_or_else(no_sync)?;
    let bytes = sync.files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
    Ok(json!({
        "sync_id": sync.id,
        "job_name": sync.job_name,
        "env_build_status": null,
        "env_hash": null,
        "model_downloads": [],
        "files_count": sync.files.len(),
        "bytes_total": bytes,
        "created_at": rfc3339(sync.created_at),
    }))
}

fn rfc3339(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

fn no_sync() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        Words::new("同步不存在或无权访问", "there is no such sync, or it is not yours"),
    )
    .suggest("执行 runwhere sync -f <yaml>", "run `runwhere sync -f <yaml>`")
}
