//! The price service on its own: prices and nothing else, no right to launch anything.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;

use super::metrics::price_metrics;
use crate::refresh::Refresher;

/// The routes of a server that serves prices only: those of the contract, the richer ones,
/// `/healthz`, `/readyz` and `/metrics`. Nobody is an operator here: decisions are made with the
/// command line on the machine itself.
pub fn standalone(refresher: Arc<Refresher>) -> Router {
    let own = Router::new()
        .route("/healthz", get(|| async { Json(serde_json::json!({"status": "ok"})) }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&refresher));
    super::router_with(refresher).merge(own)
}

async fn ready(State(refresher): State<Arc<Refresher>>) -> Response {
    let empty = refresher.service().catalogue().is_empty();
    let (status, word) = match empty {
        true => (StatusCode::SERVICE_UNAVAILABLE, "no prices yet"),
        false => (StatusCode::OK, "ready"),
    };
    (status, Json(serde_json::json!({"status": word}))).into_response()
}

async fn metrics(State(refresher): State<Arc<Refresher>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, price_metrics(&refresher.status())).into_response()
}
