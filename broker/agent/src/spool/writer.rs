//! The thread that numbers, batches, compresses and writes frames.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use runwhere_failpoint::failpoint;
use tokio::sync::oneshot;

use super::hasher::Hasher;
use super::record::Header;
use super::shared::{Held, Segment, Spool, Tail};
use crate::clock;
use crate::files::{Reserve, sync_folder_of};
use crate::protocol::frame::ZSTD_LEVEL;
use crate::protocol::{FRAME_HEADER_BYTES, LogStream, MAX_FRAME_BYTES, StreamSeal};
use crate::texts;

// Together they bound the memory of the log path to a few batches.
const QUEUE_LEN: usize = 16;
// The broker stores batches of about this size as they come.
const BATCH_BYTES: usize = 1 << 20;
const SEGMENT_BYTES: u64 = 32 << 20;

// In a flood, small batches wait this long for more; a first line after silence never does.
const GATHER: Duration = Duration::from_millis(10);
const GATHER_BYTES: usize = 512 << 10;

// So long the broker has to make a frame durable before this disk must; usually it is faster, and
// nothing is written to two disks at once.
const SYNC_AFTER: Duration = Duration::from_millis(500);

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
        // It ends by itself, after the seal.
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || worker.run(&queue))?;
        Ok((Self { input }, spool))
    }

    /// For the threads that read the program's pipes.
    pub(crate) fn input(&self) -> SyncSender<Input> {
        self.input.clone()
    }

    /// Ends the log. All readers must have ended.
    pub(crate) async fn seal(self) -> Option<Sealed> {
        let (reply, sealed) = oneshot::channel();
        let sent = tokio::task::spawn_blocking(move || self.input.send(Input::Seal(reply)));
        sent.await.ok()?.ok()?;
        sealed.await.ok()
    }
}

struct Stream {
    start: u64,
    end: u64,
}

struct Worker {
    spool: Arc<Spool>,
    reserve: Arc<Reserve>,
    compressor: zstd::bulk::Compressor<'static>,
    hasher: Option<Hasher>,
    streams: [Stream; 3],
    next_seq: u64,
    max_log_bytes: u64,
    cap_marked: bool,
    dropped: u64,
    dropped_told: u64,
    batch: Vec<u8>,
    batch_first: u64,
    file: Option<File>,
    // The segment before, with its last frame, while it may not be on this disk.
    before: Option<(File, u64)>,
    // The frame that the broker is to make durable, and since when.
    awaited: Option<(u64, Instant)>,
    // Up to here it is on this disk anyway.
    synced: u64,
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
        let streams = tail.ends.map(|end| Stream { start: end, end });
        Ok(Self {
            spool,
            reserve,
            compressor,
            hasher: Some(Hasher::start()?),
            streams,
            next_seq: tail.last_seq + 1,
            max_log_bytes,
            cap_marked: false,
            dropped: 0,
            dropped_told: 0,
            batch: Vec::new(),
            batch_first: tail.last_seq + 1,
            file: None,
            before: None,
            awaited: None,
            synced: 0,
            last_flush: Instant::now(),
            full: false,
            blocked: None,
        })
    }

    fn run(mut self, queue: &Receiver<Input>) {
        loop {
            let first = match queue.recv_timeout(SYNC_AFTER) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) => {
                    self.unblock(Duration::ZERO);
                    self.keep_safe();
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
                        if !self.spool.wait_acked(SYNC_AFTER) {
                            self.sync();
                        }
                        return;
                    }
                }
                next = self.more(queue);
            }
            self.flush();
            self.last_flush = Instant::now();
            self.keep_safe();
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
        let batch = std::mem::take(&mut self.batch);
        self.batch = match &self.hasher {
            Some(hasher) => hasher.add(batch),
            None => Vec::new(),
        };
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
                let (last_seq, acked) = {
                    let state = self.spool.state();
                    (state.last_seq, state.acked)
                };
                // What is not safe yet is never in more than two segments.
                if self.before.as_ref().is_some_and(|(_, last_seq)| *last_seq > acked) {
                    self.sync();
                }
                let file = File::create(&path)?;
                sync_folder_of(&path)?;
                let before = self.file.replace(file);
                self.before = before.filter(|_| last_seq > acked).map(|file| (file, last_seq));
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
        failpoint!("agent.spool.written");
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

    // Syncs what the broker does not make durable in time.
    fn keep_safe(&mut self) {
        let (last_seq, acked) = {
            let state = self.spool.state();
            (state.last_seq, state.acked)
        };
        let safe = acked.max(self.synced);
        match self.awaited {
            Some((awaited, since)) if safe < awaited => {
                if since.elapsed() >= SYNC_AFTER {
                    self.sync();
                }
            }
            _ => self.awaited = (safe < last_seq).then(|| (last_seq, Instant::now())),
        }
    }

    // In the order of the segments.
    fn sync(&mut self) {
        self.synced = self.spool.last_seq();
        let before = self.before.take().map(|(file, _)| file);
        for file in before.iter().chain(&self.file) {
            if let Err(error) = file.sync_data() {
                tracing::warn!(%error, "cannot sync the log spool");
            }
        }
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
        let hashes = self.hasher.take().and_then(Hasher::finish);
        let seal = |(stream, state): (LogStream, &Stream)| StreamSeal {
            stream,
            bytes: state.end,
            // Of the whole stream, or of nothing.
            sha256: hashes
                .filter(|_| state.start == 0)
                .map(|hashes| hashes[usize::from(stream.number())]),
        };
        let streams = LogStream::ALL
            .into_iter()
            .zip(&self.streams)
            .filter(|(_, state)| state.end > 0)
            .map(seal)
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
