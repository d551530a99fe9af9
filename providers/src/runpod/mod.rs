//! RunPod. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod wire;

pub use client::RunPod;
pub use config::Settings;
