//! Google Cloud. See `README.md` in this folder.

mod client;
mod config;
mod machines;
mod map;
mod names;
mod wire;

pub use client::Gcp;
pub use config::Settings;
