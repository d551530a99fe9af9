//! Huawei Cloud. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod sign;
mod wire;

pub use client::Huawei;
pub use config::Settings;
