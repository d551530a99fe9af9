//! The agent's side of the connection to the broker: authorisation, retries, fencing, the TTL.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::protocol::{
    Bootstrap, Digest, EPOCH_HEADER, LogsReply, PROTOCOL_VERSION, RedeemReply, RedeemRequest,
};
use crate::session::{SessionKey, broker_url_of};
use crate::{AgentError, tls};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// A call is not repeated sooner because another one was answered.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
const MAX_REPLY_BYTES: usize = 64 << 20;

/// Why the agent may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The broker no longer knows this session.
    Fenced,
    /// The broker has been silent longer than the TTL.
    Silent,
}

/// Why a call has no result. Network errors and 5xx are not among these: they are retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the session has ended")]
    Closed(Closed),
    #[error("the broker answered {status} to {call}")]
    Refused { call: &'static str, status: StatusCode, body: Bytes },
    #[error("the broker's answer to {call} is not understood: {problem}")]
    Reply { call: &'static str, problem: String },
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Link {
    target: RwLock<Arc<Target>>,
    node_dir: PathBuf,
    ca_pem: Option<String>,
    lease_id: String,
    node_id: Option<String>,
    key: SessionKey,
    epoch: AtomicU64,
    ttl: Duration,
    contact: Mutex<Instant>,
    failing: watch::Sender<bool>,
    closed: watch::Sender<Option<Closed>>,
}

/// Where the broker is, and how it is called there.
#[derive(Debug)]
pub(crate) struct Target {
    base: String,
    client: reqwest::Client,
}

impl Target {
    fn new(broker_url: &str, ca_pem: Option<&str>) -> Result<Self, AgentError> {
        // Somebody else may have installed one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = reqwest::Url::parse(broker_url)
            .ok()
            .filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| AgentError::BrokerUrl(broker_url.to_owned()))?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .pool_idle_timeout(Duration::from_secs(60))
            .tcp_keepalive(Duration::from_secs(15))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("runwhere-agent/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = ca_pem {
            builder = builder
                .tls_backend_preconfigured(tls::client_config(pem).map_err(AgentError::Client)?);
        } else if url.scheme() == "http" {
            // The node may have no root certificates at all, and none are needed.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| AgentError::Client(error.to_string()))?;
        Ok(Self { base: broker_url.trim_end_matches('/').to_owned(), client })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}/agent/v1/{path}", self.base))
    }
}

impl Link {
    pub(crate) fn new(
        node_dir: &Path,
        bootstrap: &Bootstrap,
        key: SessionKey,
    ) -> Result<Self, AgentError> {
        let target = Target::new(&bootstrap.broker_url, bootstrap.ca_pem.as_deref())?;
        Ok(Self {
            target: RwLock::new(Arc::new(target)),
            node_dir: node_dir.to_owned(),
            ca_pem: bootstrap.ca_pem.clone(),
            lease_id: bootstrap.lease_id.clone(),
            node_id: Some(bootstrap.node_id.clone()).filter(|id| !id.is_empty()),
            key,
            epoch: AtomicU64::new(0),
            ttl: Duration::from_secs(bootstrap.agent_ttl_seconds.max(1)),
            contact: Mutex::new(Instant::now()),
            failing: watch::channel(false).0,
            closed: watch::channel(None).0,
        })
    }

    fn target(&self) -> Arc<Target> {
        Arc::clone(&self.target.read().unwrap_or_else(PoisonError::into_inner))
    }

    // A restarted broker may listen elsewhere; the provider then writes that into the bootstrap.
    // True where the URL is another one than `called`, so that the call is worth repeating at once.
    async fn moved(&self, called: &Target) -> bool {
        if self.target().base != called.base {
            // Another call has found out already.
            return true;
        }
        let Some(url) = broker_url_of(&self.node_dir, &self.lease_id).await else { return false };
        if url.trim_end_matches('/') == called.base {
            return false;
        }
        match Target::new(&url, self.ca_pem.as_deref()) {
            Ok(target) => {
                tracing::info!(from = called.base, to = target.base, "the broker has moved");
                *self.target.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(target);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "staying with the earlier URL");
                false
            }
        }
    }

    /// Returns once the agent may not go on. Also watches the TTL.
    pub(crate) async fn closed(&self) -> Closed {
        let mut closed = self.closed.subscribe();
        loop {
            if let Some(why) = *closed.borrow_and_update() {
                return why;
            }
            let deadline = *self.contact.lock().unwrap_or_else(PoisonError::into_inner) + self.ttl;
            if Instant::now() >= deadline {
                self.close(Closed::Silent);
                continue;
            }
            tokio::select! {
                _ = closed.changed() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }

    /// Whether the last thing heard of the broker was an error or nothing.
    pub(crate) fn failing(&self) -> bool {
        *self.failing.borrow()
    }

    fn close(&self, why: Closed) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(why);
            }
            first
        });
    }

    /// Joins; safe to repeat with the same key.
    pub(crate) async fn redeem(
        &self,
        token: &str,
        version: &str,
    ) -> Result<RedeemReply, LinkError> {
        let request = RedeemRequest {
            protocol: PROTOCOL_VERSION,
            lease_id: self.lease_id.clone(),
            lease_token: token.to_owned(),
            session_key_sha256: self.key.digest(),
            agent_version: version.to_owned(),
            node_id: self.node_id.clone(),
        };
        let body = to_json("redeem", &request)?;
        let reply = self
            .retry("redeem", |target| {
                target
                    .request(Method::POST, "redeem")
                    .header("content-type", "application/json")
                    .timeout(CALL_TIMEOUT)
                    .body(body.clone())
            })
            .await;
        match reply {
            Err(LinkError::Refused { status: StatusCode::CONFLICT, .. }) => {
                self.close(Closed::Fenced);
                Err(LinkError::Closed(Closed::Fenced))
            }
            reply => {
                let reply: RedeemReply = from_json("redeem", &reply?)?;
                self.epoch.store(reply.epoch, Ordering::Relaxed);
                Ok(reply)
            }
        }
    }

    /// An authorised request to be completed by the caller.
    pub(crate) fn request(&self, target: &Target, method: Method, path: &str) -> RequestBuilder {
        target
            .request(method, path)
            .header("authorization", format!("Bearer {}.{}", self.lease_id, self.key.reveal()))
            .header(EPOCH_HEADER, self.epoch.load(Ordering::Relaxed))
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        call: &'static str,
        path: &str,
    ) -> Result<T, LinkError> {
        let body = self
            .retry(call, |target| self.request(target, Method::GET, path).timeout(CALL_TIMEOUT))
            .await?;
        from_json(call, &body)
    }

    pub(crate) async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        call: &'static str,
        body: &B,
        wait: Duration,
    ) -> Result<T, LinkError> {
        let body = to_json(call, body)?;
        let reply = self
            .retry(call, |target| {
                self.request(target, Method::POST, call)
                    .header("content-type", "application/json")
                    .timeout(CALL_TIMEOUT + wait)
                    .body(body.clone())
            })
            .await?;
        from_json(call, &reply)
    }

    /// Sends a batch of frames. `Err(durable_seq)` inside `Ok` means that the broker misses frames
    /// before this batch.
    pub(crate) async fn post_logs(
        &self,
        from_seq: u64,
        body: Bytes,
    ) -> Result<Result<u64, u64>, LinkError> {
        let path = format!("logs?from_seq={from_seq}");
        let reply = self
            .retry("logs", |target| {
                self.request(target, Method::POST, &path)
                    .header("content-type", "application/zstd")
                    .timeout(CALL_TIMEOUT * 4)
                    .body(body.clone())
            })
            .await;
        match reply {
            Ok(reply) => Ok(Ok(from_json::<LogsReply>("logs", &reply)?.durable_seq)),
            Err(LinkError::Refused { status: StatusCode::CONFLICT, body, .. }) => {
                Ok(Err(from_json::<LogsReply>("logs", &body)?.durable_seq))
            }
            Err(error) => Err(error),
        }
    }

    /// Starts the download of a file. Only the head is retried here; the caller reads the body and
    /// calls again where that breaks.
    pub(crate) async fn open_blob(
        &self,
        sha256: &Digest,
        size: u64,
    ) -> Result<reqwest::Response, LinkError> {
        let path = format!("blobs/{sha256}");
        self.send("blobs", |target| {
            self.request(target, Method::GET, &path).timeout(transfer_timeout(size))
        })
        .await
    }

    /// Sends until there is an answer that is neither a network error nor 5xx, 408 or 429.
    pub(crate) async fn retry(
        &self,
        call: &'static str,
        build: impl Fn(&Target) -> RequestBuilder,
    ) -> Result<Bytes, LinkError> {
        let mut pause = Pause::default();
        loop {
            let mut response = self.send(call, &build).await?;
            let called = self.target();
            let mut body = Vec::new();
            let broken = loop {
                match response.chunk().await {
                    Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_REPLY_BYTES => {
                        body.extend_from_slice(&chunk);
                    }
                    Ok(Some(_)) => {
                        return Err(LinkError::Reply { call, problem: "too large".to_owned() });
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            match broken {
                None => return Ok(body.into()),
                Some(_) if self.moved(&called).await => {}
                Some(error) => self.wait(call, &cause(&error), &mut pause, true).await?,
            }
        }
    }

    async fn send(
        &self,
        call: &'static str,
        build: impl Fn(&Target) -> RequestBuilder,
    ) -> Result<reqwest::Response, LinkError> {
        let mut pause = Pause::default();
        loop {
            if let Some(why) = *self.closed.borrow() {
                return Err(LinkError::Closed(why));
            }
            let called = self.target();
            let (problem, answered) = match build(&called).send().await {
                Ok(response) => {
                    let status = response.status();
                    // Its earlier port may be somebody else's by now, who knows no session.
                    if !status.is_success() && self.moved(&called).await {
                        continue;
                    }
                    if !status.is_server_error() {
                        *self.contact.lock().unwrap_or_else(PoisonError::into_inner) =
                            Instant::now();
                        self.failing.send_if_modified(std::mem::take);
                    }
                    match status {
                        status if status.is_success() => return Ok(response),
                        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::GONE => {
                            tracing::warn!(call, %status, "fenced");
                            self.close(Closed::Fenced);
                            return Err(LinkError::Closed(Closed::Fenced));
                        }
                        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                            (status.to_string(), true)
                        }
                        status if status.is_server_error() => (status.to_string(), true),
                        status => {
                            let body = response.bytes().await.unwrap_or_default();
                            return Err(LinkError::Refused { call, status, body });
                        }
                    }
                }
                Err(_) if self.moved(&called).await => continue,
                Err(error) => (cause(&error), false),
            };
            self.wait(call, &problem, &mut pause, answered).await?;
        }
    }

    // A call without an answer waits no longer than until another one has an answer: the broker is back, and what is
    // bounded by the time in which it is there must not spend that on waiting for it. A call that was answered badly
    // is a matter of its own.
    async fn wait(
        &self,
        call: &'static str,
        problem: &str,
        pause: &mut Pause,
        answered: bool,
    ) -> Result<(), LinkError> {
        let pause = pause.next();
        if self.failing.send_replace(true) {
            tracing::debug!(call, problem, ?pause, "call will be repeated");
        } else {
            // Once for each time the broker goes away.
            tracing::warn!(call, problem, "cannot reach the broker; will be repeated");
        }
        let (mut closed, mut failing) = (self.closed.subscribe(), self.failing.subscribe());
        let pause = async {
            // Where only this call fails, others must not make it a storm.
            let least = pause.min(LEAST_PAUSE);
            tokio::time::sleep(least).await;
            tokio::select! {
                () = tokio::time::sleep(pause - least) => {}
                _ = failing.wait_for(|failing| !failing), if !answered => {}
            }
        };
        tokio::select! {
            () = pause => Ok(()),
            why = closed.wait_for(Option::is_some) => {
                let why = why.ok().and_then(|why| *why);
                Err(LinkError::Closed(why.unwrap_or(Closed::Fenced)))
            }
        }
    }
}

/// Time for one transfer: a slow line (256 KiB/s) is fine, a dead one is not.
pub(crate) fn transfer_timeout(size: u64) -> Duration {
    CALL_TIMEOUT * 2 + Duration::from_secs(size >> 18)
}

/// Exponential back-off with jitter.
#[derive(Debug, Default)]
pub(crate) struct Pause(u32);

impl Pause {
    pub(crate) fn next(&mut self) -> Duration {
        let full = Duration::from_millis(100 << self.0.min(6)).min(MAX_PAUSE);
        self.0 += 1;
        let mut random = [0; 2];
        // Without randomness there is no jitter, which does no harm.
        let _ = getrandom::fill(&mut random);
        full / 2 + full / 2 * u32::from(u16::from_le_bytes(random)) / u32::from(u16::MAX)
    }
}

/// An error with everything behind it, without the URL.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "timed out" } else { "broken connection" }.to_owned();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn is_loopback(url: &reqwest::Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

fn to_json<T: Serialize>(call: &'static str, value: &T) -> Result<Bytes, LinkError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| LinkError::Reply { call, problem: error.to_string() })
}

fn from_json<T: DeserializeOwned>(call: &'static str, body: &[u8]) -> Result<T, LinkError> {
    serde_json::from_slice(body)
        .map_err(|error| LinkError::Reply { call, problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broker_with_a_self_signed_authority_is_reached() {
        use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4096]).await;
                let reply = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(reply).await;
                let _ = stream.shutdown().await;
            }
        });
        let named = Target::new(&url, Some(&certificate.pem())).unwrap();
        let reply = named.request(Method::GET, "poll").send().await.unwrap();
        assert_eq!(reply.status(), StatusCode::NO_CONTENT);
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let other = Target::new(&url, Some(&other.cert.pem())).unwrap();
        assert!(other.request(Method::GET, "poll").send().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_repeated_once_another_one_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let bootstrap = serde_json::json!({
            "protocol": PROTOCOL_VERSION, "lease_id": "l", "node_id": "n", "lease_token": "t",
            "broker_url": "http://127.0.0.1:1", "agent_ttl_seconds": 3600,
        });
        let bootstrap: Bootstrap = serde_json::from_value(bootstrap).unwrap();
        let key = SessionKey::of_folder(folder.path()).unwrap();
        let link = Link::new(folder.path(), &bootstrap, key).unwrap();
        // Where the pauses have grown, each is between 2.5 and 5 seconds.
        let waited = async |answered| {
            let begun = Instant::now();
            link.wait("outputs", "lost", &mut Pause(9), answered).await.unwrap();
            begun.elapsed()
        };
        let heard = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(link.failing());
            link.failing.send_if_modified(std::mem::take);
        };
        let (lost, refused, ()) = tokio::join!(waited(false), waited(true), heard);
        assert!((1000..1100).contains(&lost.as_millis()), "{lost:?}");
        assert!(refused >= MAX_PAUSE / 2, "{refused:?}");
        // While others are answered all the time, it is no storm either.
        let answers = async {
            loop {
                link.failing.send_if_modified(std::mem::take);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            waited = waited(false) => assert!(waited >= LEAST_PAUSE, "{waited:?}"),
            () = answers => {}
        }
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let mut pause = Pause::default();
        let pauses: Vec<_> = (0..40).map(|_| pause.next()).collect();
        assert!(pauses[0] <= Duration::from_millis(100));
        assert!(pauses[0] >= Duration::from_millis(50));
        assert!(pauses.iter().all(|pause| *pause <= MAX_PAUSE));
        assert!(pauses[39] >= MAX_PAUSE / 2);
    }
}
