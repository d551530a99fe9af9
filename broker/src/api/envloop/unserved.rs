//! What this server does not serve: its documented code, never a broken reply.

use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};

use super::answer::Error;
use super::state::Signed;
use crate::api::text::words;
use crate::runners::Code;

/// Any other path below `/v1`.
pub(super) async fn path(signed: Signed, uri: Uri) -> Response {
    let _ = signed;
    let path: String = uri.path().chars().filter(|c| c.is_ascii_graphic()).take(100).collect();
    let code = match path.strip_prefix("/v1/").unwrap_or_default() {
        rest if rest.starts_with("agent-runs") => Code::RsiUnconfigured,
        rest if rest.starts_with("profiles") => Code::ProfileNotFound,
        rest if rest.starts_with("inference") || rest.starts_with("endpoints") => {
            Code::ServingUnavailable
        }
        _ => Code::NotFound,
    };
    Error::new(code, words!("这里不提供 {path}", "{path} is not served here")).into_response()
}

/// A path of ours with another method.
pub(super) async fn method(method: Method) -> Response {
    let why = words!("该地址不支持 {method}", "{method} is not served here");
    Error::new(Code::MethodNotAllowed, why).into_response()
}

/// The base `/api` makes the client call paths that are another product's.
pub(super) async fn base() -> Response {
    let why = words!(
        "接口在 /v1 下；服务地址只填到主机，不带 /api",
        "the API is below /v1; set the base URL to this host without /api"
    );
    Error::new(Code::NotFound, why).into_response()
}
