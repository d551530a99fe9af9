//! The `el` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    runwhere::entry::el()
}
