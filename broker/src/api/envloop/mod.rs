//! EnvLoop's routes, `/v1/*`: jobs of published runners for the published `el` and its SDK.
//!
//! Errors are `{"code": "UPPER_CASE", "message": text}`. The published client shows the code only;
//! ours shows the message too. Replies hold neither `operation_id` nor `skipped`, which the client
//! takes for something else, except where they are meant.

mod account;
mod answer;
mod artifacts;
mod billing;
mod checkpoints;
mod content;
mod jobs;
mod login;
mod logs;
mod lora;
mod page;
mod replies;
mod router;
mod runners;
mod state;
mod trials;
mod unserved;
mod view;

#[cfg(test)]
mod tests;

pub use router::router;
pub use state::EnvloopParts;
