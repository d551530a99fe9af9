//! The server in this process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::failure::{Failure, Outcome};
use crate::settings::{Endpoint, Token};
use crate::texts;

/// How to run the server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where to listen; `None` for the default.
    pub listen: Option<std::net::SocketAddr>,
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
    /// How much diagnostics.
    pub verbose: u8,
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    /// Its address.
    pub endpoint: Endpoint,
    /// The token that the first start wrote, if this is the first start.
    pub first_token: Option<Token>,
    /// A token for this process only.
    pub token: Token,
    server: runwhere_broker::serve::Running,
}

/// Where a server listens that is not told where.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Starts the server.
///
/// # Errors
/// Exit code 1 with its reason.
pub async fn start(options: ServeOptions) -> Outcome<Running> {
    let agent_program = std::env::current_exe()
        .map_err(|error| Failure::other("serve_failed", texts::serve_failed(error)))?;
    let options = runwhere_broker::serve::ServeOptions {
        listen: options.listen.unwrap_or(DEFAULT_LISTEN),
        data_dir: options.data_dir,
        public_url: options.public_url,
        tls: options.tls,
        try_locally: options.try_locally,
        allow_local_exec: options.allow_local_exec,
        agent_program,
    };
    let server = runwhere_broker::serve::start(options)
        .await
        .map_err(|error| Failure::other("serve_failed", texts::serve_failed(error)))?;
    let endpoint = Endpoint::parse(&server.url)?;
    let own = server
        .own_token()
        .await
        .map_err(|error| Failure::other("serve_failed", texts::serve_failed(error)))?;
    let token = |secret: &runwhere_model::Secret| Token::new(secret.expose());
    let first_token = server.first_token.as_ref().and_then(token);
    let token = token(&own)
        .ok_or_else(|| Failure::other("serve_failed", texts::serve_failed("no token")))?;
    Ok(Running { endpoint, first_token, token, server })
}

impl Running {
    /// Waits until the server ends by itself or `stop` completes, then closes it down.
    ///
    /// # Errors
    /// Exit code 1 with its reason.
    pub async fn until(self, stop: impl Future<Output = ()>) -> Outcome {
        stop.await;
        self.server.stop().await;
        Ok(())
    }
}
