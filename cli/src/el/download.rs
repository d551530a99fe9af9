//! Downloads of artifacts and checkpoints.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, encoded, network, query, refused};
use super::failure::{ElFailure, Outcome};
use crate::download::{DownloadError, Expected, is_safe, save};
use crate::texts::el as texts;

fn unsafe_name(name: &str) -> ElFailure {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
    ElFailure::local("ARTIFACT_NAME_UNSAFE", texts::name_unsafe(shown))
}

async fn fetch(
    client: &Client,
    address: &str,
    (root, target): (&Path, &Path),
    size: Option<u64>,
    sha256: Option<&str>,
) -> Outcome<()> {
    if let Some(below) = target.parent() {
        let disk = |error: std::io::Error| {
            ElFailure::local("FILE_ERROR", texts::file_failed(below.display(), error))
        };
        std::fs::create_dir_all(below).map_err(disk)?;
        // A link that lies in the folder already must not lead the write elsewhere.
        if !below.canonicalize().map_err(disk)?.starts_with(root.canonicalize().map_err(disk)?) {
            return Err(unsafe_name(&target.display().to_string()));
        }
    }
    let response = client.request(Method::GET, address)?.send().await;
    let response = refused(response.map_err(|error| network(&error))?).await?;
    let expected = Expected { size, sha256: sha256.map(str::to_owned) };
    save(response, target, &expected, |_| ()).await.map_err(|error| match error {
        DownloadError::Network(error) => network(&error),
        DownloadError::Disk(path, error) => {
            ElFailure::local("FILE_ERROR", texts::file_failed(path.display(), error))
        }
        DownloadError::Size => {
            ElFailure::local("ARTIFACT_SIZE_MISMATCH", texts::size_differs(target.display()))
        }
        DownloadError::Hash => {
            ElFailure::local("ARTIFACT_HASH_MISMATCH", texts::hash_differs(target.display()))
        }
    })
}

pub(super) async fn artifacts(client: &Client, trial: &str, folder: &Path) -> Outcome<Value> {
    let base = format!("/v1/trials/{}/artifacts", encoded(trial));
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let query = query(&[("limit", Some("100".to_owned())), ("cursor", cursor.clone())]);
        let page = client.get(&format!("{base}{query}")).await?;
        items.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    for item in &items {
        let name = item["name"].as_str().unwrap_or_default();
        if !is_safe(name) {
            return Err(unsafe_name(name));
        }
    }
    let (mut downloaded, mut left) = (Vec::new(), Vec::new());
    for item in &items {
        let name = item["name"].as_str().unwrap_or_default();
        if item["upload_state"] != "uploaded" {
            left.push(json!({ "name": name, "upload_state": item["upload_state"] }));
            continue;
        }
        let id = item["artifact_id"].as_str().unwrap_or_default();
        let address = format!("{base}/{}/content", encoded(id));
        let target = folder.join(name);
        fetch(client, &address, (folder, &target), item["size"].as_u64(), item["sha256"].as_str())
            .await?;
        downloaded.push(json!({ "name": name, "size": item["size"], "sha256": item["sha256"] }));
    }
    Ok(
        json!({ "trial_id": trial, "directory": folder, "downloaded": downloaded, "not_downloaded": left }),
    )
}

pub(super) async fn checkpoint(client: &Client, name: &str, folder: &Path) -> Outcome<Value> {
    let job = name
        .strip_prefix("envloop://")
        .and_then(|rest| rest.split_once('/'))
        .map(|(job, _)| job.to_owned());
    let listed = client
        .get(&format!(
            "/v1/job/checkpoints{}",
            query(&[("limit", Some("100".into())), ("job_id", job)])
        ))
        .await?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let found =
        items.iter().find(|item| item["checkpoint_id"] == name || item["tinker_path"] == name);
    let found = found
        .ok_or_else(|| ElFailure::local("CHECKPOINT_NOT_FOUND", texts::checkpoint_missing()))?;
    let path = found["tinker_path"].as_str().unwrap_or(name).to_owned();
    let answer = client
        .get(&format!("/v1/job/checkpoints/download{}", query(&[("path", Some(path))])))
        .await?;
    let mut downloaded = Vec::new();
    for file in found["files"].as_array().into_iter().flatten() {
        let name = file["name"].as_str().unwrap_or_default();
        if !is_safe(name) {
            return Err(unsafe_name(name));
        }
        let url = answer["urls"][name].as_str().ok_or_else(|| {
            ElFailure::local("CHECKPOINT_FILES_INVALID", texts::address_missing(name))
        })?;
        let target = folder.join(name);
        fetch(client, url, (folder, &target), file["size_bytes"].as_u64(), file["sha256"].as_str())
            .await?;
        downloaded.push(name.to_owned());
    }
    Ok(
        json!({ "checkpoint_id": found["checkpoint_id"], "directory": folder, "downloaded": downloaded }),
    )
}
