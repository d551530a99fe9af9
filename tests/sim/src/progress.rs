//! How far many runs are, on stderr: a bar on a terminal, else a line every five minutes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const BETWEEN_LINES: Duration = Duration::from_secs(300);

pub(crate) struct Progress {
    bar: ProgressBar,
    said: Mutex<Instant>,
}

impl Progress {
    pub(crate) fn of(runs: usize) -> Self {
        let bar = ProgressBar::new(runs as u64);
        let style = "{wide_bar} {pos}/{len}, {per_sec}, {eta} left{msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self { bar, said: Mutex::new(Instant::now()) }
    }

    /// One more run is over; so many have failed.
    pub(crate) fn step(&self, failed: usize) {
        self.bar.inc(1);
        if failed > 0 {
            self.bar.set_message(format!(", {failed} failed"));
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bar.is_hidden() && said.elapsed() >= BETWEEN_LINES {
            *said = Instant::now();
            let (runs, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("{runs} of {all} runs, {failed} failed");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
