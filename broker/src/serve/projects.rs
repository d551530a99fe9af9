//! Projects of the settings file.

use std::path::Path;

use runwhere_engine::{Budget, Project};
use runwhere_model::{ProjectId, WorkspaceId};

use super::config::{ConfigError, ProjectSettings, ServerConfig};
use super::running::ServeError;
use crate::accounts::Accounts;
use crate::store::{Row, Store, Transition};

/// Makes the configured projects that are new and brings quotas and budgets into the store. A
/// project that is no longer configured stays as it is.
pub(super) async fn apply_projects(
    accounts: &Accounts,
    store: &dyn Store,
    config: &ServerConfig,
    path: &Path,
) -> Result<(), ServeError> {
    for (id, settings) in &config.projects {
        let refused = |field: &str, message: &str| {
            ServeError::Config(ConfigError::Field {
                path: path.to_owned(),
                field: format!("projects.{id}{field}"),
                message: message.to_owned(),
            })
        };
        let project_id =
            ProjectId::new(id.clone()).map_err(|error| refused("", &error.to_string()))?;
        let workspace = settings.workspace.clone().map(WorkspaceId::new).transpose();
        let workspace = workspace.map_err(|error| refused(".workspace", &error.to_string()))?;
        let project = match store.project(&project_id).await? {
            Some(project) if workspace.as_ref().is_none_or(|id| *id == project.workspace) => {
                project
            }
            Some(project) => {
                let held = project.workspace;
                return Err(refused(
                    ".workspace",
                    &format!("the project belongs to {held} and cannot be moved"),
                ));
            }
            None => accounts.make_project(project_id, workspace).await?,
        };
        adjust(store, settings, path, project).await?;
    }
    Ok(())
}

async fn adjust(
    store: &dyn Store,
    settings: &ProjectSettings,
    path: &Path,
    project: Project,
) -> Result<(), ServeError> {
    let mut rows = Vec::new();
    let wanted = Project {
        quota: settings.quota(),
        consents_no_deadman: settings.consent_no_deadman,
        ..project.clone()
    };
    if wanted != project {
        rows.push(Row::Project(wanted));
    }
    if let Some(limit) = settings.budget(path, project.id.as_str())? {
        let held = store.budget(&project.id).await?;
        let mut budget = match held {
            Some(budget) if budget.currency == limit.currency => budget,
            Some(_) => {
                return Err(ServeError::Config(ConfigError::Field {
                    path: path.to_owned(),
                    field: format!("projects.{}.budget", project.id),
                    message: "the currency cannot be changed once money is counted in another"
                        .to_owned(),
                }));
            }
            None => Budget::unlimited(project.workspace, project.id, limit.currency),
        };
        if budget.limit != Some(limit.amount) {
            budget.limit = Some(limit.amount);
            rows.push(Row::Budget(budget));
        }
    }
    if !rows.is_empty() {
        store.commit(Transition { rows, events: Vec::new() }).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use runwhere_engine::Permission;
    use runwhere_providers::SystemClock;

    use super::*;
    use crate::accounts::NewKey;
    use crate::ports::SystemIds;
    use crate::store::MemoryStore;

    async fn applied(store: &Arc<dyn Store>, text: &str) -> Result<Accounts, String> {
        let clock = Arc::new(SystemClock);
        let accounts = Accounts::new(Arc::clone(store), clock, Arc::new(SystemIds));
        accounts.first_start(|_| Ok(())).await.unwrap();
        let config: ServerConfig = toml::from_str(text).unwrap();
        let path = Path::new("config.toml");
        let done = apply_projects(&accounts, store.as_ref(), &config, path).await;
        done.map(|()| accounts).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn configured_projects_are_made_once_each_in_its_workspace() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let text = "[projects.default]\nmax_gpus = 8\n[projects.nightly]\n\
                    [projects.other]\nworkspace = \"acme\"\n[projects.second]\nworkspace = \"acme\"\n";
        applied(&store, text).await.unwrap();
        let accounts = applied(&store, text).await.unwrap();
        let mut owners = Vec::new();
        for (id, workspace) in
            [("default", "default"), ("nightly", "default"), ("other", "acme"), ("second", "acme")]
        {
            let id = ProjectId::new(id).unwrap();
            assert_eq!(store.project(&id).await.unwrap().unwrap().workspace.as_str(), workspace);
            let new = NewKey {
                name: "ci".to_owned(),
                permissions: vec![Permission::Admin],
                expires_in: None,
            };
            let (_, token) = accounts.create(new, Some(&id)).await.unwrap();
            let caller = accounts.authenticate(token.expose()).await.unwrap();
            assert_eq!((caller.project, caller.workspace.as_str()), (id, workspace));
            let owner = store.principal(&caller.principal).await.unwrap().unwrap();
            assert_eq!(owner.workspace.as_str(), workspace);
            owners.push(owner.id);
        }
        assert_eq!(owners[0], owners[1]);
        assert_ne!(owners[0], owners[2]);
        assert_eq!(owners[2], owners[3]);
    }

    #[tokio::test]
    async fn a_project_is_never_moved_to_another_tenant() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        applied(&store, "[projects.other]\nworkspace = \"acme\"\n").await.unwrap();
        applied(&store, "[projects.other]\n").await.unwrap();
        let moved = "[projects.other]\nworkspace = \"default\"\n";
        let refused = applied(&store, moved).await.unwrap_err();
        assert!(
            refused.contains("projects.other.workspace") && refused.contains("acme"),
            "{refused}"
        );
        let refused = applied(&store, "[projects.\"../x\"]\n").await.unwrap_err();
        assert!(refused.contains("../x"), "{refused}");
    }
}
