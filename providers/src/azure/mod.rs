//! Microsoft Azure: the public retail prices. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod sizes;
mod wire;

pub use client::Azure;
pub use config::Settings;
