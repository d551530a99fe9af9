//! All routes below `/v1`.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{any, delete, get, post};

use super::state::{El, EnvloopParts};
use super::{
    account, answer, artifacts, billing, checkpoints, content, jobs, login, logs, runners, trials,
    unserved,
};

/// EnvLoop's routes.
pub fn router(parts: EnvloopParts) -> Router {
    let el = Arc::new(El::new(parts));
    let mut routes = Router::new();
    // The documents say `jobs`, the published client says `job`.
    for base in ["/v1/job", "/v1/jobs"] {
        let at = |rest: &str| format!("{base}{rest}");
        routes = routes
            .route(base, post(jobs::submit).get(jobs::list))
            .route(&at("/checkpoints"), get(checkpoints::list))
            .route(&at("/checkpoints/download"), get(checkpoints::download))
            .route(&at("/checkpoints/{id}"), delete(checkpoints::delete))
            .route(&at("/{id}"), get(jobs::get))
            .route(&at("/{id}/result"), get(jobs::result))
            .route(&at("/{id}/events"), get(jobs::events))
            .route(&at("/{id}/logs"), get(logs::read))
            .route(&at("/{id}/stop"), post(jobs::stop))
            .route(&at("/{id}/pause"), post(jobs::unsupported))
            .route(&at("/{id}/resume"), post(jobs::unsupported))
            .route(&at("/{id}/wake"), post(jobs::unsupported));
    }
    routes
        .route("/v1/trials", get(trials::list))
        .route("/v1/trials/{id}", get(trials::get))
        .route("/v1/trials/{id}/detail", get(trials::result))
        .route("/v1/trials/{id}/result", get(trials::result))
        .route("/v1/trials/{id}/snapshot", get(trials::snapshot))
        .route("/v1/trials/{id}/training", get(trials::nothing_measured))
        .route("/v1/trials/{id}/metrics", get(trials::nothing_measured))
        .route("/v1/trials/{id}/checkpoints", get(trials::checkpoints))
        .route("/v1/trials/{id}/stop", post(trials::stop))
        .route("/v1/trials/{id}/artifacts", get(artifacts::list))
        .route("/v1/trials/{id}/artifacts/{artifact}/content", get(artifacts::content))
        .route("/v1/checkpoint-files/{ticket}", get(checkpoints::file))
        .route("/v1/runners", get(runners::list))
        .route("/v1/runners/{namespace}/{name}", get(runners::get))
        .route(
            "/v1/runners/{namespace}/{name}/revisions",
            get(runners::revisions).post(runners::publish),
        )
        .route("/v1/runners/{namespace}/{name}/revisions/{revision}", get(runners::revision))
        .route("/v1/content/files/{sha256}", get(content::file).put(content::upload))
        .route("/v1/content/{kind}", get(content::list))
        .route("/v1/content/{kind}/{namespace}/{name}", get(content::get))
        .route(
            "/v1/content/{kind}/{namespace}/{name}/versions",
            get(content::versions).post(content::publish),
        )
        .route("/v1/content/{kind}/{namespace}/{name}/versions/{revision}", get(content::version))
        .route(
            "/v1/content/plugins/{namespace}/{name}/versions/{revision}/approval",
            post(content::approve).delete(content::withdraw),
        )
        .route("/v1/me", get(account::me))
        .route("/v1/workspaces", get(account::workspaces))
        .route("/v1/workspaces/{workspace}/projects", get(account::projects))
        .route("/v1/workspaces/{workspace}/projects/{project}/limits", get(account::limits))
        .route("/v1/workspaces/{workspace}/projects/{project}", any(account::human))
        .route("/v1/workspaces/{workspace}/projects/{project}/{*rest}", any(account::human))
        .route("/v1/projects/{project}/operations/{id}", get(checkpoints::operation_of))
        .route("/v1/billing/account", get(billing::account))
        .route("/v1/billing/usage", get(billing::usage))
        .route("/v1/billing/ledger", get(billing::ledger))
        .route("/v1/billing/prices", get(billing::prices))
        .route("/v1/auth/cli/start", post(login::start))
        .route("/v1/auth/cli/poll", post(login::poll))
        .route("/v1/auth/cli/cancel", post(login::cancel))
        .route("/sign-in", get(login::show).post(login::approve))
        .route("/api/v1/job", any(unserved::base))
        .route("/api/v1/job/{*rest}", any(unserved::base))
        .route("/v1/{*rest}", any(unserved::path))
        .method_not_allowed_fallback(unserved::method)
        .layer(from_fn(answer::worded))
        .with_state(el)
}
