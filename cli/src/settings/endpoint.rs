//! The server's address.

use std::fmt;

use reqwest::Url;

use crate::failure::Failure;
use crate::texts;

/// The server's address: `http` or `https`, without user info, query or trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Reads an address.
    ///
    /// # Errors
    /// Exit code 2 for anything but an absolute `http(s)` address without user info, query and fragment.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let refuse = |reason| {
            Failure::usage("endpoint_invalid", texts::endpoint_invalid(reason))
                .hint(texts::endpoint_invalid_hint())
        };
        let mut url = Url::parse(text.trim()).map_err(|error| refuse(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refuse(format!("scheme {}", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("user:password@".to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("? #".to_owned()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }

    /// The address of `path` (which starts with a slash and may carry a query).
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// Whether a token sent there crosses a network unencrypted.
    #[must_use]
    pub fn is_plain_text_over_network(&self) -> bool {
        self.0.scheme() == "http" && !self.is_loopback()
    }

    /// Whether TLS is needed to reach it.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        host.eq_ignore_ascii_case("localhost")
            || host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slashes_vanish_and_prefixes_stay() {
        let endpoint = Endpoint::parse(" http://127.0.0.1:8080/ ").unwrap();
        assert_eq!(endpoint.join("/api/v1/jobs"), "http://127.0.0.1:8080/api/v1/jobs");
        let prefixed = Endpoint::parse("https://example.com/gpu//").unwrap();
        assert_eq!(prefixed.join("/healthz"), "https://example.com/gpu/healthz");
    }

    #[test]
    fn addresses_that_could_leak_or_mislead_are_refused() {
        for text in ["", "127.0.0.1:8080", "ftp://a", "http://u:p@a", "http://a?x=1", "http://a#x"]
        {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn plain_http_matters_only_beyond_this_machine() {
        for (text, plain) in [
            ("http://127.0.0.1:1", false),
            ("http://localhost", false),
            ("http://[::1]:8080", false),
            ("https://a.example", false),
            ("http://a.example", true),
        ] {
            assert_eq!(
                Endpoint::parse(text).unwrap().is_plain_text_over_network(),
                plain,
                "{text}"
            );
        }
    }
}
