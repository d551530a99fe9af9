//! The broker's side of a node's session.

mod assignment;
mod event;
mod service;

pub use service::{Agents, DurableFrames};
