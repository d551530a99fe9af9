//! Why an agent cannot work at all.

use std::io;
use std::path::{Path, PathBuf};

/// Why an agent cannot work at all. Nothing here depends on the broker: without it the agent waits.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A file of the node folder cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bootstrap is of another protocol version.
    #[error("bootstrap.json: protocol {0} is not served; this agent speaks 1")]
    Protocol(u32),
    /// The bootstrap would not drop rights.
    #[error("bootstrap.json: drop_to must name a user and a group other than 0")]
    DropToRoot,
    /// No URL.
    #[error("bootstrap.json: broker_url is not a URL: {0}")]
    BrokerUrl(String),
    /// Another agent works in this folder.
    #[error("another agent already works in this node folder")]
    AlreadyRunning,
    /// No connection can even be tried.
    #[error("cannot set up the connection: {0}")]
    Client(String),
}

impl AgentError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}
