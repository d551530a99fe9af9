//! The HTTP server: listening, TLS, what every request goes through, and a shutdown that drains.

mod leftover;
mod listen;
mod outer;

pub use listen::{BindError, Listen, Server};
pub use outer::App;
