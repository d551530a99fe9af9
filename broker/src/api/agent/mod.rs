//! The node protocol's routes, `/agent/v1/*`.

mod routes;
mod service;

pub use routes::{AgentParts, router};
pub use service::{AgentCaller, AgentRefusal, AgentService};
