//! The `el` command, in the spelling of the documents: jobs of published runners.
//!
//! Results are JSON on standard output; lists are tables unless `--json` is given. Errors are two
//! lines on standard error: the code with the server's own explanation, and what to do. Exit codes
//! are those of the published client: 0, 1, 2 and 130.

mod args;
mod client;
mod commands;
mod connection;
mod download;
mod failure;
mod follow;
mod git;
mod submit;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::settings::{Env, early_lang};

/// Runs the `el` command.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let env = Env::of_process();
    let lang = early_lang(&arguments, &env);
    let parsed = match args::Cli::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // Nothing is left to be done where even this cannot be written.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(commands::dispatch(parsed.command, &env, lang)),
        Err(error) => Err(failure::ElFailure::local("INTERNAL_ERROR", error.to_string())),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(lang);
            ExitCode::from(failure.exit)
        }
    }
}
