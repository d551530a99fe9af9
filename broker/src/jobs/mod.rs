//! Jobs as the HTTP routes see them: submit, list, stop, resume, delete.

mod cost;
mod offer;
mod service;
mod submit;

#[cfg(test)]
pub(crate) mod tests;

pub use cost::cost_of;
pub(crate) use offer::{launchable_counts, similar_models};
pub use service::Jobs;
