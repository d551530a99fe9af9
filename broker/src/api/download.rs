//! Stored bytes as an answer.

use axum::body::Body;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use runwhere_agent::protocol::Digest;
use tokio::io::AsyncReadExt as _;

const READ_PIECE: usize = 256 << 10;

/// An answer of `size` bytes to be saved, never shown by a browser as a page of this server.
pub(crate) fn attachment(body: Body, size: u64) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    response
}

/// An open blob, streamed; its tag is its digest.
pub(crate) fn blob((file, size): (tokio::fs::File, u64), sha256: &Digest) -> Response {
    let pieces = stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; READ_PIECE];
        let read = file.read(&mut piece).await?;
        piece.truncate(read);
        Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
    });
    let mut response = attachment(Body::from_stream(pieces), size);
    let tag = HeaderValue::from_str(&format!("\"{sha256}\""));
    response.headers_mut().extend(tag.ok().map(|tag| (ETAG, tag)));
    response
}
