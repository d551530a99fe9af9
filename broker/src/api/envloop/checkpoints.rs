//! Checkpoints: outputs that are a LoRA adapter, checked.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use runwhere_agent::protocol::Digest;
use runwhere_engine::{Job, Output, Permission, Trial};
use runwhere_model::{JobId, ProjectId};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::answer::{Answer, Error, ok};
use super::lora::{self, Lora, Unfit};
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use super::{artifacts, jobs};
use crate::accounts::Caller;
use crate::api::text::words;
use crate::disk;
use crate::runners::{Code, Refused};
use crate::store::{JobView, Transition};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// Bounds of what is read of them: an adapter has some thousand tensors at most.
const CONFIG_BYTES: u64 = 1 << 20;
const HEADER_BYTES: u64 = 16 << 20;
/// How long a download address works.
const ADDRESS_SECONDS: i64 = 900;
const REMEMBERED: usize = 10_000;
const DELETED: &str = "checkpoint.deleted";

struct Found {
    id: String,
    job: JobId,
    trial: Value,
    created_at: Value,
    lora: Lora,
    files: Vec<Output>,
    folder: String,
}

fn id(trial: &Trial, folder: &str) -> String {
    let digest = Digest::of(format!("{}\0{folder}", trial.id).as_bytes()).to_string();
    format!("ck_{}", &digest[..24])
}

async fn read_some(
    el: &El,
    project: &ProjectId,
    output: &Output,
    from: u64,
    bytes: u64,
) -> Result<Option<Vec<u8>>, Error> {
    let Ok(sha256) = output.sha256.parse::<Digest>() else { return Ok(None) };
    let (mut file, size) = match el.parts.blobs.read(project, &sha256).await {
        Ok(opened) => opened,
        Err(crate::blobs::BlobError::Missing) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if from.checked_add(bytes).is_none_or(|end| end > size) {
        return Ok(None);
    }
    let mut whole = vec![0; usize::try_from(bytes).unwrap_or_default()];
    file.seek(std::io::SeekFrom::Start(from)).await.map_err(Refused::internal)?;
    file.read_exact(&mut whole).await.map_err(Refused::internal)?;
    Ok(Some(whole))
}

/// What files with an adapter's names are; `None` where they cannot be read now.
async fn examine(
    el: &El,
    project: &ProjectId,
    [settings, weights]: [&Output; 2],
) -> Result<Option<Result<Lora, Unfit>>, Error> {
    if settings.size > CONFIG_BYTES {
        return Ok(Some(Err(Unfit::ConfigUnreadable)));
    }
    if weights.size < 8 {
        return Ok(Some(Err(Unfit::HeaderLength)));
    }
    let Some(text) = read_some(el, project, settings, 0, settings.size).await? else {
        return Ok(None);
    };
    let (base_model, rank) = match lora::config(&text) {
        Ok(stated) => stated,
        Err(unfit) => return Ok(Some(Err(unfit))),
    };
    let Some(length) = read_some(el, project, weights, 0, 8).await? else { return Ok(None) };
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    if length == 0 || length > HEADER_BYTES || length > weights.size - 8 {
        return Ok(Some(Err(Unfit::HeaderLength)));
    }
    let Some(text) = read_some(el, project, weights, 8, length).await? else { return Ok(None) };
    let data = weights.size - 8 - length;
    let tensors = disk::blocking(move || lora::header(&text, data)).await;
    let tensors = tensors.map_err(Refused::internal)?;
    Ok(Some(tensors.map(|tensors| Lora { base_model, rank, tensors })))
}

/// A folder of outputs with an adapter's names in it.
struct Candidate<'a> {
    id: String,
    folder: &'a str,
    files: Vec<&'a Output>,
    seen: Result<Lora, Unfit>,
}

async fn candidates<'a>(
    el: &El,
    job: &Job,
    trial: &Trial,
    outputs: &'a [Output],
) -> Result<Vec<Candidate<'a>>, Error> {
    let mut folders: BTreeMap<&str, Vec<&Output>> = BTreeMap::new();
    for output in outputs {
        let folder = output.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push(output);
    }
    let mut found = Vec::new();
    for (folder, files) in folders {
        let named = |name: &str| {
            files.iter().copied().find(|file| file.path.rsplit('/').next() == Some(name))
        };
        let id = id(trial, folder);
        let seen = match (named(CONFIG), named(WEIGHTS)) {
            (None, None) => continue,
            (Some(settings), Some(weights)) => {
                let seen = examined(el, job, &id, [settings, weights]).await?;
                let Some(seen) = seen else { continue };
                seen
            }
            (_, _) => Err(Unfit::Incomplete),
        };
        found.push(Candidate { id, folder, files, seen });
    }
    Ok(found)
}

/// As [`examine`], once for each pair of files: outputs never change.
async fn examined(
    el: &El,
    job: &Job,
    id: &str,
    files: [&Output; 2],
) -> Result<Option<Result<Lora, Unfit>>, Error> {
    let known = || el.adapters.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known().get(id) {
        return Ok(Some(known.clone()));
    }
    let seen = examine(el, &job.project, files).await?;
    if let Some(seen) = &seen {
        let mut known = known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(id.to_owned(), seen.clone());
    }
    Ok(seen)
}

/// Checkpoints of a trial, and folders that look like one but are none, with the reason.
async fn found_in(
    el: &El,
    job: &Job,
    trial: &Trial,
) -> Result<(Vec<Found>, Vec<(String, Unfit)>), Error> {
    let (mut found, mut unfit) = (Vec::new(), Vec::new());
    if !trial.state.is_terminal() {
        return Ok((found, unfit));
    }
    let outputs = el.parts.store.outputs(&trial.id).await?;
    let mut deleted = None;
    for candidate in candidates(el, job, trial, &outputs).await? {
        let Candidate { id, folder, files, seen } = candidate;
        let lora = match seen {
            Ok(lora) => lora,
            Err(why) => {
                unfit.push((folder.to_owned(), why));
                continue;
            }
        };
        if deleted.is_none() {
            let events = el.parts.store.events(&job.project, &job.id).await?;
            let ids = events.into_iter().filter(|event| event.kind == DELETED);
            let ids =
                ids.filter_map(|event| event.payload["checkpoint_id"].as_str().map(str::to_owned));
            deleted = Some(ids.collect::<Vec<String>>());
        }
        if deleted.as_ref().is_some_and(|deleted| deleted.contains(&id)) {
            continue;
        }
        found.push(Found {
            id,
            job: job.id.clone(),
            trial: trial.id.as_str().into(),
            created_at: trial.ended_at.map_or(Value::Null, |at| at.to_string().into()),
            lora,
            files: files.into_iter().cloned().collect(),
            folder: folder.to_owned(),
        });
    }
    Ok((found, unfit))
}

impl Found {
    fn path(&self) -> String {
        format!("envloop://{}/{}", self.job, self.id)
    }

    fn name_of<'a>(&self, output: &'a Output) -> &'a str {
        let rest = output.path.strip_prefix(self.folder.as_str()).unwrap_or(&output.path);
        rest.trim_start_matches('/')
    }

    fn item(&self) -> Value {
        let files: Vec<Value> = self
            .files
            .iter()
            .map(|file| {
                json!({ "name": self.name_of(file), "size_bytes": file.size, "sha256": file.sha256 })
            })
            .collect();
        json!({
            "checkpoint_id": self.id,
            "checkpoint_type": "lora",
            "base_model": self.lora.base_model,
            "lora_rank": self.lora.rank,
            "tensors": self.lora.tensors,
            "job_id": self.job.as_str(),
            "train_job_id": self.job.as_str(),
            "trial_id": self.trial,
            "tinker_path": self.path(),
            "folder": self.folder,
            "files": files,
            "durable": true,
            "created_at": self.created_at,
        })
    }
}

/// Checkpoints of a trial, as they are shown.
pub(super) async fn of_trial(el: &El, job: &Job, trial: &Trial) -> Result<Vec<Value>, Error> {
    Ok(found_in(el, job, trial).await?.0.iter().map(Found::item).collect())
}

/// Checkpoints of a trial, and what looks like one but is none: `{folder, reason}`.
pub(super) async fn of_trial_with_others(
    el: &El,
    job: &Job,
    trial: &Trial,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let (found, unfit) = found_in(el, job, trial).await?;
    let others =
        unfit.iter().map(|(folder, why)| json!({ "folder": folder, "reason": why.code() }));
    Ok((found.iter().map(Found::item).collect(), others.collect()))
}

/// Checkpoints of all trials of a job.
pub(super) async fn of_job(el: &El, view: &JobView) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for (trial, _) in &view.trials {
        items.extend(of_trial(el, &view.job, trial).await?);
    }
    Ok(items)
}

async fn all_of_job(el: &El, view: &JobView) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    for (trial, _) in &view.trials {
        found.extend(found_in(el, &view.job, trial).await?.0);
    }
    Ok(found)
}

pub(super) async fn list(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let limit = page::limit(&parameters)?;
    let job = given(&parameters, "job_id").or_else(|| given(&parameters, "train_job_id"));
    if given(&parameters, "run_id").is_some() {
        return ok(json!({ "items": [], "next_cursor": null }));
    }
    if let Some(id) = job {
        let view = jobs::visible(&el, &caller, id).await?;
        return ok(json!({ "items": of_job(&el, &view).await?, "next_cursor": null }));
    }
    let mut from = page::cursor(&parameters)?
        .map(JobId::new)
        .transpose()
        .map_err(|_| page::foreign_cursor())?;
    let mut items = Vec::new();
    loop {
        // Whole jobs only, so that a cursor is a job.
        let (views, next) = jobs::after(&el, &caller, from, |_| true, 25).await?;
        for view in &views {
            items.extend(of_job(&el, view).await?);
            if items.len() >= limit {
                let next = page::opaque(view.job.id.as_str());
                return ok(json!({ "items": items, "next_cursor": next }));
            }
        }
        match next {
            None => return ok(json!({ "items": items, "next_cursor": null })),
            next => from = next,
        }
    }
}

/// The checkpoint of a name: its id, or its path.
async fn named(el: &El, caller: &Caller, name: &str, job: Option<&str>) -> Result<Found, Error> {
    let missing = || {
        let why = words!("没有这个 checkpoint", "there is no such checkpoint");
        Error::new(Code::CheckpointNotFound, why)
    };
    let path = name.strip_prefix("envloop://").and_then(|rest| rest.split_once('/'));
    let (job, id) = match path {
        Some((job, id)) => (Some(job), id),
        None => (job, name),
    };
    if let Some(job) = job {
        let view = jobs::visible(el, caller, job).await.map_err(|_| missing())?;
        let found = all_of_job(el, &view).await?;
        return found.into_iter().find(|found| found.id == id).ok_or_else(missing);
    }
    let mut from = None;
    loop {
        let (views, next) = jobs::after(el, caller, from, |_| true, 25).await?;
        for view in &views {
            let found = all_of_job(el, view).await?;
            if let Some(found) = found.into_iter().find(|found| found.id == id) {
                return Ok(found);
            }
        }
        match next {
            None => return Err(missing()),
            next => from = next,
        }
    }
}

pub(super) async fn download(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let path = given(&parameters, "path").ok_or_else(|| {
        Error::new(Code::BadRequest, words!("缺少 path", "path is missing")).at("path")
    })?;
    let found = named(&el, &caller, path, given(&parameters, "job_id")).await?;
    let base = el.base_url(&headers);
    let until = el.parts.clock.now() + SignedDuration::from_secs(ADDRESS_SECONDS);
    let urls: serde_json::Map<String, Value> = found
        .files
        .iter()
        .map(|file| {
            let ticket = ticket(&el, &caller.project, &file.sha256, until.as_second());
            let url = format!("{base}/v1/checkpoint-files/{ticket}");
            (found.name_of(file).to_owned(), url.into())
        })
        .collect();
    ok(json!({ "checkpoint_id": found.id, "job_id": found.job.as_str(), "urls": urls }))
}

/// An address that works for a while without a key.
fn ticket(el: &El, project: &ProjectId, sha256: &str, until: i64) -> String {
    let said = format!("{until}.{sha256}.{}", page::opaque(project.as_str()));
    format!("{said}.{}", mark(el, &said))
}

fn mark(el: &El, said: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(el.parts.key.expose().as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(b"checkpoint-file\0");
    mac.update(said.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

pub(super) async fn file(State(el): State<Arc<El>>, Path(ticket): Path<String>) -> Answer {
    let refused = || {
        let why = words!("下载地址已失效", "the download address is not valid any more");
        Error::new(Code::AccessDenied, why)
    };
    let (said, given) = ticket.rsplit_once('.').ok_or_else(refused)?;
    // Compared as digests: how long that takes tells nothing about the mark.
    if Digest::of(given.as_bytes()) != Digest::of(mark(&el, said).as_bytes()) {
        return Err(refused());
    }
    let mut parts = said.splitn(3, '.');
    let (until, sha256, project) = (parts.next(), parts.next(), parts.next());
    let until = until.and_then(|until| until.parse().ok()).ok_or_else(refused)?;
    if Timestamp::from_second(until).is_ok_and(|until| until < el.parts.clock.now()) {
        return Err(refused());
    }
    let project = project.and_then(decoded).and_then(|id| ProjectId::new(id).ok());
    let (Some(project), Some(sha256)) = (project, sha256) else { return Err(refused()) };
    let output =
        Output { path: String::new(), sha256: sha256.to_owned(), size: 0, checkpoint: false };
    artifacts::stream_of(&el, &project, &output).await
}

fn decoded(text: &str) -> Option<String> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()?;
    String::from_utf8(bytes).ok()
}

fn operation(caller: &Caller, id: &str, at: Timestamp) -> Value {
    json!({
        "operation_id": format!("op_{id}"),
        "status": "SUCCEEDED",
        "workspace_id": caller.workspace.as_str(),
        "project_id": caller.project.as_str(),
        "created_at": at.to_string(),
        "updated_at": at.to_string(),
        "resources": [{ "kind": "checkpoint", "id": id, "status": "deleted" }],
        "errors": [],
    })
}

/// Ends a checkpoint's being one; its files stay artifacts of the trial.
pub(super) async fn delete(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(id): Path<String>,
) -> Answer {
    let caller = signed.any(&[Permission::TrainingRun])?;
    let found = named(&el, &caller, &id, None).await?;
    let job = found.job.clone();
    let view = jobs::visible(&el, &caller, job.as_str()).await?;
    let mut event = el.core().job_event(&view.job, DELETED);
    event.payload = json!({ "checkpoint_id": found.id, "by": caller.principal.as_str() });
    let at = event.at;
    let transition = Transition { rows: Vec::new(), events: vec![event] };
    el.parts.store.commit(transition).await?;
    ok(operation(&caller, &found.id, at))
}

/// Clean-up is done when it is answered, so an operation is always over.
pub(super) async fn operation_of(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((project, id)): Path<(String, String)>,
) -> Answer {
    let caller = signed.reads_jobs()?;
    let checkpoint = id.strip_prefix("op_ck_").filter(|_| project == caller.project.as_str());
    match checkpoint {
        Some(rest) => ok(operation(&caller, &format!("ck_{rest}"), el.parts.clock.now())),
        None => {
            let why = words!("没有这个操作", "there is no such operation");
            Err(Error::new(Code::ResourceNotFound, why))
        }
    }
}
