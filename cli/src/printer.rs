//! The only place that prints. Data goes to standard output, everything else to standard error.
//!
//! Writing never fails loudly: a closed pipe or a dead terminal must not end a command that has a node to release.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::failure::Failure;
use crate::terminal;
use crate::texts::{Lang, Text};

/// Prints, in one language.
#[derive(Clone, Debug)]
pub struct Printer {
    lang: Lang,
    json: bool,
    verbose: u8,
    stdout_gone: Arc<AtomicBool>,
    stdout_error: Arc<OnceLock<String>>,
}

impl Printer {
    /// A printer for `lang`; with `json`, sentences meant for people are left out.
    #[must_use]
    pub fn new(lang: Lang, json: bool, verbose: u8) -> Self {
        Self { lang, json, verbose, stdout_gone: Arc::default(), stdout_error: Arc::default() }
    }

    /// Whether machine output is wanted.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// The language.
    #[must_use]
    pub fn lang(&self) -> Lang {
        self.lang
    }

    /// Whether nobody reads standard output any more (`… | head`).
    #[must_use]
    pub fn is_stdout_gone(&self) -> bool {
        self.stdout_gone.load(Ordering::Relaxed)
    }

    /// Why standard output could not be written, other than a closed pipe.
    #[must_use]
    pub fn stdout_error(&self) -> Option<&str> {
        self.stdout_error.get().map(String::as_str)
    }

    /// A result for people; left out with `--json`.
    pub fn out(&self, text: &Text) {
        if !self.json {
            self.stdout(&terminal::lines(text.get(self.lang)));
        }
    }

    /// Result lines for people as they are, such as a table; left out with `--json`.
    pub fn plain(&self, text: &str) {
        if !self.json {
            self.stdout(text);
        }
    }

    /// A JSON result, in one line; left out without `--json`.
    pub fn json(&self, value: &Value) {
        if self.json {
            self.stdout(&value.to_string());
        }
    }

    /// A line of a program's log.
    pub fn log_line(&self, line: &str) {
        if terminal::stdout_is_terminal() {
            self.stdout(&terminal::log_line(line));
        } else {
            self.stdout(line);
        }
    }

    /// Progress and hints for people, on standard error; left out with `--json`.
    pub fn note(&self, text: &Text) {
        if !self.json {
            self.stderr(&terminal::lines(text.get(self.lang)));
        }
    }

    /// A warning, on standard error, also with `--json`.
    pub fn warn(&self, text: &Text) {
        if self.json {
            let warning = serde_json::json!({"warning": {"message": text.get(self.lang)}});
            self.stderr(&warning.to_string());
        } else {
            self.stderr(&terminal::lines(&format!("⚠ {}", text.get(self.lang))));
        }
    }

    /// A diagnostic, on standard error, with `-v`.
    pub fn diagnostic(&self, text: &Text) {
        if self.verbose > 0 {
            self.stderr(&terminal::lines(text.get(self.lang)));
        }
    }

    /// The end of a failed command: two lines, or one JSON object.
    pub fn failure(&self, failure: &Failure) {
        if failure.silent {
            return;
        }
        if self.json {
            self.stderr(&failure.to_json(self.lang).to_string());
            return;
        }
        self.stderr(&terminal::lines(&format!("✗ {}", failure.message.get(self.lang))));
        if let Some(hint) = &failure.hint {
            self.stderr(&terminal::lines(&format!("→ {}", hint.get(self.lang))));
        }
    }

    /// Raw bytes of a result, such as a completion script.
    pub fn raw(&self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        self.noted(stdout.write_all(bytes).and_then(|()| stdout.flush()));
    }

    fn stdout(&self, line: &str) {
        let mut stdout = io::stdout().lock();
        let written = stdout
            .write_all(line.as_bytes())
            .and_then(|()| stdout.write_all(b"\n"))
            .and_then(|()| stdout.flush());
        self.noted(written);
    }

    fn noted(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.stdout_gone.store(true, Ordering::Relaxed);
            // A terminal that hung up answers with EIO: nobody is left to be told.
            if !matches!(error.kind(), io::ErrorKind::BrokenPipe) && !terminal::stdout_is_terminal()
            {
                let _ = self.stdout_error.set(error.to_string());
            }
        }
    }

    fn stderr(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
