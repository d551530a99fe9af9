//! `runwhere completions`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::texts;

/// Prints a completion script.
///
/// # Errors
/// None.
pub fn completions(args: &CompletionsArgs, printer: &Printer) -> Outcome {
    let mut command = texts::translate(Cli::command(), printer.lang());
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "runwhere", &mut script);
    printer.raw(&script);
    Ok(())
}
