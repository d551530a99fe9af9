//! Tenants, who acts for them, and what they may do.

use std::collections::BTreeSet;

use jiff::Timestamp;
use runwhere_model::{KeyId, PrincipalId, ProjectId, WorkspaceId};
use serde::{Deserialize, Serialize};

/// A tenant; RunWhere's organisation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Its display name.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How many GPUs a project may use at once.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Quota {
    /// Above this a submit needs the user's confirmation.
    pub confirm_above: Option<u32>,
    /// Above this a submit is refused.
    pub hard_limit: Option<u32>,
    /// What an overage costs, free text shown with the question.
    pub overage_unit_price: Option<String>,
}

/// A part of a workspace; every row carries it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// Row version.
    pub version: u64,
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its display name.
    pub name: String,
    /// Its GPU quota.
    pub quota: Quota,
    /// Launches on providers whose nodes nothing ends without us are allowed.
    pub consents_no_deadman: bool,
    /// Plugins that profiles of its jobs may bind, as `namespace/name@<manifest sha256>`.
    #[serde(default)]
    pub approved_plugins: BTreeSet<String>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A person or program that acts.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Principal {
    /// Its id.
    pub id: PrincipalId,
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its display name.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What a key allows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub enum Permission {
    /// Submit and resume.
    #[serde(rename = "training.run")]
    TrainingRun,
    /// Stop and delete.
    #[serde(rename = "training.stop")]
    TrainingStop,
    /// Read runners.
    #[serde(rename = "runner.read")]
    RunnerRead,
    /// Read jobs and logs.
    #[serde(rename = "job.read")]
    JobRead,
    /// Read money.
    #[serde(rename = "billing.read")]
    BillingRead,
    /// Read the numbers for monitoring.
    #[serde(rename = "metrics.read")]
    MetricsRead,
    /// Everything.
    #[serde(rename = "admin")]
    Admin,
}

/// Which client a key is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// A RunWhere token.
    Runwhere,
    /// An EnvLoop key.
    Envloop,
}

/// A credential; only the hash of its secret is kept.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its public name.
    pub id: KeyId,
    /// Row version.
    pub version: u64,
    /// Which client it is for.
    pub kind: KeyKind,
    /// What people call it.
    pub name: String,
    /// SHA-256 of the secret, lower-case hexadecimal.
    pub secret_sha256: String,
    /// Who acts with it.
    pub principal: PrincipalId,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// The project it acts in.
    pub project: ProjectId,
    /// What it allows.
    pub permissions: Vec<Permission>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends to be valid.
    pub expires_at: Option<Timestamp>,
    /// Since when it is revoked.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Whether it may be used at an instant.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// Whether it allows something.
    pub fn allows(&self, permission: Permission) -> bool {
        self.permissions.iter().any(|p| *p == permission || *p == Permission::Admin)
    }
}
