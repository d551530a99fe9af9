//! `runwhere sync`.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::api::{Client, View};
use crate::args::SyncArgs;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::seams::task::Task;
use crate::settings::Settings;
use crate::sync::{Pushed, Records, local, megabytes, push};
use crate::texts;

const ROOT: &str = ".";

/// Syncs, or shows the latest sync.
pub(super) async fn sync(args: &SyncArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let task = args.file.as_deref().map(Task::read).transpose()?;
    if args.status {
        return status(task.as_ref(), settings, printer).await;
    }
    let task = task.ok_or_else(|| Failure::usage("yaml_missing", texts::yaml_missing("-f")))?;
    if args.dry_run {
        return dry_run(&task, args.yes, settings, printer);
    }
    let client = Client::logged_in(settings, printer)?;
    let pushed = bring(&task, args.yes, &client, settings, printer).await?;
    printer.json(&report(&pushed));
    Ok(())
}

/// Whether the folders that the task names are there.
pub(super) fn check_folders(task: &Task) -> Outcome {
    crate::sync::check_folders(Path::new(ROOT), &task.sync_task().folders)
}

/// Scans, hashes, uploads and says so; also a part of `run`.
pub(super) async fn bring(
    task: &Task,
    yes: bool,
    client: &Client,
    settings: &Settings,
    printer: &Printer,
) -> Outcome<Pushed> {
    let sync_task = task.sync_task();
    let local = local(Path::new(ROOT), &settings.home, &sync_task, yes, printer)?;
    local.warn_skipped(printer, settings.verbose > 0);
    let pushed = push(client, &sync_task, &local, printer).await?;
    printer.out(&texts::uploaded(pushed.uploaded, megabytes(pushed.bytes), pushed.skipped));
    if let Some(status) = pushed.env_status.as_deref().filter(|status| *status != "ready") {
        printer.out(&texts::env_status(status));
    }
    if !pushed.folders.is_empty() {
        printer.out(&texts::storage_ready(pushed.folders.join(", ")));
    }
    Ok(pushed)
}

fn dry_run(task: &Task, yes: bool, settings: &Settings, printer: &Printer) -> Outcome {
    let local = local(Path::new(ROOT), &settings.home, &task.sync_task(), yes, printer)?;
    local.warn_skipped(printer, settings.verbose > 0);
    local.remember_hashes(printer);
    let (files, bytes) = (local.manifest.files.len(), local.manifest.bytes());
    if printer.is_json() {
        let files = local.manifest.wire();
        printer.json(&json!({"status": "dry_run", "files": files, "bytes": bytes}));
        return Ok(());
    }
    // At once: a write for each of many files takes longer than all else here.
    let mut lines = String::new();
    for (path, file) in &local.manifest.files {
        let path = crate::terminal::one_line(path);
        // Writing into a string cannot fail.
        let _ = writeln!(lines, "{:>12} {path}", file.size);
    }
    if let Some(lines) = lines.strip_suffix('\n') {
        printer.plain(lines);
    }
    printer.out(&texts::dry_run(files, megabytes(bytes)));
    Ok(())
}

async fn status(task: Option<&Task>, settings: &Settings, printer: &Printer) -> Outcome {
    let client = Client::logged_in(settings, printer)?;
    let records = Records::new(&settings.home, Path::new(ROOT));
    let server = client.server_name();
    let id = match task {
        Some(task) => records.last(&server, task.name()).and_then(|last| last.sync_id),
        None => records.latest_id(),
    };
    let Some(id) = id else {
        let file =
            task.map_or_else(|| "train.yaml".to_owned(), |task| task.path.display().to_string());
        return Err(Failure::other("never_synced", texts::never_synced())
            .hint(texts::never_synced_hint(file)));
    };
    let answer =
        client.get(&format!("/api/v1/sync/{}/status", crate::api::query_value(&id))).await?;
    let view = View(&answer);
    printer.out(&texts::sync_status_id(view.text("sync_id").unwrap_or(id)));
    if let Some(status) = view.text("env_build_status") {
        printer.out(&texts::sync_status_env(status));
    }
    if let Some(at) = view.text("created_at") {
        printer.out(&texts::sync_status_created(at));
    }
    for model in view.list("model_downloads") {
        let view = View(model);
        let field = |key| view.text(key).unwrap_or_default();
        printer.out(&texts::sync_status_model(
            field("model_hash"),
            field("status"),
            field("progress"),
        ));
    }
    printer.json(&answer);
    Ok(())
}

/// The JSON form of a sync.
pub(super) fn report(pushed: &Pushed) -> Value {
    json!({
        "status": "ok",
        "sync": {
            "id": pushed.sync_id,
            "files": {
                "uploaded": pushed.uploaded,
                "skipped": pushed.skipped,
                "failed": 0,
                "bytes_uploaded": pushed.bytes,
            },
            "workspace_dirs": pushed.folders,
        },
        "environment": {"status": pushed.env_status},
        "models": pushed.models,
    })
}
