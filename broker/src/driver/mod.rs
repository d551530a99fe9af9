//! Drives units: loads one, lets the engine step it, makes the step durable, then makes the
//! provider call it asks for and feeds the outcome back.

mod calls;
mod core;
mod points;
mod run;
mod signals;
mod transition;

pub(crate) use core::sha256_hex;
pub use core::{Core, CoreParts, DriveError, Stepped};
pub use signals::{AgentPresence, Signals};
