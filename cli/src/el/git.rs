//! A runner's files out of a commit, with the objects that prove it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::failure::{ElFailure, Outcome};
use crate::texts::el as texts;

fn git(folder: &Path, arguments: &[&str]) -> Outcome<Vec<u8>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| ElFailure::local("CLI_ERROR", texts::git_missing(error)))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let line = why.lines().next().unwrap_or_default().to_owned();
    Err(ElFailure::local("REPOSITORY_REFERENCE_INVALID", texts::git_refused(arguments[0], line)))
}

fn line(folder: &Path, arguments: &[&str]) -> Outcome<String> {
    Ok(String::from_utf8_lossy(&git(folder, arguments)?).trim_end_matches('\n').to_owned())
}

/// The body of a publication: the two files of the folder in a commit of a clean work tree.
pub(super) fn publication(folder: &Path, commit: Option<&str>, visibility: &str) -> Outcome<Value> {
    if !line(folder, &["status", "--porcelain", "--", "."])?.is_empty() {
        return Err(ElFailure::local("UNSUPPORTED_REPOSITORY_CONTENT", texts::tree_not_clean()));
    }
    let wanted = format!("{}^{{commit}}", commit.unwrap_or("HEAD"));
    let revision = line(folder, &["rev-parse", "--verify", "--end-of-options", &wanted])?;
    let prefix = line(folder, &["rev-parse", "--show-prefix"])?;
    let path: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
    let object = |kind: &str, id: &str| git(folder, &["cat-file", kind, id]);
    let mut trees = Vec::new();
    for depth in 0..=path.len() {
        let id = format!("{revision}:{}", path[..depth].join("/"));
        trees.push(STANDARD.encode(object("tree", &id)?));
    }
    let here = format!("{revision}:{}", path.join("/"));
    let listed = git(folder, &["ls-tree", "-z", "--name-only", "--full-tree", &here])?;
    let mut files = BTreeMap::new();
    for name in listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::str::from_utf8(name).map_err(|_| {
            let why = texts::name_not_utf8(String::from_utf8_lossy(name));
            ElFailure::local("UNSUPPORTED_REPOSITORY_CONTENT", why)
        })?;
        let separator = if path.is_empty() { "" } else { "/" };
        let id = format!("{here}{separator}{name}");
        let content = object("blob", &id).map_err(|_| {
            ElFailure::local("UNSUPPORTED_REPOSITORY_CONTENT", texts::runner_not_a_file(name))
        })?;
        files.insert(name.to_owned(), STANDARD.encode(content));
    }
    Ok(json!({
        "revision": revision,
        "files": files,
        "proof": { "commit": STANDARD.encode(object("commit", &revision)?), "trees": trees, "path": path },
        "visibility": visibility,
        "source_ref": commit.unwrap_or("HEAD"),
    }))
}
