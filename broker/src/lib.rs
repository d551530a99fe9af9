//! The broker of runwhere: driver, store, blobs, logs, sync, accounts, HTTP.

pub mod accounts;
pub mod api;
pub mod blobs;
mod disk;
pub mod store;
pub mod task;
