//! The node protocol's routes, `/agent/v1/*`.

mod routes;
mod service;

pub(crate) use routes::{Readable, routes};
pub use service::{AgentCaller, AgentRefusal, AgentService};
