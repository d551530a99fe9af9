//! A provider for Harbour, a fictional cloud, as an example of how one is written.
//!
//! Harbour needs no network: its whole service is a folder. What a real cloud answers over HTTP
//! is a file here; everything else is as it would be. The files of this package are those that
//! every provider has: `config` (what it is made of), `client` (calls), `wire` (what is sent and
//! received, exactly), `map` (pure, from the wire to the vocabulary), and the provider itself.

mod client;
mod config;
mod map;
mod provider;
mod wire;

pub use config::{ConfigError, HarbourConfig};
pub use provider::Harbour;
