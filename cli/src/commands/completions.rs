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
    let mut command = visible(texts::translate(Cli::command(), printer.lang()));
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "runwhere", &mut script);
    printer.raw(&script);
    Ok(())
}

/// The command without what a node runs of this program: nobody types those, so nobody is offered them.
fn visible(command: clap::Command) -> clap::Command {
    let shown: Vec<_> =
        command.get_subcommands().filter(|one| !one.is_hide_set()).cloned().collect();
    let arguments: Vec<_> = command.get_arguments().cloned().collect();
    // Help and version are among the arguments where the texts are ours.
    clap::Command::new("runwhere")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .version(env!("CARGO_PKG_VERSION"))
        .args(arguments)
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_help_shows_is_completed() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(Cli::command()), "runwhere", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(!script.contains("agent-"), "{shell}");
            for word in ["recommend", "--idempotency-key", "--lang", "completions"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
