//! Images, over an engine whose answers are scripted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

/// An answer: its status and body.
type Answer = (u16, String);

/// Answers calls, by their first line, until the test ends.
async fn serve(listener: UnixListener, answer: impl Fn(&str) -> Answer + Send + Sync + 'static) {
    let answer = Arc::new(answer);
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let answer = Arc::clone(&answer);
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
            // The versions are looked up anew for this one, which takes a processor for seconds.
            assert!(!line.contains("/version"), "{line}");
            let (more, (status, body)) = match line.contains("/_ping") {
                true => ("api-version: 1.41\r\n", (200, "OK".to_owned())),
                false => ("", answer(line)),
            };
            let reply = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 {more}connection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(reply.as_bytes()).await;
            let _ = stream.shutdown().await;
        });
    }
}

async fn engine_at(
    folder: &Path,
    answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> (Engine, tokio::task::JoinHandle<()>) {
    let socket = folder.join("engine.sock");
    let _ = std::fs::remove_file(&socket);
    let serving = tokio::spawn(serve(UnixListener::bind(&socket).unwrap(), answer));
    let place = DockerPlace { socket, network: None, verdicts: None };
    (Engine::open(&place, "lease-1", folder).await.unwrap(), serving)
}

/// The image is not here, its pull is answered as given, and the container of the check ends as
/// `ends` says, one time after the other.
async fn provided(folder: &Path, pull: Pull, ends: &'static [u8]) -> Result<(), String> {
    // The container of the check.
    let there = AtomicBool::new(false);
    let made = AtomicUsize::new(0);
    let (engine, serving) = engine_at(folder, move |line| {
        if line.contains("/containers/create") {
            there.store(true, Ordering::Relaxed);
            made.fetch_add(1, Ordering::Relaxed);
        } else if line.starts_with("DELETE") {
            there.store(false, Ordering::Relaxed);
        }
        let (status, body) = match line {
            _ if line.contains("/images/create") => (pull.status, pull.body),
            _ if line.contains("/images/") => (404, r#"{"message":"no such image"}"#),
            _ if line.contains("/containers/create") => (201, r#"{"Id":"check","Warnings":[]}"#),
            _ if line.contains("/wait") => (200, r#"{"StatusCode":0}"#),
            _ if line.starts_with("GET") && !there.load(Ordering::Relaxed) => {
                (404, r#"{"message":"no such container"}"#)
            }
            _ if line.starts_with("GET") => {
                let code = ends[(made.load(Ordering::Relaxed) - 1).min(ends.len() - 1)];
                return (200, ended(i64::from(code)));
            }
            _ => (204, ""),
        };
        (status, body.to_owned())
    })
    .await;
    let provided = engine.provide(IMAGE).await.map_err(|why| why.0);
    serving.abort();
    provided
}

fn ended(code: i64) -> String {
    format!(
        r#"{{"State":{{"Running":false,"ExitCode":{code},"FinishedAt":"2026-01-01T00:00:00Z"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_mishap_of_the_engine_is_no_verdict_on_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let good = Pull { status: 200, body: "" };
    assert_eq!(provided(folder.path(), good, &[137, 255, 0]).await, Ok(()));
    let why = provided(folder.path(), good, &[137]).await.unwrap_err();
    assert!(why.ends_with("ended with 137"), "{why}");
    // A verdict stands at once.
    let why = provided(folder.path(), good, &[41, 0]).await.unwrap_err();
    assert!(why.ends_with("has no Python"), "{why}");
}

#[tokio::test]
async fn an_image_is_checked_once_for_its_digest() {
    let folder = tempfile::tempdir().unwrap();
    let made = Arc::new(AtomicUsize::new(0));
    for ends in [41, 0] {
        let (there, count) = (AtomicBool::new(false), Arc::clone(&made));
        let (engine, serving) = engine_at(folder.path(), move |line| {
            if line.contains("/containers/create") {
                there.store(true, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
                return (201, r#"{"Id":"check","Warnings":[]}"#.to_owned());
            }
            if line.starts_with("DELETE") {
                there.store(false, Ordering::Relaxed);
            }
            match line {
                _ if line.contains("/images/") => (200, "{}".to_owned()),
                _ if line.contains("/wait") => (200, r#"{"StatusCode":0}"#.to_owned()),
                _ if line.starts_with("GET") && !there.load(Ordering::Relaxed) => {
                    (404, r#"{"message":"no such container"}"#.to_owned())
                }
                _ if line.starts_with("GET") => (200, ended(ends)),
                _ => (204, String::new()),
            }
        })
        .await;
        let verdicts = Some(folder.path().join("verdicts"));
        let mut engine = engine;
        engine.place.verdicts = verdicts;
        for image in [
            IMAGE,
            "registry.lan/other/name@sha256:0000000000000000000000000000000000000000000000000000000000000001",
        ] {
            let why = engine.provide(image).await.unwrap_err().0;
            assert!(why.ends_with("has no Python"), "{why}");
        }
        serving.abort();
    }
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_engine_does_not_end_a_program() {
    let folder = tempfile::tempdir().unwrap();
    // Its answers to the wait and to each look; what is believed.
    for (waited, looks, wanted) in [
        (0, &[None, None, Some(0)][..], Some(0)),
        (3, &[Some(3)], Some(3)),
        (3, &[None, Some(-1)], Some(3)),
        (-1, &[Some(-1), Some(-1), Some(9)], Some(9)),
        (-1, &[Some(-1)], Some(-1)),
        (0, &[None], None),
    ] {
        let looked = AtomicUsize::new(0);
        let (engine, serving) = engine_at(folder.path(), move |line| match line {
            _ if line.contains("/wait") => (200, format!(r#"{{"StatusCode":{waited}}}"#)),
            _ => {
                let look = looked.fetch_add(1, Ordering::Relaxed).min(looks.len() - 1);
                match looks[look] {
                    Some(code) => (200, ended(code)),
                    None => (500, r#"{"message":"database is locked"}"#.to_owned()),
                }
            }
        })
        .await;
        let code = engine.wait("x").await;
        serving.abort();
        match wanted {
            Some(wanted) => assert_eq!(code, Ok(wanted), "{waited} {looks:?}"),
            None => assert!(code.unwrap_err().contains("database is locked")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ended_program_that_the_engine_made_anew_has_not_ended_well() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, serving) = engine_at(folder.path(), |line| {
        if line.contains("/wait") {
            return (200, r#"{"StatusCode":0}"#.to_owned());
        }
        // What Podman 4.3 says once somebody has attached to it.
        (200, ended(0).replace(r#""Running""#, r#""Status":"created","Running""#))
    })
    .await;
    let code = engine.wait("x").await;
    serving.abort();
    assert!(code.unwrap_err().contains("forgotten"));
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
        let why = provided(folder.path(), pull, &[0]).await.expect_err(words);
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
    assert_eq!(provided(folder.path(), good, &[0]).await, Ok(()));
}
