//! HTTP: routes, envelopes, languages. Handlers translate; decisions are made elsewhere.

mod admin;
pub mod agent;
mod billing;
mod body;
mod download;
pub mod envloop;
mod metrics;
pub mod problem;
mod router;
pub mod runwhere;
mod state;
pub mod text;

#[cfg(test)]
mod tests;

pub use router::router;
pub use state::ApiParts;
