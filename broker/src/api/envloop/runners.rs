//! Runners: list, get, revisions, publish.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use runwhere_engine::{Permission, Publication, PublicationKind, Visibility};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Error, ok};
use super::page::{self, Parameters, given};
use super::state::{El, Signed};
use crate::api::body;
use crate::api::text::words;
use crate::runners::{Code, GitProof, NewRevision, Publisher, Registry, RunnerRef};

const BODY: usize = 16 << 20;

fn item(row: &Publication) -> Value {
    json!({
        "name": row.name,
        "revision": row.revision,
        "source_ref": row.source_ref,
        "visibility": row.visibility.as_str(),
        "created_at": row.published_at.to_string(),
        "manifest_sha256": row.manifest_sha256,
        "selector": format!("{}@{}", row.name, row.revision),
        "description": row.document["description"],
    })
}

fn whole(row: &Publication) -> Value {
    let mut shown = item(row);
    if let Value::Object(map) = &mut shown {
        map.insert("execution".to_owned(), row.document.clone());
        map.insert("files".to_owned(), json!(row.files));
    }
    shown
}

async fn listed(el: &El, signed: Signed, name: Option<&str>, parameters: &Parameters) -> Answer {
    let caller = signed.any(&[Permission::RunnerRead])?;
    let limit = page::limit(parameters)?;
    let before = page::cursor(parameters)?
        .map(|text| text.parse().map_err(|_| page::foreign_cursor()))
        .transpose()?;
    let (rows, next) =
        el.registry().list(&caller, PublicationKind::Runner, name, before, limit).await?;
    let items: Vec<Value> = rows.iter().map(item).collect();
    ok(json!({ "items": items, "next_cursor": next.map(|at| page::opaque(&at.to_string())) }))
}

pub(super) async fn list(
    State(el): State<Arc<El>>,
    signed: Signed,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let name = given(&parameters, "name").map(str::to_owned);
    listed(&el, signed, name.as_deref(), &parameters).await
}

pub(super) async fn revisions(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((namespace, name)): Path<(String, String)>,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let name = format!("{namespace}/{name}");
    listed(&el, signed, Some(&name), &parameters).await
}

/// The newest readable revision of a name, with all that it declares.
pub(super) async fn get(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer {
    let caller = signed.any(&[Permission::RunnerRead])?;
    let name = format!("{namespace}/{name}");
    let (rows, _) =
        el.registry().list(&caller, PublicationKind::Runner, Some(&name), None, 1).await?;
    match rows.first() {
        Some(row) => ok(whole(row)),
        None => {
            let why = words!(
                "没有这个 Runner，或无权读取",
                "there is no such runner, or it is not readable"
            );
            Err(Error::new(Code::RunnerNotFound, why))
        }
    }
}

/// One revision with its files' contents.
pub(super) async fn revision(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((namespace, name, revision)): Path<(String, String, String)>,
) -> Answer {
    let caller = signed.any(&[Permission::RunnerRead])?;
    let wanted = RunnerRef::parse(&format!("{namespace}/{name}@{revision}"))?;
    let row = el.registry().readable(&caller, &wanted).await?;
    let mut contents = Map::new();
    for file in &row.files {
        let content = el.registry().content(&row, file).await?;
        contents.insert(file.path.clone(), String::from_utf8_lossy(&content).into_owned().into());
    }
    let mut shown = whole(&row);
    if let Value::Object(map) = &mut shown {
        map.insert("contents".to_owned(), contents.into());
    }
    ok(shown)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publish {
    revision: String,
    files: std::collections::BTreeMap<String, String>,
    proof: GitProof,
    #[serde(default)]
    visibility: Option<Visibility>,
    #[serde(default)]
    source_ref: String,
}

pub(super) async fn publish(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((namespace, name)): Path<(String, String)>,
    sent: Body,
) -> Answer {
    let caller = signed.any(&[Permission::Admin])?;
    let sent = body::read(sent, BODY).await;
    let sent = sent.map_err(|_| {
        let why = words!("Runner 的文件过大", "a runner's files are too large");
        Error::new(Code::RequestTooLarge, why)
    })?;
    let new: Publish = serde_json::from_slice(&sent).map_err(|error| page::not_expected(&error))?;
    let mut files = Vec::new();
    for (path, content) in new.files {
        let content = STANDARD.decode(content).map_err(|_| {
            let why = words!("文件内容必须是 base64", "the contents of files must be base64");
            Error::new(Code::BadRequest, why).at("files")
        })?;
        files.push((path, content));
    }
    let source_ref = new.source_ref.chars().filter(|c| !c.is_control()).take(256).collect();
    let new = NewRevision {
        name: format!("{namespace}/{name}"),
        revision: new.revision,
        files,
        proof: new.proof,
        visibility: new.visibility.unwrap_or(Visibility::Workspace),
        source_ref,
    };
    let row = el.registry().publish(&Publisher::from(&caller), new).await?;
    let _: crate::runners::Definition = Registry::definition(&row)?;
    Ok((StatusCode::CREATED, Json(whole(&row))).into_response())
}
