//! The log file of one trial.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runwhere_agent::protocol::{BatchPart, FRAME_HEADER_BYTES, LogFrame, encode_frames};
use runwhere_failpoint::failpoint;
use tokio::sync::watch;

use super::LogError;
use super::block::{self, Content, Kind, NotePayload, Session, Totals};
use super::note::NoteRecord;
use crate::disk;

/// A crash can only harm what was not synced, and never more than this is unsynced.
const MAX_UNSYNCED: u64 = 32 << 20;
/// So much of the end is checked at an opening.
const CHECKED_END: u64 = 2 * MAX_UNSYNCED;
/// Frames are stored in blocks of about this size before compression.
const BLOCK_BYTES: usize = 1 << 20;
/// More notes than any run makes.
const MAX_NOTES: usize = 1000;

/// What is durable of a log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogState {
    /// The lease whose agent wrote last; empty for none.
    pub lease: String,
    /// The last frame of that agent.
    pub durable_seq: u64,
    /// Stored bytes of the streams system, stdout, stderr.
    pub bytes: [u64; 3],
    /// Nothing will follow.
    pub sealed: bool,
}

/// One trial's log.
#[derive(Debug)]
pub(super) struct TrialLog {
    path: PathBuf,
    limit: u64,
    inner: Mutex<Inner>,
    // Whoever holds it syncs for all that wait.
    turn: Mutex<()>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    // `None` until the first append: a reader makes no files.
    file: Option<Arc<File>>,
    keys: HashSet<String>,
    session: Session,
    written: Point,
    durable: Point,
    // Counts the times that unsynced blocks were thrown away.
    generation: u64,
}

/// A length of the file and what it holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    pub(super) len: u64,
    pub(super) totals: Totals,
    pub(super) sealed: bool,
}

impl TrialLog {
    /// Opens a log, cutting off an end that a crash left unfinished.
    pub(super) fn open(folder: PathBuf, limit: u64) -> Result<Self, LogError> {
        let path = folder.join("log");
        let mut inner = Inner::default();
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => {
                let point = recover(&file)?;
                (inner.keys, inner.session) = remembered(&file, &point)?;
                inner.file = Some(Arc::new(file));
                (inner.written, inner.durable) = (point, point);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let changed = watch::Sender::new(inner.durable.len);
        Ok(Self { path, limit, inner: Mutex::new(inner), turn: Mutex::new(()), changed })
    }

    pub(super) fn state(&self) -> LogState {
        let inner = self.lock();
        let point = inner.durable;
        LogState {
            lease: inner.session.lease.clone(),
            durable_seq: point.totals.last_seq.saturating_sub(inner.session.seq),
            bytes: point.totals.ends,
            sealed: point.sealed,
        }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The file and how much of it is durable; `None` while nothing was written.
    pub(super) fn readable(&self) -> Option<(Arc<File>, Point)> {
        let inner = self.lock();
        inner.file.clone().map(|file| (file, inner.durable))
    }

    /// Appends frames of a lease's agent that are not stored yet and returns its last durable one.
    pub(super) fn append(&self, lease: &str, parts: &[BatchPart]) -> Result<u64, LogError> {
        let (end, generation, base) = {
            let mut inner = self.lock();
            let any = parts.iter().any(|part| !part.frames.is_empty());
            if inner.session.lease != lease && any {
                self.begin(&mut inner, lease)?;
            }
            let base = inner.session.seq;
            let mut totals = inner.written.totals;
            let stored = totals.last_seq - base;
            let mut data = Vec::new();
            for part in parts {
                let known = part.frames.partition_point(|frame| frame.seq <= stored);
                if known == part.frames.len() {
                    continue;
                }
                if inner.written.sealed {
                    return Err(LogError::Sealed);
                }
                let added = self.add(&mut data, totals, &inner.session, part, known);
                totals = added.map_err(|error| match error {
                    // Only what is durable may be dropped by the sender.
                    LogError::Gap { .. } => LogError::Gap {
                        durable_seq: inner.durable.totals.last_seq.saturating_sub(base),
                    },
                    LogError::Offset { seq, expected, found } => {
                        LogError::Offset { seq: seq - base, expected, found }
                    }
                    other => other,
                })?;
            }
            if !data.is_empty() {
                self.write(&mut inner, &data, totals, false)?;
                failpoint!("log.append.written");
            }
            (inner.written.len, inner.generation, base)
        };
        self.make_durable(end, generation)?;
        Ok(self.lock().durable.totals.last_seq.saturating_sub(base))
    }

    /// From here on the frames are those of another lease's agent.
    fn begin(&self, inner: &mut Inner, lease: &str) -> Result<(), LogError> {
        if inner.written.sealed {
            return Err(LogError::Sealed);
        }
        let mut totals = inner.written.totals;
        let session = Session { lease: lease.to_owned(), seq: totals.last_seq, ends: totals.ends };
        totals.newest_session = inner.written.len + 1;
        let raw = serde_json::to_vec(&session).map_err(|error| LogError::Io(error.into()))?;
        let mut data = Vec::new();
        block::encode(&mut data, Kind::Session, totals, 0, &raw)?;
        self.write(inner, &data, totals, false)?;
        inner.session = session;
        Ok(())
    }

    /// Makes blocks of the frames of a part, without the first `known` ones.
    fn add(
        &self,
        data: &mut Vec<u8>,
        mut totals: Totals,
        session: &Session,
        part: &BatchPart,
        known: usize,
    ) -> Result<Totals, LogError> {
        if let Some(packed) = &part.packed
            && known == 0
            && session.is_first()
            && block::takes(packed, part.raw)
        {
            // Its numbers are the log's own: it is stored as it came.
            let line_ends = self.follow(&mut totals, &part.frames)?;
            block::put(data, Kind::Frames, totals, line_ends, part.raw, packed);
            return Ok(totals);
        }
        let frames = rebased(session, &part.frames[known..]);
        let mut rest = &frames[..];
        while !rest.is_empty() {
            let mut size = 0;
            let fits = rest.iter().take_while(|frame| {
                let first = size == 0;
                size += FRAME_HEADER_BYTES + frame.bytes.len();
                first || size <= BLOCK_BYTES
            });
            let (block, after) = rest.split_at(fits.count());
            let line_ends = self.follow(&mut totals, block)?;
            let raw =
                encode_frames(block).map_err(|error| LogError::Io(io::Error::other(error)))?;
            block::encode(data, Kind::Frames, totals, line_ends, &raw)?;
            rest = after;
        }
        Ok(totals)
    }

    /// Checks that frames go on where the log ends; returns their line ends.
    fn follow(&self, totals: &mut Totals, frames: &[LogFrame]) -> Result<u32, LogError> {
        let mut line_ends = 0_usize;
        for frame in frames {
            if totals.last_seq.checked_add(1) != Some(frame.seq) {
                return Err(LogError::Gap { durable_seq: totals.last_seq });
            }
            let end = &mut totals.ends[usize::from(frame.stream.number())];
            if frame.offset != *end {
                return Err(LogError::Offset {
                    seq: frame.seq,
                    expected: *end,
                    found: frame.offset,
                });
            }
            *end += frame.bytes.len() as u64;
            totals.last_seq = frame.seq;
            line_ends += count_line_ends(&frame.bytes);
        }
        let stored: u64 = totals.ends.iter().sum();
        if stored > self.limit {
            return Err(LogError::TooLarge { limit: self.limit });
        }
        Ok(line_ends as u32)
    }

    /// Appends a note unless its key is there already.
    pub(super) fn note(&self, record: NoteRecord) -> Result<(), LogError> {
        let (end, generation) = {
            let mut inner = self.lock();
            if !inner.keys.contains(&record.key) {
                if inner.written.sealed {
                    return Err(LogError::Sealed);
                }
                if inner.keys.len() >= MAX_NOTES {
                    return Err(LogError::TooLarge { limit: MAX_NOTES as u64 });
                }
                let mut totals = inner.written.totals;
                totals.notes += 1;
                totals.newest_note = inner.written.len + 1;
                let key = record.key.clone();
                let mut keys: Vec<String> = inner.keys.iter().cloned().collect();
                keys.push(key.clone());
                keys.sort_unstable();
                let raw = serde_json::to_vec(&NotePayload { record, keys })
                    .map_err(|error| LogError::Io(error.into()))?;
                let mut data = Vec::new();
                block::encode(&mut data, Kind::Note, totals, 1, &raw)?;
                self.write(&mut inner, &data, totals, false)?;
                failpoint!("log.note.written");
                inner.keys.insert(key);
            }
            (inner.written.len, inner.generation)
        };
        self.make_durable(end, generation)
    }

    /// Says that nothing will follow; repeats are harmless.
    pub(super) fn seal(&self) -> Result<(), LogError> {
        let (end, generation) = {
            let mut inner = self.lock();
            if !inner.written.sealed {
                // What the seal stands for must be durable before the seal can be.
                if let Some(file) = inner.file.clone() {
                    file.sync_data()?;
                    inner.durable = inner.written;
                }
                let totals = inner.written.totals;
                let mut data = Vec::new();
                block::encode(&mut data, Kind::Seal, totals, 0, &[])?;
                failpoint!("log.seal.before");
                self.write(&mut inner, &data, totals, true)?;
                failpoint!("log.seal.written");
            }
            (inner.written.len, inner.generation)
        };
        self.make_durable(end, generation)
    }

    fn write(
        &self,
        inner: &mut Inner,
        data: &[u8],
        totals: Totals,
        sealed: bool,
    ) -> Result<(), LogError> {
        if inner.written.len - inner.durable.len > MAX_UNSYNCED {
            self.file(inner)?.sync_data()?;
            inner.durable = inner.written;
        }
        let file = self.file(inner)?;
        let at = inner.written.len;
        if let Err(error) = file.write_all_at(data, at) {
            // A part may be on disk: later blocks must not stand behind it.
            file.set_len(at)?;
            return Err(error.into());
        }
        inner.written = Point { len: at + data.len() as u64, totals, sealed };
        Ok(())
    }

    fn file(&self, inner: &mut Inner) -> Result<Arc<File>, LogError> {
        if let Some(file) = &inner.file {
            return Ok(Arc::clone(file));
        }
        let folder = self.path.parent().ok_or_else(|| io::Error::other("a log has a folder"))?;
        disk::make_folder(folder)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).mode(0o600).open(&self.path)?;
        disk::sync_folder(folder)?;
        Ok(Arc::clone(inner.file.insert(Arc::new(file))))
    }

    /// Returns once everything up to `end` is on disk. Where the disk refuses, everything that is
    /// not durable is thrown away, and all that waited for it fail.
    fn make_durable(&self, end: u64, generation: u64) -> Result<(), LogError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, target) = {
            let inner = self.lock();
            if inner.generation != generation {
                return Err(LogError::Io(io::Error::other("an earlier write was not kept")));
            }
            let Some(file) = &inner.file else { return Ok(()) };
            if inner.durable.len >= end {
                return Ok(());
            }
            (Arc::clone(file), inner.written)
        };
        failpoint!("log.sync.before");
        let synced = file.sync_data();
        failpoint!("log.sync.after");
        let mut inner = self.lock();
        match synced {
            Ok(()) => {
                inner.durable = target;
                drop(inner);
                self.changed.send_replace(target.len);
                Ok(())
            }
            Err(error) => {
                inner.written = inner.durable;
                inner.generation += 1;
                (inner.keys, inner.session) = remembered(&file, &inner.durable).unwrap_or_default();
                file.set_len(inner.durable.len)?;
                Err(error.into())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of notes and the session at a point.
fn remembered(file: &File, point: &Point) -> Result<(HashSet<String>, Session), LogError> {
    let mut keys = HashSet::new();
    let mut session = Session::default();
    if let Some(at) = point.totals.newest_note.checked_sub(1)
        && let (_, Content::Note(payload)) = block::read(file, at, point.len)?
    {
        keys = payload.keys.into_iter().collect();
    }
    if let Some(at) = point.totals.newest_session.checked_sub(1)
        && let (_, Content::Session(found)) = block::read(file, at, point.len)?
    {
        session = found;
    }
    Ok((keys, session))
}

/// Frames as they are stored: numbers and offsets go on over all sessions.
fn rebased(session: &Session, frames: &[LogFrame]) -> Vec<LogFrame> {
    let mut frames = frames.to_vec();
    for frame in &mut frames {
        frame.seq = frame.seq.saturating_add(session.seq);
        let base = session.ends[usize::from(frame.stream.number())];
        frame.offset = frame.offset.saturating_add(base);
    }
    frames
}

/// Counted in pieces whose sum fits into a byte: that way the compiler adds up many bytes at once.
fn count_line_ends(bytes: &[u8]) -> usize {
    let count = |piece: &[u8]| piece.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(usize::from(u8::MAX)).map(|piece| usize::from(count(piece))).sum()
}

/// Finds what is intact and cuts off the rest.
fn recover(file: &File) -> Result<Point, LogError> {
    let len = file.metadata()?.len();
    if let Some(point) = check_end(file, len)? {
        return Ok(point);
    }
    let mut point = Point::default();
    while let Some(header) = block::header_at(file, point.len, len)? {
        if block::payload(file, point.len, &header)?.is_none() {
            break;
        }
        point = Point {
            len: point.len + header.block_len(),
            totals: header.totals,
            sealed: header.kind == Kind::Seal,
        };
    }
    tracing::warn!(kept = point.len, cut = len - point.len, "cut off the unfinished end of a log");
    file.set_len(point.len)?;
    file.sync_all()?;
    Ok(point)
}

/// The state at the end, if everything that a crash could have harmed is intact.
fn check_end(file: &File, len: u64) -> io::Result<Option<Point>> {
    let mut found = None;
    let mut end = len;
    while end > 0 && len - end < CHECKED_END {
        let Some((at, header)) = block::before(file, end)? else { return Ok(None) };
        if block::payload(file, at, &header)?.is_none() {
            return Ok(None);
        }
        let sealed = header.kind == Kind::Seal;
        let point = *found.get_or_insert(Point { len, totals: header.totals, sealed });
        if point.sealed {
            // Sealed after everything before was durable.
            break;
        }
        end = at;
    }
    Ok(Some(found.unwrap_or_default()))
}
