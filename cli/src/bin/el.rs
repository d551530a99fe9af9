//! The `el` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    runwhere::el::run(std::env::args_os().collect())
}
