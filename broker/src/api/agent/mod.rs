//! The node protocol's routes, `/agent/v1/*`.

mod service;

pub use service::{AgentCaller, AgentRefusal, AgentService};
