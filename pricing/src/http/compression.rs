//! Smaller answers for callers who understand them.

use std::convert::Infallible;
use std::future::ready;

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::Response;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;

/// Around routes whose answers are mostly large.
pub(super) fn compression() -> CompressionLayer<SizeAbove> {
    // Lists shrink tenfold; what fits a packet is not worth it.
    let large = SizeAbove::new(1400);
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(large)
}

/// One answer in an encoding that its caller accepts.
pub(super) async fn compressed(encodings: HeaderValue, reply: Response) -> Response {
    let mut request = Request::new(Body::empty());
    request.headers_mut().insert(header::ACCEPT_ENCODING, encodings);
    let mut reply = Some(reply);
    let answered =
        service_fn(move |_| ready(Ok::<_, Infallible>(reply.take().unwrap_or_default())));
    let Ok(reply) = compression().layer(answered).oneshot(request).await;
    reply.map(Body::new)
}
