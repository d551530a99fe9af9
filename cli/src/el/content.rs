//! Recipes, datasets and plugins: publish a folder, list, get, approve.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::args::{Content, ContentName, ContentWord, PublishContent, word};
use super::client::{Client, encoded};
use super::commands::{listed, paged, shown};
use super::failure::{ElFailure, Outcome};
use crate::texts::el as texts;

/// Files of one publication, as the server bounds them.
const MOST_FILES: usize = 1000;
const PIECE: usize = 1 << 20;

pub(super) async fn run(client: &Client, content: Content) -> Outcome {
    match content {
        Content::Publish(args) => publish(client, &args).await,
        Content::List(args) => {
            let query = paged(&args.paging, &[("name", args.name)]);
            let page = client.get(&format!("/v1/content/{}{query}", word(args.kind))).await?;
            let columns =
                ["name", "revision", "manifest_sha256", "visibility", "files", "created_at"];
            listed(&page, &columns, args.paging.json)
        }
        Content::Get(args) => shown(client.get(&Address::read(&args)?.path()).await?),
        Content::Approve(args) => {
            shown(client.post(&Address::read(&args)?.approval()?, None).await?)
        }
        Content::Withdraw(args) => shown(client.delete(&Address::read(&args)?.approval()?).await?),
    }
}

/// A file of the folder.
struct Found {
    path: String,
    place: PathBuf,
    sha256: String,
    size: u64,
}

async fn publish(client: &Client, args: &PublishContent) -> Outcome {
    let kind = word(args.kind);
    let (namespace, name) = parts(&args.name)?;
    let versioned = !matches!(args.kind, ContentWord::Recipes);
    match (&args.version, versioned) {
        (None, true) => {
            return Err(ElFailure::usage(texts::version_needed(&kind)));
        }
        (Some(_), false) => {
            return Err(ElFailure::usage(texts::version_of_recipe()));
        }
        _ => {}
    }
    let files = walk(&args.folder)?;
    let mut sent = BTreeSet::new();
    for file in &files {
        if !sent.insert(file.sha256.clone()) {
            continue;
        }
        let path = format!("/v1/content/files/{}", file.sha256);
        match client.get(&path).await {
            Ok(_) => continue,
            Err(failure) if failure.status == Some(404) => {}
            Err(failure) => return Err(failure),
        }
        let opened = File::open(&file.place).map_err(|error| io(&file.place, &error))?;
        client.put_file(&format!("{path}?size={}", file.size), opened).await?;
    }
    let listed: Vec<Value> = files
        .iter()
        .map(|file| json!({ "path": file.path, "sha256": file.sha256, "size": file.size }))
        .collect();
    let body = json!({
        "version": args.version,
        "files": listed,
        "visibility": word(args.visibility),
    });
    let path = format!("/v1/content/{kind}/{namespace}/{name}/versions");
    let published = client.post(&path, Some(&body)).await?;
    shown(published)
}

fn parts(name: &str) -> Outcome<(String, String)> {
    match name.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((encoded(namespace), encoded(name)))
        }
        _ => Err(ElFailure::usage(texts::content_name())),
    }
}

fn io(path: &Path, error: &std::io::Error) -> ElFailure {
    ElFailure::local("FILE_ERROR", texts::file_failed(path.display(), error))
}

/// All files below a folder but `.git`, in the order of their paths. A link or anything else that
/// is no plain file is refused: what it leads to would not be what was looked at.
fn walk(folder: &Path) -> Outcome<Vec<Found>> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), String::new())];
    while let Some((place, prefix)) = open.pop() {
        for entry in fs::read_dir(&place).map_err(|error| io(&place, &error))? {
            let entry = entry.map_err(|error| io(&place, &error))?;
            let place = entry.path();
            let name = entry.file_name().into_string().map_err(|_| {
                ElFailure::local("UNSUPPORTED_CONTENT", texts::name_not_utf8(place.display()))
            })?;
            let kind = entry.file_type().map_err(|error| io(&place, &error))?;
            let path = format!("{prefix}{name}");
            if kind.is_dir() {
                if name != ".git" {
                    open.push((place, format!("{path}/")));
                }
            } else if kind.is_file() {
                if found.len() == MOST_FILES {
                    return Err(ElFailure::local(
                        "UNSUPPORTED_CONTENT",
                        texts::too_many_files(MOST_FILES),
                    ));
                }
                let (sha256, size) = hashed(&place).map_err(|error| io(&place, &error))?;
                found.push(Found { path, place, sha256, size });
            } else {
                return Err(ElFailure::local(
                    "UNSUPPORTED_CONTENT",
                    texts::plain_files_only(place.display()),
                ));
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

fn hashed(place: &Path) -> std::io::Result<(String, u64)> {
    let mut file = File::open(place)?;
    let (mut hash, mut size) = (Sha256::new(), 0_u64);
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((hex::encode(hash.finalize()), size)),
            read => {
                hash.update(&piece[..read]);
                size += read as u64;
            }
        }
    }
}

/// `envloop://KIND/namespace/name`, with or without `@revision`.
#[derive(Debug, PartialEq)]
struct Address {
    kind: String,
    namespace: String,
    name: String,
    revision: Option<String>,
}

impl Address {
    fn read(args: &ContentName) -> Outcome<Self> {
        let wrong = || ElFailure::usage(texts::content_address());
        let rest = args.uri.strip_prefix("envloop://").unwrap_or(&args.uri);
        let (kind, rest) = rest.split_once('/').ok_or_else(wrong)?;
        if !matches!(kind, "recipes" | "datasets" | "plugins") {
            return Err(wrong());
        }
        let (name, revision) = match rest.split_once('@') {
            Some((name, revision)) if !revision.is_empty() => (name, Some(encoded(revision))),
            Some(_) => return Err(wrong()),
            None => (rest, None),
        };
        let (namespace, name) = parts(name).map_err(|_| wrong())?;
        Ok(Self { kind: kind.to_owned(), namespace, name, revision })
    }

    fn path(&self) -> String {
        let Self { kind, namespace, name, revision } = self;
        let base = format!("/v1/content/{kind}/{namespace}/{name}");
        match revision {
            Some(revision) => format!("{base}/versions/{revision}"),
            None => base,
        }
    }

    fn approval(&self) -> Outcome<String> {
        if self.kind != "plugins" || self.revision.is_none() {
            return Err(ElFailure::usage(texts::approval_address()));
        }
        Ok(format!("{}/approval", self.path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str) -> Outcome<Address> {
        Address::read(&ContentName { uri: uri.to_owned() })
    }

    #[test]
    fn addresses_lead_to_one_path() {
        let path = |uri: &str| read(uri).unwrap().path();
        assert_eq!(path("envloop://datasets/a/b@1"), "/v1/content/datasets/a/b/versions/1");
        assert_eq!(path("recipes/a/b"), "/v1/content/recipes/a/b");
        assert_eq!(
            path("envloop://recipes/a/b c@x/y"),
            "/v1/content/recipes/a/b%20c/versions/x%2Fy"
        );
        for bad in ["", "a/b", "envloop://models/a/b", "envloop://recipes/a@1", "recipes/a/b@"] {
            assert_eq!(read(bad).unwrap_err().exit, 2, "{bad}");
        }
        assert!(read("plugins/a/b@1").unwrap().approval().unwrap().ends_with("/1/approval"));
        for bad in ["plugins/a/b", "datasets/a/b@1"] {
            assert_eq!(read(bad).unwrap().approval().unwrap_err().exit, 2);
        }
    }

    #[test]
    fn a_folder_is_walked_in_order_and_links_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [("b", "2"), ("a/z", "1"), (".git/x", "no"), ("a/y", "1")] {
            let place = folder.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, content).unwrap();
        }
        let found = walk(folder.path()).unwrap();
        let paths: Vec<&str> = found.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a/y", "a/z", "b"]);
        assert_eq!(found[0].sha256, hex::encode(Sha256::digest(b"1")));
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert_eq!(walk(folder.path()).err().unwrap().code, "UNSUPPORTED_CONTENT");
    }
}
