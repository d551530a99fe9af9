//! The store in one SQLite file: a JSON document per row beside the columns that queries need.
//!
//! One connection writes, another reads. In production each has its own thread; several queued
//! transitions share one commit, and reads never wait for the disk. WAL with `synchronous=FULL`:
//! what was acknowledged survives a power cut.

mod database;
mod document;
mod fault;
mod read;
mod schema;
mod store;
mod write;

#[cfg(test)]
mod formats;
#[cfg(test)]
mod tests;

pub use schema::OpenError;
pub use store::SqliteStore;
