//! The server in this process.

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
}

/// Starts the server.
///
/// # Errors
/// Exit code 1 with its reason.
pub async fn start(_options: ServeOptions) -> Outcome<Running> {
    Err(missing("serve"))
}

impl Running {
    /// Waits until the server ends by itself or `stop` completes, then closes it down.
    ///
    /// # Errors
    /// Exit code 1 with its reason.
    pub async fn until(self, stop: impl Future<Output = ()>) -> Outcome {
        stop.await;
        Ok(())
    }
}

fn missing(what: &str) -> Failure {
    Failure::other("not_in_this_build", texts::not_in_this_build(what))
}
