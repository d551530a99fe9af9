//! Calls of the server.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::ACCEPT_LANGUAGE;
use serde_json::Value;

use super::connection::Connection;
use super::failure::{ElFailure, Outcome};
use crate::api::Transport;
use crate::texts::{Lang, Text, el as texts};

const REPLY_BYTES: usize = 16 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// Reads are repeated so many times where the line breaks or the server is busy.
const TRIES: u32 = 4;

/// A client with its settings.
#[derive(Debug)]
pub(super) struct Client {
    transport: Transport,
    connection: Connection,
    url: String,
    lang: Lang,
}

/// Text for a path or query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// A query of the parameters that have a value.
pub(super) fn query(parameters: &[(&str, Option<String>)]) -> String {
    let pairs: Vec<String> = parameters
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?))))
        .collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

pub(super) fn network(error: &reqwest::Error) -> ElFailure {
    ElFailure::local("NETWORK_ERROR", texts::unreachable(crate::api::upload_retry::reason(error)))
}

impl Client {
    /// A client that is answered in a language.
    pub(super) fn new(connection: Connection, lang: Lang) -> Outcome<Self> {
        let url = connection.require_url()?.to_owned();
        Ok(Self { transport: Transport::default(), connection, url, lang })
    }

    /// A request with our headers; `path` is below the base, or a whole address of another host,
    /// which gets no key.
    pub(super) fn request(&self, method: Method, path: &str) -> Outcome<reqwest::RequestBuilder> {
        let own = path.starts_with('/');
        let url = if own { format!("{}{path}", self.url) } else { path.to_owned() };
        let pool = self
            .transport
            .pool(&url)
            .map_err(|failure| ElFailure::local("INTERNAL_ERROR", failure.message.clone()))?;
        let mut request = pool.request(method, &url).header(ACCEPT_LANGUAGE, self.lang.tag());
        if own {
            if let Some(key) = &self.connection.key {
                request = request.bearer_auth(key);
            }
            if let Some(workspace) = &self.connection.workspace {
                request = request.header("x-workspace-id", workspace);
            }
            if let Some(project) = &self.connection.project {
                request = request.header("x-project-id", project);
            }
        }
        Ok(request)
    }

    /// Reads JSON, repeated where that may help.
    pub(super) async fn get(&self, path: &str) -> Outcome<Value> {
        let mut tries = 0;
        loop {
            let answered = self.once(Method::GET, path, None).await;
            tries += 1;
            let again = |failure: &ElFailure| {
                failure.code == "NETWORK_ERROR"
                    || matches!(failure.status, Some(429 | 502 | 503 | 504))
            };
            match answered {
                Err(failure) if again(&failure) && tries < TRIES => {
                    let wait = failure.retry_after.unwrap_or(u64::from(tries)).min(30);
                    tokio::time::sleep(Duration::from_secs(wait)).await;
                }
                answered => return answered,
            }
        }
    }

    /// Sends JSON, once.
    pub(super) async fn post(&self, path: &str, body: Option<&Value>) -> Outcome<Value> {
        self.once(Method::POST, path, body).await
    }

    pub(super) async fn delete(&self, path: &str) -> Outcome<Value> {
        self.once(Method::DELETE, path, None).await
    }

    /// Sends a file as the whole body.
    pub(super) async fn put_file(&self, path: &str, file: std::fs::File) -> Outcome<()> {
        let size = file.metadata().map(|data| data.len()).unwrap_or_default();
        // A gigabyte in the slowest minute that a server would still read.
        let limit = LIMIT + Duration::from_secs(size >> 20);
        let request = self.request(Method::PUT, path)?.timeout(limit);
        let request = request
            .header("content-length", size)
            .body(reqwest::Body::from(tokio::fs::File::from_std(file)));
        let response = request.send().await.map_err(|error| network(&error))?;
        refused(response).await.map(|_| ())
    }

    async fn once(&self, method: Method, path: &str, body: Option<&Value>) -> Outcome<Value> {
        let mut request = self.request(method, path)?.timeout(LIMIT);
        request = match body {
            Some(body) => request.json(body),
            None => request.header("content-type", "application/json"),
        };
        let response = request.send().await.map_err(|error| network(&error))?;
        let response = refused(response).await?;
        let bytes = whole(response).await?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|_| ElFailure::local("INVALID_RESPONSE", texts::answer_not_json()))
    }
}

async fn whole(mut response: reqwest::Response) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| network(&error))? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > REPLY_BYTES {
            return Err(ElFailure::local("RESPONSE_TOO_LARGE", texts::answer_too_large()));
        }
    }
    Ok(bytes)
}

/// The response, or what an error says.
pub(super) async fn refused(response: reqwest::Response) -> Outcome<reqwest::Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    let bytes = whole(response).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let code = body["code"].as_str().unwrap_or("HTTP_ERROR").to_owned();
    let message = body["message"].as_str().map_or_else(texts::refused, Text::same);
    let mut failure = ElFailure::local(&code, message);
    failure.status = Some(status.as_u16());
    failure.retry_after = retry_after;
    Err(failure)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Answers one request with a refusal; its head.
    fn refuse_once(listener: &TcpListener) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let body = r#"{"code":"JOB_NOT_FOUND","message":"此项目中没有这个任务"}"#;
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    }

    #[tokio::test]
    async fn the_server_is_asked_in_our_language_and_its_sentence_is_kept() {
        for (lang, header) in
            [(Lang::Zh, "accept-language: zh\r\n"), (Lang::En, "accept-language: en\r\n")]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = Some(format!("http://{}", listener.local_addr().unwrap()));
            let served = std::thread::spawn(move || refuse_once(&listener));
            let connection = Connection { url, ..Connection::default() };
            let client = Client::new(connection, lang).unwrap();
            let failure = client.get("/v1/jobs/job-x").await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.status), ("JOB_NOT_FOUND", Some(404)));
            assert_eq!(failure.message.get(lang), "此项目中没有这个任务");
            assert!(served.join().unwrap().contains(header));
        }
    }
}
