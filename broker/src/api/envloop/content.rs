//! Content of profiles: upload, publish, list, get, approve.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use runwhere_agent::protocol::Digest;
use runwhere_engine::{Permission, Publication, Visibility};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use crate::accounts::Caller;
use crate::api::body;
use crate::api::text::{Words, words};
use crate::blobs::{BlobError, Encoding};
use crate::runners::{
    self, Code, ContentKind, ContentRef, MOST_FILES, NewContent, Publisher, Refused,
};
use crate::sync::{ListedFile, MAX_FILE_BYTES};

/// Bound of a list of files.
const BODY: usize = 4 << 20;

fn kind_of(word: &str) -> Result<ContentKind, Error> {
    ContentKind::parse(word).ok_or_else(|| {
        let why = words!(
            "类别是 recipes、datasets 或 plugins",
            "the kind is recipes, datasets or plugins"
        );
        Error::new(Code::NotFound, why)
    })
}

fn item(row: &Publication) -> Result<Value, Refused> {
    let target = runners::address(row)?;
    let declaration = runners::declaration_of(row)?;
    Ok(json!({
        "kind": target.kind.word(),
        "name": row.name,
        "revision": row.revision,
        "uri": target.to_string(),
        "manifest_sha256": row.manifest_sha256,
        "visibility": row.visibility.as_str(),
        "source_ref": row.source_ref,
        "files": row.files.len(),
        "bytes": row.files.iter().map(|file| file.size).sum::<u64>(),
        "description": declaration.description(),
        "created_at": row.published_at.to_string(),
    }))
}

/// A publication with its manifest, which its digest is of, and whether the caller's project
/// approves it.
async fn whole(el: &El, caller: &Caller, row: &Publication) -> Result<Value, Error> {
    let mut shown = item(row)?;
    let plugin = runners::address(row)?.kind == ContentKind::Plugin;
    if let Value::Object(map) = &mut shown {
        map.insert("manifest".to_owned(), runners::manifest_of(row)?);
        if plugin {
            let project = el.parts.store.project(&caller.project).await?;
            let approval = runners::approval_of(row);
            let approved =
                project.is_some_and(|project| project.approved_plugins.contains(&approval));
            map.insert("approved".to_owned(), approved.into());
        }
    }
    Ok(shown)
}

async fn listed(
    el: &El,
    signed: Signed,
    kind: &str,
    name: Option<&str>,
    parameters: &Parameters,
) -> Answer {
    let caller = signed.any(&[Permission::RunnerRead])?;
    let kind = kind_of(kind)?;
    let limit = page::limit(parameters)?;
    let before = page::cursor(parameters)?
        .map(|text| text.parse().map_err(|_| page::foreign_cursor()))
        .transpose()?;
    let (rows, next) = el.registry().list(&caller, kind.row(), name, before, limit).await?;
    let items = rows.iter().map(item).collect::<Result<Vec<_>, _>>()?;
    ok(json!({ "items": items, "next_cursor": next.map(|at| page::opaque(&at.to_string())) }))
}

pub(super) async fn list(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(kind): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let name = given(&parameters, "name").map(str::to_owned);
    listed(&el, signed, &kind, name.as_deref(), &parameters).await
}

pub(super) async fn versions(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let name = format!("{namespace}/{name}");
    listed(&el, signed, &kind, Some(&name), &parameters).await
}

/// The newest readable publication of a name.
pub(super) async fn get(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((kind, namespace, name)): Path<(String, String, String)>,
) -> Answer {
    let caller = signed.any(&[Permission::RunnerRead])?;
    let kind = kind_of(&kind)?;
    let name = format!("{namespace}/{name}");
    let (rows, _) = el.registry().list(&caller, kind.row(), Some(&name), None, 1).await?;
    match rows.first() {
        Some(row) => ok(whole(&el, &caller, row).await?),
        None => Err(Error::new(
            Code::ResourceNotFound,
            words!("没有这份内容，或无权读取", "there is no such content, or it is not readable"),
        )),
    }
}

fn target(
    kind: ContentKind,
    namespace: &str,
    name: &str,
    revision: &str,
) -> Result<ContentRef, Error> {
    let text = format!("envloop://{}/{namespace}/{name}@{revision}", kind.word());
    ContentRef::parse(&text).map_err(|why| Error::new(Code::BadRequest, why).at("revision"))
}

pub(super) async fn version(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((kind, namespace, name, revision)): Path<(String, String, String, String)>,
) -> Answer {
    let caller = signed.any(&[Permission::RunnerRead])?;
    let target = target(kind_of(&kind)?, &namespace, &name, &revision)?;
    let row = el.registry().content_of(&caller, &target).await?;
    ok(whole(&el, &caller, &row).await?)
}

async fn approval(
    el: &El,
    signed: Signed,
    (namespace, name, revision): (String, String, String),
    approved: bool,
) -> Answer {
    let caller = signed.any(&[Permission::Admin])?;
    let target = target(ContentKind::Plugin, &namespace, &name, &revision)?;
    let row = el.registry().approve(&caller, &target, approved).await?;
    ok(whole(el, &caller, &row).await?)
}

pub(super) async fn approve(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(named): Path<(String, String, String)>,
) -> Answer {
    approval(&el, signed, named, true).await
}

pub(super) async fn withdraw(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(named): Path<(String, String, String)>,
) -> Answer {
    approval(&el, signed, named, false).await
}

fn digest(text: &str) -> Result<Digest, Error> {
    text.parse().map_err(|_| {
        let why =
            words!("需要 64 位十六进制的 SHA-256", "64 hexadecimal digits of a SHA-256 are needed");
        Error::new(Code::BadRequest, why)
    })
}

/// Whether the project has a file's content already.
pub(super) async fn file(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(sha256): Path<String>,
) -> Answer {
    let caller = signed.any(&[Permission::Admin])?;
    let sha256 = digest(&sha256)?;
    match el.parts.blobs.size(&caller.project, &sha256).await? {
        Some(size) => ok(json!({ "sha256": sha256.to_string(), "size": size })),
        None => {
            let why = words!("项目中没有这份内容", "the project has no such content");
            Err(Error::new(Code::ResourceNotFound, why))
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Announced {
    size: u64,
}

/// Stores a file's content while it comes in.
pub(super) async fn upload(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(sha256): Path<String>,
    announced: Result<Query<Announced>, axum::extract::rejection::QueryRejection>,
    sent: Body,
) -> Answer {
    let caller = signed.any(&[Permission::Admin])?;
    let sha256 = digest(&sha256)?;
    let bad = |why: Words| Error::new(Code::BadRequest, why);
    let size = announced.map_err(|_| bad(words!("缺少参数 size", "the parameter size is needed")));
    let size = size?.0.size;
    if size > MAX_FILE_BYTES {
        let why =
            words!("文件最大 {MAX_FILE_BYTES} 字节", "a file has at most {MAX_FILE_BYTES} bytes");
        return Err(Error::new(Code::RequestTooLarge, why));
    }
    if !el.parts.training.room().fits(size) {
        return Err(BlobError::Full.into());
    }
    let told = |error: BlobError| match error {
        BlobError::TooLong(_) | BlobError::TooShort { .. } | BlobError::Mismatch => {
            bad(words!("内容与 size 或摘要不符", "the content is not what size and digest say"))
        }
        other => other.into(),
    };
    let begun = el.parts.blobs.begin(&caller.project, sha256, size, Encoding::Identity);
    let mut writer = begun.await.map_err(told)?;
    let mut stream = sent.into_data_stream();
    loop {
        let piece = body::next(&mut stream).await;
        let cut = || bad(words!("请求体不完整", "the request body is not complete"));
        match piece.map_err(|_| cut())? {
            Some(piece) => writer.write(piece).await.map_err(told)?,
            None => break,
        }
    }
    writer.finish().await.map_err(told)?;
    ok(json!({ "sha256": sha256.to_string(), "size": size }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publish {
    #[serde(default)]
    version: Option<String>,
    files: Vec<PublishedFile>,
    #[serde(default)]
    visibility: Option<Visibility>,
    #[serde(default)]
    source_ref: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedFile {
    path: String,
    sha256: String,
    size: u64,
}

pub(super) async fn publish(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    sent: Body,
) -> Answer {
    let caller = signed.any(&[Permission::Admin])?;
    let kind = kind_of(&kind)?;
    let sent = body::read(sent, BODY).await.map_err(|_| {
        let why = words!(
            "文件清单过大，最多 {MOST_FILES} 个文件",
            "the list of files is too large; at most {MOST_FILES} files"
        );
        Error::new(Code::RequestTooLarge, why)
    })?;
    let new: Publish = serde_json::from_slice(&sent).map_err(|error| page::not_expected(&error))?;
    let listed = |file: PublishedFile| ListedFile {
        path: file.path,
        hash: format!("sha256:{}", file.sha256),
        size: file.size,
    };
    let new = NewContent {
        kind,
        name: format!("{namespace}/{name}"),
        version: new.version,
        files: new.files.into_iter().map(listed).collect(),
        visibility: new.visibility.unwrap_or(Visibility::Workspace),
        source_ref: new.source_ref.chars().filter(|c| !c.is_control()).take(256).collect(),
    };
    let row = el.registry().publish_content(&Publisher::from(&caller), new).await?;
    Ok((StatusCode::CREATED, Json(whole(&el, &caller, &row).await?)).into_response())
}
