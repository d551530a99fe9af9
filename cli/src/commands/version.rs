//! `runwhere version`.

use serde_json::json;

use crate::failure::Outcome;
use crate::printer::Printer;
use crate::texts;

/// Prints the version.
///
/// # Errors
/// None.
pub fn version(printer: &Printer) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    printer.out(&texts::version(version));
    printer.json(&json!({"version": version}));
    Ok(())
}
