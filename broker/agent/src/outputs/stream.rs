//! Reading files: hashed, sent, or both at once.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::Digest as _;

use crate::protocol::Digest;

const CHUNK: usize = 512 << 10;

pub(super) fn hash(file: &mut File) -> io::Result<(Digest, u64)> {
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((Digest::finish(hash), size)),
            len => {
                hash.update(&buffer[..len]);
                size += len as u64;
            }
        }
    }
}

fn piece_size(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))
}

/// Reads so much, or less at the end of the file. The buffer is not zeroed before.
fn read_piece(file: &File, size: usize, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.reserve_exact(size);
    file.take(size as u64).read_to_end(buffer)
}

// At most `size` bytes, so that a growing file breaks no length. The next piece is read while one
// is sent.
pub(super) fn chunks(
    file: File,
    size: u64,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
    let file = Arc::new(file);
    let read = move |left: u64| {
        let file = Arc::clone(&file);
        tokio::task::spawn_blocking(move || {
            let mut buffer = Vec::new();
            read_piece(&file, piece_size(left), &mut buffer).map(|_| buffer)
        })
    };
    futures_util::stream::try_unfold((size, None), move |(left, begun)| {
        let read = read.clone();
        async move {
            if left == 0 {
                return Ok(None);
            }
            let begun = begun.unwrap_or_else(|| read(left));
            let buffer = begun.await.map_err(io::Error::other)??;
            if buffer.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let left = left - buffer.len() as u64;
            let next = (left > 0).then(|| read(left));
            Ok(Some((Bytes::from(buffer), (left, next))))
        }
    })
}

/// What is known of a file once it was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) digest: OnceLock<Digest>,
    /// It ended early, or could not be read to its end.
    pub(super) changed: AtomicBool,
}

// Exactly `size` bytes of a file, hashed as they are read; the next piece is read while one is
// sent. What is missing is filled up and noted: a request that breaks off would be repeated.
pub(super) fn hashed(
    file: File,
    size: u64,
    sent: Arc<Sent>,
) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (file, sent) = (Arc::new(file), sent);
    let read = move |left: u64, mut hash: sha2::Sha256| {
        let (file, sent) = (Arc::clone(&file), Arc::clone(&sent));
        tokio::task::spawn_blocking(move || {
            let (mut buffer, size) = (Vec::new(), piece_size(left));
            if !read_piece(&file, size, &mut buffer).is_ok_and(|read| read == size) {
                sent.changed.store(true, Ordering::Relaxed);
                buffer.resize(size, 0);
            }
            hash.update(&buffer);
            if buffer.len() as u64 == left {
                // Only the first to finish counts, and there is only one.
                let _ = sent.digest.set(Digest::finish(hash.clone()));
            }
            (Bytes::from(buffer), hash)
        })
    };
    let begun = read(size, sha2::Sha256::new());
    futures_util::stream::try_unfold((size, Some(begun)), move |(left, begun)| {
        let read = read.clone();
        async move {
            let Some(begun) = begun else { return Ok(None) };
            let (buffer, hash) = begun.await.map_err(io::Error::other)?;
            let left = left - buffer.len() as u64;
            let next = (left > 0).then(|| read(left, hash));
            Ok(Some((buffer, (left, next))))
        }
    })
}
