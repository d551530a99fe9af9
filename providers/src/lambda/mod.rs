//! Lambda Cloud. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod wire;

pub use client::Lambda;
pub use config::Settings;
