//! Errors on the wire.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::accounts::AccountError;
use crate::blobs::BlobError;
use crate::logs::LogError;
use crate::runners::{Code, Refused};
use crate::store::StoreError;

/// The client loses the code of larger bodies.
const MESSAGE_CHARACTERS: usize = 1500;

/// A refusal as a response.
#[derive(Debug)]
pub(super) struct Error(pub(super) Refused);

impl Error {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Refused::new(code, message))
    }

    pub(super) fn at(self, field: &str) -> Self {
        Self(self.0.at(field))
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Refused { code, message, field, retry_after } = self.0;
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let message: String = message.chars().take(MESSAGE_CHARACTERS).collect();
        let body = json!({ "code": code.as_str(), "message": message, "field": field });
        let mut response = (status, Json(body)).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
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
                Self::new(Code::LogCursorInvalid, "the cursor is not one of this log")
            }
            other => {
                tracing::error!(error = %other, "A log could not be read");
                Self::new(Code::LogStorage, "the log cannot be read now")
            }
        }
    }
}

impl From<AccountError> for Error {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::Unauthorized => Self::new(
                Code::Unauthenticated,
                "the API key is missing, unknown, expired or revoked",
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
