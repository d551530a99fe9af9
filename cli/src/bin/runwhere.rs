//! The `runwhere` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    runwhere::entry::runwhere(std::env::args_os().collect())
}
