//! The HTTP side: one client for all commands, its errors, and a tolerant view of what servers answer.

mod client;
mod error;
mod live;
mod retry;
mod transport;
mod view;

pub use client::Client;
pub use error::{ApiError, ServerError};
pub use live::{LiveEvent, LiveFrame, LiveSocket, query_value};
pub use retry::Repeat;
pub use transport::Transport;
pub use view::View;

/// What uploads share with calls: they go to other hosts, under the same rules.
pub(crate) mod upload_retry {
    pub(crate) use super::client::jitter;
    pub(crate) use super::retry::{Attempt, Repeat, pause};
    pub(crate) use super::transport::reason;
}
