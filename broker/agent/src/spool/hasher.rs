//! The thread that hashes what goes into the log: compressing does not wait for it.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use sha2::{Digest as _, Sha256};

use crate::protocol::Digest;
use crate::protocol::frame::stream_parts;

/// A running hasher.
#[derive(Debug)]
pub(super) struct Hasher {
    batches: SyncSender<Vec<u8>>,
    spent: Receiver<Vec<u8>>,
    thread: JoinHandle<[Sha256; 3]>,
}

impl Hasher {
    pub(super) fn start() -> io::Result<Self> {
        // One waits while another is hashed: that bounds the memory, too.
        let (batches, queue) = sync_channel::<Vec<u8>>(1);
        let (give_back, spent) = channel();
        let thread = thread::Builder::new().name("log-hasher".to_owned()).spawn(move || {
            let mut hashes = [Sha256::new(), Sha256::new(), Sha256::new()];
            for mut batch in queue {
                for (stream, bytes) in stream_parts(&batch) {
                    hashes[usize::from(stream.number())].update(bytes);
                }
                batch.clear();
                // Nobody takes it once the log is sealed.
                let _ = give_back.send(batch);
            }
            hashes
        })?;
        Ok(Self { batches, spent, thread })
    }

    /// Hashes the frames of a batch. Returns an empty buffer for the next one.
    pub(super) fn add(&self, batch: Vec<u8>) -> Vec<u8> {
        // A thread that is gone shows at the end.
        let _ = self.batches.send(batch);
        self.spent.try_recv().unwrap_or_default()
    }

    /// The hashes of system, stdout and stderr; `None` where the thread did not live.
    pub(super) fn finish(self) -> Option<[Digest; 3]> {
        drop(self.batches);
        self.thread.join().ok().map(|hashes| hashes.map(Digest::finish))
    }
}
