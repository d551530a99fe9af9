//! What writer and uploader know together.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::record::{HEADER_BYTES, Header};
use crate::protocol::decode_batch;

/// So many of the newest segments may not be on the disk yet.
pub(super) const MAX_UNSYNCED_SEGMENTS: usize = 2;

/// The spool folder of a trial.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(super) folder: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    /// Counts changes of what there is to send.
    pub(super) written: watch::Sender<u64>,
    acked: watch::Sender<u64>,
    broken: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) segments: VecDeque<Segment>,
    /// A batch that did not fit onto the disk.
    pub(super) held: Option<Held>,
    pub(super) last_seq: u64,
    pub(super) acked: u64,
}

/// One file; `len` bytes of it are whole records.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) last_seq: u64,
    pub(super) len: u64,
}

/// A batch in memory.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) header: Header,
    pub(super) body: Bytes,
}

/// Where numbering goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) last_seq: u64,
    pub(super) ends: [u64; 3],
}

impl Spool {
    /// Opens the folder, cutting off what a crash left unfinished. `durable_seq` is what the broker
    /// has already.
    pub(super) fn open(folder: &Path, durable_seq: u64) -> io::Result<(Self, Tail)> {
        fs::create_dir_all(folder)?;
        let mut paths: Vec<PathBuf> = fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
        paths.sort();
        let mut tail = Tail::default();
        let mut segments = VecDeque::new();
        let checked_from = paths.len().saturating_sub(MAX_UNSYNCED_SEGMENTS);
        let mut torn = false;
        for (index, path) in paths.into_iter().enumerate() {
            // Behind a hole nothing counts: its numbers are given once more.
            let known = torn.then_some(tail.last_seq.max(durable_seq));
            let (len, cut) = check(&path, index >= checked_from, known, &mut tail)?;
            torn |= cut || len == 0;
            if len == 0 {
                fs::remove_file(&path)?;
            } else {
                segments.push_back(Segment { path, last_seq: tail.last_seq, len });
            }
        }
        tail.last_seq = tail.last_seq.max(durable_seq);
        let state = State { segments, held: None, last_seq: tail.last_seq, acked: durable_seq };
        let spool = Self {
            folder: folder.to_owned(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            written: watch::channel(1).0,
            acked: watch::channel(durable_seq).0,
            broken: watch::channel(false).0,
        };
        Ok((spool, tail))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Last frame of the spool, 0 for none.
    pub(crate) fn last_seq(&self) -> u64 {
        self.state().last_seq
    }

    /// Tells the uploader that there is more to send.
    pub(super) fn announce(&self) {
        self.written.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Records what the broker has; deletes segments that nobody needs any more, but never the
    /// newest: it tells a restarted agent where numbering goes on.
    pub(super) fn acknowledge(&self, durable_seq: u64) {
        let mut state = self.state();
        state.acked = state.acked.max(durable_seq);
        let acked = state.acked;
        while state.segments.len() > 1
            && state.segments.front().is_some_and(|segment| segment.last_seq <= acked)
        {
            if let Some(segment) = state.segments.pop_front()
                && let Err(error) = fs::remove_file(&segment.path)
            {
                tracing::warn!(%error, "cannot delete a sent log segment");
            }
        }
        if state.held.as_ref().is_some_and(|held| held.header.last_seq <= acked) {
            state.held = None;
        }
        drop(state);
        self.changed.notify_all();
        self.acked.send_if_modified(|known| {
            let more = acked > *known;
            *known = acked;
            more
        });
    }

    /// Waits (blocking) until a held batch has been sent or `patience` is over; true where it was.
    pub(super) fn wait_held(&self, patience: Duration) -> bool {
        let state = self.state();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, patience, |state| state.held.is_some())
            .unwrap_or_else(PoisonError::into_inner);
        state.held.is_none()
    }

    /// Waits (blocking) until the broker has everything or `patience` is over; true where it has.
    pub(super) fn wait_acked(&self, patience: Duration) -> bool {
        let behind = |state: &mut State| state.acked < state.last_seq;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(self.state(), patience, behind)
            .unwrap_or_else(PoisonError::into_inner);
        !behind(&mut state)
    }

    /// Gives up sending: the broker lost frames that it had acknowledged.
    pub(super) fn give_up(&self) {
        self.broken.send_replace(true);
        self.changed.notify_all();
    }

    /// Returns once the broker has every frame up to `seq`; false where it never will.
    pub(crate) async fn durable(&self, seq: u64) -> bool {
        let mut acked = self.acked.subscribe();
        let mut broken = self.broken.subscribe();
        tokio::select! {
            reached = acked.wait_for(|acked| *acked >= seq) => reached.is_ok(),
            _ = broken.wait_for(|broken| *broken) => false,
        }
    }
}

// Walks the records of a segment, cuts the file after the last good one and returns its length and
// whether something was cut. Segments become durable in their order, so only the last ones can be
// damaged, but those anywhere: their records are unpacked to see. `known` is given where an earlier
// one was damaged: then records must go on from there.
fn check(
    path: &Path,
    unpack: bool,
    known: Option<u64>,
    tail: &mut Tail,
) -> io::Result<(u64, bool)> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let size = file.metadata()?.len();
    let mut place = 0;
    while place + HEADER_BYTES as u64 <= size {
        let Some(header) = read_header(&mut file, place)? else { break };
        let end = place + header.record_bytes();
        let hole = place == 0 && known.is_some_and(|known| header.first_seq > known + 1);
        if end > size || hole || (unpack && !whole(&mut file, place, &header)?) {
            break;
        }
        *tail = Tail { last_seq: header.last_seq, ends: header.ends };
        place = end;
    }
    if place < size {
        file.set_len(place)?;
    }
    Ok((place, place < size))
}

fn whole(file: &mut File, place: u64, header: &Header) -> io::Result<bool> {
    let mut body = Vec::new();
    read_body(file, place, header, &mut body)?;
    Ok(decode_batch(body).is_ok_and(|frames| {
        frames.first().is_some_and(|frame| frame.seq == header.first_seq)
            && frames.last().is_some_and(|frame| frame.seq == header.last_seq)
    }))
}

/// The header at `place`; None where there is none.
pub(super) fn read_header(file: &mut File, place: u64) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut bytes)?;
    Ok(Header::decode(&bytes))
}

/// Appends the compressed batch of the record at `place`.
pub(super) fn read_body(
    file: &mut File,
    place: u64,
    header: &Header,
    body: &mut Vec<u8>,
) -> io::Result<()> {
    let len = header.compressed as usize;
    file.seek(SeekFrom::Start(place + HEADER_BYTES as u64))?;
    body.reserve(len);
    if file.take(len as u64).read_to_end(body)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::protocol::{LogFrame, LogStream, encode_batch};

    fn record(first_seq: u64, offset: u64) -> Vec<u8> {
        let frame = |seq, offset| LogFrame {
            seq,
            stream: LogStream::Stdout,
            time_us: 0,
            offset,
            bytes: Bytes::from_static(b"abc"),
        };
        let body = encode_batch(&[frame(first_seq, offset), frame(first_seq + 1, offset + 3)]);
        let body = body.unwrap();
        let header = Header {
            compressed: body.len() as u32,
            raw: 64,
            first_seq,
            last_seq: first_seq + 1,
            ends: [0, offset + 6, 0],
        };
        [&header.encode()[..], &body].concat()
    }

    #[test]
    fn whatever_a_crash_leaves_at_the_end_is_cut_off() {
        let (first, second) = (record(1, 0), record(3, 6));
        let whole = [first.clone(), second.clone()].concat();
        // Every length, as a torn write leaves it, and zeros where the length came first.
        for keep in 0..=whole.len() {
            for zeros in [false, true] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("00000000000000000001.seg");
                let mut file = File::create(&path).unwrap();
                file.write_all(&whole[..keep]).unwrap();
                if zeros {
                    file.set_len(whole.len() as u64).unwrap();
                }
                let (spool, tail) = Spool::open(dir.path(), 0).unwrap();
                let records = [first.len(), whole.len()].iter().filter(|end| keep >= **end).count();
                let expected =
                    Tail { last_seq: 2 * records as u64, ends: [0, 6 * records as u64, 0] };
                assert_eq!(tail, expected, "{keep} bytes, zeros {zeros}");
                assert_eq!(spool.state().segments.len(), usize::from(records > 0));
            }
        }
    }

    #[test]
    fn what_lies_behind_a_torn_segment_is_cut_off_unless_the_broker_has_what_is_missing() {
        let torn = |durable_seq| {
            let dir = tempfile::tempdir().unwrap();
            let write = |number: u64, records: &[Vec<u8>], keep: usize| {
                let path = dir.path().join(format!("{number:020}.seg"));
                std::fs::write(path, &records.concat()[..keep]).unwrap();
            };
            let both = [record(3, 6), record(5, 12)];
            write(1, &[record(1, 0)], record(1, 0).len());
            write(3, &both, both.concat().len() - 1);
            write(7, &[record(7, 18)], record(7, 18).len());
            let (spool, tail) = Spool::open(dir.path(), durable_seq).unwrap();
            (tail, spool.state().segments.len())
        };
        assert_eq!(torn(2), (Tail { last_seq: 4, ends: [0, 12, 0] }, 2));
        assert_eq!(torn(6), (Tail { last_seq: 8, ends: [0, 24, 0] }, 3));
    }

    #[test]
    fn numbering_goes_on_after_what_the_broker_has() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("1.seg"), record(1, 0)).unwrap();
        let (spool, tail) = Spool::open(dir.path(), 9).unwrap();
        assert_eq!(tail, Tail { last_seq: 9, ends: [0, 6, 0] });
        assert_eq!(spool.last_seq(), 9);
    }
}
