//! What an answered request had still to say.
//!
//! A connection that is closed while its client still sends is reset, and the reset can overtake
//! the answer: the client then reports a broken network instead of the refusal. So the rest of a
//! body is taken in before the answer is sent, within bounds.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use axum::http::header::EXPECT;
use futures_util::StreamExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

/// Whoever sends more than this after a refusal is cut off.
const MOST: u64 = 64 << 20;
/// Pause after which nothing more is waited for.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for the whole rest.
const TIME: Duration = Duration::from_secs(10);

/// The same request, and what will be left of its body.
pub(super) fn watched(request: Request<Body>) -> (Request<Body>, Leftover) {
    let (sender, receiver) = oneshot::channel();
    // Who asks first sends nothing before it is told to; reading would tell it to.
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return (request, Leftover(receiver));
    }
    let request = request.map(|body| Body::new(Watched { body, back: Some(sender) }));
    (request, Leftover(receiver))
}

/// A body that comes back when it is dropped before its end.
struct Watched {
    body: Body,
    back: Option<oneshot::Sender<Body>>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.back = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(back) = self.back.take()
            && !self.body.is_end_stream()
        {
            // The request may be gone already.
            let _ = back.send(std::mem::take(&mut self.body));
        }
    }
}

/// The rest of a body, once the body was dropped.
pub(super) struct Leftover(oneshot::Receiver<Body>);

impl Leftover {
    /// Takes in what is left, within bounds, and forgets it.
    pub(super) async fn take_in(&mut self) {
        let Ok(body) = self.0.try_recv() else { return };
        let mut stream = body.into_data_stream();
        let all = async {
            let mut taken: u64 = 0;
            while let Ok(Some(Ok(chunk))) = tokio::time::timeout(PAUSE, stream.next()).await {
                taken += chunk.len() as u64;
                if taken > MOST {
                    break;
                }
            }
        };
        // Late senders are cut off.
        let _ = tokio::time::timeout(TIME, all).await;
    }
}
