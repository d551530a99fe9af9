//! A scripted HTTP and WebSocket server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio_tungstenite::tungstenite::handshake::server::{
    Request as WsRequest, Response as WsResponse,
};
use tokio_tungstenite::tungstenite::{self, Message};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// How many requests of this method and target came before.
    pub(crate) before: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn is(&self, method: &str, target: &str) -> bool {
        self.method == method && self.target == target
    }
}

/// What the server does with a request.
pub(crate) enum Reply {
    Json(u16, Value),
    Raw(u16, Vec<(&'static str, String)>, String),
    /// Closes the connection without an answer.
    Hang,
}

pub(crate) fn ok(value: Value) -> Reply {
    Reply::Json(200, value)
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;
/// Gets the target of the connection and how many came before; returns frames. Closes abruptly after them.
type Live = dyn Fn(&str, usize) -> Vec<Value> + Send + Sync;

pub(crate) struct Server {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
    sockets: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::launch(Arc::new(handler), None)
    }

    pub(crate) fn with_live(
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
        live: impl Fn(&str, usize) -> Vec<Value> + Send + Sync + 'static,
    ) -> Self {
        Self::launch(Arc::new(handler), Some(Arc::new(live)))
    }

    fn launch(handler: Arc<Handler>, live: Option<Arc<Live>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let sockets: Arc<Mutex<Vec<String>>> = Arc::default();
        let server = Self { url, seen: seen.clone(), sockets: sockets.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                let (handler, live) = (handler.clone(), live.clone());
                let (seen, sockets) = (seen.clone(), sockets.clone());
                std::thread::spawn(move || {
                    serve(stream, &*handler, live.as_deref(), &seen, &sockets)
                });
            }
        });
        server
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn sockets(&self) -> Vec<String> {
        self.sockets.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self, method: &str, target: &str) -> Vec<Request> {
        self.seen().into_iter().filter(|request| request.is(method, target)).collect()
    }
}

fn serve(
    stream: TcpStream,
    handler: &Handler,
    live: Option<&Live>,
    seen: &Mutex<Vec<Request>>,
    sockets: &Mutex<Vec<String>>,
) {
    let mut start = [0; 8];
    while stream.peek(&mut start).is_ok_and(|got| (1..8).contains(&got)) {}
    if let Some(live) = live.filter(|_| start.starts_with(b"GET /ws/")) {
        return serve_live(stream, live, sockets);
    }
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read(&mut reader, seen) {
        let (status, headers, body) = match handler(&request) {
            Reply::Hang => return,
            Reply::Json(status, value) => (status, Vec::new(), value.to_string()),
            Reply::Raw(status, headers, body) => (status, headers, body),
        };
        let mut head = format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (key, value) in headers {
            head.push_str(&format!("{key}: {value}\r\n"));
        }
        if stream.write_all(format!("{head}\r\n{body}").as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>, seen: &Mutex<Vec<Request>>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((key, value)) => headers.push((key.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let mut request = Request { method, target, headers, body: Vec::new(), before: 0 };
    let length =
        request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    let mut seen = seen.lock().unwrap();
    request.before = seen.iter().filter(|other| other.is(&request.method, &request.target)).count();
    seen.push(request.clone());
    Some(request)
}

fn serve_live(stream: TcpStream, live: &Live, sockets: &Mutex<Vec<String>>) {
    let mut target = String::new();
    #[expect(clippy::result_large_err, reason = "the shape of the callback is the library's")]
    let note = |request: &WsRequest, response: WsResponse| {
        target = request.uri().to_string();
        Ok(response)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(stream, note) else { return };
    let before = {
        let mut sockets = sockets.lock().unwrap();
        sockets.push(target.clone());
        sockets.len() - 1
    };
    for frame in live(&target, before) {
        if socket.send(Message::text(frame.to_string())).is_err() {
            return;
        }
    }
    let _ = socket.flush();
}
