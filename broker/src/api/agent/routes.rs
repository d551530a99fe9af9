//! The routes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use runwhere_agent::protocol::{
    Digest, EPOCH_HEADER, EventsRequest, LogsReply, MAX_BATCH_COMPRESSED_BYTES, PollRequest,
    RedeemRequest, StoredOutput, decode_batch,
};
use runwhere_model::LeaseId;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::service::{AgentCaller, AgentRefusal, AgentService};
use crate::blobs::{BlobError, Blobs, Encoding};
use crate::driver::sha256_hex;
use crate::logs::{LogError, Logs};
use crate::store::Store;

/// Largest event batch.
const MAX_EVENTS_BYTES: usize = 8 << 20;
/// Blobs are sent in pieces of this size.
const PIECE: usize = 256 << 10;
/// No single output is larger than what a collection may hold.
const MAX_OUTPUT_BYTES: u64 = 1 << 40;

/// What the routes work with.
#[derive(Clone, Debug)]
pub struct AgentParts {
    /// Rows, for the check of a session.
    pub store: Arc<dyn Store>,
    /// The broker's side of a session.
    pub service: Arc<dyn AgentService>,
    /// File contents.
    pub blobs: Blobs,
    /// Logs.
    pub logs: Logs,
}

/// The routes below `/agent/v1`.
pub fn router(parts: AgentParts) -> Router {
    let session = Router::new()
        .route("/agent/v1/assignment", get(assignment))
        .route("/agent/v1/events", post(events).layer(DefaultBodyLimit::max(MAX_EVENTS_BYTES)))
        .route("/agent/v1/poll", post(poll))
        .route(
            "/agent/v1/logs",
            post(logs).layer(DefaultBodyLimit::max(MAX_BATCH_COMPRESSED_BYTES + 1)),
        )
        .route("/agent/v1/blobs/{sha256}", get(blob))
        .route(
            "/agent/v1/outputs/{sha256}",
            get(stored_output).put(store_output).layer(DefaultBodyLimit::disable()),
        )
        .layer(from_fn_with_state(parts.clone(), authenticate));
    Router::new()
        .route("/agent/v1/redeem", post(redeem).layer(DefaultBodyLimit::max(64 << 10)))
        .merge(session)
        .with_state(parts)
}

impl IntoResponse for AgentRefusal {
    fn into_response(self) -> Response {
        let (status, code, message) = match self {
            Self::Unauthorized => {
                (StatusCode::UNAUTHORIZED, "unauthorized", "unknown lease, token or key".to_owned())
            }
            Self::Gone => (StatusCode::GONE, "gone", "the lease has ended".to_owned()),
            Self::Conflict(why) => (StatusCode::CONFLICT, "conflict", why),
            Self::Invalid(why) => (StatusCode::BAD_REQUEST, "invalid", why),
            Self::StorageFull => (
                StatusCode::INSUFFICIENT_STORAGE,
                "storage_full",
                "no space left on the broker's disk".to_owned(),
            ),
            Self::Internal(why) => {
                tracing::error!(error = %why, "Agent call failed");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "a fault of the broker".to_owned())
            }
        };
        (status, Json(json!({ "code": code, "message": message }))).into_response()
    }
}

impl From<BlobError> for AgentRefusal {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Full => Self::StorageFull,
            BlobError::TooLong(_)
            | BlobError::TooShort { .. }
            | BlobError::Mismatch
            | BlobError::Gzip => Self::Invalid(error.to_string()),
            BlobError::Missing => Self::Conflict(error.to_string()),
            BlobError::Io(_) => Self::Internal(error.to_string()),
        }
    }
}

async fn authenticate(
    State(parts): State<AgentParts>,
    mut request: Request,
    next: Next,
) -> Result<Response, AgentRefusal> {
    let caller = caller_of(&parts, request.headers()).await?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

async fn caller_of(parts: &AgentParts, headers: &HeaderMap) -> Result<AgentCaller, AgentRefusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let credential = text("authorization")
        .and_then(|value| value.strip_prefix("Bearer "))
        .ok_or(AgentRefusal::Unauthorized)?;
    let (lease, key) = credential.rsplit_once('.').ok_or(AgentRefusal::Unauthorized)?;
    let lease = LeaseId::new(lease).map_err(|_| AgentRefusal::Unauthorized)?;
    let key = hex::decode(key).map_err(|_| AgentRefusal::Unauthorized)?;
    let row = parts.store.lease(&lease).await?.ok_or(AgentRefusal::Unauthorized)?;
    // Hashes are compared: what a comparison's time tells of a hash helps nobody.
    if row.agent.session_key_sha256.as_deref() != Some(sha256_hex(&key).as_str()) {
        return Err(AgentRefusal::Unauthorized);
    }
    let epoch = text(EPOCH_HEADER).and_then(|value| value.parse::<u32>().ok());
    if epoch != Some(row.epoch) || row.state.is_terminal() {
        return Err(AgentRefusal::Gone);
    }
    Ok(AgentCaller {
        lease,
        epoch: row.epoch,
        workspace: row.workspace,
        project: row.project,
        job: row.job,
        trial: row.trial,
    })
}

fn body<T: serde::de::DeserializeOwned>(bytes: &Bytes) -> Result<T, AgentRefusal> {
    serde_json::from_slice(bytes).map_err(|error| AgentRefusal::Invalid(error.to_string()))
}

async fn redeem(State(parts): State<AgentParts>, bytes: Bytes) -> Result<Response, AgentRefusal> {
    let request: RedeemRequest = body(&bytes)?;
    Ok(Json(parts.service.redeem(request).await?).into_response())
}

async fn assignment(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
) -> Result<Response, AgentRefusal> {
    Ok(Json(parts.service.assignment(&caller).await?).into_response())
}

async fn events(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
    bytes: Bytes,
) -> Result<Response, AgentRefusal> {
    let request: EventsRequest = body(&bytes)?;
    Ok(Json(parts.service.events(&caller, request).await?).into_response())
}

async fn poll(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
    bytes: Bytes,
) -> Result<Response, AgentRefusal> {
    let request: PollRequest = body(&bytes)?;
    Ok(Json(parts.service.poll(&caller, request).await?).into_response())
}

#[derive(Debug, Deserialize)]
struct FromSeq {
    from_seq: u64,
}

async fn logs(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
    Query(query): Query<FromSeq>,
    bytes: Bytes,
) -> Result<Response, AgentRefusal> {
    let frames = tokio::task::spawn_blocking(move || decode_batch(&bytes))
        .await
        .map_err(|error| AgentRefusal::Internal(error.to_string()))?
        .map_err(|error| AgentRefusal::Invalid(error.to_string()))?;
    if frames.first().is_some_and(|frame| frame.seq != query.from_seq) {
        return Err(AgentRefusal::Invalid("from_seq is not the first frame's number".into()));
    }
    match parts.logs.append(&caller.trial, &caller.lease, frames).await {
        Ok(durable_seq) => Ok(Json(LogsReply { durable_seq }).into_response()),
        Err(LogError::Gap { durable_seq }) => {
            Ok((StatusCode::CONFLICT, Json(LogsReply { durable_seq })).into_response())
        }
        Err(LogError::Full) => Err(AgentRefusal::StorageFull),
        Err(error @ LogError::Io(_)) => Err(AgentRefusal::Internal(error.to_string())),
        Err(error) => Err(AgentRefusal::Invalid(error.to_string())),
    }
}

fn digest(text: &str) -> Result<Digest, AgentRefusal> {
    text.parse().map_err(|_| AgentRefusal::Invalid("not a SHA-256".into()))
}

async fn blob(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
    Path(sha256): Path<String>,
) -> Result<Response, AgentRefusal> {
    let (file, size) = parts.blobs.read(&caller.project, &digest(&sha256)?).await?;
    let pieces = stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await?;
        Ok::<_, std::io::Error>((read > 0).then_some((Bytes::from(piece), file)))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

#[derive(Debug, Deserialize)]
struct Size {
    size: u64,
}

async fn store_output(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
    Path(sha256): Path<String>,
    Query(query): Query<Size>,
    request: Request,
) -> Result<Response, AgentRefusal> {
    if query.size > MAX_OUTPUT_BYTES {
        return Err(AgentRefusal::Invalid("the output is too large".into()));
    }
    let sha256 = digest(&sha256)?;
    let mut writer =
        parts.blobs.begin(&caller.project, sha256, query.size, Encoding::Identity).await?;
    let mut pieces = request
        .into_body()
        .into_data_stream()
        .map_err(|_| AgentRefusal::Invalid("the body broke off".into()));
    while let Some(piece) = pieces.next().await {
        writer.write(piece?).await?;
    }
    writer.finish().await?;
    Ok(Json(StoredOutput { sha256, size: query.size }).into_response())
}

/// Read again from the disk: what the agent compares is what is really there.
async fn stored_output(
    State(parts): State<AgentParts>,
    Extension(caller): Extension<AgentCaller>,
    Path(sha256): Path<String>,
) -> Result<Response, AgentRefusal> {
    let sha256 = digest(&sha256)?;
    match parts.blobs.verify(&caller.project, &sha256).await {
        Ok(size) => Ok(Json(StoredOutput { sha256, size }).into_response()),
        Err(BlobError::Missing) => Ok((
            StatusCode::NOT_FOUND,
            Json(json!({ "code": "missing", "message": "no such output" })),
        )
            .into_response()),
        Err(error) => Err(error.into()),
    }
}
