//! What every request goes through, whatever its route.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::leftover::watched;
use crate::api::problem::Problem;
use crate::api::text::{Words, language_of};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Reads prices, though it is a POST.
const QUOTE: &str = "/api/v1/comparison/quote";
/// A reply must have begun by then, except where bodies stream.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Routes with everything around them.
#[derive(Clone, Debug)]
pub struct App {
    router: Router,
    closing: watch::Receiver<bool>,
}

impl App {
    /// Wraps routes. Once `closing` is true, calls that only wait are answered at once.
    pub fn new(router: Router, closing: watch::Receiver<bool>) -> Self {
        Self { router, closing }
    }

    /// Answers one request.
    pub async fn call(&self, mut request: Request<Body>) -> Result<Response, Infallible> {
        let begun = Instant::now();
        fold_slashes(&mut request);
        let lang = language_of(request.headers());
        let id = request_id(&request);
        let method = request.method().clone();
        let path = loggable(request.uri().path());
        let (request, mut left) = watched(request);
        let answer = AssertUnwindSafe(self.route(request)).catch_unwind().await;
        left.take_in().await;
        let response = answer.unwrap_or_else(|_| {
            // The panic itself was reported by its hook.
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        });
        let mut response = Problem::finish(response, lang);
        let status = response.status();
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, id.clone());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(nothing);
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        let id = id.to_str().unwrap_or_default();
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Waiting clients read many times a second.
        let read = (method == Method::GET || path == QUOTE) && status.is_success();
        if read || path.starts_with("/agent/") || path.ends_with("z") {
            tracing::debug!(%method, %path, status = status.as_u16(), millis, id, "request");
        } else {
            tracing::info!(%method, %path, status = status.as_u16(), millis, id, "request");
        }
        Ok(response)
    }

    async fn route(&self, request: Request<Body>) -> Response {
        let path = request.uri().path();
        let waits = path == "/agent/v1/poll";
        let streams = ["/agent/v1/outputs", "/agent/v1/blobs/", "/api/v1/uploads/"]
            .iter()
            .any(|prefix| path.starts_with(prefix));
        let answer = self.router.clone().oneshot(request).map(|answer| match answer {
            Ok(response) => response,
            Err(never) => match never {},
        });
        if streams {
            // Their bodies are watched piece by piece instead.
            return answer.await;
        }
        let mut closing = self.closing.clone();
        tokio::select! {
            biased;
            response = answer => response,
            () = tokio::time::sleep(TIME_LIMIT) => StatusCode::REQUEST_TIMEOUT.into_response(),
            _ = closing.wait_for(|closing| *closing), if waits => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Words::new("服务器正在关闭", "the server is shutting down"),
            )
            .into_response(),
        }
    }
}

/// An endpoint stored with a trailing slash makes paths begin with two.
fn fold_slashes(request: &mut Request<Body>) {
    let Some(whole) = request.uri().path_and_query().map(PathAndQuery::as_str) else { return };
    let rest = whole.trim_start_matches('/');
    if whole.len() - rest.len() < 2 {
        return;
    }
    let Ok(folded) = format!("/{rest}").parse::<PathAndQuery>() else { return };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(folded);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// The caller's own id where it is harmless, else a new one.
fn request_id(request: &Request<Body>) -> HeaderValue {
    let given = request.headers().get(REQUEST_ID).filter(|id| {
        let id = id.as_bytes();
        (1..=64).contains(&id.len())
            && id.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    });
    given.cloned().unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().simple().to_string();
        HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("-"))
    })
}

/// A path without what it may hold of secrets (upload addresses are tokens) and control codes.
fn loggable(path: &str) -> String {
    let shown = match path.strip_prefix("/api/v1/uploads/") {
        Some(_) => "/api/v1/uploads/…",
        None => path,
    };
    shown.chars().filter(|c| !c.is_control()).take(200).collect()
}
