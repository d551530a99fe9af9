//! Tools for tests of everything that talks to providers: virtual time, a scriptable cloud with
//! hidden truth, servers that play real clouds, and the conformance suite that every provider must pass.

mod clock;
pub mod clouds;
pub mod conformance;
mod controls;
mod life;
mod profile;
mod script;
mod sim;
#[cfg(test)]
mod sim_tests;
mod truth;
mod world;

pub use clock::ManualClock;
pub use profile::{BootDelays, Paging, SimOffer, SimProfile};
pub use script::{Outcome, Verb};
pub use sim::SimCloud;
pub use truth::{Truth, TruthNode};
