//! The authenticated caller.

use runwhere_engine::Permission;
use runwhere_model::{KeyId, PrincipalId, ProjectId, WorkspaceId};

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
}

impl Caller {
    /// Whether the key allows something.
    pub fn allows(&self, permission: Permission) -> bool {
        self.permissions.iter().any(|p| *p == permission || *p == Permission::Admin)
    }
}
