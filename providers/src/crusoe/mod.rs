//! Crusoe Cloud. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod prices;
mod sign;
mod wire;

pub use client::Crusoe;
pub use config::Settings;
