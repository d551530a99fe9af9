//! Images, over an engine whose answers are scripted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::Engine;
use crate::protocol::DockerPlace;

const IMAGE: &str = "registry.lan/team/train@sha256:\
                     0000000000000000000000000000000000000000000000000000000000000001";

/// What the engine answers to a pull.
#[derive(Clone, Copy, Debug)]
struct Pull {
    status: u16,
    body: &'static str,
}

/// Answers calls until the test ends: the image is not here, its pull is answered as given, and
/// the container of the check ends with 0.
async fn engine(listener: UnixListener, pull: Pull) {
    // The container of the check.
    let there = Arc::new(AtomicBool::new(false));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let there = Arc::clone(&there);
        tokio::spawn(async move {
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            let head = loop {
                let read = stream.read(&mut buffer).await.unwrap_or(0);
                request.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let whole = text.find("\r\n\r\n").is_some_and(|at| {
                    let length = text.lines().find_map(|line| {
                        let (name, value) = line.split_once(':')?;
                        let named = name.eq_ignore_ascii_case("content-length");
                        named.then(|| value.trim().parse::<usize>().ok())?
                    });
                    request.len() >= at + 4 + length.unwrap_or(0)
                });
                if whole {
                    break text;
                }
                if read == 0 {
                    return;
                }
            };
            let line = head.lines().next().unwrap_or_default();
            if line.contains("/containers/create") {
                there.store(true, Ordering::Relaxed);
            } else if line.starts_with("DELETE") {
                there.store(false, Ordering::Relaxed);
            }
            let (status, body) = match line {
                _ if line.contains("/version") => {
                    (200, r#"{"ApiVersion":"1.44","MinAPIVersion":"1.24"}"#)
                }
                _ if line.contains("/images/create") => (pull.status, pull.body),
                _ if line.contains("/images/") => (404, r#"{"message":"no such image"}"#),
                _ if line.contains("/containers/create") => {
                    (201, r#"{"Id":"check","Warnings":[]}"#)
                }
                _ if line.contains("/wait") => (200, r#"{"StatusCode":0}"#),
                _ if line.starts_with("GET") && !there.load(Ordering::Relaxed) => {
                    (404, r#"{"message":"no such container"}"#)
                }
                _ if line.starts_with("GET") => (
                    200,
                    r#"{"State":{"Running":false,"ExitCode":0,"FinishedAt":"2026-01-01T00:00:00Z"}}"#,
                ),
                _ => (204, ""),
            };
            let reply = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}

async fn provided(folder: &Path, pull: Pull) -> Result<(), String> {
    let socket = folder.join("engine.sock");
    let _ = std::fs::remove_file(&socket);
    let serving = tokio::spawn(engine(UnixListener::bind(&socket).unwrap(), pull));
    let place = DockerPlace { socket, network: None, verdicts: None };
    let engine = Engine::open(&place, "lease-1", folder).await.unwrap();
    let provided = engine.provide(IMAGE).await.map_err(|why| why.0);
    serving.abort();
    provided
}

#[tokio::test]
async fn fault_27_an_image_that_cannot_be_pulled_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let stream = |error: &'static str| Pull { status: 200, body: error };
    let refused = |status, body| Pull { status, body };
    for (pull, words) in [
        (
            refused(500, r#"{"message":"unauthorized: authentication required"}"#),
            "authentication required",
        ),
        (refused(404, r#"{"message":"manifest unknown"}"#), "manifest unknown"),
        (refused(429, r#"{"message":"toomanyrequests: pull rate limit"}"#), "pull rate limit"),
        (refused(404, r#"{"message":"no matching manifest for linux/amd64"}"#), "linux/amd64"),
        // The head of the answer says that all is well; what comes after it does not.
        (
            stream(concat!(
                r#"{"status":"Downloading","id":"1"}"#,
                "\n",
                r#"{"errorDetail":{"message":"write /x: no space left on device"},"error":"write"}"#,
                "\n",
            )),
            "no space left on device",
        ),
    ] {
        let why = provided(folder.path(), pull).await.expect_err(words);
        assert!(why.starts_with("cannot pull registry.lan/team/train@"), "{why}");
        assert!(why.contains(words) && why.lines().count() == 1, "{why}");
    }
    // A good one is not taken for a failed one.
    let good = stream(concat!(
        r#"{"status":"Pulling fs layer","id":"1"}"#,
        "\n",
        r#"{"status":"Download complete","id":"1"}"#,
        "\n",
    ));
    assert_eq!(provided(folder.path(), good).await, Ok(()));
}
