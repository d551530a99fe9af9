//! Vast.ai. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod wire;

pub use client::Vast;
pub use config::Settings;
