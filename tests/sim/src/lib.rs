//! The simulator: the real driver, the memory store, a simulated cloud and scripted agents on
//! virtual time in one thread, all of it driven by one seed.
//!
//! A broker that crashes is dropped with everything it was doing; store and cloud survive, and a
//! new one takes over. Every step is held against the cloud's hidden truth.

mod agent;
mod check;
mod cloud;
mod plan;
mod rng;
mod run;
mod store;
mod trace;

pub use run::{Report, run};
