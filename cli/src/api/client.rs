//! The HTTP client of all commands.

use std::time::Duration;

use reqwest::header::{
    ACCEPT_LANGUAGE, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::{Method, Response};
use serde_json::Value;

use super::retry::{Attempt, pause};
use super::transport::reason;
use super::{ApiError, Repeat, ServerError, Transport, View};
use crate::failure::Failure;
use crate::printer::Printer;
use crate::settings::{Endpoint, Settings, Token};
use crate::texts;

const TOTAL: Duration = Duration::from_secs(30);
const QUOTA_WARNING: &str = "x-runw-quota-warning";
/// Answers larger than this are refused.
const LARGEST_ANSWER: usize = 256 << 20;

/// A client for one server and one login.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    server: Option<String>,
    token: Option<Token>,
    language: &'static str,
    printer: Printer,
    transport: Transport,
}

/// One call.
struct Call<'a> {
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    key: Option<&'a str>,
    repeat: Repeat,
}

impl Client {
    /// A client with the settings' login.
    ///
    /// # Errors
    /// Exit code 3 when there is no login.
    pub fn logged_in(settings: &Settings, printer: &Printer) -> Result<Self, Failure> {
        let (endpoint, token) = settings.login()?;
        Ok(Self::new(settings, printer, endpoint, Some(token)))
    }

    /// A client for `endpoint`.
    #[must_use]
    pub fn new(
        settings: &Settings,
        printer: &Printer,
        endpoint: Endpoint,
        token: Option<Token>,
    ) -> Self {
        Self {
            endpoint,
            server: settings.embedded().map(str::to_owned),
            token,
            language: settings.lang.tag(),
            printer: printer.clone(),
            transport: Transport::default(),
        }
    }

    /// The server.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What records of syncs call the server.
    #[must_use]
    pub fn server_name(&self) -> String {
        self.server.clone().unwrap_or_else(|| self.endpoint.to_string())
    }

    /// Whether the server lives in this process only.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.server.is_some()
    }

    /// The connection pools, for calls to other hosts (uploads).
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The headers of every call.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static(self.language));
        if let Some(token) = &self.token
            && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }

    /// Reads.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        let (method, repeat) = (Method::GET, Repeat::Safe);
        self.call(Call { method, path, body: None, key: None, repeat }).await
    }

    /// Opens an answer that is no JSON, however long it takes to read; a connection that says nothing for a minute breaks.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn open(&self, path: &str) -> Result<Response, ApiError> {
        let url = self.endpoint.join(path);
        let network = |reason| ApiError::Network { reason, sent: false };
        let pool = self
            .transport
            .pool(&url)
            .map_err(|failure| network(failure.message.get(crate::texts::Lang::En).to_owned()))?;
        let response = pool.get(&url).headers(self.headers()).send().await;
        let response =
            response.map_err(|error| network(format!("{}: {}", self.endpoint, reason(&error))))?;
        let status = response.status().as_u16();
        match status {
            200 => Ok(response),
            400.. => {
                let body = body(response).await.unwrap_or_default();
                Err(ApiError::Server(ServerError::read(status, &body)))
            }
            _ => Err(ApiError::Unreadable { status }),
        }
    }

    /// Posts `body`.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn post(
        &self,
        path: &str,
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<Value, ApiError> {
        let method = Method::POST;
        self.call(Call { method, path, body, key: None, repeat }).await
    }

    /// Posts `body` under an idempotency key: the server does it once, however often the call arrives.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn post_once(&self, path: &str, body: &Value, key: &str) -> Result<Value, ApiError> {
        let (method, repeat) = (Method::POST, Repeat::Safe);
        self.call(Call { method, path, body: Some(body), key: Some(key), repeat }).await
    }

    /// Deletes. When an answer was lost and the repeated call finds nothing any more, the first one worked: then null comes back.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn delete(&self, path: &str) -> Result<Value, ApiError> {
        let (method, repeat) = (Method::DELETE, Repeat::Safe);
        self.call(Call { method, path, body: None, key: None, repeat }).await
    }

    async fn call(&self, call: Call<'_>) -> Result<Value, ApiError> {
        let mut made = 0;
        let mut perhaps_done = false;
        loop {
            made += 1;
            let (error, attempt) = match self.once(&call).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            if call.method == Method::DELETE && perhaps_done && error.status() == Some(404) {
                return Ok(Value::Null);
            }
            perhaps_done |= matches!(attempt, Some(Attempt::Broken | Attempt::Status(500.., _)));
            let next = attempt.and_then(|attempt| pause(call.repeat, made, attempt, jitter()));
            let Some(next) = next else { return Err(error) };
            self.printer.diagnostic(&texts::retrying(made, next.as_millis()));
            tokio::time::sleep(next).await;
        }
    }

    async fn once(&self, call: &Call<'_>) -> Result<Value, (ApiError, Option<Attempt>)> {
        let url = self.endpoint.join(call.path);
        let broken = |error: reqwest::Error| {
            let sent = !(error.is_connect() || error.is_builder());
            let attempt = if sent { Attempt::Broken } else { Attempt::NotSent };
            let reason = format!("{}: {}", self.endpoint, reason(&error));
            (ApiError::Network { reason, sent }, Some(attempt))
        };
        let pool = self.transport.pool(&url).map_err(|failure| {
            let reason = failure.message.get(crate::texts::Lang::En).to_owned();
            (ApiError::Network { reason, sent: false }, None)
        })?;
        let mut request =
            pool.request(call.method.clone(), &url).headers(self.headers()).timeout(TOTAL);
        if let Some(body) = call.body {
            request = request.json(body);
        }
        if let Some(key) = call.key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.map_err(broken)?;
        self.warn_about_quota(&response);
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let after =
            header(RETRY_AFTER).and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
        if (300..400).contains(&status) {
            let location = header(LOCATION).map(str::to_owned);
            return Err((ApiError::Redirect { status, location }, None));
        }
        let body = body(response).await.map_err(|error| match error {
            BodyError::Broken(error) => broken(error),
            BodyError::TooLarge => (ApiError::Unreadable { status }, None),
        })?;
        if status >= 400 {
            let error = ApiError::Server(ServerError::read(status, &body));
            return Err((error, Some(Attempt::Status(status, after))));
        }
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if value.is_object() => Ok(value),
            _ => Err((ApiError::Unreadable { status }, None)),
        }
    }

    fn warn_about_quota(&self, response: &Response) {
        let Some(header) = response.headers().get(QUOTA_WARNING) else { return };
        let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
        let message = match serde_json::from_str::<Value>(&text) {
            Ok(value) => View(&value).text("message"),
            Err(_) => Some(text),
        };
        if let Some(message) = message {
            self.printer.warn(&texts::Text::same(message));
        }
    }
}

enum BodyError {
    Broken(reqwest::Error),
    TooLarge,
}

async fn body(mut response: Response) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if bytes.len() + chunk.len() > LARGEST_ANSWER {
            return Err(BodyError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A random number in 0..=1000.
pub(crate) fn jitter() -> u32 {
    u32::from(u16::from_le_bytes(
        *uuid::Uuid::new_v4().as_bytes().first_chunk().expect("a UUID has 16 bytes"),
    )) % 1001
}
