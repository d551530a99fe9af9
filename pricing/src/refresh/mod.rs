//! Keeping prices fresh: each source on its own, staged, checked, swapped as a whole.
//!
//! A reading is staged beside the present prices and held against them and the source's terms. What
//! passes is swapped in at once; what does not leaves the last good prices in place, with their age and
//! with what is wrong. Single prices that jump are quarantined: the last price is served until an
//! operator decides. No source waits for another.

mod desk;
mod runner;
mod stage;
mod state;

pub use runner::{Outcome, RefreshError, Refresher};
pub use stage::{JUMP, Staged, stage};
pub use state::{NotDue, Quarantined, SourceState, SourceStatus, Verdict, Waiting};
