//! The `el` command, in the spelling of the documents: jobs of published runners.
//!
//! Results are JSON on standard output; lists are tables unless `--json` is given. Errors are two
//! lines on standard error: the code with the server's own explanation, and what to do. Exit codes
//! are those of the published client: 0, 1, 2 and 130.

mod args;
mod client;
mod commands;
mod connection;
mod content;
mod download;
mod failure;
mod follow;
mod git;
mod help;
mod submit;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use runwhere_model::Lang;

use crate::settings::{Env, early_lang};
use crate::texts::Text;

/// Runs the `el` command.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let env = Env::of_process();
    let lang = early_lang(&arguments, &env);
    let command = help::translated(args::Cli::command(), lang);
    let parsed = command
        .try_get_matches_from(arguments)
        .and_then(|matches| args::Cli::from_arg_matches(&matches));
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refused(&error, lang),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(commands::dispatch(parsed.command, &env, lang)),
        Err(error) => {
            Err(failure::ElFailure::local("INTERNAL_ERROR", Text::same(error.to_string())))
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(lang);
            ExitCode::from(failure.exit)
        }
    }
}

/// Help on standard output, or what is wrong with the arguments and what was meant.
fn refused(error: &clap::Error, lang: Lang) -> ExitCode {
    let whole = || {
        let shown = error.render().to_string();
        match lang {
            Lang::Zh => shown.replace("[OPTIONS]", "[选项]").replace("<COMMAND>", "<命令>"),
            Lang::En => shown,
        }
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            follow::print_line(whole().trim_end_matches('\n'));
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{}", whole());
            ExitCode::from(2)
        }
        _ => {
            let told = crate::usage_error::usage_error(error);
            eprintln!("INVALID_INPUT: {}", told.message.get(lang));
            if let Some(hint) = &told.hint {
                match lang {
                    Lang::Zh => eprintln!("提示：{}", hint.get(lang)),
                    Lang::En => eprintln!("Hint: {}", hint.get(lang)),
                }
            }
            ExitCode::from(2)
        }
    }
}
