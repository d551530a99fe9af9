//! Published revisions: who may publish and read them.

use std::sync::Arc;

use runwhere_agent::protocol::Digest;
use runwhere_engine::{Permission, Publication, PublicationKind, SyncedFile, Visibility};
use runwhere_model::{PrincipalId, ProjectId, WorkspaceId};
use runwhere_providers::Clock;

use super::definition::{Definition, manifest_sha256};
use super::git::{GitProof, is_commit};
use super::refusal::{Code, Refused};
use crate::accounts::Caller;
use crate::api::text::words;
use crate::blobs::{Blobs, Encoding};
use crate::store::{Row, Store, StoreError, Transition};

/// Rows that are looked at for one page at most.
const SCAN: u32 = 200;

/// A revision to be published.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// `namespace/name`.
    pub name: String,
    /// The full commit.
    pub revision: String,
    /// Its two files, by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// That they are the commit's.
    pub proof: GitProof,
    /// Who may read it.
    pub visibility: Visibility,
    /// Where it came from, for people.
    pub source_ref: String,
}

/// For whom something is published.
#[derive(Clone, Debug)]
pub struct Publisher {
    pub(crate) workspace: WorkspaceId,
    pub(crate) project: ProjectId,
    pub(crate) principal: PrincipalId,
}

impl From<&Caller> for Publisher {
    fn from(caller: &Caller) -> Self {
        Self {
            workspace: caller.workspace.clone(),
            project: caller.project.clone(),
            principal: caller.principal.clone(),
        }
    }
}

/// `namespace/name@commit`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RunnerRef {
    /// `namespace/name`.
    pub name: String,
    /// The full commit.
    pub revision: String,
}

impl RunnerRef {
    /// Reads a selector.
    ///
    /// # Errors
    /// `INVALID_RUNNER` for another form, `RUNNER_VERSION_AMBIGUOUS` for a revision that is no full
    /// commit.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let (name, revision) = text.split_once('@').ok_or_else(Self::malformed)?;
        if !name_is_good(name) || revision.is_empty() || revision.chars().any(char::is_whitespace) {
            return Err(Self::malformed());
        }
        if !is_commit(revision) {
            return Err(Refused::new(
                Code::RunnerAmbiguous,
                words!(
                    "Runner 的 revision 必须是 40 位十六进制的完整 commit；分支、标签和缩写的 commit 会变动",
                    "a runner's revision must be the full commit of 40 hexadecimal digits; branches, \
                     tags and shortened commits may move"
                ),
            )
            .at("spec.runner"));
        }
        Ok(Self { name: name.to_owned(), revision: revision.to_owned() })
    }

    /// The refusal of something that is no selector.
    pub(super) fn malformed() -> Refused {
        let why = words!(
            "Runner 的形式是 namespace/name@commit",
            "a runner is named as namespace/name@commit"
        );
        Refused::new(Code::InvalidRunner, why).at("spec.runner")
    }
}

impl std::fmt::Display for RunnerRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.name, self.revision)
    }
}

/// Whether a text is `namespace/name`.
pub(super) fn name_is_good(text: &str) -> bool {
    let part = |part: &str| {
        (1..=64).contains(&part.len())
            && part.as_bytes()[0].is_ascii_alphanumeric()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    text.split_once('/').is_some_and(|(namespace, name)| part(namespace) && part(name))
}

/// The refusal of what is no longer what was published.
pub(super) fn damaged(code: Code, path: &str, row: &Publication) -> Refused {
    let (name, revision) = (&row.name, &row.revision);
    let why = words!(
        "{name}@{revision} 保存的文件 {path} 已损坏",
        "of {name}@{revision} the stored file {path} is damaged"
    );
    Refused::new(code, why)
}

/// The registry of a server.
#[derive(Clone, Debug)]
pub struct Registry {
    pub(super) store: Arc<dyn Store>,
    pub(super) blobs: Blobs,
    pub(super) clock: Arc<dyn Clock>,
}

impl Registry {
    /// The registry in a store.
    pub fn new(store: Arc<dyn Store>, blobs: Blobs, clock: Arc<dyn Clock>) -> Self {
        Self { store, blobs, clock }
    }

    /// Publishes a revision. An identical repeat returns the first; other content is refused.
    ///
    /// # Errors
    /// `INVALID_RUNNER`, `RUNNER_HASH_MISMATCH`, `PERMISSION_DENIED` for another tenant's namespace.
    pub async fn publish(
        &self,
        publisher: &Publisher,
        new: NewRevision,
    ) -> Result<Publication, Refused> {
        if !name_is_good(&new.name) {
            return Err(Refused::new(
                Code::InvalidRunner,
                words!(
                    "Runner 的名称形式是 namespace/name，各由字母、数字、`.`、`_` 和 `-` 组成",
                    "a runner's name is namespace/name, each of letters, digits, `.`, `_` and `-`"
                ),
            )
            .at("name"));
        }
        let definition = Definition::read(&new.files)
            .map_err(|why| Refused::new(Code::InvalidRunner, why).at("files"))?;
        new.proof
            .verify(&new.revision, &new.files)
            .map_err(|error| Refused::new(Code::RunnerHashMismatch, error.words()).at("files"))?;
        let namespace = new.name.split('/').next().unwrap_or_default();
        self.namespace_is_free(namespace, &publisher.workspace).await?;
        let manifest = manifest_sha256(&new.name, &new.revision, &new.files);
        let mut files = Vec::new();
        for (path, content) in &new.files {
            let sha256 = self.keep(&publisher.project, content).await?;
            let size = content.len() as u64;
            files.push(SyncedFile { path: path.clone(), sha256: sha256.to_string(), size });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let row = Publication {
            kind: PublicationKind::Runner,
            name: new.name,
            revision: new.revision,
            workspace: publisher.workspace.clone(),
            project: publisher.project.clone(),
            principal: publisher.principal.clone(),
            visibility: new.visibility,
            manifest_sha256: manifest,
            source_ref: new.source_ref,
            document: serde_json::to_value(definition).map_err(Refused::internal)?,
            files,
            published_at: self.clock.now(),
        };
        self.insert(row).await
    }

    pub(super) async fn namespace_is_free(
        &self,
        name: &str,
        of: &WorkspaceId,
    ) -> Result<(), Refused> {
        match self.store.namespace_holder(name).await? {
            Some(holder) if holder.workspace != *of => Err(Refused::new(
                Code::PermissionDenied,
                words!(
                    "命名空间 {name} 属于另一个工作区",
                    "the namespace {name} belongs to another workspace"
                ),
            )
            .at("name")),
            _ => Ok(()),
        }
    }

    /// Stores a row, or returns the one that says the same.
    pub(super) async fn insert(&self, row: Publication) -> Result<Publication, Refused> {
        let rows = vec![Row::Publication(row.clone())];
        match self.store.commit(Transition { rows, events: Vec::new() }).await {
            Ok(()) => return Ok(row),
            Err(StoreError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Another tenant may have taken the namespace meanwhile.
        self.namespace_is_free(row.namespace(), &row.workspace).await?;
        let stored = self.store.publication(row.kind, &row.name, &row.revision).await?;
        let stored = stored.ok_or_else(|| Refused::internal("a publication vanished"))?;
        let same = stored.manifest_sha256 == row.manifest_sha256
            && stored.visibility == row.visibility
            && stored.project == row.project;
        if same {
            return Ok(stored);
        }
        let (name, revision) = (row.name, row.revision);
        Err(Refused::new(
            Code::VersionConflict,
            words!(
                "{name}@{revision} 已以不同的内容或可见性发布",
                "{name}@{revision} is published with other content or visibility"
            ),
        ))
    }

    /// Stores content as a blob of a project, once.
    pub(super) async fn keep(
        &self,
        project: &ProjectId,
        content: &[u8],
    ) -> Result<Digest, Refused> {
        let (sha256, size) = (Digest::of(content), content.len() as u64);
        if self.blobs.size(project, &sha256).await? == Some(size) {
            return Ok(sha256);
        }
        let mut writer = self.blobs.begin(project, sha256, size, Encoding::Identity).await?;
        writer.write(content.to_vec().into()).await?;
        writer.finish().await?;
        Ok(sha256)
    }

    /// A runner's revision that the caller may read.
    ///
    /// # Errors
    /// `RUNNER_NOT_FOUND`: nobody learns what others have published.
    pub async fn readable(
        &self,
        caller: &Caller,
        wanted: &RunnerRef,
    ) -> Result<Publication, Refused> {
        let missing = || {
            Refused::new(
                Code::RunnerNotFound,
                words!(
                    "没有 Runner {wanted}，或此 key 无权读取",
                    "there is no runner {wanted}, or it is not readable for this key"
                ),
            )
            .at("spec.runner")
        };
        if !caller.allows(Permission::RunnerRead) {
            return Err(missing());
        }
        let kind = PublicationKind::Runner;
        let found = self.store.publication(kind, &wanted.name, &wanted.revision).await?;
        found.filter(|row| row.readable_by(&caller.workspace, &caller.project)).ok_or_else(missing)
    }

    /// Readable publications of a kind, newest first, and the position to go on before, where there is more.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(
        &self,
        caller: &Caller,
        kind: PublicationKind,
        name: Option<&str>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<Publication>, Option<u64>), Refused> {
        let mut found = Vec::new();
        let mut before = before;
        loop {
            let rows = self.store.publications(kind, name, before, SCAN).await?;
            let whole = rows.len() < SCAN as usize;
            for (position, row) in rows {
                if !row.readable_by(&caller.workspace, &caller.project) {
                    before = Some(position);
                    continue;
                }
                if found.len() == limit {
                    return Ok((found, before));
                }
                before = Some(position);
                found.push(row);
            }
            if whole {
                return Ok((found, None));
            }
        }
    }

    /// The definition in a publication.
    ///
    /// # Errors
    /// A row that another version wrote.
    pub fn definition(row: &Publication) -> Result<Definition, Refused> {
        serde_json::from_value(row.document.clone()).map_err(Refused::internal)
    }

    /// The content of a publication's file.
    ///
    /// # Errors
    /// `RUNNER_HASH_MISMATCH` where it is not kept any more.
    pub async fn content(&self, row: &Publication, file: &SyncedFile) -> Result<Vec<u8>, Refused> {
        use tokio::io::AsyncReadExt as _;
        let sha256: Digest = file.sha256.parse().map_err(Refused::internal)?;
        let lost = || damaged(Code::RunnerHashMismatch, &file.path, row);
        let (mut opened, _) = self.blobs.read(&row.project, &sha256).await.map_err(|_| lost())?;
        let mut content = Vec::new();
        opened.read_to_end(&mut content).await.map_err(Refused::internal)?;
        if Digest::of(&content) == sha256 { Ok(content) } else { Err(lost()) }
    }

    /// Makes a publication's files readable for nodes of a project.
    ///
    /// # Errors
    /// `RUNNER_HASH_MISMATCH` where the stored files are no longer what was published.
    pub(super) async fn share(
        &self,
        row: &Publication,
        project: &ProjectId,
    ) -> Result<Vec<SyncedFile>, Refused> {
        for file in &row.files {
            let sha256: Digest = file.sha256.parse().map_err(Refused::internal)?;
            let shared = self.blobs.share(&row.project, project, &sha256, file.size).await?;
            if !shared {
                return Err(damaged(Code::RunnerHashMismatch, &file.path, row));
            }
        }
        Ok(row.files.clone())
    }
}
