//! The HTTP connection pools, made when first needed.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::redirect::Policy;

use crate::failure::Failure;
use crate::texts;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE_READ: Duration = Duration::from_secs(60);

/// Two connection pools: plain `http` needs no certificates, and loading those takes longer than a whole command.
#[derive(Debug, Default)]
pub struct Transport {
    plain: OnceLock<reqwest::Client>,
    tls: OnceLock<reqwest::Client>,
}

impl Transport {
    /// The pool for `url`.
    ///
    /// # Errors
    /// Exit code 1 when TLS cannot be set up on this machine.
    pub fn pool(&self, url: &str) -> Result<&reqwest::Client, Failure> {
        let tls = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        let slot = if tls { &self.tls } else { &self.plain };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let client = build(tls)
            .map_err(|error| Failure::other("http_setup", texts::http_setup(reason(&error))))?;
        Ok(slot.get_or_init(|| client))
    }
}

fn build(tls: bool) -> reqwest::Result<reqwest::Client> {
    // A second installation is refused and harmless: the first one stands.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT)
        .read_timeout(IDLE_READ)
        .user_agent(concat!("runwhere/", env!("CARGO_PKG_VERSION")))
        // WebSocket upgrades need HTTP/1.1.
        .http1_only();
    if tls { builder.build() } else { builder.tls_certs_only([]).build() }
}

/// The innermost reason of a transport error: the outer ones only repeat the address, and an upload address holds a signature.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut source: &dyn std::error::Error = error;
    while let Some(inner) = source.source() {
        source = inner;
    }
    if error.is_timeout() {
        return "timeout".to_owned();
    }
    if source.source().is_none() && std::ptr::addr_eq(source, error) {
        return "connection failed".to_owned();
    }
    source.to_string()
}
