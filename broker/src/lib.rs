//! The broker of runwhere: driver, store, blobs, logs, sync, accounts, HTTP.

pub mod accounts;
pub mod admin;
pub mod agents;
pub mod api;
pub mod blobs;
mod disk;
pub mod driver;
pub mod jobs;
pub mod logs;
pub mod ports;
pub mod runners;
pub mod serve;
pub mod server;
pub mod store;
pub mod sync;
pub mod task;
