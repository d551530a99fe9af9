//! Tencent Cloud, Chinese and international site. See `README.md` in this folder.

mod client;
mod config;
mod map;
mod sign;
mod wire;

pub use client::Tencent;
pub use config::{Settings, Site};
