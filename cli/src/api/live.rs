//! The WebSocket of live events.

use futures_util::{SinkExt, StreamExt};
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use serde_json::Value;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::transport::reason;
use super::{ApiError, Client, ServerError, View};

const HANDSHAKE: Duration = Duration::from_secs(15);
/// A connection that stays silent this long, our own pings included, is dead.
const SILENCE: Duration = Duration::from_secs(45);
const PING: Duration = Duration::from_secs(15);

/// One event of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveEvent {
    /// A line of the job's log; `cursor` is the place to resume behind it, when the server tells one.
    Log {
        /// The line, without its line end.
        line: String,
        /// Where to resume.
        cursor: Option<String>,
    },
    /// The job's state changed.
    Status(String),
    /// A step of making the node.
    Provision(String),
    /// The address of a service.
    Url(String),
    /// The job ended; the payload says how.
    Completed(Value),
    /// The job failed; the payload says why.
    Failed(Value),
}

impl LiveEvent {
    /// Reads a text frame; `None` for frames that mean nothing here.
    #[must_use]
    pub fn read(frame: &str) -> Option<Self> {
        let frame: Value = serde_json::from_str(frame).ok()?;
        let payload = frame.get("payload").cloned().unwrap_or(Value::Null);
        let view = View(&payload);
        match frame.get("type")?.as_str()? {
            "log" => Some(Self::Log {
                line: payload.get("line")?.as_str()?.to_owned(),
                cursor: view.text("cursor"),
            }),
            "status_changed" => view.first_text(&["message", "status"]).map(Self::Status),
            "provision_progress" => view.text("phase").map(Self::Provision),
            "url_ready" => view.text("url").map(Self::Url),
            "completed" => Some(Self::Completed(payload)),
            "failed" => Some(Self::Failed(payload)),
            _ => None,
        }
    }
}

/// What a read of the socket gave.
#[derive(Debug)]
pub enum LiveFrame {
    /// An event.
    Event(LiveEvent),
    /// The connection ended; connect again.
    Closed,
}

/// An open WebSocket.
#[derive(Debug)]
pub struct LiveSocket {
    stream: WebSocketStream<reqwest::Upgraded>,
}

impl LiveSocket {
    /// Connects to the events of `job`, behind the cursor `after` when given.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn connect(
        client: &Client,
        job: &str,
        after: Option<&str>,
    ) -> Result<Self, ApiError> {
        let mut url = client.endpoint().join(&format!("/ws/jobs?job_id={job}"));
        if let Some(after) = after {
            url.push_str(&format!("&after={}", query_value(after)));
        }
        let network = |reason: String| ApiError::Network {
            reason: format!("{}: {reason}", client.endpoint()),
            sent: true,
        };
        let pool = client
            .transport()
            .pool(&url)
            .map_err(|failure| network(failure.message.get(crate::texts::Lang::En).to_owned()))?;
        let key = generate_key();
        let request = pool
            .get(&url)
            .headers(client.headers())
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key);
        let response = tokio::time::timeout(HANDSHAKE, request.send())
            .await
            .map_err(|_| network("timeout".to_owned()))?
            .map_err(|error| network(reason(&error)))?;
        let status = response.status().as_u16();
        if status != 101 {
            let body = response.bytes().await.unwrap_or_default();
            return Err(match status {
                400.. => ApiError::Server(ServerError::read(status, &body)),
                _ => ApiError::Unreadable { status },
            });
        }
        let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
        if accept
            .is_none_or(|accept| accept.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
        {
            return Err(ApiError::Unreadable { status });
        }
        let upgraded = response.upgrade().await.map_err(|error| network(reason(&error)))?;
        let stream = WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await;
        Ok(Self { stream })
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> LiveFrame {
        let mut silent = Duration::ZERO;
        loop {
            let Ok(message) = tokio::time::timeout(PING, self.stream.next()).await else {
                silent += PING;
                if silent >= SILENCE
                    || self.stream.send(Message::Ping(Vec::new().into())).await.is_err()
                {
                    return LiveFrame::Closed;
                }
                continue;
            };
            silent = Duration::ZERO;
            match message {
                Some(Ok(Message::Text(text))) => {
                    if let Some(event) = LiveEvent::read(text.as_str()) {
                        return LiveFrame::Event(event);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return LiveFrame::Closed,
                Some(Ok(_)) => {}
            }
        }
    }
}

/// Percent-encodes everything outside the unreserved set.
#[must_use]
pub fn query_value(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_mean_nothing_are_skipped() {
        for frame in [
            "",
            "x",
            "[]",
            "{}",
            "{\"type\":1}",
            "{\"type\":\"log\",\"payload\":null}",
            "{\"type\":\"new\"}",
        ] {
            assert_eq!(LiveEvent::read(frame), None, "{frame}");
        }
    }

    #[test]
    fn cursors_may_be_numbers_or_words() {
        for (cursor, read) in [("7", "7"), ("\"a:7\"", "a:7")] {
            let frame =
                format!("{{\"type\":\"log\",\"payload\":{{\"line\":\"x\",\"cursor\":{cursor}}}}}");
            let event = LiveEvent::Log { line: "x".into(), cursor: Some(read.into()) };
            assert_eq!(LiveEvent::read(&frame), Some(event));
        }
    }

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(query_value("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
