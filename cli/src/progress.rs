//! Progress bars.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::printer::Printer;
use crate::terminal;

/// A progress bar on standard error; hidden where nobody looks.
#[must_use]
pub fn bar(printer: &Printer, length: u64, template: &str) -> ProgressBar {
    if printer.is_json() || !terminal::stderr_is_terminal() || length == 0 {
        return ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("-> ");
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style)
}
