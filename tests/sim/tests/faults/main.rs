//! The faults that a broker of rented nodes must survive, one test each, over the simulated cloud
//! on virtual time. `docs/faults.md` says which number is which, and what a user sees.

mod agent;
mod catalogue;
mod cleanup;
mod control;
mod launch;
mod ledge;
mod node;
mod refusal;
mod reports;
mod running;
mod spy;
mod table;
mod world;
