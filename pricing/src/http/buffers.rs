//! Memory for answers, used again.
//!
//! An answer of some kilobytes is large for an allocator that keeps only small pieces at hand: taking it and
//! giving it back cost as much as a tenth of making the answer.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;

/// Buffers that are kept at most: more answers are seldom under way at once.
const MOST: usize = 64;
/// A buffer that grew larger is not kept.
const LARGEST: usize = 32 * 1024;
/// What a new one holds; an answer with five offers takes less.
const USUAL: usize = 8 * 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that goes back when the answer has been sent.
struct Lent {
    bytes: Vec<u8>,
    to: Buffers,
}

impl Buffers {
    /// What is written into an empty buffer.
    pub(super) fn written(&self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = kept.unwrap_or_else(|| Vec::with_capacity(USUAL));
        write(&mut bytes);
        Bytes::from_owner(Lent { bytes, to: self.clone() })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut kept = self.to.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST && bytes.capacity() <= LARGEST {
            kept.push(bytes);
        }
    }
}
