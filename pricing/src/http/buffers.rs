//! Memory for answers, used again.
//!
//! An answer of some kilobytes is large for an allocator that keeps only small pieces at hand: taking it and
//! giving it back cost as much as a tenth of making the answer. Each thread keeps its own: a list that all shared
//! would be passed from one processor to the next for each answer.

use std::cell::RefCell;

use axum::body::Bytes;

/// Buffers that a thread keeps at most: few of its answers are under way at once.
const MOST: usize = 16;
/// A buffer that grew larger is not kept.
const LARGEST: usize = 32 * 1024;
/// What a new one holds; an answer with five offers takes less.
const USUAL: usize = 8 * 1024;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that is kept when the answer has been sent.
struct Lent(Vec<u8>);

/// What is written into an empty buffer.
pub(super) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let kept = KEPT.with_borrow_mut(Vec::pop);
    let mut bytes = kept.unwrap_or_else(|| Vec::with_capacity(USUAL));
    write(&mut bytes);
    Bytes::from_owner(Lent(bytes))
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.clear();
        if bytes.capacity() > LARGEST {
            return;
        }
        // A thread that ends keeps nothing any more.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MOST {
                kept.push(bytes);
            }
        });
    }
}
