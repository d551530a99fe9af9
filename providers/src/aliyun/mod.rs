//! Alibaba Cloud (Aliyun), Chinese and international site. See `README.md` in this folder.

mod client;
mod config;
mod file;
mod map;
mod read;
mod sign;
mod types;
mod wire;

pub use client::Aliyun;
pub use config::{Settings, Site};
