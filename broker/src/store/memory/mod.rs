//! The store in memory, for the simulator and tests.

mod check;
mod query;
mod tables;

pub use query::MemoryStore;
