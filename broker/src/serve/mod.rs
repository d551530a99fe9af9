//! One whole server: data folder, store, providers, prices, driver and HTTP put together.

mod config;
mod data_dir;
mod marker;
mod prices;
mod projects;
mod rates;
mod running;
mod sentence;
mod sources;

pub use config::{ConfigError, LocalSettings, ProjectSettings, ServerConfig, read_settings};
pub use data_dir::{DataDir, DataDirError};
pub use marker::{Marker, MarkerError, Restored};
pub use prices::Catalogued;
pub use running::{Running, ServeError, ServeOptions, start};
pub use sources::listed;
