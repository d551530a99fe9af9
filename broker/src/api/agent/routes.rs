//! Routes of the node protocol.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use runwhere_agent::protocol::{
    Digest, EPOCH_HEADER, LogsReply, MAX_BATCH_COMPRESSED_BYTES, StoredOutput, decode_parts,
};
use runwhere_failpoint::failpoint;
use runwhere_model::LeaseId;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;

use super::service::{AgentCaller, AgentRefusal};
use crate::api::body;
use crate::api::problem::Problem;
use crate::api::state::{Api, bearer};
use crate::api::text::Words;
use crate::blobs::{BlobError, BlobWriter, Encoding};
use crate::logs::LogError;

/// Leases whose assignment is remembered.
const REMEMBERED: usize = 256;
/// Bound of one post of events; the agent batches far below it.
const EVENTS: usize = 8 << 20;
const READ_PIECE: usize = 256 << 10;

/// What each lease's agent may read and still write.
#[derive(Debug, Default)]
pub(crate) struct Readable(Mutex<HashMap<LeaseId, Arc<Allowance>>>);

#[derive(Debug)]
struct Allowance {
    blobs: HashSet<Digest>,
    max_output_bytes: u64,
    // Bytes of distinct outputs so far.
    outputs: Mutex<(u64, HashSet<Digest>)>,
}

pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/agent/v1/redeem", post(redeem))
        .route("/agent/v1/assignment", get(assignment))
        .route("/agent/v1/blobs/{sha256}", get(blob))
        .route("/agent/v1/events", post(events))
        .route("/agent/v1/logs", post(logs))
        .route("/agent/v1/outputs", post(post_output))
        .route("/agent/v1/outputs/{sha256}", get(output).put(put_output))
        .route("/agent/v1/poll", post(poll))
}

/// An agent with a valid session.
struct Agent(AgentCaller);

impl FromRequestParts<Arc<Api>> for Agent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let credential = bearer(&parts.headers).and_then(|text| text.rsplit_once('.'));
        let (lease, key) = credential.ok_or(AgentRefusal::Unauthorized)?;
        let lease = LeaseId::new(lease).map_err(|_| AgentRefusal::Unauthorized)?;
        let mut raw = [0; 32];
        hex::decode_to_slice(key, &mut raw).map_err(|_| AgentRefusal::Unauthorized)?;
        let epoch = parts.headers.get(EPOCH_HEADER).and_then(|epoch| epoch.to_str().ok());
        let epoch = epoch.and_then(|epoch| epoch.parse().ok());
        let store = api.parts.store.as_ref();
        Ok(Self(AgentCaller::authenticate(store, &lease, &raw, epoch).await?))
    }
}

impl From<AgentRefusal> for Problem {
    fn from(refusal: AgentRefusal) -> Self {
        let told = |status, text: &str| Self::new(status, Words::new(text, text));
        match refusal {
            AgentRefusal::Unauthorized => told(StatusCode::UNAUTHORIZED, "no valid session"),
            AgentRefusal::Gone => told(StatusCode::GONE, "the lease has ended"),
            AgentRefusal::Conflict(text) => told(StatusCode::CONFLICT, &text),
            AgentRefusal::Invalid(text) => told(StatusCode::BAD_REQUEST, &text),
            AgentRefusal::NotYet(text) => told(StatusCode::SERVICE_UNAVAILABLE, &text),
            AgentRefusal::StorageFull => Self::storage_full(),
            AgentRefusal::Internal(cause) => Self::internal(cause),
        }
    }
}

async fn redeem(State(api): State<Arc<Api>>, body: Body) -> Result<Response, Problem> {
    let request = body::typed(&body::read(body, body::SMALL).await?)?;
    Ok(Json(api.parts.agents.redeem(request).await?).into_response())
}

async fn assignment(State(api): State<Arc<Api>>, agent: Agent) -> Result<Response, Problem> {
    Ok(Json(api.parts.agents.assignment(&agent.0).await?).into_response())
}

async fn events(
    State(api): State<Arc<Api>>,
    agent: Agent,
    body: Body,
) -> Result<Response, Problem> {
    let request = body::typed(&body::read(body, EVENTS).await?)?;
    Ok(Json(api.parts.agents.events(&agent.0, request).await?).into_response())
}

async fn poll(State(api): State<Arc<Api>>, agent: Agent, body: Body) -> Result<Response, Problem> {
    let request = body::typed(&body::read(body, body::SMALL).await?)?;
    Ok(Json(api.parts.agents.poll(&agent.0, request).await?).into_response())
}

/// Compressed frames of this size are stored as they come; smaller ones are better packed together.
const KEPT_PACKED: usize = 256 << 10;

async fn logs(State(api): State<Arc<Api>>, agent: Agent, body: Body) -> Result<Response, Problem> {
    let batch = body::read(body, MAX_BATCH_COMPRESSED_BYTES).await?;
    let parts = tokio::task::spawn_blocking(move || decode_parts(batch, KEPT_PACKED))
        .await
        .map_err(Problem::internal)?
        .map_err(|error| AgentRefusal::Invalid(error.to_string()))?;
    let AgentCaller { trial, lease, .. } = &agent.0;
    match api.parts.logs.append_batch(trial, lease, parts).await {
        Ok(durable_seq) => {
            failpoint!("node.log.before_answer");
            Ok(Json(LogsReply { durable_seq }).into_response())
        }
        Err(LogError::Gap { durable_seq }) => {
            Ok((StatusCode::CONFLICT, Json(LogsReply { durable_seq })).into_response())
        }
        Err(LogError::Full) => Err(Problem::storage_full()),
        Err(error @ (LogError::Offset { .. } | LogError::Sealed | LogError::TooLarge { .. })) => {
            Err(AgentRefusal::Invalid(error.to_string()).into())
        }
        Err(error @ (LogError::Damaged(_) | LogError::Io(_))) => Err(Problem::internal(error)),
    }
}

async fn blob(
    State(api): State<Arc<Api>>,
    agent: Agent,
    Path(sha256): Path<String>,
) -> Result<Response, Problem> {
    let sha256 = digest(&sha256)?;
    if !allowance(&api, &agent.0).await?.blobs.contains(&sha256) {
        return Err(BlobError::Missing.into());
    }
    let (file, size) = api.parts.blobs.read(&agent.0.project, &sha256).await?;
    let pieces = stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; READ_PIECE];
        let read = file.read(&mut piece).await?;
        piece.truncate(read);
        Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

#[derive(Deserialize)]
struct Announced {
    size: u64,
}

fn size(
    announced: Result<Query<Announced>, axum::extract::rejection::QueryRejection>,
) -> Result<u64, AgentRefusal> {
    Ok(announced.map_err(|_| AgentRefusal::Invalid("size is missing".into()))?.0.size)
}

async fn put_output(
    State(api): State<Arc<Api>>,
    agent: Agent,
    Path(sha256): Path<String>,
    announced: Result<Query<Announced>, axum::extract::rejection::QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let (sha256, size) = (digest(&sha256)?, size(announced)?);
    allowance(&api, &agent.0).await?.take(sha256, size)?;
    let begun = api.parts.blobs.begin(&agent.0.project, sha256, size, Encoding::Identity);
    receive(begun.await?, size, body).await.map(|stored| Json(stored).into_response())
}

/// As [`put_output`], for an agent that hashes while it sends.
async fn post_output(
    State(api): State<Arc<Api>>,
    agent: Agent,
    announced: Result<Query<Announced>, axum::extract::rejection::QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let size = size(announced)?;
    let taken = allowance(&api, &agent.0).await?.take_any(size)?;
    let begun = api.parts.blobs.begin_any(&agent.0.project, size);
    let stored = receive(begun.await?, size, body).await?;
    taken.keep(stored.sha256);
    Ok(Json(stored).into_response())
}

async fn receive(mut writer: BlobWriter, size: u64, body: Body) -> Result<StoredOutput, Problem> {
    let mut stream = body.into_data_stream();
    while let Some(chunk) = body::next(&mut stream).await? {
        writer.write(chunk).await?;
    }
    let sha256 = writer.finish().await?;
    failpoint!("node.output.stored");
    Ok(StoredOutput { size, sha256 })
}

async fn output(
    State(api): State<Arc<Api>>,
    agent: Agent,
    Path(sha256): Path<String>,
) -> Result<Response, Problem> {
    let sha256 = digest(&sha256)?;
    let size = api.parts.blobs.verify(&agent.0.project, &sha256).await?;
    Ok(Json(StoredOutput { size, sha256 }).into_response())
}

fn digest(text: &str) -> Result<Digest, Problem> {
    text.parse().map_err(|_| AgentRefusal::Invalid("not a SHA-256".into()).into())
}

/// What an assignment, which does not change, allows.
async fn allowance(api: &Api, agent: &AgentCaller) -> Result<Arc<Allowance>, Problem> {
    let known = {
        let leases = api.readable.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.get(&agent.lease).cloned()
    };
    if let Some(known) = known {
        return Ok(known);
    }
    let assignment = api.parts.agents.assignment(agent).await?;
    let runner = assignment.runner.iter().flat_map(|task| task.files.iter().chain(&task.inputs));
    let files = assignment.sync.iter().chain(&assignment.restore).chain(runner);
    let fresh = Arc::new(Allowance {
        blobs: files.map(|file| file.sha256).collect(),
        max_output_bytes: assignment.collect.max_bytes,
        outputs: Mutex::default(),
    });
    let mut leases = api.readable.0.lock().unwrap_or_else(PoisonError::into_inner);
    if leases.len() >= REMEMBERED {
        leases.clear();
    }
    Ok(Arc::clone(leases.entry(agent.lease.clone()).or_insert(fresh)))
}

impl Allowance {
    /// Counts an output; refused beyond what a job may leave behind.
    fn take(&self, sha256: Digest, size: u64) -> Result<(), AgentRefusal> {
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        if !outputs.1.contains(&sha256) {
            outputs.0 = self.sum(outputs.0, size)?;
            outputs.1.insert(sha256);
        }
        Ok(())
    }

    /// The same for one whose digest is not known yet.
    fn take_any(self: Arc<Self>, size: u64) -> Result<Taken, AgentRefusal> {
        let mut outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.0 = self.sum(outputs.0, size)?;
        drop(outputs);
        Ok(Taken { allowance: self, size })
    }

    fn sum(&self, bytes: u64, more: u64) -> Result<u64, AgentRefusal> {
        let limit = self.max_output_bytes;
        let sum = bytes.saturating_add(more);
        match sum > limit {
            true => Err(AgentRefusal::Invalid(format!("outputs are larger than {limit} bytes"))),
            false => Ok(sum),
        }
    }
}

/// Bytes that count for an output on its way; given back where it does not arrive.
struct Taken {
    allowance: Arc<Allowance>,
    size: u64,
}

impl Taken {
    fn keep(mut self, sha256: Digest) {
        let allowance = Arc::clone(&self.allowance);
        let mut outputs = allowance.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        // What was there already counts once.
        if outputs.1.insert(sha256) {
            self.size = 0;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.size > 0 {
            let mut outputs = self.allowance.outputs.lock().unwrap_or_else(PoisonError::into_inner);
            outputs.0 = outputs.0.saturating_sub(self.size);
        }
    }
}
