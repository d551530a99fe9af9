//! The authenticated caller.

use runwhere_engine::Permission;
use runwhere_model::{KeyId, PrincipalId, ProjectId, WorkspaceId};

use super::service::DEFAULT_ID;

/// Who a request acts for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// Tenant.
    pub workspace: WorkspaceId,
    /// The project of the key.
    pub project: ProjectId,
    /// Who.
    pub principal: PrincipalId,
    /// The key used.
    pub key: KeyId,
    /// What the key allows.
    pub permissions: Vec<Permission>,
    /// The version of the store in which the key was good.
    pub seen_in: Option<u64>,
}

impl Caller {
    /// Whether this is an admin of the installation: one of its first project, which no tenant
    /// shares.
    pub fn is_operator(&self) -> bool {
        self.allows(Permission::Admin)
            && self.workspace.as_str() == DEFAULT_ID
            && self.project.as_str() == DEFAULT_ID
    }

    /// Whether the key allows something.
    pub fn allows(&self, permission: Permission) -> bool {
        self.permissions.iter().any(|p| *p == permission || *p == Permission::Admin)
    }
}
