//! The routes over real stores, with stand-ins for jobs and agents.

mod admin;
mod billing;
mod fake;
mod http;
mod jobs;
mod live;
mod node;
mod sync;

pub(super) use fake::{Answer, Site};
