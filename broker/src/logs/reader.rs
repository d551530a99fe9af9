//! Reading a log: the end of it, from a cursor on, or the raw bytes of a stream.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use runwhere_agent::protocol::LogStream;
use runwhere_model::Lang;
use tokio::sync::watch;

use super::LogError;
use super::block::{self, Content};
use super::cursor::Cursor;
use super::lines::{Line, Lines};
use super::trial::{Point, TrialLog};
use crate::disk;

/// How far back the last lines are looked for, in bytes before compression.
const MAX_LOOK_BACK: u64 = 64 << 20;

/// How much of the end is wanted.
#[derive(Clone, Copy, Debug)]
pub struct TailLimits {
    /// At most so many lines.
    pub lines: usize,
    /// At most so many bytes of text.
    pub bytes: usize,
    /// Nothing will follow: the unfinished last line counts too, as far as it is among the bytes
    /// looked at. Always so for a sealed log.
    pub ended: bool,
}

/// The end of a log.
#[derive(Clone, Debug)]
pub struct Tail {
    /// The last lines.
    pub lines: Vec<Line>,
    /// The position after them.
    pub cursor: Cursor,
    /// There are earlier lines.
    pub truncated: bool,
}

pub(super) async fn tail(
    log: Arc<TrialLog>,
    limits: TailLimits,
    lang: Lang,
) -> Result<Tail, LogError> {
    disk::blocking(move || read_tail(&log, limits, lang)).await?
}

fn read_tail(log: &TrialLog, limits: TailLimits, lang: Lang) -> Result<Tail, LogError> {
    let empty = Tail { lines: Vec::new(), cursor: Cursor::default(), truncated: false };
    let Some((file, point)) = log.readable() else { return Ok(empty) };
    // Each stream may begin with a part of a line, which is left out.
    let mut wanted = limits.lines as u64 + 4;
    loop {
        let (from, complete) = look_back(&file, point.len, wanted)?;
        let (tail, since_left_out) = read_from(&file, point, from, complete, limits, lang)?;
        if !complete || since_left_out >= limits.lines {
            return Ok(tail);
        }
        // A left out line is one of the last ones: look further back for its beginning.
        wanted = wanted.saturating_mul(4);
    }
}

/// Where to begin so that so many lines end after it; whether that many were found short of the
/// beginning of the log and of the limit.
fn look_back(file: &File, end: u64, wanted: u64) -> Result<(Cursor, bool), LogError> {
    let (mut at, mut line_ends, mut bytes) = (end, 0, 0);
    while at > 0 && line_ends < wanted && bytes < MAX_LOOK_BACK {
        let (begin, header) = block::before(file, at)?.ok_or(LogError::Damaged(at))?;
        line_ends += u64::from(header.line_ends);
        bytes += u64::from(header.raw);
        at = begin;
    }
    let mut from = Cursor { block: at, ..Cursor::default() };
    if at > 0 {
        let (_, header) = block::before(file, at)?.ok_or(LogError::Damaged(at))?;
        (from.taken, from.notes) = (header.totals.ends, header.totals.notes);
    }
    Ok((from, at > 0 && line_ends >= wanted))
}

fn read_from(
    file: &File,
    point: Point,
    from: Cursor,
    skip_begun: bool,
    limits: TailLimits,
    lang: Lang,
) -> Result<(Tail, usize), LogError> {
    let mut lines = Lines::new(from, lang);
    if skip_begun {
        lines.skip_begun();
    }
    let mut at = from.block;
    let mut truncated = at > 0;
    let mut kept: VecDeque<Line> = VecDeque::new();
    let mut kept_bytes = 0;
    let mut fresh = Vec::new();
    let mut keep = |fresh: &mut Vec<Line>| {
        for line in fresh.drain(..) {
            kept_bytes += line.text.len();
            kept.push_back(line);
            while kept.len() > limits.lines || (kept_bytes > limits.bytes && kept.len() > 1) {
                truncated = true;
                kept_bytes -= kept.pop_front().map_or(0, |line| line.text.len());
            }
        }
    };
    while at < point.len {
        let (header, content) = block::read(file, at, point.len)?;
        lines.block(at, header.totals.notes, &content, &mut fresh);
        keep(&mut fresh);
        at += header.block_len();
    }
    if limits.ended || point.sealed {
        lines.flush(&mut fresh);
        keep(&mut fresh);
    }
    let since_left_out = lines.since_left_out();
    Ok((Tail { lines: kept.into(), cursor: lines.cursor(), truncated }, since_left_out))
}

/// Reads a log line by line from a cursor on, and waits for more.
#[derive(Debug)]
pub struct Follower {
    log: Arc<TrialLog>,
    changed: watch::Receiver<u64>,
    // `None` only while a block is being read on another thread.
    state: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    lines: Lines,
    at: u64,
}

impl Follower {
    pub(super) fn new(log: Arc<TrialLog>, from: Cursor, lang: Lang) -> Self {
        let changed = log.subscribe();
        let state = Some(Reading { lines: Lines::new(from, lang), at: from.block });
        Self { log, changed, state }
    }

    /// The lines of the next block; `None` when everything durable was read. A cursor that is not
    /// of this log is [`LogError::Damaged`]. Must not be dropped half-way.
    pub async fn next(&mut self) -> Result<Option<Vec<Line>>, LogError> {
        let Some(mut reading) = self.state.take() else {
            return Err(LogError::Io(std::io::Error::other("a read was interrupted")));
        };
        self.changed.borrow_and_update();
        let log = Arc::clone(&self.log);
        let (reading, result) = disk::blocking(move || {
            let result = reading.next(&log);
            (reading, result)
        })
        .await?;
        self.state = Some(reading);
        result
    }

    /// Returns once more than at the last [`Follower::next`] may be readable.
    pub async fn changed(&mut self) {
        // The sender lives in `self.log`, so it cannot be gone.
        let _ = self.changed.changed().await;
    }

    /// Whether nothing will follow what was read.
    pub fn is_sealed(&self) -> bool {
        self.log.state().sealed
    }

    /// The unfinished lines, where nothing will follow.
    pub fn flush(&mut self) -> Vec<Line> {
        let mut out = Vec::new();
        if let Some(reading) = &mut self.state {
            reading.lines.flush(&mut out);
        }
        out
    }

    /// The position after everything that came out.
    pub fn cursor(&self) -> Cursor {
        self.state.as_ref().map_or_else(Cursor::default, |reading| reading.lines.cursor())
    }
}

impl Reading {
    fn next(&mut self, log: &TrialLog) -> Result<Option<Vec<Line>>, LogError> {
        let Some((file, point)) = log.readable() else { return Ok(None) };
        if self.at == point.len {
            return Ok(None);
        }
        let (header, content) = block::read(&file, self.at, point.len)?;
        let mut out = Vec::new();
        self.lines.block(self.at, header.totals.notes, &content, &mut out);
        self.at += header.block_len();
        Ok(Some(out))
    }
}

/// The raw bytes of one stream, as the program wrote them, up to what was durable at the start.
#[derive(Debug)]
pub struct Export {
    log: Arc<TrialLog>,
    stream: LogStream,
    at: u64,
    end: u64,
    size: u64,
}

impl Export {
    pub(super) fn new(log: Arc<TrialLog>, stream: LogStream) -> Self {
        let point = log.readable().map(|(_, point)| point).unwrap_or_default();
        let size = point.totals.ends[usize::from(stream.number())];
        Self { log, stream, at: 0, end: point.len, size }
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, LogError> {
        while self.at < self.end {
            let (log, at, end) = (Arc::clone(&self.log), self.at, self.end);
            let (header, content) = disk::blocking(move || {
                let (file, _) = log.readable().ok_or(LogError::Damaged(at))?;
                block::read(&file, at, end)
            })
            .await??;
            self.at += header.block_len();
            let Content::Frames(frames) = content else { continue };
            let mut parts = frames.into_iter().filter(|frame| frame.stream == self.stream);
            let Some(first) = parts.next() else { continue };
            let Some(second) = parts.next() else { return Ok(Some(first.bytes)) };
            let mut bytes = first.bytes.to_vec();
            bytes.extend_from_slice(&second.bytes);
            parts.for_each(|frame| bytes.extend_from_slice(&frame.bytes));
            return Ok(Some(bytes.into()));
        }
        Ok(None)
    }
}
