//! The whole sync: scan, hash, compare with the server, upload, complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};

use serde_json::{Value, json};

use super::upload::{Upload, UploadError, upload};
use super::{FoundFile, HashCache, LastSync, Manifest, Records, Scan, hash_all, megabytes, scan};
use crate::api::{ApiError, Client, Repeat, View};
use crate::clock;
use crate::failure::{Exit, Failure, Outcome};
use crate::printer::Printer;
use crate::progress::bar;
use crate::terminal;
use crate::texts;

const MANY_FILES: usize = 20_000;
const MANY_BYTES: u64 = 1 << 30;
/// One upload at most.
const LARGEST_FILE: u64 = 1 << 30;
const AT_ONCE: usize = 8;
/// Left-out files that are named without `-v`.
const NAMED: usize = 5;

/// What a sync needs to know of the task.
#[derive(Clone, Debug)]
pub struct SyncTask {
    /// Name of the job.
    pub job_name: String,
    /// The task file's text.
    pub yaml: String,
    /// Folders to sync, relative to the root.
    pub folders: Vec<String>,
    /// `storage_declarations` of the request.
    pub declarations: Value,
}

/// The local side of a sync.
#[derive(Debug)]
pub struct Local {
    /// What there is.
    pub manifest: Manifest,
    /// What was left out.
    pub skipped: Vec<super::Skip>,
    root: PathBuf,
    // Where the bytes are of the files that are links.
    links: BTreeMap<String, PathBuf>,
    // What to keep of the hashes, where it is other than what is kept already.
    cache: Option<HashCache>,
    records: Records,
}

/// What a sync did.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Id of the sync.
    pub sync_id: Option<String>,
    /// Files sent.
    pub uploaded: usize,
    /// Files the server had.
    pub skipped: usize,
    /// Bytes sent, as encoded.
    pub bytes: u64,
    /// Folders that the server made ready.
    pub folders: Vec<String>,
    /// State of the environment.
    pub env_status: Option<String>,
    /// Models, as the server lists them.
    pub models: Vec<Value>,
}

/// Scans and hashes. `confirm`: whether a very large sync was already agreed to.
///
/// # Errors
/// Exit code 2 for a refused or very large sync, 1 for unreadable files.
pub fn local(
    root: &Path,
    home: &Path,
    task: &SyncTask,
    confirm: bool,
    printer: &Printer,
) -> Outcome<Local> {
    let scanned_at = clock::since_epoch();
    let records = Records::new(home, root);
    // The kept hashes of a large folder take as long to read as its files to find.
    let (found, known) = std::thread::scope(|scope| {
        let known = scope.spawn(|| records.cache());
        (scan(root, &task.folders), known.join().unwrap_or_default())
    });
    let found = found?;
    agree(&found, confirm, printer)?;
    let word = texts::hashing();
    let template = format!("{} {{bar:40}} {{bytes}}/{{total_bytes}}", word.get(printer.lang()));
    let bar = bar(printer, found.bytes(), &template);
    let hashed = hash_all(&found, &known, &|read| bar.inc(read));
    bar.finish_and_clear();
    let hashed = hashed?;
    let Scan { root, files, skipped } = found;
    // Where every hash was known and none is left over there is nothing new to keep.
    let cache = (!known.covers(&files)).then(|| HashCache::of(&files, &hashed, scanned_at));
    let link = |(path, file): (&String, &FoundFile)| Some((path.clone(), file.link.clone()?));
    let links = files.iter().filter_map(link).collect();
    Ok(Local { manifest: Manifest::of(files, &hashed), skipped, root, links, cache, records })
}

impl Local {
    /// Says what was left out.
    pub fn warn_skipped(&self, printer: &Printer, verbose: bool) {
        let named = if verbose { usize::MAX } else { NAMED };
        for skip in self.skipped.iter().take(named) {
            let reason = skip.reason.text();
            let (zh, en) = (reason.get(texts::Lang::Zh), reason.get(texts::Lang::En));
            let text = texts::Text::new(
                texts::skipped_file(&skip.path, zh).get(texts::Lang::Zh),
                texts::skipped_file(&skip.path, en).get(texts::Lang::En),
            );
            printer.warn(&text);
        }
        if self.skipped.len() > named {
            printer.warn(&texts::skipped_more(self.skipped.len() - named));
        }
    }

    /// The last complete sync of `job` to `server` from here.
    #[must_use]
    pub fn last(&self, server: &str, job: &str) -> Option<LastSync> {
        self.records.last(server, job)
    }

    /// Keeps the hashes for the next time. Failing at that is only told.
    pub fn remember_hashes(&self, printer: &Printer) {
        if let Some(cache) = &self.cache
            && let Err((path, error)) = self.records.save_cache(cache)
        {
            printer.warn(&texts::record_unwritable(path.display(), error));
        }
    }
}

fn agree(scan: &Scan, confirmed: bool, printer: &Printer) -> Outcome {
    if let Some((path, _)) = scan.files.iter().find(|(_, file)| file.stamp.size > LARGEST_FILE) {
        return Err(Failure::usage("file_too_large", texts::file_too_large(path))
            .hint(texts::file_too_large_hint())
            .detail("path", path.clone()));
    }
    let (files, bytes) = (scan.files.len(), scan.bytes());
    if confirmed || (files <= MANY_FILES && bytes <= MANY_BYTES) {
        return Ok(());
    }
    let text = texts::much_to_sync(files, megabytes(bytes));
    if !printer.is_json() && terminal::stdin_is_terminal() && terminal::stderr_is_terminal() {
        printer.warn(&text);
        if terminal::confirm(texts::shall_i_go_on().get(printer.lang())) {
            return Ok(());
        }
        return Err(Failure::silent(Exit::Ok));
    }
    Err(Failure::usage("much_to_sync", text)
        .hint(texts::much_to_sync_hint())
        .detail("files", files)
        .detail("bytes", bytes))
}

/// Brings the server up to date.
///
/// # Errors
/// Exit code 3 for the server's refusals, 4 for the network, 1 for files that change meanwhile.
pub async fn push(
    client: &Client,
    task: &SyncTask,
    local: &Local,
    printer: &Printer,
) -> Outcome<Pushed> {
    let mut sent = Sent::default();
    // Once more when the server misses something at the end: another sync, or a cleaned-up blob, came between.
    for last_try in [false, true] {
        let diff =
            client.post("/api/v1/sync/diff", Some(&diff_body(task, local)), Repeat::Safe).await?;
        let uploads = plan(&diff, local)?;
        send(client, uploads, &mut sent, printer).await?;
        match client
            .post("/api/v1/sync/complete", Some(&complete_body(task, local, &sent)), Repeat::Safe)
            .await
        {
            Ok(done) => return Ok(finish(client, task, local, &diff, &done, sent, printer)),
            Err(ApiError::Server(error)) if error.status == 409 && !last_try => {}
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("the last try returns")
}

#[derive(Debug, Default)]
struct Sent {
    files: usize,
    bytes: u64,
}

fn diff_body(task: &SyncTask, local: &Local) -> Value {
    json!({
        "job_name": task.job_name,
        "files": local.manifest.wire(),
        "yaml_content": task.yaml,
        "storage_declarations": task.declarations,
    })
}

fn complete_body(task: &SyncTask, local: &Local, sent: &Sent) -> Value {
    let files = local.manifest.wire();
    json!({
        "job_name": task.job_name,
        "files_count": files.len(),
        "files": files,
        "bytes_total": sent.bytes,
        "yaml_content": task.yaml,
    })
}

/// Only paths of the own manifest are ever uploaded, whatever the server asks for.
fn plan(diff: &Value, local: &Local) -> Outcome<Vec<Upload>> {
    let mut uploads = BTreeMap::new();
    for wanted in View(diff).list("files_to_upload") {
        let view = View(wanted);
        let path = view.text("path").unwrap_or_default();
        let Some(file) = local.manifest.files.get(&path) else {
            return Err(Failure::new(Exit::Server, "foreign_path", texts::foreign_path(&path))
                .hint(texts::foreign_path_hint())
                .detail("path", path));
        };
        let url = view.text("presigned_url").unwrap_or_default();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            return Err(ApiError::Unreadable { status: 200 }.into());
        }
        let upload = Upload {
            disk: local.links.get(&path).cloned().unwrap_or_else(|| local.root.join(&path)),
            file: *file,
            url,
            content_type: view.text("content_type"),
            path: path.clone(),
        };
        uploads.insert(path, upload);
    }
    Ok(uploads.into_values().collect())
}

async fn send(
    client: &Client,
    uploads: Vec<Upload>,
    sent: &mut Sent,
    printer: &Printer,
) -> Outcome {
    if uploads.is_empty() {
        return Ok(());
    }
    let total = uploads.len();
    let bar = bar(printer, total as u64, "Uploading {bar:40} {pos}/{len} files");
    let transport = client.transport();
    let mut results = stream::iter(uploads)
        .map(|one| async move { (upload(transport, &one).await, one.path) })
        .buffer_unordered(AT_ONCE);
    while let Some((result, path)) = results.next().await {
        match result {
            Ok(bytes) => {
                sent.files += 1;
                sent.bytes += bytes;
                bar.inc(1);
            }
            // The first failure ends the rest: a sync is complete or it is none.
            Err(error) => {
                bar.finish_and_clear();
                return Err(failure(&path, error));
            }
        }
    }
    // The moving bar is cleared and said once more as a line: what follows then begins on its own line.
    bar.finish_and_clear();
    printer.note(&texts::Text::same(format!("Uploading {} {total}/{total} files", "-".repeat(40))));
    Ok(())
}

fn failure(path: &str, error: UploadError) -> Failure {
    let failure = match error {
        UploadError::Changed => Failure::other("file_changing", texts::file_changing(path))
            .hint(texts::file_changing_hint()),
        UploadError::Unreadable(error) => {
            Failure::other("file_unreadable", texts::file_lost(path, error))
        }
        UploadError::Network(reason) => {
            Failure::new(Exit::Network, "network", texts::upload_failed(path, reason))
                .hint(texts::upload_failed_hint())
        }
        UploadError::Refused { status, reason } => {
            Failure::new(Exit::Server, "upload_refused", texts::upload_failed(path, reason))
                .hint(texts::upload_failed_hint())
                .detail("status", status)
        }
    };
    failure.detail("path", path)
}

fn finish(
    client: &Client,
    task: &SyncTask,
    local: &Local,
    diff: &Value,
    done: &Value,
    sent: Sent,
    printer: &Printer,
) -> Pushed {
    let view = View(diff);
    let sync_id = View(done).text("sync_id");
    let last = LastSync { sync_id: sync_id.clone(), manifest: local.manifest.clone() };
    local.remember_hashes(printer);
    if let Err((path, error)) =
        local.records.save_last(&client.server_name(), &task.job_name, &last, !client.is_embedded())
    {
        printer.warn(&texts::record_unwritable(path.display(), error));
    }
    Pushed {
        sync_id,
        uploaded: sent.files,
        skipped: local.manifest.files.len().saturating_sub(sent.files),
        bytes: sent.bytes,
        folders: view
            .list("workspace_dirs_created")
            .iter()
            .filter_map(|dir| dir.as_str().map(str::to_owned))
            .collect(),
        env_status: view.text("env_status"),
        models: view.list("model_downloads").to_vec(),
    }
}
