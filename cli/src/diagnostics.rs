//! Diagnostic lines of the server and its parts, on standard error.

use tracing_subscriber::EnvFilter;

/// Whose diagnostics they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A server: its log is wanted.
    Service,
    /// A command that has a server inside: only what went wrong.
    Command,
}

/// Starts diagnostics. `RUST_LOG` decides where it is set, else `-v` raises the level.
pub fn start(level: Level, verbose: u8) {
    let words = match (level, verbose) {
        (Level::Command, 0) => "off",
        (Level::Command, 1) => "warn",
        (Level::Service, 0) => "warn,runwhere_broker=info",
        (Level::Service, 1) | (Level::Command, 2) => "info,runwhere_broker=debug",
        (_, _) => "debug,runwhere_broker=trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(words));
    // Refused when something else in this process has one already: then that one counts.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(crate::terminal::stderr_is_terminal())
        .try_init();
}
