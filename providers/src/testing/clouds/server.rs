//! A loopback server that answers as told, also wrongly: cut bodies, markup, odd statuses.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::clock::Clock;

/// What a client asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path without its query.
    pub path: String,
    /// The query as sent, without its question mark.
    pub query: String,
    /// Names and values in their order.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Asked {
    /// The value of a header, whatever its letter case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

/// What it gets.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// Headers beside the length.
    pub headers: Vec<(&'static str, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// Only half of the body comes, then the connection ends.
    pub cut: bool,
}

impl Reply {
    /// 200 with JSON.
    pub fn json(body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status: 200, headers, body: body.into(), cut: false }
    }

    /// A refusal.
    pub fn status(status: u16, body: &str) -> Self {
        Self { status, ..Self::json(body) }
    }

    /// An error page of something in between.
    pub fn html(status: u16) -> Self {
        let body = "<!DOCTYPE html><html><body><h1>Service unavailable</h1></body></html>";
        Self { status, headers: vec![("content-type", "text/html".into())], ..Self::json(body) }
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Only half of it comes.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }
}

/// Answers the n-th request (from 0).
pub type Script = Arc<dyn Fn(usize, &Asked) -> Reply + Send + Sync>;

/// The server; it ends with its value.
#[derive(Debug)]
pub struct Server {
    /// Its address, without a slash at the end.
    pub base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Listens on a free port of this machine.
    pub async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                tokio::spawn(serve(stream, Arc::clone(&seen), Arc::clone(&script)));
            }
        });
        Self { base, asked, task }
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Vec<Asked>>>, script: Script) {
    let Some(asked) = read(&mut stream).await else { return };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(asked.clone());
        seen.len() - 1
    };
    let reply = script(number, &asked);
    let mut head = format!(
        "HTTP/1.1 {} X\r\ncontent-length: {}\r\nconnection: close\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let part = if reply.cut { reply.body.len() / 2 } else { reply.body.len() };
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&reply.body[..part]).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 8192];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let method = first.next()?.to_owned();
    let target = first.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    while bytes.len() < end + 4 + length {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: String::from_utf8_lossy(&bytes[end + 4..]).into_owned(),
    })
}

/// A clock that never waits: a sleep moves it to its deadline.
#[derive(Debug)]
pub struct Leaping(AtomicI64);

impl Leaping {
    /// At an instant.
    pub fn at(text: &str) -> Arc<Self> {
        let now: Timestamp = text.parse().unwrap();
        Arc::new(Self(AtomicI64::new(now.as_microsecond())))
    }

    /// How far it has moved since an instant.
    pub fn since(&self, text: &str) -> Duration {
        let start: Timestamp = text.parse().unwrap();
        let micros = self.0.load(Ordering::SeqCst) - start.as_microsecond();
        Duration::from_micros(u64::try_from(micros).unwrap())
    }
}

#[async_trait]
impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::SeqCst)).unwrap()
    }

    async fn sleep_until(&self, deadline: Timestamp) {
        self.0.fetch_max(deadline.as_microsecond(), Ordering::SeqCst);
    }
}

/// A file of the fixtures.
pub fn fixture(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(path);
    fs::read_to_string(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()))
}
