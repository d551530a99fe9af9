//! Artifacts: the stored outputs of a trial.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use runwhere_agent::protocol::Digest;
use runwhere_engine::Output;
use runwhere_model::{ProjectId, TrialId};
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::page::{self, Parameters};
use super::state::{El, Signed};
use super::trials;
use crate::api::download;
use crate::api::text::words;
use crate::blobs::BlobError;
use crate::runners::Code;

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
                words!("此 Trial 的输出尚未收集", "the trial's outputs are not collected yet"),
            ));
        }
        let why = words!("没有这个产物", "there is no such artifact");
        return Err(Error::new(Code::ArtifactNotFound, why));
    };
    stream_of(&el, &caller.project, output).await
}

/// The content of an output.
pub(super) async fn stream_of(el: &El, project: &ProjectId, output: &Output) -> Answer {
    let gone = || {
        let why = words!("产物的内容已不再保存", "the artifact's content is not kept any more");
        Error::new(Code::ArtifactNotFound, why)
    };
    let sha256: Digest = output.sha256.parse().map_err(|_| gone())?;
    match el.parts.blobs.read(project, &sha256).await {
        Ok(opened) => Ok(download::blob(opened, &sha256)),
        Err(BlobError::Missing) => Err(gone()),
        Err(error) => Err(error.into()),
    }
}
