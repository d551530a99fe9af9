//! Reading a program's pipes: raw bytes, large reads, held back while the log writer is behind.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::protocol::LogStream;
use crate::spool::Input;

const READ_BYTES: usize = 256 << 10;
const PIPE_BYTES: usize = 1 << 20;
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
// A program that writes much in small pieces is read in larger ones: within this time it fills no
// more than its pipe, so it does not wait.
const GATHER: Duration = Duration::from_millis(1);
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// The readers of a program.
#[derive(Debug)]
pub(crate) struct Capture {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    /// Starts a thread for each pipe.
    pub(crate) fn start(
        pipes: Vec<(LogStream, OwnedFd)>,
        log: &SyncSender<Input>,
    ) -> std::io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (stream, pipe) in pipes {
            // A larger pipe only saves wake-ups; the limit of the system may forbid it.
            let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
            let (ended, log) = (Arc::clone(&ended), log.clone());
            threads.push(
                thread::Builder::new()
                    .name("log-reader".to_owned())
                    .spawn(move || read(stream, &pipe, &log, &ended))?,
            );
        }
        Ok(Self { ended, threads })
    }

    /// Takes what is left in the pipes, also where somebody still holds the other end. Blocks for
    /// a bounded time.
    pub(crate) fn finish(self) {
        self.ended.store(true, Ordering::Release);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn read(stream: LogStream, pipe: &OwnedFd, log: &SyncSender<Input>, ended: &AtomicBool) {
    let mut buffer = Vec::new();
    let mut draining_since = None;
    let mut last_read: Option<Instant> = None;
    loop {
        let ending = ended.load(Ordering::Acquire);
        if ending {
            let since = *draining_since.get_or_insert_with(Instant::now);
            if since.elapsed() > DRAIN_LIMIT {
                return;
            }
        }
        let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&TICK));
        match ready {
            Ok(0) if ending => return,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for the program's output");
                return;
            }
        }
        if last_read.is_some_and(|last| last.elapsed() < GATHER) {
            thread::sleep(GATHER);
        }
        buffer.clear();
        buffer.reserve_exact(READ_BYTES);
        match rustix::io::read(pipe, spare_capacity(&mut buffer)) {
            Ok(0) => return,
            Ok(len) => {
                // A full buffer means that there is more; then nothing is gained by waiting.
                last_read = (len < READ_BYTES).then(Instant::now);
                // A large piece goes on as it is; small ones must not keep a large buffer each.
                let bytes =
                    if len < READ_BYTES / 2 { buffer.clone() } else { std::mem::take(&mut buffer) };
                if log.send(Input::Data { stream, bytes }).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot read the program's output");
                return;
            }
        }
    }
}
