//! Who a key is: `/v1/me`, workspaces, projects, limits.

use std::sync::Arc;

use axum::extract::{Path, State};
use runwhere_engine::{Permission, TrialState};
use serde_json::{Value, json};

use super::answer::{Answer, Error, ok};
use super::state::{El, Signed, other_project, other_workspace};
use crate::accounts::Caller;
use crate::api::text::words;
use crate::runners::Code;
use crate::store::JobQuery;

async fn identity(el: &El, caller: &Caller) -> Result<[Value; 2], Error> {
    let workspace = el.parts.store.workspace(&caller.workspace).await?;
    let project = el.parts.store.project(&caller.project).await?;
    let workspace_name = workspace.map(|row| row.name);
    let project_name = project.map(|row| row.name);
    Ok([
        json!({ "workspace_id": caller.workspace.as_str(), "name": workspace_name }),
        json!({
            "project_id": caller.project.as_str(),
            "workspace_id": caller.workspace.as_str(),
            "name": project_name,
        }),
    ])
}

pub(super) async fn me(State(el): State<Arc<El>>, signed: Signed) -> Answer {
    let caller = signed.0;
    let [workspace, project] = identity(&el, &caller).await?;
    ok(json!({
        "auth_method": "api_key",
        "key_id": caller.key.as_str(),
        "principal_id": caller.principal.as_str(),
        "workspace": workspace,
        "project": project,
        "permissions": caller.permissions,
    }))
}

pub(super) async fn workspaces(State(el): State<Arc<El>>, signed: Signed) -> Answer {
    let [workspace, _] = identity(&el, &signed.0).await?;
    ok(json!({ "items": [workspace], "next_cursor": null }))
}

pub(super) async fn projects(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path(workspace): Path<String>,
) -> Answer {
    if workspace != signed.0.workspace.as_str() {
        return Err(other_workspace());
    }
    let [_, project] = identity(&el, &signed.0).await?;
    ok(json!({ "items": [project], "next_cursor": null }))
}

fn own(caller: &Caller, workspace: &str, project: &str) -> Result<(), Error> {
    if workspace != caller.workspace.as_str() {
        return Err(other_workspace());
    }
    if project != caller.project.as_str() {
        return Err(other_project());
    }
    Ok(())
}

pub(super) async fn limits(
    State(el): State<Arc<El>>,
    signed: Signed,
    Path((workspace, project)): Path<(String, String)>,
) -> Answer {
    let caller =
        signed.any(&[Permission::BillingRead, Permission::JobRead, Permission::TrainingRun])?;
    own(&caller, &workspace, &project)?;
    let row = el.parts.store.project(&caller.project).await?;
    let budget = el.parts.store.budget(&caller.project).await?;
    let query = JobQuery {
        states: TrialState::ALL.into_iter().filter(|state| !state.is_terminal()).collect(),
        limit: Some(10_000),
        ..JobQuery::default()
    };
    let views = el.parts.store.jobs(&caller.project, &query).await?;
    let mut gpus = 0_u32;
    for view in &views {
        for (trial, _) in view.trials.iter().filter(|(trial, _)| !trial.state.is_terminal()) {
            let (numerator, denominator) = view.job.terms(trial.index).gpu_count.parts();
            gpus = gpus.saturating_add(numerator.div_ceil(denominator));
        }
    }
    let quota = row.map(|row| row.quota).unwrap_or_default();
    ok(json!({
        "workspace_id": workspace,
        "project_id": project,
        "gpus": { "in_use": gpus, "limit": quota.hard_limit, "confirm_above": quota.confirm_above },
        "budget": budget.map(|budget| json!({
            "currency": budget.currency.code(),
            "limit": budget.limit.map(|limit| limit.normalize().to_string()),
            "committed": budget.committed().normalize().to_string(),
        })),
        "trials_per_job": 16,
        "command_bytes": 65_536,
    }))
}

/// What only a person in a browser may do.
pub(super) async fn human(signed: Signed) -> Answer {
    let _ = signed;
    Err(Error::new(
        Code::HumanSessionRequired,
        words!(
            "这需要由人登录后操作，API key 不能完成",
            "this needs a person's session; an API key cannot do it"
        ),
    ))
}
