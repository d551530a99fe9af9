//! The registry's shelf of content: publishing, finding and approving it.

use std::collections::BTreeSet;

use runwhere_agent::protocol::Digest;
use runwhere_engine::{Permission, Project, Publication, SyncedFile, Visibility};
use runwhere_model::{ProjectId, WorkspaceId};
use serde_json::Value;

use super::declaration::{Declaration, SCHEMA_FILE, manifest, manifest_sha256};
use super::reference::{ContentKind, ContentRef, is_digest, is_version};
use crate::accounts::Caller;
use crate::api::text::{Words, words};
use crate::runners::refusal::{Code, Refused};
use crate::runners::registry::{Publisher, Registry, name_is_good};
use crate::store::{Row, StoreError, Transition};
use crate::sync::{ListedFile, Manifest};

/// Most files of one publication, and of one profile.
pub(crate) const MOST_FILES: usize = 1000;
/// Bound of a declaration and of a schema.
const DECLARED_BYTES: u64 = 1 << 20;
/// Rows that are looked at for a digest at a time.
const SCAN: u32 = 200;
const MOST_APPROVED: usize = 1000;

/// Content to be published; its files are blobs of the publisher's project already.
#[derive(Clone, Debug)]
pub struct NewContent {
    /// What it is.
    pub kind: ContentKind,
    /// `namespace/name`.
    pub name: String,
    /// Its version; recipes have none.
    pub version: Option<String>,
    /// Its files.
    pub files: Vec<ListedFile>,
    /// Who may read it.
    pub visibility: Visibility,
    /// Where it came from, for people.
    pub source_ref: String,
}

/// Who looks for content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) workspace: &'a WorkspaceId,
    pub(super) project: &'a ProjectId,
}

/// The address of published content.
///
/// # Errors
/// The row is of a runner.
pub(crate) fn address(row: &Publication) -> Result<ContentRef, Refused> {
    let kind = ContentKind::of(row.kind).ok_or_else(|| Refused::internal("no content"))?;
    Ok(ContentRef { kind, name: row.name.clone(), revision: row.revision.clone() })
}

/// The manifest that a row's digest is of.
///
/// # Errors
/// The row is of a runner.
pub(crate) fn manifest_of(row: &Publication) -> Result<Value, Refused> {
    let target = address(row)?;
    let version = Some(row.revision.as_str()).filter(|_| target.kind != ContentKind::Recipe);
    Ok(manifest(target.kind, &row.name, version, &row.document, &row.files))
}

/// The declaration in a row.
pub(crate) fn declaration_of(row: &Publication) -> Result<Declaration, Refused> {
    serde_json::from_value(row.document.clone()).map_err(Refused::internal)
}

/// What an approval is of: a plugin's content, not its version's name.
pub(crate) fn approval_of(row: &Publication) -> String {
    format!("{}@{}", row.name, row.manifest_sha256)
}

/// The refusal of content that is not there, or not for this caller.
pub(super) fn missing(target: &ContentRef, place: &str) -> Refused {
    let code = match target.kind {
        ContentKind::Dataset => Code::DatasetRevisionNotFound,
        ContentKind::Recipe | ContentKind::Plugin => Code::ResourceNotFound,
    };
    let why = words!(
        "没有 {target}，或此 key 无权读取",
        "there is no {target}, or it is not readable for this key"
    );
    Refused::new(code, why).at(place)
}

impl Registry {
    /// Publishes content. An identical repeat returns the first; other content under a version that
    /// is taken is refused.
    ///
    /// # Errors
    /// `BAD_REQUEST` for a bad name, version or declaration, `PERMISSION_DENIED` for another
    /// tenant's namespace, `VERSION_CONFLICT`, and not found for a dependency.
    pub async fn publish_content(
        &self,
        publisher: &Publisher,
        new: NewContent,
    ) -> Result<Publication, Refused> {
        let bad = |field: &str, why: Words| Refused::new(Code::BadRequest, why).at(field);
        let kind = new.kind;
        if !name_is_good(&new.name) {
            let why = words!(
                "名称的形式是 namespace/name，各由字母、数字、`.`、`_` 和 `-` 组成",
                "a name is namespace/name, each of letters, digits, `.`, `_` and `-`"
            );
            return Err(bad("name", why));
        }
        match (kind, &new.version) {
            (ContentKind::Recipe, Some(_)) => {
                let why = words!(
                    "recipe 没有版本：其 revision 就是 manifest 的摘要",
                    "recipes have no versions: their revision is their manifest's digest"
                );
                return Err(bad("version", why));
            }
            (ContentKind::Dataset | ContentKind::Plugin, None) => {
                let kind = kind.word();
                return Err(bad("version", words!("{kind} 需要 version", "{kind} need a version")));
            }
            (_, Some(version)) if !is_version(version) => {
                let why = words!(
                    "version 由字母、数字、`.`、`_` 和 `-` 组成，1 到 64 个，且不能是摘要",
                    "a version has letters, digits, `.`, `_` and `-`, 1 to 64, and is no digest"
                );
                return Err(bad("version", why));
            }
            _ => {}
        }
        let namespace = new.name.split('/').next().unwrap_or_default();
        self.namespace_is_free(namespace, &publisher.workspace).await?;
        if new.files.is_empty() || new.files.len() > MOST_FILES {
            let why = words!(
                "一份内容有 1 到 {MOST_FILES} 个文件；更多的文件请打包",
                "content has 1 to {MOST_FILES} files; pack more of them into archives"
            );
            return Err(bad("files", why));
        }
        let listed = Manifest::check(&new.files).map_err(|why| bad("files", why.words()))?;
        let lacking = self.blobs.lacking(&publisher.project, listed.contents()).await?;
        if let Some((sha256, _)) = lacking.first() {
            let count = lacking.len();
            let why = words!(
                "{count} 个文件的内容尚未上传，首先是 {sha256}",
                "{count} contents are not uploaded yet, {sha256} first"
            );
            return Err(bad("files", why));
        }
        let files = listed.into_synced();
        let declared = self.small(publisher, &files, kind.declared_in()).await?;
        let declared = declared.ok_or_else(|| {
            let name = kind.declared_in();
            bad("files", words!("目录中没有 {name}", "the folder has no {name}"))
        })?;
        let schema = match kind {
            ContentKind::Dataset => None,
            ContentKind::Recipe | ContentKind::Plugin => {
                self.small(publisher, &files, SCHEMA_FILE).await?
            }
        };
        let declaration = Declaration::read(kind, &declared, schema.as_deref(), &files)
            .map_err(|why| bad("files", why))?;
        self.sources_are_readable(publisher, &declaration).await?;
        let document = serde_json::to_value(&declaration).map_err(Refused::internal)?;
        let manifest = manifest(kind, &new.name, new.version.as_deref(), &document, &files);
        let manifest_sha256 = manifest_sha256(&manifest);
        self.insert(Publication {
            kind: kind.row(),
            name: new.name,
            revision: new.version.unwrap_or_else(|| manifest_sha256.clone()),
            workspace: publisher.workspace.clone(),
            project: publisher.project.clone(),
            principal: publisher.principal.clone(),
            visibility: new.visibility,
            manifest_sha256,
            source_ref: new.source_ref,
            document,
            files,
            published_at: self.clock.now(),
        })
        .await
    }

    async fn small(
        &self,
        publisher: &Publisher,
        files: &[SyncedFile],
        path: &str,
    ) -> Result<Option<Vec<u8>>, Refused> {
        use tokio::io::AsyncReadExt as _;
        let Some(file) = files.iter().find(|file| file.path == path) else { return Ok(None) };
        if file.size > DECLARED_BYTES {
            let why = words!("{path} 超过 1 MiB", "{path} is larger than 1 MiB");
            return Err(Refused::new(Code::BadRequest, why).at("files"));
        }
        let sha256: Digest = file.sha256.parse().map_err(Refused::internal)?;
        let (mut opened, _) = self.blobs.read(&publisher.project, &sha256).await?;
        let mut content = Vec::new();
        opened.read_to_end(&mut content).await.map_err(Refused::internal)?;
        Ok(Some(content))
    }

    /// A recipe's sources are there for its publisher, and theirs are among them: so all that a
    /// recipe stands on is in its own table.
    async fn sources_are_readable(
        &self,
        publisher: &Publisher,
        declaration: &Declaration,
    ) -> Result<(), Refused> {
        let Declaration::Recipe(recipe) = declaration else { return Ok(()) };
        let reader = Reader { workspace: &publisher.workspace, project: &publisher.project };
        for (name, dependency) in &recipe.dependencies {
            let place = format!("dependencies.{name}");
            let bad =
                |why: Words| Refused::new(Code::BadRequest, why.about(&place)).at(place.as_str());
            let target = dependency.pinned().map_err(bad)?;
            let row = self.found(reader, &target).await?;
            let row = row.ok_or_else(|| missing(&target, &place))?;
            let Declaration::Recipe(below) = declaration_of(&row)? else { continue };
            let lacking = below
                .dependencies
                .iter()
                .find(|(name, wanted)| recipe.dependencies.get(*name) != Some(*wanted));
            if let Some((inner, _)) = lacking {
                return Err(bad(words!(
                    "它依赖 {inner}，此 recipe 的 dependencies 也必须列出它",
                    "it stands on {inner}, which must be named in this recipe's dependencies too"
                )));
            }
        }
        Ok(())
    }

    /// Content that somebody may read, by version or digest.
    pub(super) async fn found(
        &self,
        reader: Reader<'_>,
        target: &ContentRef,
    ) -> Result<Option<Publication>, Refused> {
        let kind = target.kind.row();
        let readable = |row: &Publication| row.readable_by(reader.workspace, reader.project);
        if target.kind == ContentKind::Recipe || !is_digest(&target.revision) {
            let row = self.store.publication(kind, &target.name, &target.revision).await?;
            return Ok(row.filter(readable));
        }
        let mut before = None;
        loop {
            let rows = self.store.publications(kind, Some(&target.name), before, SCAN).await?;
            let whole = rows.len() < SCAN as usize;
            before = rows.last().map(|(position, _)| *position);
            let hit = rows
                .into_iter()
                .map(|(_, row)| row)
                .find(|row| row.manifest_sha256 == target.revision && readable(row));
            if hit.is_some() || whole {
                return Ok(hit);
            }
        }
    }

    /// Content that a caller may read.
    ///
    /// # Errors
    /// Not found: nobody learns what others have published.
    pub async fn content_of(
        &self,
        caller: &Caller,
        target: &ContentRef,
    ) -> Result<Publication, Refused> {
        let none = || missing(target, "uri");
        if !caller.allows(Permission::RunnerRead) {
            return Err(none());
        }
        let reader = Reader { workspace: &caller.workspace, project: &caller.project };
        self.found(reader, target).await?.ok_or_else(none)
    }

    /// Lets jobs of the caller's project bind a plugin, or ends that. A repeat is harmless.
    ///
    /// # Errors
    /// Not found, or `RESOURCE_IN_USE` where the project is changed at the same time.
    pub async fn approve(
        &self,
        caller: &Caller,
        target: &ContentRef,
        approved: bool,
    ) -> Result<Publication, Refused> {
        let row = self.content_of(caller, target).await?;
        let project = self.store.project(&caller.project).await?;
        let project = project.ok_or_else(|| Refused::internal("the project is missing"))?;
        let mut plugins: BTreeSet<String> = project.approved_plugins.clone();
        let approval = approval_of(&row);
        let changed = match approved {
            true => plugins.insert(approval),
            false => plugins.remove(&approval),
        };
        if !changed {
            return Ok(row);
        }
        if plugins.len() > MOST_APPROVED {
            let why = words!(
                "一个项目最多批准 {MOST_APPROVED} 个插件",
                "a project approves at most {MOST_APPROVED} plugins"
            );
            return Err(Refused::new(Code::BadRequest, why));
        }
        let rows = vec![Row::Project(Project { approved_plugins: plugins, ..project })];
        match self.store.commit(Transition { rows, events: Vec::new() }).await {
            Ok(()) => Ok(row),
            Err(StoreError::Stale { .. }) => Err(Refused::new(
                Code::ResourceInUse,
                words!(
                    "项目同时被修改；请重试",
                    "the project was changed at the same time; repeat the request"
                ),
            )
            .retry(1)),
            Err(error) => Err(error.into()),
        }
    }
}
