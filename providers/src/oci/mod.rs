//! Oracle Cloud Infrastructure. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod sign;
mod wire;

pub use client::Oci;
pub use config::Settings;
