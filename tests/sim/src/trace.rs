//! What happened, line by line; two runs of one seed write the same.

use std::sync::{Arc, Mutex, PoisonError};

use runwhere_providers::Clock;

/// A shared list of lines.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    clock: Arc<dyn Clock>,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, lines: Arc::default() }
    }

    pub(crate) fn line(&self, text: impl std::fmt::Display) {
        let line = format!("{} {text}", self.clock.now());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// FNV-1a over all lines.
pub(crate) fn hash(lines: &[String]) -> u64 {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
