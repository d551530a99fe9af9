//! The server in this process.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use runwhere_broker::serve;
use runwhere_broker::server::BindError;

use crate::failure::{Failure, Outcome};
use crate::settings::{Endpoint, Token};
use crate::texts::{self, Lang, Text};

/// Where `serve` listens when nothing is said.
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);

/// How to run the server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; `None` for the default.
    pub listen: Option<SocketAddr>,
    /// Its data folder.
    pub data_dir: PathBuf,
    /// How others reach it.
    pub public_url: Option<String>,
    /// Certificate and key files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The local machine pretends to have GPUs.
    pub try_locally: bool,
    /// Jobs may run here although others can reach the server.
    pub allow_local_exec: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    /// Its address.
    pub endpoint: Endpoint,
    /// The token that was written, if this is the first start.
    pub first_token: Option<Token>,
    server: serve::Running,
}

/// A free address of this machine only, the same as last time where that is possible: agents of an earlier run know no other.
#[must_use]
pub fn private_address(data_dir: &Path) -> SocketAddr {
    let last = std::fs::read_to_string(data_dir.join("address")).ok();
    let last = last.and_then(|text| text.trim().rsplit_once(':')?.1.parse::<u16>().ok());
    let at = |port| SocketAddr::from((LISTEN.0, port));
    match last {
        Some(port) if std::net::TcpListener::bind(at(port)).is_ok() => at(port),
        _ => at(0),
    }
}

/// Starts the server.
///
/// # Errors
/// Exit code 1 with its reason; 2 for settings that cannot be.
pub async fn start(options: ServeOptions) -> Outcome<Running> {
    let agent_program = std::env::current_exe()
        .map_err(|error| Failure::other("serve_failed", texts::serve_failed(error)))?;
    let data_dir = options.data_dir.clone();
    let server = serve::start(serve::ServeOptions {
        listen: options.listen.unwrap_or_else(|| SocketAddr::from(LISTEN)),
        data_dir: options.data_dir,
        public_url: options.public_url,
        tls: options.tls,
        try_locally: options.try_locally,
        allow_local_exec: options.allow_local_exec,
        agent_program,
        foreign_sources: super::sources::foreign(),
    })
    .await
    .map_err(|error| refused(error, &data_dir))?;
    Ok(Running {
        endpoint: Endpoint::parse(&server.url)?,
        first_token: server.first_token.as_ref().and_then(|token| Token::new(token.expose())),
        server,
    })
}

/// Starts the server of this process alone, on a free address that others cannot reach.
///
/// # Errors
/// As [`start`].
pub async fn start_private(data_dir: &Path, try_locally: bool) -> Outcome<Running> {
    start(ServeOptions {
        listen: Some(private_address(data_dir)),
        data_dir: data_dir.to_owned(),
        public_url: None,
        tls: None,
        try_locally,
        allow_local_exec: false,
    })
    .await
}

/// Whether a server has used `data_dir`.
#[must_use]
pub fn is_used(data_dir: &Path) -> bool {
    data_dir.join("broker.db").is_file()
}

/// The server that has `data_dir` now, with the first token, while that still lies there.
#[must_use]
pub fn running_at(data_dir: &Path) -> Option<(Endpoint, Token)> {
    let token = std::fs::read_to_string(data_dir.join("first-token")).ok()?;
    Some((address_of(data_dir)?, Token::new(&token)?))
}

/// Where the server of `data_dir` says that it is, for programs that look for it.
#[must_use]
pub fn address_of(data_dir: &Path) -> Option<Endpoint> {
    let address = std::fs::read_to_string(data_dir.join("address")).ok()?;
    Endpoint::parse(address.lines().next()?).ok()
}

impl Running {
    /// A token for a client in this process.
    ///
    /// # Errors
    /// Exit code 1 when the server cannot make one.
    pub async fn own_token(&self) -> Outcome<Token> {
        let failed = |reason: String| Failure::other("serve_failed", texts::serve_failed(reason));
        let secret = self.server.own_token().await.map_err(|error| failed(error.to_string()))?;
        Token::new(secret.expose()).ok_or_else(|| failed("token".to_owned()))
    }

    /// Finishes running requests and ends. What runs on nodes goes on.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

fn refused(error: serve::ServeError, data_dir: &Path) -> Failure {
    match &error {
        serve::ServeError::DataDir(serve::DataDirError::Locked { root, pid }) => {
            let text = texts::data_dir_locked(root.display(), pid);
            let hint = match address_of(data_dir) {
                Some(endpoint) => {
                    let token = root.join("first-token");
                    texts::data_dir_locked_hint(endpoint, token.display())
                }
                None => texts::data_dir_locked_hint_other(),
            };
            Failure::other("data_dir_locked", text).hint(hint).detail("pid", pid.clone())
        }
        serve::ServeError::LocalExec(address) => {
            Failure::usage("local_exec", texts::local_exec(address)).hint(texts::local_exec_hint())
        }
        serve::ServeError::Bind(BindError::Address { address, source }) => {
            let text = match source.kind() {
                ErrorKind::AddrInUse => texts::listen_taken(address),
                ErrorKind::PermissionDenied => texts::listen_forbidden(address),
                ErrorKind::AddrNotAvailable => texts::listen_foreign(address),
                _ => texts::listen_failed(address, source),
            };
            Failure::other("listen_failed", text)
                .hint(texts::listen_hint())
                .detail("address", address.to_string())
        }
        serve::ServeError::Config(error) => {
            Failure::usage("server_config", Text::same(error.to_string()))
        }
        serve::ServeError::Fx(error) => Failure::usage("server_config", texts::serve_failed(error)),
        other => {
            let message = other.message();
            let failure = Failure::other(
                "serve_failed",
                Text::new(
                    texts::serve_failed(&message.zh).get(Lang::Zh),
                    texts::serve_failed(&message.en).get(Lang::En),
                ),
            );
            match other.remedy() {
                Some(remedy) => failure.hint(Text::new(remedy.zh, remedy.en)),
                None => failure,
            }
        }
    }
}
