//! A call, described.

use std::fmt;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};

/// The call cannot be made as configured. Holds no value of a header.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidRequest {
    /// The address is none.
    #[error("not a usable address")]
    Url,
    /// A header's value holds characters that headers cannot carry.
    #[error("the value of the header {0} cannot be sent: it holds control characters")]
    Header(String),
    /// A credential that is not what the signature needs.
    #[error("{0}")]
    Credential(String),
}

/// One HTTP request, ready to be sent. Its `Debug` shows no query, header value or body.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The address with its query.
    pub url: Url,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; empty for most reads.
    pub body: Bytes,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("host", &self.url.host_str())
            .field("path", &self.url.path())
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Request {
    /// A `GET`.
    pub fn get(url: &str) -> Result<Self, InvalidRequest> {
        Self::new(Method::GET, url)
    }

    /// A `POST` with a body and its content type.
    pub fn post(
        url: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Self, InvalidRequest> {
        let mut request = Self::new(Method::POST, url)?.header(CONTENT_TYPE, content_type)?;
        request.body = body.into();
        Ok(request)
    }

    fn new(method: Method, url: &str) -> Result<Self, InvalidRequest> {
        let url = Url::parse(url).map_err(|_| InvalidRequest::Url)?;
        if url.host_str().is_none() {
            return Err(InvalidRequest::Url);
        }
        Ok(Self { method, url, headers: HeaderMap::new(), body: Bytes::new() })
    }

    /// Sets a header.
    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Self, InvalidRequest> {
        let mut stored = HeaderValue::from_str(value)
            .map_err(|_| InvalidRequest::Header(name.as_str().to_owned()))?;
        // Most headers that are set here identify or authorise; none is worth showing.
        stored.set_sensitive(true);
        self.headers.insert(name, stored);
        Ok(self)
    }

    /// Sets `Authorization: Bearer <token>`.
    pub fn bearer(self, token: &str) -> Result<Self, InvalidRequest> {
        self.header(AUTHORIZATION, &format!("Bearer {token}"))
    }

    /// The `Host` header as it will be sent.
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}
