//! All routes of the server.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use runwhere_pricing::{Audience, Operator};
use serde_json::json;

use super::problem::Problem;
use super::state::{Api, ApiParts, bearer};
use super::text::Words;
use super::{admin, agent, billing, metrics, runwhere};

/// Routes of the whole server; `prices` are those of the price service, which need no token.
pub fn router(parts: ApiParts, prices: Router) -> Router {
    let api = Arc::new(Api::new(parts));
    let prices = prices.layer(from_fn_with_state(Arc::clone(&api), audience));
    Router::new()
        .merge(runwhere::routes())
        .merge(billing::routes())
        .merge(agent::routes())
        .merge(admin::routes())
        .merge(metrics::routes())
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .with_state(api)
        .merge(prices)
        .fallback(nothing)
        .method_not_allowed_fallback(|| async { StatusCode::METHOD_NOT_ALLOWED })
}

/// The process answers.
async fn health() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// The store answers, there is room for new jobs, and the server is not about to end.
async fn ready(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    let unready = |zh, en| Problem::new(StatusCode::SERVICE_UNAVAILABLE, Words::new(zh, en));
    if *api.parts.closing.borrow() {
        return Err(unready("服务器正在关闭", "the server is shutting down"));
    }
    if !api.parts.room.fits(0) {
        return Err(Problem::storage_full().unready());
    }
    match api.parts.store.next_due().await {
        Ok(_) => Ok(Json(json!({ "status": "ready" })).into_response()),
        Err(error) => {
            tracing::error!(%error, "the store does not answer");
            Err(unready("数据库不可用", "the store does not answer"))
        }
    }
}

/// Who has a token sees account prices, an operator decides about prices, which are everyone's; a token
/// that is none of ours changes nothing.
async fn audience(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    if let Some(token) = bearer(request.headers())
        && let Ok(caller) = api.accounts.authenticate(token).await
    {
        request.extensions_mut().insert(Audience::Member);
        if caller.is_operator() {
            request.extensions_mut().insert(Operator);
        }
    }
    next.run(request).await
}

async fn nothing(request: Request) -> Problem {
    let problem = Problem::new(
        StatusCode::NOT_FOUND,
        Words::new("地址不存在", "there is nothing at this address"),
    );
    let path = request.uri().path();
    if path.starts_with("/api/v1/jobs") || path.starts_with("/api/jobs") || path == "/api" {
        return problem.suggest(
            "RunWhere 接口在 /api/v1 下，endpoint 只填到主机名和端口",
            "the RunWhere API is below /api/v1; an endpoint ends after host and port",
        );
    }
    problem
}
