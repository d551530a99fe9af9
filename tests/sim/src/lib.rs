//! The simulator: the real engine, driver, services and stores with a simulated cloud, agents and
//! users on virtual time in one thread, all of it driven by one seed.
//!
//! A broker process is a runtime of its own: when it is killed it is dropped with everything it was
//! doing, while rows, files, cloud, agents and users go on. Every step is held against the cloud's
//! hidden truth. `docs/simulation.md` tells how to run and read it.

mod agent;
#[cfg(feature = "sabotage")]
mod bench;
mod catalogue;
mod check;
mod cloud;
mod coverage;
mod fault;
mod fleet;
mod fuse;
mod invariant;
mod plan;
mod progress;
mod replica;
mod rng;
mod run;
#[cfg(feature = "sabotage")]
mod sabotage;
mod seeds;
mod shrink;
mod store;
mod sweep;
mod trace;
mod user;
mod world;

#[cfg(feature = "sabotage")]
pub use bench::{Pace, bench};
pub use coverage::Coverage;
pub use fleet::Summary;
pub use invariant::{Invariant, Violation};
pub use run::{Report, Tally, run};
#[cfg(feature = "sabotage")]
pub use sabotage::{Caught, SABOTAGE_SEEDS, sabotage};
pub use seeds::{failures, run_seeds};
pub use sweep::{Sweep, replica_sweep, sweep};
