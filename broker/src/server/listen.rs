//! Listening and serving.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::outer::App;

/// A client that pauses longer between requests connects again.
const IDLE: Duration = Duration::from_secs(90);
const TLS_HANDSHAKE: Duration = Duration::from_secs(10);
/// How long running requests may take once the server is to end.
const DRAIN: Duration = Duration::from_secs(20);
/// Pause after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// The published client asks for prices one port above 8000.
const PRICED_PORT: u16 = 8000;

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address; port 0 for a free one.
    pub address: SocketAddr,
    /// Certificate chain and private key, PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Address {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A PEM file cannot be used.
    #[error("{}: {reason}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// A bound server that does not answer yet.
pub struct Server {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    /// A place for each connection that is served at a time.
    room: Arc<Semaphore>,
    places: u32,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the address; on port 8000 also 8001, for the published client's price calls.
    pub async fn bind(listen: &Listen) -> Result<Self, BindError> {
        let tls = match &listen.tls {
            Some((chain, key)) => Some(acceptor(chain, key)?),
            None => None,
        };
        let bind = |address: SocketAddr| {
            listener(address).map_err(|source| BindError::Address { address, source })
        };
        let first = bind(listen.address)?;
        let address = first
            .local_addr()
            .map_err(|source| BindError::Address { address: listen.address, source })?;
        let mut listeners = vec![first];
        if address.port() == PRICED_PORT {
            listeners.push(bind(SocketAddr::new(address.ip(), PRICED_PORT + 1))?);
        }
        let places = most_connections();
        let room = Arc::new(Semaphore::new(places as usize));
        Ok(Self { listeners, address, tls, room, places })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it speaks TLS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Serves until `closing` becomes true, then takes no more connections and finishes the
    /// running requests, within bounds.
    pub async fn run(self, app: App, closing: watch::Receiver<bool>) {
        let mut listening = JoinSet::new();
        for listener in self.listeners {
            let (app, closing, tls) = (app.clone(), closing.clone(), self.tls.clone());
            listening.spawn(accept(listener, app, closing, tls, self.room.clone()));
        }
        while listening.join_next().await.is_some() {}
        // Each connection gives its place back, within bounds.
        let _ = self.room.acquire_many(self.places).await;
    }
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Small answers must not wait for more; connections inherit it.
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How many connections are served at a time. The other half of the descriptors belongs to the store, the logs and the
/// files, which strangers on the network must not be able to take.
fn most_connections() -> u32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
    u32::try_from(limit).unwrap_or(u32::MAX).clamp(16, u32::MAX >> 3)
}

/// Returns once the server is to end.
async fn closed(closing: &mut watch::Receiver<bool>) {
    // A sender that is gone has nothing more to say than that.
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn accept(
    listener: TcpListener,
    app: App,
    mut closing: watch::Receiver<bool>,
    tls: Option<TlsAcceptor>,
    room: Arc<Semaphore>,
) {
    let watching = closing.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            () = closed(&mut closing) => break,
            accepted = async {
                let place = room.clone().acquire_owned().await;
                listener.accept().await.map(|(stream, _)| (stream, place))
            } => accepted,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (app, closing) = (app.clone(), watching.clone());
        match tls.clone() {
            None => {
                tokio::spawn(async move {
                    serve(stream, app, closing).await;
                    drop(place);
                });
            }
            Some(tls) => {
                tokio::spawn(async move {
                    match tokio::time::timeout(TLS_HANDSHAKE, tls.accept(stream)).await {
                        Ok(Ok(stream)) => serve(stream, app, closing).await,
                        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                        Err(_) => tracing::debug!("TLS handshake took too long"),
                    }
                    drop(place);
                });
            }
        }
    }
}

async fn serve<S>(stream: S, app: App, mut closing: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let app = app.clone();
        async move { app.call(request.map(Body::new)).await }
    });
    let mut connection = std::pin::pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN, connection).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::warn!("a request was cut off at shutdown");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

fn acceptor(chain: &Path, key: &Path) -> Result<TlsAcceptor, BindError> {
    let bad = |path: &Path, reason: String| BindError::Pem { path: path.to_owned(), reason };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(chain, error.to_string()))?;
    if certificates.is_empty() {
        return Err(bad(chain, "there is no certificate in it".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private))
        .map_err(|error| bad(key, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn silent_strangers_leave_descriptors_for_the_store() {
        let listen = Listen { address: ([127, 0, 0, 1], 0).into(), tls: None };
        let mut server = Server::bind(&listen).await.unwrap();
        server.room = Arc::new(Semaphore::new(2));
        server.places = 2;
        let address = server.address();
        let (closing, watching) = watch::channel(false);
        let app = App::new(Router::new().route("/", get(async || "served")), watching.clone());
        tokio::spawn(server.run(app, watching));
        let silent = TcpStream::connect(address).await.unwrap();
        let _other = TcpStream::connect(address).await.unwrap();
        let mut third = TcpStream::connect(address).await.unwrap();
        third.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let early = Duration::from_millis(300);
        let answered = tokio::time::timeout(early, third.read_to_string(&mut answer)).await;
        assert!(answered.is_err(), "{answer}");
        drop(silent);
        let late = Duration::from_secs(20);
        tokio::time::timeout(late, third.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.ends_with("served"), "{answer}");
        closing.send_replace(true);
    }

    #[tokio::test]
    async fn a_shutdown_lets_answers_end_and_cuts_off_what_does_not() {
        let listen = Listen { address: ([127, 0, 0, 1], 0).into(), tls: None };
        let server = Server::bind(&listen).await.unwrap();
        let address = server.address();
        let (closing, watching) = watch::channel(false);
        let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
        let (open, gate) = watch::channel(false);
        let routes = Router::new().route(
            "/{which}",
            get(async move |axum::extract::Path(which): axum::extract::Path<String>| {
                asked.send(()).unwrap();
                let mut gate = gate.clone();
                gate.wait_for(|open| *open && which == "slow").await.unwrap();
                "served"
            }),
        );
        let app = App::new(routes, watching.clone());
        let running = tokio::spawn(server.run(app, watching));
        let mut ask = async |which: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("GET /{which} HTTP/1.1\r\nhost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            asks.recv().await.unwrap();
            stream
        };
        let (mut slow, mut endless) = (ask("slow").await, ask("endless").await);
        closing.send_replace(true);
        open.send_replace(true);
        let mut answer = String::new();
        slow.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("served"), "{answer}");
        assert!(!running.is_finished(), "one is still waited for");
        // The rest of its time passes at once.
        tokio::time::pause();
        running.await.unwrap();
        assert_eq!(endless.read(&mut [0; 64]).await.unwrap_or(0), 0);
    }
}
