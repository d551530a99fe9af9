//! Downloads: checked while they are written, renamed into place when whole.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::client::{Client, encoded, network, query, refused};
use super::failure::{ElFailure, Outcome};

/// Whether a name stays below the folder on every system.
fn is_safe(name: &str) -> bool {
    let drive = name.as_bytes().get(1) == Some(&b':');
    !name.is_empty()
        && !drive
        && !name.contains('\\')
        && !name.chars().any(char::is_control)
        && !name.split('/').any(|part| matches!(part, "" | "." | ".."))
}

fn unsafe_name(name: &str) -> ElFailure {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
    ElFailure::local(
        "ARTIFACT_NAME_UNSAFE",
        format!("the name {shown} is refused; nothing was downloaded"),
    )
}

fn io(path: &Path, error: &std::io::Error) -> ElFailure {
    ElFailure::local("FILE_ERROR", format!("{}: {error}", path.display()))
}

async fn fetch(
    client: &Client,
    address: &str,
    target: &Path,
    size: Option<u64>,
    sha256: Option<&str>,
) -> Outcome<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
    }
    let temp = PathBuf::from(format!("{}.part-{}", target.display(), std::process::id()));
    let response = client.request(Method::GET, address)?.send().await;
    let mut response = refused(response.map_err(|error| network(&error))?).await?;
    let mut file = fs::File::create(&temp).map_err(|error| io(&temp, &error))?;
    let (mut hash, mut count) = (Sha256::new(), 0_u64);
    let copied = async {
        while let Some(piece) = response.chunk().await.map_err(|error| network(&error))? {
            count += piece.len() as u64;
            hash.update(&piece);
            file.write_all(&piece).map_err(|error| io(&temp, &error))?;
        }
        if size.is_some_and(|size| size != count) {
            return Err(ElFailure::local(
                "ARTIFACT_SIZE_MISMATCH",
                format!("{} has another size", target.display()),
            ));
        }
        if sha256.is_some_and(|sha256| sha256 != hex::encode(hash.finalize())) {
            return Err(ElFailure::local(
                "ARTIFACT_HASH_MISMATCH",
                format!("{} has another SHA-256", target.display()),
            ));
        }
        file.sync_all().map_err(|error| io(&temp, &error))?;
        fs::rename(&temp, target).map_err(|error| io(target, &error))
    };
    let copied = copied.await;
    if copied.is_err() {
        let _ = fs::remove_file(&temp);
    }
    copied
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
        fetch(client, &address, &target, item["size"].as_u64(), item["sha256"].as_str()).await?;
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
        .ok_or_else(|| ElFailure::local("CHECKPOINT_NOT_FOUND", "there is no such checkpoint"))?;
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
            ElFailure::local("CHECKPOINT_FILES_INVALID", format!("there is no address for {name}"))
        })?;
        let target = folder.join(name);
        fetch(client, url, &target, file["size_bytes"].as_u64(), file["sha256"].as_str()).await?;
        downloaded.push(name.to_owned());
    }
    Ok(
        json!({ "checkpoint_id": found["checkpoint_id"], "directory": folder, "downloaded": downloaded }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_the_folder_are_safe() {
        assert!(is_safe("a") && is_safe("d/e.bin") && is_safe("日志"));
        for bad in ["", "/a", "a//b", "../a", "a/..", ".", "a\\b", "c:x", "a\nb", "a/"] {
            assert!(!is_safe(bad), "{bad}");
        }
    }
}
