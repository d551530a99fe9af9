//! What was published for others to run: runner revisions, recipes, datasets, plugins.

use jiff::Timestamp;
use runwhere_model::{PrincipalId, ProjectId, WorkspaceId};
use serde::{Deserialize, Serialize};

use crate::job::SyncedFile;

/// What kind of thing.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublicationKind {
    /// A runner's revision.
    Runner,
    /// A recipe of profiles.
    Recipe,
    /// A dataset of profiles.
    Dataset,
    /// A plugin of profiles.
    Plugin,
}

impl PublicationKind {
    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::Recipe => "recipe",
            Self::Dataset => "dataset",
            Self::Plugin => "plugin",
        }
    }
}

/// Who may read it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Everybody with a key of this server.
    Public,
    /// The tenant's projects.
    Workspace,
    /// The publishing project alone.
    Project,
}

impl Visibility {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Workspace => "workspace",
            Self::Project => "project",
        }
    }
}

/// One immutable published revision.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Publication {
    /// What it is.
    pub kind: PublicationKind,
    /// `namespace/name`.
    pub name: String,
    /// A runner's full Git commit; the version of anything else.
    pub revision: String,
    /// Tenant that published it.
    pub workspace: WorkspaceId,
    /// Project that published it; its files are this project's blobs.
    pub project: ProjectId,
    /// Who published it.
    pub principal: PrincipalId,
    /// Who may read it.
    pub visibility: Visibility,
    /// SHA-256 of its manifest, lower-case hexadecimal.
    pub manifest_sha256: String,
    /// Where it came from, for people.
    pub source_ref: String,
    /// Its declaration, as the reader of its kind made it.
    pub document: serde_json::Value,
    /// Its files.
    pub files: Vec<SyncedFile>,
    /// When it was published.
    pub published_at: Timestamp,
}

impl Publication {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.name.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Whether a project of a tenant may read it.
    pub fn readable_by(&self, workspace: &WorkspaceId, project: &ProjectId) -> bool {
        match self.visibility {
            Visibility::Public => true,
            Visibility::Workspace => self.workspace == *workspace,
            Visibility::Project => self.project == *project,
        }
    }
}
