//! Errors on the wire: `{"code": word, "message": text, "field": text}`, in the caller's language.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use runwhere_model::Lang;
use serde_json::json;

use crate::accounts::AccountError;
use crate::api::text::{Words, language_of, words};
use crate::blobs::BlobError;
use crate::logs::LogError;
use crate::runners::{Code, Refused};
use crate::store::StoreError;

/// The client loses the code of larger bodies.
const MESSAGE_CHARACTERS: usize = 1500;

/// A refusal on its way out. As a response it is empty; [`worded`] gives it words, for only there
/// is the language known.
#[derive(Debug)]
pub(super) struct Error(pub(super) Refused);

impl Error {
    pub(super) fn new(code: Code, message: Words) -> Self {
        Self(Refused::new(code, message))
    }

    pub(super) fn at(self, field: &str) -> Self {
        Self(self.0.at(field))
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status_of(self.0.code);
        response.extensions_mut().insert(self.0);
        response
    }
}

fn status_of(code: Code) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::BAD_REQUEST)
}

/// Gives words to what is refused, in the language of the request.
pub(super) async fn worded(request: Request, next: Next) -> Response {
    let lang = language_of(request.headers());
    let mut response = next.run(request).await;
    if let Some(refused) = response.extensions_mut().remove::<Refused>() {
        return said(refused, lang);
    }
    // What the framework cannot read of an address or its parameters.
    if response.status() == StatusCode::BAD_REQUEST && !is_json(&response) {
        let why =
            words!("请求的地址或参数无法读取", "the address or its parameters cannot be read");
        return said(Refused::new(Code::BadRequest, why), lang);
    }
    response
}

fn is_json(response: &Response) -> bool {
    response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

fn said(refused: Refused, lang: Lang) -> Response {
    let Refused { code, message, field, retry_after } = refused;
    let message: String = message.say(lang).chars().take(MESSAGE_CHARACTERS).collect();
    let body = json!({ "code": code.as_str(), "message": message, "field": field });
    let mut response = (status_of(code), Json(body)).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self(refused)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self(error.into())
    }
}

impl From<BlobError> for Error {
    fn from(error: BlobError) -> Self {
        Self(error.into())
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Damaged(_) => {
                let why = words!("cursor 不属于此日志", "the cursor is not one of this log");
                Self::new(Code::LogCursorInvalid, why)
            }
            other => {
                tracing::error!(error = %other, "A log could not be read");
                let why = words!("暂时无法读取日志", "the log cannot be read now");
                Self::new(Code::LogStorage, why)
            }
        }
    }
}

impl From<AccountError> for Error {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::Unauthorized => Self::new(
                Code::Unauthenticated,
                words!(
                    "API key 缺失、未知、已过期或已撤销",
                    "the API key is missing, unknown, expired or revoked"
                ),
            ),
            other => Self(Refused::internal(other)),
        }
    }
}

pub(super) type Answer = Result<Response, Error>;

/// A JSON reply.
pub(super) fn ok(body: serde_json::Value) -> Answer {
    Ok(Json(body).into_response())
}
