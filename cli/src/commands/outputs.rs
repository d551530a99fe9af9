//! `runwhere outputs`: what a job left.

use std::path::Path;

use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::ids;
use crate::api::{ApiError, Client, View, query_value};
use crate::args::OutputsArgs;
use crate::download::{DownloadError, Expected, is_safe, is_there, save};
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;
use crate::progress::bar;
use crate::settings::Settings;
use crate::table;
use crate::texts;

/// How often one file is asked for.
const ATTEMPTS: u32 = 3;

/// One file as the server lists it.
struct Listed {
    path: String,
    checkpoint: bool,
    expected: Expected,
}

/// Lists or downloads outputs.
pub(super) async fn outputs(args: &OutputsArgs, settings: &Settings, printer: &Printer) -> Outcome {
    let name = ids::job_name(&args.name)?;
    let client = Client::logged_in(settings, printer)?;
    let (rows, ended) = list(&client, name).await?;
    let rows = chosen(rows, &args.paths, name)?;
    if let Some(folder) = &args.download {
        return download(&client, name, &rows, folder, args.force, printer).await;
    }
    if rows.is_empty() {
        printer.out(&if ended { texts::outputs_none() } else { texts::outputs_not_yet() });
    } else {
        let header = [
            texts::outputs_path(),
            texts::outputs_size(),
            texts::outputs_checkpoint(),
            texts::outputs_sha256(),
        ];
        let header = header.map(|text| text.get(printer.lang()).to_owned());
        let dash = || "-".to_owned();
        let row = |row: &Listed| {
            vec![
                row.path.clone(),
                row.expected.size.map_or_else(dash, |size| size.to_string()),
                (if row.checkpoint { "✓" } else { "-" }).to_owned(),
                row.expected.sha256.clone().unwrap_or_else(dash),
            ]
        };
        printer.plain(&table::draw(&header, &rows.iter().map(row).collect::<Vec<_>>()));
        printer.note(&texts::outputs_hint(name));
    }
    printer.json(&json!({ "data": rows.iter().map(shown).collect::<Vec<_>>() }));
    Ok(())
}

async fn list(client: &Client, name: &str) -> Outcome<(Vec<Listed>, bool)> {
    let mut rows = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let query = cursor
            .as_deref()
            .map_or_else(String::new, |cursor| format!("?cursor={}", query_value(cursor)));
        let answer = client.get(&format!("/api/v1/jobs/{name}/outputs{query}")).await?;
        let view = View(&answer);
        let page = view.list("data");
        rows.extend(page.iter().map(View).filter_map(|row| {
            Some(Listed {
                path: row.text("path")?,
                checkpoint: row.flag("checkpoint") == Some(true),
                expected: Expected {
                    size: row.integer("size").and_then(|size| u64::try_from(size).ok()),
                    sha256: row.text("sha256"),
                },
            })
        }));
        let next = view.text("next_cursor");
        // A server that repeats a cursor would keep this going for ever.
        if next.is_none() || page.is_empty() || next == cursor {
            return Ok((rows, view.flag("ended") != Some(false)));
        }
        cursor = next;
    }
}

/// The named files, or all.
fn chosen(rows: Vec<Listed>, wanted: &[String], name: &str) -> Outcome<Vec<Listed>> {
    if wanted.is_empty() {
        return Ok(rows);
    }
    let is = |row: &Listed, wanted: &str| match wanted.ends_with('/') {
        true => row.path.starts_with(wanted),
        false => row.path == wanted,
    };
    for wanted in wanted {
        if !rows.iter().any(|row| is(row, wanted)) {
            return Err(Failure::usage("output_unknown", texts::outputs_unknown(wanted))
                .hint(texts::outputs_unknown_hint(name)));
        }
    }
    Ok(rows.into_iter().filter(|row| wanted.iter().any(|wanted| is(row, wanted))).collect())
}

fn shown(row: &Listed) -> Value {
    json!({
        "path": row.path,
        "size": row.expected.size,
        "sha256": row.expected.sha256,
        "checkpoint": row.checkpoint,
    })
}

async fn download(
    client: &Client,
    name: &str,
    rows: &[Listed],
    folder: &Path,
    force: bool,
    printer: &Printer,
) -> Outcome {
    // Everything is decided before the first byte: all of it, or nothing.
    let (mut wanted, mut kept) = (Vec::new(), Vec::new());
    for row in rows {
        if !is_safe(&row.path) {
            return Err(Failure::other("output_unsafe", texts::outputs_unsafe(&row.path)));
        }
        let target = folder.join(&row.path);
        let there = is_there(&target, &row.expected).map_err(|error| {
            Failure::other("disk", texts::outputs_disk(target.display(), error))
        })?;
        match there {
            true => kept.push(row),
            false if !force && target.symlink_metadata().is_ok() => {
                return Err(Failure::other(
                    "output_differs",
                    texts::outputs_differs(target.display()),
                )
                .hint(texts::outputs_differs_hint()));
            }
            false => wanted.push((row, target)),
        }
    }
    let bytes: u64 = wanted.iter().filter_map(|(row, _)| row.expected.size).sum();
    let bar = bar(printer, bytes, "{bar:40} {bytes}/{total_bytes} {binary_bytes_per_sec}");
    for (row, target) in &wanted {
        fetch(client, name, row, target, &bar).await?;
    }
    bar.finish_and_clear();
    printer.out(&texts::outputs_downloaded(wanted.len(), bytes, folder.display()));
    if !kept.is_empty() {
        printer.out(&texts::outputs_kept(kept.len()));
    }
    printer.json(&json!({
        "directory": folder,
        "downloaded": wanted.iter().map(|(row, _)| shown(row)).collect::<Vec<_>>(),
        "kept": kept.into_iter().map(shown).collect::<Vec<_>>(),
    }));
    Ok(())
}

/// One file; a broken connection starts it again.
async fn fetch(
    client: &Client,
    name: &str,
    row: &Listed,
    target: &Path,
    bar: &ProgressBar,
) -> Outcome {
    let path: Vec<String> = row.path.split('/').map(query_value).collect();
    let path = format!("/api/v1/jobs/{name}/outputs/{}", path.join("/"));
    let before = bar.position();
    let mut made = 0;
    loop {
        made += 1;
        let error = match client.open(&path).await {
            Ok(response) => match save(response, target, &row.expected, |seen| bar.inc(seen)).await
            {
                Ok(()) => return Ok(()),
                Err(DownloadError::Network(error)) => ApiError::Network {
                    reason: format!("{}: {error}", client.endpoint()),
                    sent: true,
                },
                Err(DownloadError::Disk(path, error)) => {
                    let text = texts::outputs_disk(path.display(), error);
                    return Err(Failure::other("disk", text));
                }
                Err(DownloadError::Size | DownloadError::Hash) => {
                    let text = texts::outputs_broken(&row.path);
                    return Err(Failure::other("output_broken", text));
                }
            },
            Err(error) => error,
        };
        if made >= ATTEMPTS || !matches!(error, ApiError::Network { .. }) {
            return Err(error.into());
        }
        bar.set_position(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(paths: &[&str]) -> Vec<Listed> {
        let row = |path: &&str| Listed {
            path: (*path).to_owned(),
            checkpoint: false,
            expected: Expected::default(),
        };
        paths.iter().map(row).collect()
    }

    #[test]
    fn files_are_chosen_by_path_or_by_folder() {
        let all = ["a", "checkpoints/1", "checkpoints/2", "checkpoints2"];
        let choose = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|word| (*word).to_owned()).collect();
            chosen(rows(&all), &wanted, "job")
                .map(|rows| rows.into_iter().map(|row| row.path).collect::<Vec<_>>())
        };
        assert_eq!(choose(&[]).unwrap(), all);
        assert_eq!(choose(&["checkpoints/"]).unwrap(), ["checkpoints/1", "checkpoints/2"]);
        assert_eq!(choose(&["a", "checkpoints/2"]).unwrap(), ["a", "checkpoints/2"]);
        let unknown = choose(&["a", "checkpoint/"]).unwrap_err();
        assert_eq!(unknown.code, "output_unknown");
    }
}
