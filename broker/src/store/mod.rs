//! The store: rows with version checks, events, queries. The state row is authoritative, events
//! are the audit.
//!
//! A [`Transition`] is committed whole or not at all. Implementations: [`MemoryStore`] for the
//! simulator and tests, [`SqliteStore`] for everything else; one conformance suite runs against
//! both.

mod contract;
mod memory;
mod sqlite;

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod conformance;
#[cfg(test)]
pub(crate) mod sample;

pub use contract::{
    Counts, DEFAULT_JOBS, Due, JobQuery, JobView, Row, SegmentQuery, Store, StoreError, StrayQuery,
    Transition,
};
pub use memory::MemoryStore;
pub use sqlite::{OpenError, SqliteStore};
