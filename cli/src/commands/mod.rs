//! The commands, one file per noun.

mod admin;
mod agent;
mod completions;
mod describe;
mod get;
mod ids;
mod lifecycle;
mod login;
mod logs;
mod outputs;
mod price;
mod price_ceiling;
mod price_filter;
mod price_service;
mod run;
mod serve;
mod submit;
mod sync;
mod token;
mod version;

pub use agent::{agent, agent_clear, agent_end, agent_exec};
pub use completions::completions;
pub use dispatch::dispatch;
pub use version::version;

mod dispatch;
