//! Verda (was DataCrunch). See `README.md` in this folder.

mod client;
mod config;
mod map;
mod wire;

pub use client::Verda;
pub use config::Settings;
