//! What happened, line by line; two runs of one plan write the same. Only its hash is kept, unless
//! somebody wants to read it.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runwhere_providers::Clock;

/// A shared list of lines.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    clock: Arc<dyn Clock>,
    written: Arc<Mutex<Lines>>,
}

#[derive(Debug)]
struct Lines {
    hash: Fnv,
    kept: Option<Vec<String>>,
}

/// FNV-1a.
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    pub(crate) fn new(clock: Arc<dyn Clock>, keep: bool) -> Self {
        let lines = Lines { hash: Fnv(0xcbf2_9ce4_8422_2325), kept: keep.then(Vec::new) };
        Self { clock, written: Arc::new(Mutex::new(lines)) }
    }

    pub(crate) fn line(&self, text: impl fmt::Display) {
        let now = self.clock.now();
        let mut lines = self.lines();
        let _ = writeln!(lines.hash, "{} {text}", now.as_microsecond());
        if let Some(kept) = &mut lines.kept {
            kept.push(format!("{now} {text}"));
        }
    }

    /// The hash of all lines, and the lines where they were kept.
    pub(crate) fn take(&self) -> (u64, Vec<String>) {
        let mut lines = self.lines();
        (lines.hash.0, lines.kept.take().unwrap_or_default())
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
