//! Settings: arguments, environment and configuration file, resolved once at the start.

mod config_file;
mod endpoint;
mod env;
mod resolve;
mod token;

pub use config_file::{ConfigFile, private_dir, write_private};
pub use endpoint::Endpoint;
pub use env::Env;
pub use resolve::{GlobalArgs, Settings, early_lang, unknown_lang_variable};
pub use token::Token;
