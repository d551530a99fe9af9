//! Uploads to signed URLs.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use futures_util::StreamExt;

use super::routes::SyncParts;
use super::ticket::TicketError;
use crate::blobs::{BlobError, Encoding};

/// The route that takes uploads; it needs no token, the URL is the permission.
pub fn upload_router(parts: SyncParts) -> Router {
    Router::new()
        .route("/api/v1/uploads/{ticket}", put(upload))
        .layer(DefaultBodyLimit::disable())
        .with_state(parts)
}

/// An upload that is refused, in the form object stores answer in: the published client shows
/// code and message.
#[derive(Debug)]
struct UploadError {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
}

impl IntoResponse for UploadError {
    fn into_response(self) -> Response {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>",
            self.code, self.message
        );
        (self.status, [(header::CONTENT_TYPE, "application/xml")], body).into_response()
    }
}

fn refused(status: StatusCode, code: &'static str, message: &'static str) -> UploadError {
    UploadError { status, code, message }
}

impl From<BlobError> for UploadError {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::TooLong(_) => refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                "EntityTooLarge",
                "longer than the manifest says",
            ),
            BlobError::TooShort { .. } => {
                refused(StatusCode::BAD_REQUEST, "IncompleteBody", "shorter than the manifest says")
            }
            BlobError::Mismatch => refused(
                StatusCode::BAD_REQUEST,
                "BadDigest",
                "the content is not what the manifest says; it may have changed while it was read: sync again",
            ),
            BlobError::Gzip => {
                refused(StatusCode::BAD_REQUEST, "InvalidEncoding", "the body is not valid gzip")
            }
            BlobError::Full => refused(
                StatusCode::INSUFFICIENT_STORAGE,
                "storage_full",
                "no space left on the server's disk",
            ),
            BlobError::Missing | BlobError::Io(_) => {
                tracing::error!(%error, "Upload failed");
                refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "a fault of the server")
            }
        }
    }
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, UploadError> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity" | b"") => Ok(Encoding::Identity),
        Some(b"gzip") => Ok(Encoding::Gzip),
        Some(_) => Err(refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "InvalidEncoding",
            "Content-Encoding must be gzip or identity",
        )),
    }
}

async fn upload(
    State(parts): State<SyncParts>,
    Path(ticket): Path<String>,
    request: Request,
) -> Result<Response, UploadError> {
    let ticket = parts.tickets.check(&ticket, parts.clock.now()).map_err(|error| match error {
        TicketError::Invalid => {
            refused(StatusCode::FORBIDDEN, "SignatureDoesNotMatch", "the upload URL is not valid")
        }
        TicketError::Expired => {
            refused(StatusCode::FORBIDDEN, "AccessDenied", "the upload URL has expired; sync again")
        }
    })?;
    let encoding = encoding(request.headers())?;
    let mut writer =
        parts.blobs.begin(&ticket.project, ticket.sha256, ticket.size, encoding).await?;
    let mut pieces = request.into_body().into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| {
            refused(StatusCode::BAD_REQUEST, "IncompleteBody", "the body broke off")
        })?;
        writer.write(piece).await?;
    }
    writer.finish().await?;
    Ok((StatusCode::OK, axum::Json(serde_json::json!({ "sha256": ticket.sha256.to_string() })))
        .into_response())
}
