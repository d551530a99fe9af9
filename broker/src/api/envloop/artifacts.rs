//! Artifacts: the stored outputs of a trial.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use runwhere_agent::protocol::Digest;
use runwhere_engine::Output;
use runwhere_model::{ProjectId, TrialId};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::answer::{Answer, Error, ok};
use super::page::{self, Parameters};
use super::state::{El, Signed};
use super::trials;
use crate::blobs::BlobError;
use crate::runners::Code;

const READ_PIECE: usize = 256 << 10;

/// The id of an output; the same as long as its trial and path are.
fn id(trial: &TrialId, path: &str) -> String {
    let digest = Digest::of(format!("{trial}\0{path}").as_bytes()).to_string();
    format!("art_{}", &digest[..32])
}

fn item(trial: &TrialId, output: &Output) -> Value {
    json!({
        "artifact_id": id(trial, &output.path),
        "trial_id": trial.as_str(),
        "name": output.path,
        "state": "uploaded",
        "upload_state": "uploaded",
        "size": output.size,
        "sha256": output.sha256,
    })
}

pub(super) async fn list(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(trial): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let limit = page::limit(&parameters)?;
    let after = page::cursor(&parameters)?;
    let (_, trial, _) = trials::visible(&el, &caller, &trial).await?;
    let mut outputs = el.parts.store.outputs(&trial.id).await?;
    outputs.sort_by(|a, b| a.path.cmp(&b.path));
    let mut rest = outputs.iter().filter(|output| after.as_ref().is_none_or(|a| output.path > *a));
    let page: Vec<&Output> = rest.by_ref().take(limit).collect();
    let next = match (rest.next(), page.last()) {
        (Some(_), Some(last)) => Some(page::opaque(&last.path)),
        _ => None,
    };
    let items: Vec<Value> = page.into_iter().map(|output| item(&trial.id, output)).collect();
    ok(json!({ "items": items, "next_cursor": next }))
}

pub(super) async fn content(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((trial, artifact)): Path<(String, String)>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let (_, trial, _) = trials::visible(&el, &caller, &trial).await?;
    let outputs = el.parts.store.outputs(&trial.id).await?;
    let output = outputs.iter().find(|output| id(&trial.id, &output.path) == artifact);
    let Some(output) = output else {
        if !trial.state.is_terminal() {
            return Err(Error::new(
                Code::ArtifactNotReady,
                "the trial's outputs are not collected yet",
            ));
        }
        return Err(Error::new(Code::ArtifactNotFound, "there is no such artifact"));
    };
    stream_of(&el, &caller.project, output).await
}

/// The content of an output.
pub(super) async fn stream_of(el: &El, project: &ProjectId, output: &Output) -> Answer {
    let gone = || Error::new(Code::ArtifactNotFound, "the artifact's content is not kept any more");
    let sha256: Digest = output.sha256.parse().map_err(|_| gone())?;
    let (file, size) = match el.parts.blobs.read(project, &sha256).await {
        Ok(opened) => opened,
        Err(BlobError::Missing) => return Err(gone()),
        Err(error) => return Err(error.into()),
    };
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
    // Never shown by a browser as a page of this server.
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{sha256}\"")) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
