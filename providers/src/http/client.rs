//! The client, and one provider's use of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::redirect;
use runwhere_model::{ErrorKind, ProviderError, ProviderId};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;

use super::cache::{NoCache, PageCache};
use super::policy::Policy;
use super::refusal::{Refusal, no_refusal};
use super::session::Session;
use crate::clock::Clock;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(60);

/// The one HTTP client of all providers: TLS built in, connections shared.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: reqwest::Client,
}

impl HttpClient {
    /// A client that trusts what the machine trusts and uses the proxies of the environment.
    pub fn new() -> Result<Self, String> {
        Self::build(reqwest::Client::builder())
    }

    /// A client for addresses of this machine only: no proxy, no certificates.
    pub fn loopback() -> Result<Self, String> {
        Self::build(reqwest::Client::builder().no_proxy().tls_certs_only([]))
    }

    fn build(builder: reqwest::ClientBuilder) -> Result<Self, String> {
        // A second installation is refused and harmless: the first one stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = builder
            // A signed call is never sent elsewhere, nor is a token.
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(IDLE)
            .user_agent(concat!("runwhere/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| format!("the HTTP client cannot be set up: {error}"))?;
        Ok(Self { client })
    }
}

/// One provider's way to its API.
#[derive(Clone)]
pub struct Http {
    pub(super) provider: ProviderId,
    pub(super) client: reqwest::Client,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) policy: Policy,
    pub(super) refusal: fn(u16, &[u8]) -> Option<Refusal>,
    pub(super) secrets: Arc<[SecretString]>,
    pub(super) cache: Arc<dyn PageCache>,
    /// When the next call may start; shared by all sessions.
    pub(super) turn: Arc<Mutex<Timestamp>>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Http {
    /// A provider's use of the shared client.
    pub fn new(provider: ProviderId, client: &HttpClient, clock: Arc<dyn Clock>) -> Self {
        Self {
            provider,
            client: client.client.clone(),
            clock,
            policy: Policy::default(),
            refusal: no_refusal,
            secrets: Arc::new([]),
            cache: Arc::new(NoCache),
            turn: Arc::new(Mutex::new(Timestamp::MIN)),
        }
    }

    /// With other limits.
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// With a reader of the provider's own refusals.
    pub fn with_refusal(mut self, refusal: fn(u16, &[u8]) -> Option<Refusal>) -> Self {
        self.refusal = refusal;
        self
    }

    /// With texts that must never appear in an error, whatever the provider answers.
    pub fn with_secrets(mut self, secrets: impl IntoIterator<Item = SecretString>) -> Self {
        self.secrets = secrets.into_iter().collect();
        self
    }

    /// With a place for pages that carry an `ETag` or `Last-Modified`.
    pub fn with_cache(mut self, cache: Arc<dyn PageCache>) -> Self {
        self.cache = cache;
        self
    }

    /// Whose calls these are.
    pub fn provider(&self) -> &ProviderId {
        &self.provider
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Begins a session: one reading with one budget of waits.
    pub fn session(&self) -> Session<'_> {
        Session::new(self)
    }

    /// An error of this provider.
    pub fn error(&self, operation: &'static str, kind: ErrorKind) -> ProviderError {
        ProviderError::new(self.provider.clone(), operation, kind)
    }

    /// The text without the provider's secrets.
    pub(super) fn scrub(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| match secret.expose_secret() {
            // Shorter texts would tear ordinary words apart.
            secret if secret.len() >= 6 => text.replace(secret, "***"),
            _ => text,
        })
    }
}
