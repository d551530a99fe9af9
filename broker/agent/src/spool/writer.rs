//! The thread that numbers, batches, compresses and writes frames.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use sha2::Digest as _;
use tokio::sync::oneshot;

use super::record::Header;
use super::shared::{Held, Segment, Spool, Tail};
use crate::clock;
use crate::files::{Reserve, sync_folder_of};
use crate::protocol::frame::ZSTD_LEVEL;
use crate::protocol::{Digest, FRAME_HEADER_BYTES, LogStream, MAX_FRAME_BYTES, StreamSeal};
use crate::texts;

// Together they bound the memory of the log path to a few batches.
const QUEUE_LEN: usize = 16;
const BATCH_BYTES: usize = 4 << 20;
const SEGMENT_BYTES: u64 = 32 << 20;

// In a flood, small batches wait this long for more; a first line after silence never does.
const GATHER: Duration = Duration::from_millis(10);
const GATHER_BYTES: usize = 512 << 10;

const SYNC_EVERY: Duration = Duration::from_millis(500);
const SYNC_BYTES: u64 = 32 << 20;

// How long a program is held back by a full disk before its output is only counted.
const FULL_DISK_PATIENCE: Duration = Duration::from_secs(30);
const FULL_DISK_RETRY: Duration = Duration::from_millis(200);
const TAIL_BYTES: usize = 256 << 10;

/// What goes into the log.
#[derive(Debug)]
pub(crate) enum Input {
    /// Bytes of the program, at most [`MAX_FRAME_BYTES`].
    Data { stream: LogStream, bytes: Vec<u8> },
    /// Nothing follows.
    Seal(oneshot::Sender<Sealed>),
}

/// The sealed log; the values of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) streams: Vec<StreamSeal>,
}

/// A running writer. Senders wait while the disk is slower than they are.
#[derive(Debug)]
pub(crate) struct Writer {
    input: SyncSender<Input>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Opens the spool below `folder` and starts the thread.
    pub(crate) fn start(
        folder: &Path,
        durable_seq: u64,
        max_log_bytes: u64,
        reserve: Arc<Reserve>,
    ) -> io::Result<(Self, Arc<Spool>)> {
        let (spool, tail) = Spool::open(folder, durable_seq)?;
        let spool = Arc::new(spool);
        let (input, queue) = sync_channel(QUEUE_LEN);
        let worker = Worker::new(Arc::clone(&spool), tail, max_log_bytes, reserve)?;
        let thread = thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || worker.run(&queue))?;
        Ok((Self { input, thread }, spool))
    }

    /// For the threads that read the program's pipes.
    pub(crate) fn input(&self) -> SyncSender<Input> {
        self.input.clone()
    }

    /// Ends the log. All readers must have ended.
    pub(crate) async fn seal(self) -> Option<Sealed> {
        let (reply, sealed) = oneshot::channel();
        let sent = tokio::task::spawn_blocking(move || {
            self.input.send(Input::Seal(reply)).is_ok() && self.thread.join().is_ok()
        });
        if !sent.await.unwrap_or(false) {
            return None;
        }
        sealed.await.ok()
    }
}

struct Stream {
    start: u64,
    end: u64,
    hash: sha2::Sha256,
}

struct Worker {
    spool: Arc<Spool>,
    reserve: Arc<Reserve>,
    compressor: zstd::bulk::Compressor<'static>,
    streams: [Stream; 3],
    next_seq: u64,
    max_log_bytes: u64,
    cap_marked: bool,
    dropped: u64,
    dropped_told: u64,
    batch: Vec<u8>,
    batch_first: u64,
    file: Option<File>,
    unsynced: u64,
    last_sync: Instant,
    last_flush: Instant,
    full: bool,
    blocked: Option<Blocked>,
}

// The disk is full, patience is over: the newest bytes are kept, the others counted.
#[derive(Default)]
struct Blocked {
    tail: VecDeque<(LogStream, Vec<u8>)>,
    tail_bytes: usize,
}

impl Worker {
    fn new(
        spool: Arc<Spool>,
        tail: Tail,
        max_log_bytes: u64,
        reserve: Arc<Reserve>,
    ) -> io::Result<Self> {
        let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
        compressor.include_checksum(true)?;
        let streams = tail.ends.map(|end| Stream { start: end, end, hash: sha2::Sha256::new() });
        Ok(Self {
            spool,
            reserve,
            compressor,
            streams,
            next_seq: tail.last_seq + 1,
            max_log_bytes,
            cap_marked: false,
            dropped: 0,
            dropped_told: 0,
            batch: Vec::with_capacity(BATCH_BYTES + MAX_FRAME_BYTES),
            batch_first: tail.last_seq + 1,
            file: None,
            unsynced: 0,
            last_sync: Instant::now(),
            last_flush: Instant::now(),
            full: false,
            blocked: None,
        })
    }

    fn run(mut self, queue: &Receiver<Input>) {
        loop {
            let first = match queue.recv_timeout(SYNC_EVERY) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => {
                    self.unblock(Duration::ZERO);
                    self.sync();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            };
            let mut next = Some(first);
            while let Some(input) = next {
                match input {
                    Input::Data { stream, bytes } => self.data(stream, bytes),
                    Input::Seal(reply) => {
                        let sealed = self.seal();
                        let _ = reply.send(sealed);
                        return;
                    }
                }
                next = self.more(queue);
            }
            self.flush();
            self.last_flush = Instant::now();
            if self.unsynced >= SYNC_BYTES || self.last_sync.elapsed() >= SYNC_EVERY {
                self.sync();
            }
        }
    }

    // What else belongs into this batch.
    fn more(&self, queue: &Receiver<Input>) -> Option<Input> {
        if self.batch.len() >= BATCH_BYTES {
            return None;
        }
        let waited = self.last_flush.elapsed();
        if self.batch.len() < GATHER_BYTES && waited < GATHER {
            return queue.recv_timeout(GATHER - waited).ok();
        }
        queue.try_recv().ok()
    }

    fn data(&mut self, stream: LogStream, mut bytes: Vec<u8>) {
        if let Some(blocked) = &mut self.blocked {
            blocked.push(stream, bytes, &mut self.dropped);
            // The program is not held back any more.
            self.unblock(Duration::ZERO);
            return;
        }
        let stored = self.streams[1].end + self.streams[2].end;
        let room = self.max_log_bytes.saturating_sub(stored);
        let over = bytes.len() as u64 > room;
        if over {
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            self.dropped += (bytes.len() - room) as u64;
            bytes.truncate(room);
        }
        if !bytes.is_empty() {
            self.add(stream, &bytes);
        }
        if over && !self.cap_marked {
            self.cap_marked = true;
            self.add(LogStream::System, texts::log_cap_reached(self.max_log_bytes).as_bytes());
        }
    }

    fn add(&mut self, stream: LogStream, bytes: &[u8]) {
        for part in bytes.chunks(MAX_FRAME_BYTES) {
            let state = &mut self.streams[usize::from(stream.number())];
            self.batch.reserve(FRAME_HEADER_BYTES + part.len());
            self.batch.put_u64_le(self.next_seq);
            self.batch.put_u8(stream.number());
            self.batch.put_i64_le(clock::now().as_microsecond());
            self.batch.put_u64_le(state.end);
            self.batch.put_u32_le(part.len() as u32);
            self.batch.extend_from_slice(part);
            state.hash.update(part);
            state.end += part.len() as u64;
            self.next_seq += 1;
        }
    }

    fn flush(&mut self) {
        if self.batch.is_empty() || self.blocked.is_some() {
            return;
        }
        let body = match self.compressor.compress(&self.batch) {
            Ok(body) => body,
            // Compression into a buffer of the stated bound fails for want of memory only.
            Err(error) => {
                tracing::error!(%error, "cannot compress the log");
                return;
            }
        };
        let header = Header {
            compressed: body.len() as u32,
            raw: self.batch.len() as u32,
            first_seq: self.batch_first,
            last_seq: self.next_seq - 1,
            ends: [self.streams[0].end, self.streams[1].end, self.streams[2].end],
        };
        self.batch.clear();
        self.batch_first = self.next_seq;
        self.store(Held { header, body: Bytes::from(body) });
    }

    fn store(&mut self, record: Held) {
        let Err(error) = self.write(&record) else {
            self.full = false;
            return;
        };
        // Once for each time the disk fills up, not for each batch.
        if !std::mem::replace(&mut self.full, true) {
            tracing::warn!(%error, "cannot write the log spool; sending from memory");
        }
        self.hold(record);
        let since = Instant::now();
        while since.elapsed() < FULL_DISK_PATIENCE {
            if self.retry_held(FULL_DISK_RETRY) {
                return;
            }
        }
        self.blocked = Some(Blocked::default());
    }

    fn tell_dropped(&mut self) {
        self.dropped_told = self.dropped;
        self.add(LogStream::System, texts::log_dropped(self.dropped).as_bytes());
    }

    fn hold(&self, record: Held) {
        let mut state = self.spool.state();
        state.last_seq = record.header.last_seq;
        state.held = Some(record);
        drop(state);
        self.spool.announce();
    }

    // True once the held batch is at the broker or on the disk.
    fn retry_held(&mut self, patience: Duration) -> bool {
        if self.spool.wait_held(patience) {
            return true;
        }
        let Some(record) = self.spool.state().held.clone() else { return true };
        if self.write(&record).is_err() {
            return false;
        }
        self.spool.state().held = None;
        true
    }

    fn unblock(&mut self, patience: Duration) {
        if self.blocked.is_none() || !self.retry_held(patience) {
            return;
        }
        let Some(blocked) = self.blocked.take() else { return };
        self.tell_dropped();
        for (stream, bytes) in blocked.tail {
            self.data(stream, bytes);
        }
        self.flush();
    }

    fn write(&mut self, record: &Held) -> io::Result<()> {
        let newest = self.spool.state().segments.back().cloned();
        let (path, len) = match (&self.file, newest) {
            (Some(_), Some(segment)) if segment.len < SEGMENT_BYTES => (segment.path, segment.len),
            _ => {
                let name = format!("{:020}.seg", record.header.first_seq);
                let path = self.spool.folder.join(name);
                self.sync();
                self.file = Some(File::create(&path)?);
                sync_folder_of(&path)?;
                let segment =
                    Segment { path: path.clone(), last_seq: record.header.first_seq - 1, len: 0 };
                self.spool.state().segments.push_back(segment);
                (path, 0)
            }
        };
        let file = self.file.as_mut().ok_or_else(|| io::Error::other("no segment is open"))?;
        let written =
            file.write_all(&record.header.encode()).and_then(|()| file.write_all(&record.body));
        if let Err(error) = written {
            // Half a record must not stay: it would hide everything after it.
            file.set_len(len)?;
            io::Seek::seek(file, io::SeekFrom::Start(len))?;
            return Err(error);
        }
        self.unsynced += record.header.record_bytes();
        let mut state = self.spool.state();
        state.last_seq = record.header.last_seq;
        if let Some(segment) = state.segments.back_mut().filter(|segment| segment.path == path) {
            segment.len = len + record.header.record_bytes();
            segment.last_seq = record.header.last_seq;
        }
        drop(state);
        self.spool.announce();
        Ok(())
    }

    fn sync(&mut self) {
        if self.unsynced > 0
            && let Some(file) = &self.file
            && let Err(error) = file.sync_data()
        {
            tracing::warn!(%error, "cannot sync the log spool");
        }
        self.unsynced = 0;
        self.last_sync = Instant::now();
    }

    fn seal(&mut self) -> Sealed {
        self.flush();
        if self.blocked.is_some() {
            self.reserve.release();
            while self.blocked.is_some() {
                self.unblock(FULL_DISK_RETRY);
            }
        }
        if self.dropped > self.dropped_told {
            self.tell_dropped();
            self.flush();
            if self.blocked.is_some() {
                self.reserve.release();
                while !self.retry_held(FULL_DISK_RETRY) {}
            }
        }
        self.sync();
        let streams = LogStream::ALL
            .into_iter()
            .zip(&self.streams)
            .filter(|(_, state)| state.end > 0)
            .map(|(stream, state)| StreamSeal {
                stream,
                bytes: state.end,
                sha256: (state.start == 0).then(|| Digest::finish(state.hash.clone())),
            })
            .collect();
        Sealed {
            frames: self.next_seq - 1,
            bytes: self.streams.iter().map(|state| state.end).sum(),
            dropped_bytes: self.dropped,
            streams,
        }
    }
}

impl Blocked {
    fn push(&mut self, stream: LogStream, bytes: Vec<u8>, dropped: &mut u64) {
        self.tail_bytes += bytes.len();
        self.tail.push_back((stream, bytes));
        while self.tail_bytes > TAIL_BYTES {
            let Some((_, oldest)) = self.tail.pop_front() else { break };
            self.tail_bytes -= oldest.len();
            *dropped += oldest.len() as u64;
        }
    }
}
