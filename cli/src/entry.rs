//! From the process's arguments to its exit code.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Cli, Command};
use crate::commands;
use crate::failure::{Exit, Failure};
use crate::printer::Printer;
use crate::settings::{Env, Settings, early_lang, unknown_lang_variable};
use crate::texts;
use crate::usage_error::usage_error;

/// Runs the `runwhere` command.
#[must_use]
pub fn runwhere(arguments: Vec<OsString>) -> ExitCode {
    let env = Env::of_process();
    let lang = early_lang(&arguments, &env);
    let wants_json = arguments.iter().any(|word| word == "--json");
    let early = Printer::new(lang, wants_json, 0);
    let parser = texts::translate(Cli::command(), lang);
    let parsed =
        parser.try_get_matches_from(&arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return refused(&error, &early),
    };
    if let Command::AgentExec(args) = &cli.command {
        return ExitCode::from(commands::agent_exec(args));
    }
    if let Command::AgentEnd(args) = &cli.command {
        return ExitCode::from(commands::agent_end(args));
    }
    if let Some(word) = unknown_lang_variable(&env)
        && cli.global.lang.is_none()
        && !matches!(cli.command, Command::Agent(_))
    {
        early.warn(&texts::lang_variable(word));
    }
    let (printer, outcome) = run(cli, &env, early);
    match outcome.and_then(|()| written(&printer)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            printer.failure(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(cli: Cli, env: &Env, early: Printer) -> (Printer, Result<(), Failure>) {
    // These need no settings: they must work with a damaged configuration file, and on nodes.
    let command = match cli.command {
        Command::Version => return (early.clone(), commands::version(&early)),
        Command::Completions(args) => return (early.clone(), commands::completions(&args, &early)),
        Command::Agent(args) => return (early, commands::agent(&args)),
        Command::AgentClear(args) => return (early, commands::agent_clear(&args)),
        command => command,
    };
    match Settings::resolve(&cli.global.into(), env) {
        Ok(settings) => {
            let printer = Printer::new(settings.lang, settings.json, settings.verbose);
            let outcome = commands::dispatch(command, &settings, &printer);
            (printer, outcome)
        }
        Err(failure) => (early, Err(failure)),
    }
}

/// A result that could not be written is no success; a reader who left early (`… | head`) has what was wanted.
fn written(printer: &Printer) -> Result<(), Failure> {
    match printer.stdout_error() {
        Some(error) => Err(Failure::other("stdout", texts::stdout_failed(error))),
        None => Ok(()),
    }
}

fn refused(error: &clap::Error, printer: &Printer) -> ExitCode {
    let shown = || {
        let shown = error.render().to_string();
        match printer.lang() {
            texts::Lang::Zh => shown.replace("[OPTIONS]", "[选项]").replace("<COMMAND>", "<命令>"),
            texts::Lang::En => shown,
        }
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            printer.raw(shown().as_bytes());
            match written(printer) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    printer.failure(&failure);
                    ExitCode::from(failure.exit as u8)
                }
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !printer.is_json() => {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), shown().as_bytes());
            ExitCode::from(Exit::Usage as u8)
        }
        _ => {
            printer.failure(&usage_error(error));
            ExitCode::from(Exit::Usage as u8)
        }
    }
}
