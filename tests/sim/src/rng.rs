//! The one source of chance: a seeded sequence.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use runwhere_broker::ports::Ids;

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Rng(Mutex<u64>);

impl Rng {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let rng = Self(Mutex::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)));
        // Neighbouring seeds part here.
        let mixed = rng.next() ^ stream;
        Self(Mutex::new(mixed))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, but not including, `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in so many of 100 cases.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// A span of less than so many seconds, to the millisecond.
    pub(crate) fn seconds(&self, below: u64) -> Duration {
        Duration::from_millis(self.below(below.saturating_mul(1000)))
    }

    /// An index below `len`.
    pub(crate) fn index(&self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap_or(1))).unwrap_or(0)
    }

    /// One of them.
    pub(crate) fn one_of<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }
}

impl Ids for Rng {
    fn hex(&self, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes * 2 {
            text.push_str(&format!("{:016x}", self.next()));
        }
        text.truncate(bytes * 2);
        text
    }
}
