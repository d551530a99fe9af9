//! Drives units: loads one, lets the engine step it, makes the step durable, then makes the
//! provider call it asks for and feeds the outcome back.

mod calls;
mod core;
mod line;
mod metrics;
mod points;
mod run;
mod settle;
mod signals;
mod sweeper;
mod transition;

#[cfg(test)]
mod tests;

pub(crate) use core::sha256_hex;
pub use core::{Core, CoreParts, DriveError, Stepped};
pub use metrics::{Counted, Metrics};
pub use run::Others;
pub use signals::{AgentPresence, Signals};
pub use sweeper::{SweepError, SweepReport, Sweeper};
