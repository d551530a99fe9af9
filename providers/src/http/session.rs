//! One reading of a provider: calls, repetitions, waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{
    ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RETRY_AFTER,
};
use runwhere_model::{ErrorKind, ProviderError};
use serde::de::DeserializeOwned;

use super::cache::CachedPage;
use super::client::Http;
use super::extract::Extract;
use super::failure::{Failure, looks_like, sentence, shape_reason};
use super::request::{InvalidRequest, Request};
use crate::provider::Result;

/// Safe calls to one provider within one budget of waits.
#[derive(Debug)]
pub struct Session<'a> {
    http: &'a Http,
    waited: Mutex<Duration>,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

/// How a failed attempt is judged.
struct Failed {
    kind: ErrorKind,
    again: bool,
    retry_after: Option<Duration>,
    cause: Failure,
}

impl Failed {
    fn final_(kind: ErrorKind, cause: Failure) -> Self {
        Self { kind, again: false, retry_after: None, cause }
    }

    fn again(kind: ErrorKind, cause: Failure) -> Self {
        Self { kind, again: true, retry_after: None, cause }
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(http: &'a Http) -> Self {
        Self { http, waited: Mutex::new(Duration::ZERO) }
    }

    /// The provider's way to its API.
    pub fn http(&self) -> &'a Http {
        self.http
    }

    /// Calls and reads the answer as JSON. `build` is asked for each attempt with its time.
    pub async fn json<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        build: impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
    ) -> Result<T> {
        let body = self.bytes(operation, build).await?;
        self.parse(operation, &body)
    }

    /// Reads a body as JSON, as [`json`](Self::json) does.
    pub fn parse<T: DeserializeOwned>(&self, operation: &'static str, body: &[u8]) -> Result<T> {
        serde_json::from_slice(body).map_err(|error| {
            let host = self.http.provider.to_string();
            let cause = match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
                Some(b'{' | b'[') => Failure::Shape { host, reason: shape_reason(&error) },
                _ => Failure::NotJson { host, looks: looks_like(body) },
            };
            self.http.error(operation, ErrorKind::Malformed).because(cause)
        })
    }

    /// Calls and returns the body.
    pub async fn bytes(
        &self,
        operation: &'static str,
        build: impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
    ) -> Result<Bytes> {
        Ok(self.call(operation, &build, None, None).await?.body)
    }

    /// As [`json`](Self::json), with the value of one header of the answer (the next page's name).
    pub async fn json_with<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        header: &HeaderName,
        build: impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
    ) -> Result<(T, Option<String>)> {
        let answer = self.call(operation, &build, None, None).await?;
        Ok((self.parse(operation, &answer.body)?, text(&answer.headers, header)))
    }

    /// As [`cached`](Self::cached), for files too large to hold: the answer is read through an extract,
    /// and what it keeps is what is stored and returned. `key` names page and extract; a change of
    /// the extract needs another key.
    pub async fn extracted(
        &self,
        operation: &'static str,
        key: &str,
        build: impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
        extract: &(dyn Fn() -> Box<dyn Extract> + Sync),
    ) -> Result<Bytes> {
        self.conditional(operation, key, &build, Some(extract)).await
    }

    /// Calls for a page that may have been read before: the stored body is returned where the
    /// provider says that it is still the same. `key` names the page, without a secret.
    pub async fn cached(
        &self,
        operation: &'static str,
        key: &str,
        build: impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
    ) -> Result<Bytes> {
        self.conditional(operation, key, &build, None).await
    }

    async fn conditional(
        &self,
        operation: &'static str,
        key: &str,
        build: &impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
        extract: Option<&(dyn Fn() -> Box<dyn Extract> + Sync)>,
    ) -> Result<Bytes> {
        let key = format!("{} {key}", self.http.provider);
        let stored = self.http.cache.load(&key);
        let answer = self.call(operation, build, stored.as_ref(), extract).await?;
        if answer.status == StatusCode::NOT_MODIFIED.as_u16()
            && let Some(stored) = stored
        {
            return Ok(stored.body);
        }
        let page = CachedPage {
            etag: text(&answer.headers, &ETAG),
            last_modified: text(&answer.headers, &LAST_MODIFIED),
            body: answer.body.clone(),
        };
        if page.etag.is_some() || page.last_modified.is_some() {
            self.http.cache.store(&key, &page);
        }
        Ok(answer.body)
    }

    async fn call(
        &self,
        operation: &'static str,
        build: &impl Fn(Timestamp) -> std::result::Result<Request, InvalidRequest>,
        stored: Option<&CachedPage>,
        extract: Option<&(dyn Fn() -> Box<dyn Extract> + Sync)>,
    ) -> Result<Answer> {
        let mut attempt = 0;
        loop {
            self.wait_for_turn().await;
            let request = build(self.http.clock.now()).and_then(|r| conditional(r, stored));
            let request = request
                .map_err(|error| self.http.error(operation, ErrorKind::Invalid).because(error))?;
            let failed = match self.attempt(request, stored.is_some(), extract).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            attempt += 1;
            match self.wait_before(attempt, &failed) {
                Some(wait) => {
                    tracing::debug!(
                        provider = %self.http.provider, operation, attempt,
                        cause = %failed.cause, "the call is repeated"
                    );
                    self.http.clock.sleep(wait).await;
                }
                None => {
                    let mut error = self.http.error(operation, failed.kind).because(failed.cause);
                    error.retry_after = failed.retry_after;
                    return Err(error);
                }
            }
        }
    }

    /// The wait before the next attempt; `None` = give up.
    fn wait_before(&self, attempt: u32, failed: &Failed) -> Option<Duration> {
        let policy = &self.http.policy;
        if !failed.again || attempt >= policy.attempts {
            return None;
        }
        let doubled = policy.first_wait.saturating_mul(1 << (attempt - 1).min(16));
        // Callers that failed together must not come back together.
        let jitter = doubled.mul_frac(random_eighths()).min(policy.longest_wait);
        let wait = match failed.retry_after {
            Some(asked) if asked > policy.longest_wait => return None,
            Some(asked) => asked.max(policy.first_wait),
            None => jitter,
        };
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        if *waited + wait > policy.patience {
            return None;
        }
        *waited += wait;
        Some(wait)
    }

    async fn wait_for_turn(&self) {
        let Some(interval) = self.http.policy.interval else { return };
        let mut next = self.http.turn.lock().await;
        self.http.clock.sleep_until(*next).await;
        *next = self.http.clock.now().checked_add(interval).unwrap_or(Timestamp::MAX);
    }

    async fn attempt(
        &self,
        request: Request,
        may_be_same: bool,
        extract: Option<&(dyn Fn() -> Box<dyn Extract> + Sync)>,
    ) -> std::result::Result<Answer, Failed> {
        let host = request.host();
        let sent = self
            .http
            .client
            .request(request.method, request.url)
            .headers(request.headers)
            .body(request.body)
            .timeout(self.http.policy.longest_attempt)
            .send()
            .await;
        let mut response = sent.map_err(|error| unreachable(&host, &error))?;
        let status = response.status();
        let retry_after = retry_after(response.headers(), self.http.clock.now());
        let headers = response.headers().clone();
        if let Some(make) = extract.filter(|_| status == StatusCode::OK) {
            let body = read_through(&host, &mut response, make()).await?;
            return Ok(Answer { status: status.as_u16(), headers, body });
        }
        let body = self.read(&host, &mut response).await.map_err(|mut failed| {
            failed.retry_after = retry_after;
            failed
        })?;
        if status == StatusCode::NOT_MODIFIED && may_be_same {
            return Ok(Answer { status: status.as_u16(), headers, body });
        }
        if status.is_redirection() {
            let cause = Failure::Redirected { host, status: status.as_u16() };
            return Err(Failed::final_(ErrorKind::Malformed, cause));
        }
        let refusal = (self.http.refusal)(status.as_u16(), &body);
        if status.is_success() && refusal.is_none() {
            return Ok(Answer { status: status.as_u16(), headers, body });
        }
        let by_status = kind_of(status);
        let kind = refusal.as_ref().and_then(|refusal| refusal.kind).unwrap_or(by_status);
        let (code, message) = refusal.map_or_else(
            || (String::new(), plain_words(&body)),
            |refusal| (sentence(&refusal.code), sentence(&refusal.message)),
        );
        let cause = Failure::Refused {
            host,
            status: status.as_u16(),
            code: self.http.scrub(code),
            message: self.http.scrub(message),
        };
        let again = matches!(kind, ErrorKind::Transient | ErrorKind::Throttle);
        Err(Failed { kind, again, retry_after, cause })
    }

    async fn read(
        &self,
        host: &str,
        response: &mut reqwest::Response,
    ) -> std::result::Result<Bytes, Failed> {
        let limit = self.http.policy.max_body;
        let too_long = || {
            let cause = Failure::TooLong { host: host.to_owned(), limit };
            Failed::final_(ErrorKind::Malformed, cause)
        };
        if response.content_length().is_some_and(|length| length > limit as u64) {
            return Err(too_long());
        }
        let mut body = BytesMut::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > limit => return Err(too_long()),
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(body.freeze()),
                Err(error) => return Err(broken(host, &error, body.len())),
            }
        }
    }
}

async fn read_through(
    host: &str,
    response: &mut reqwest::Response,
    mut extract: Box<dyn Extract>,
) -> std::result::Result<Bytes, Failed> {
    let odd = |reason| {
        let cause = Failure::Shape { host: host.to_owned(), reason };
        Failed::final_(ErrorKind::Malformed, cause)
    };
    let mut read = 0;
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                read += chunk.len();
                extract.feed(&chunk).map_err(odd)?;
            }
            Ok(None) => return extract.finish().map(Bytes::from).map_err(odd),
            Err(error) => return Err(broken(host, &error, read)),
        }
    }
}

fn broken(host: &str, error: &reqwest::Error, bytes: usize) -> Failed {
    let host = host.to_owned();
    let cause = match error.is_timeout() {
        true => Failure::Timeout { host },
        false => Failure::Cut { host, bytes },
    };
    Failed::again(ErrorKind::Transient, cause)
}

fn conditional(
    mut request: Request,
    stored: Option<&CachedPage>,
) -> std::result::Result<Request, InvalidRequest> {
    let Some(stored) = stored else { return Ok(request) };
    if let Some(etag) = &stored.etag {
        request = request.header(IF_NONE_MATCH, etag)?;
    }
    if let Some(time) = &stored.last_modified {
        request = request.header(IF_MODIFIED_SINCE, time)?;
    }
    Ok(request)
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// A sentence of a refusal that no reader of refusals understood: never markup, never JSON.
fn plain_words(body: &[u8]) -> String {
    match looks_like(body) {
        "text" if body.len() <= 400 && !body.starts_with(b"{") && !body.starts_with(b"[") => {
            sentence(&String::from_utf8_lossy(body))
        }
        _ => String::new(),
    }
}

fn kind_of(status: StatusCode) -> ErrorKind {
    match status.as_u16() {
        401 | 403 => ErrorKind::Auth,
        402 => ErrorKind::Balance,
        404 | 410 => ErrorKind::NotFound,
        409 => ErrorKind::Conflict,
        408 | 425 => ErrorKind::Transient,
        429 => ErrorKind::Throttle,
        400..=499 => ErrorKind::Invalid,
        500..=599 => ErrorKind::Transient,
        _ => ErrorKind::Malformed,
    }
}

fn unreachable(host: &str, error: &reqwest::Error) -> Failed {
    let host = host.to_owned();
    if error.is_timeout() {
        return Failed::again(ErrorKind::Transient, Failure::Timeout { host });
    }
    // The outer reasons repeat the address, whose query may hold a credential.
    let mut source: &dyn std::error::Error = error;
    while let Some(inner) = source.source() {
        source = inner;
    }
    let reason = match std::ptr::addr_eq(source, error) {
        true => "the connection failed".to_owned(),
        false => sentence(&source.to_string()),
    };
    Failed::again(ErrorKind::Transient, Failure::Connection { host, reason })
}

/// `Retry-After`: seconds, or an HTTP date judged by our clock.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let left = date.as_microsecond().saturating_sub(now.as_microsecond());
    Some(u64::try_from(left).map_or(Duration::ZERO, Duration::from_micros))
}

/// 4 to 11 eighths.
fn random_eighths() -> u32 {
    let mut byte = [0u8; 1];
    // Without random numbers the wait is the middle one.
    match getrandom::fill(&mut byte) {
        Ok(()) => 4 + u32::from(byte[0] % 8),
        Err(_) => 8,
    }
}

trait Fraction {
    fn mul_frac(self, eighths: u32) -> Duration;
}

impl Fraction for Duration {
    fn mul_frac(self, eighths: u32) -> Duration {
        self.saturating_mul(eighths) / 8
    }
}

impl Session<'_> {
    /// An error about what an answer says, not about how it came.
    pub fn malformed(&self, operation: &'static str, what: impl Into<String>) -> ProviderError {
        let cause = Failure::Content(self.http.scrub(what.into()));
        self.http.error(operation, ErrorKind::Malformed).because(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(read("3"), Some(Duration::from_secs(3)));
        assert_eq!(read("Sun, 29 Nov 2026 10:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(read("Sun, 29 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("99999999999999999999999"), Some(Duration::MAX));
        assert_eq!(read("soon"), None);
    }
}
