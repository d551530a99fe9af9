//! Which version of its interface an engine speaks.
//!
//! `/version` would tell it, but Podman looks up the versions of its helper programs for that,
//! with the system's package manager: seconds of processor time for each container that starts.
//! The head of the answer to `/_ping` tells it as well, for nothing.

use std::io;
use std::path::Path;
use std::time::Duration;

use bollard::{ClientVersion, Docker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// An engine that is there answers at once; one that is being started takes its time.
const LIMIT: Duration = Duration::from_secs(60);
const MOST_BYTES: usize = 16 << 10;
const QUESTION: &[u8] =
    b"GET /_ping HTTP/1.1\r\nHost: engine\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// A client that speaks what the engine behind the socket does, at most `newest`.
///
/// # Errors
/// The engine does not answer.
pub(super) async fn connect(
    socket: &Path,
    seconds: u64,
    newest: &ClientVersion,
) -> Result<Docker, bollard::errors::Error> {
    let place = socket.to_string_lossy();
    let told = tokio::time::timeout(LIMIT, told(socket)).await;
    let told = told.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let Some(spoken) = told else {
        // An engine that does not tell it in passing.
        return Docker::connect_with_unix(&place, seconds, newest)?.negotiate_version().await;
    };
    let version = if spoken < *newest { &spoken } else { newest };
    Docker::connect_with_unix(&place, seconds, version)
}

async fn told(socket: &Path) -> io::Result<Option<ClientVersion>> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(QUESTION).await?;
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MOST_BYTES {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    Ok(version_of(&head))
}

/// The version that an answer's head states.
fn version_of(head: &[u8]) -> Option<ClientVersion> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n").take_while(|line| !line.is_empty());
    let status = lines.next()?.split(' ').nth(1)?;
    let stated = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("api-version").then(|| value.trim().to_owned())
    })?;
    let (major, minor) = stated.split_once('.').filter(|_| status == "200")?;
    Some(ClientVersion { major_version: major.parse().ok()?, minor_version: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_an_answer_tells_the_version() {
        let seen = |head: &str| version_of(head.as_bytes()).map(|version| version.to_string());
        let podman = "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\n\r\nOK";
        assert_eq!(seen(podman).as_deref(), Some("1.41"));
        let other = "HTTP/1.1 200 OK\r\nServer: x\r\napi-version:1.5\r\n\r\n";
        assert_eq!(seen(other).as_deref(), Some("1.5"));
        for none in [
            "",
            "HTTP/1.1 200 OK\r\n\r\nApi-Version: 1.41\r\n",
            "HTTP/1.1 503 x\r\nApi-Version: 1.41\r\n\r\n",
            "HTTP/1.1 200 OK\r\nApi-Version: new\r\n\r\n",
            "HTTP/1.1 200 OK\r\nLibpod-Api-Version: 4.3\r\n\r\n",
        ] {
            assert_eq!(seen(none), None, "{none}");
        }
    }
}
