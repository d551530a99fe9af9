//! Lines out of frames.
//!
//! A line ends at `\n`, `\r\n` or a lone `\r` (a progress bar; empty ones are left out). Longer
//! lines than [`MAX_LINE_BYTES`] come in pieces. Bytes that are not UTF-8 are replaced in the
//! view only.

use jiff::Timestamp;
use runwhere_agent::protocol::{LogFrame, LogStream};
use runwhere_model::Lang;

use super::block::Content;
use super::cursor::Cursor;
use super::note::NoteRecord;

/// Most stored bytes of one line of the view. JSON needs at most six bytes for one, and a client
/// refuses messages above 1 MiB.
pub const MAX_LINE_BYTES: usize = 128 << 10;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The broker.
    Platform,
    /// A stream of the node.
    Stream(LogStream),
}

impl Source {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Platform | Self::Stream(LogStream::System) => "system",
            Self::Stream(LogStream::Stdout) => "stdout",
            Self::Stream(LogStream::Stderr) => "stderr",
        }
    }
}

/// One line of the view.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Line {
    /// Where it comes from.
    pub source: Source,
    /// Without its end.
    pub text: String,
    /// When its end was seen on the node.
    pub at: Timestamp,
    /// It is a piece of a longer line that goes on in the next one of this source.
    pub continues: bool,
    /// The position after it.
    pub cursor: Cursor,
}

impl Line {
    /// A name that no other line of its log has, the same at every reading.
    pub fn id(&self) -> String {
        match self.source {
            Source::Platform => format!("p{}", self.cursor.notes),
            Source::Stream(stream) => {
                let number = usize::from(stream.number());
                format!("{number}-{}", self.cursor.taken[number])
            }
        }
    }
}

/// Makes lines of blocks in order, from any cursor on.
#[derive(Debug)]
pub(super) struct Lines {
    lang: Lang,
    block: u64,
    taken: [u64; 3],
    notes: u64,
    pending: [Pending; 3],
    // Lines since the last one that was left out; `None` while none was.
    since_left_out: Option<usize>,
}

/// Bytes of a stream whose line has not ended.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    // Up to here there is no line end.
    scanned: usize,
    // The block of the first of them.
    block: u64,
    // Some of it, or of what is being cut now, is no whole line yet.
    open: bool,
    // The beginning of this line is not known: leave it out.
    skip: bool,
    last_time: i64,
}

impl Lines {
    pub(super) fn new(from: Cursor, lang: Lang) -> Self {
        Self {
            lang,
            block: from.block,
            taken: from.taken,
            notes: from.notes,
            pending: Default::default(),
            since_left_out: None,
        }
    }

    /// Leaves out the first line of every stream that does not begin here.
    pub(super) fn skip_begun(&mut self) {
        for (pending, taken) in self.pending.iter_mut().zip(self.taken) {
            pending.skip = taken > 0;
        }
    }

    /// How many lines came after the last one that was left out.
    pub(super) fn since_left_out(&self) -> usize {
        self.since_left_out.unwrap_or(usize::MAX)
    }

    /// Takes in the block at a position; its totals after it say how many notes it makes.
    pub(super) fn block(&mut self, at: u64, notes: u64, content: &Content, out: &mut Vec<Line>) {
        self.block = at;
        match content {
            Content::Frames(frames) => frames.iter().for_each(|frame| self.frame(frame, out)),
            Content::Note(payload) if notes > self.notes => {
                self.notes = notes;
                self.note(&payload.record, out);
            }
            Content::Note(_) | Content::Session(_) | Content::Seal => {}
        }
    }

    /// The position after everything that came out.
    pub(super) fn cursor(&self) -> Cursor {
        let begun = self.pending.iter().filter(|p| p.open).map(|p| p.block);
        Cursor {
            block: begun.min().unwrap_or(self.block).min(self.block),
            taken: self.taken,
            notes: self.notes,
        }
    }

    /// The unfinished lines, where nothing will follow.
    pub(super) fn flush(&mut self, out: &mut Vec<Line>) {
        for stream in LogStream::ALL {
            let index = usize::from(stream.number());
            let bytes = std::mem::take(&mut self.pending[index].bytes);
            self.taken[index] += bytes.len() as u64;
            self.pending[index].scanned = 0;
            self.pending[index].open = false;
            let text = bytes.strip_suffix(b"\r").unwrap_or(&bytes);
            if text.is_empty() {
                continue;
            }
            if std::mem::take(&mut self.pending[index].skip) {
                self.since_left_out = Some(0);
            } else {
                self.emit(stream, text, false, out);
            }
        }
    }

    fn note(&mut self, record: &NoteRecord, out: &mut Vec<Line>) {
        self.count();
        out.push(Line {
            source: Source::Platform,
            text: record.note.say(self.lang),
            at: record.at,
            continues: false,
            cursor: self.cursor(),
        });
    }

    fn count(&mut self) {
        self.since_left_out = self.since_left_out.map(|count| count.saturating_add(1));
    }

    fn frame(&mut self, frame: &LogFrame, out: &mut Vec<Line>) {
        let index = usize::from(frame.stream.number());
        let pending = &mut self.pending[index];
        let have = self.taken[index] + pending.bytes.len() as u64;
        let known = have.saturating_sub(frame.offset).min(frame.bytes.len() as u64) as usize;
        let fresh = &frame.bytes[known..];
        if fresh.is_empty() {
            return;
        }
        if pending.bytes.is_empty() {
            // A reader never meets a hole; a made-up cursor may.
            self.taken[index] = self.taken[index].max(frame.offset);
            pending.block = self.block;
        }
        pending.open = true;
        if pending.skip && pending.bytes.is_empty() {
            // These bytes may have told that a lone `\r` before them ended a line.
            self.since_left_out = Some(0);
        }
        pending.bytes.extend_from_slice(fresh);
        pending.last_time = frame.time_us;
        // Cut whole lines off the front, and drop them in one go.
        let bytes = std::mem::take(&mut self.pending[index].bytes);
        let mut scan = self.pending[index].scanned;
        let mut begin = 0;
        loop {
            let end = bytes[scan..].iter().position(|b| matches!(b, b'\n' | b'\r'));
            let end = end.map(|found| scan + found);
            let upto = end.unwrap_or(bytes.len());
            if upto - begin > MAX_LINE_BYTES {
                let cut = begin + cut_at(&bytes[begin..begin + MAX_LINE_BYTES]);
                self.line(frame.stream, &bytes, begin..cut, cut, true, out);
                begin = cut;
                continue;
            }
            scan = upto;
            let Some(end) = end else { break };
            let after = match (bytes[end], bytes.get(end + 1)) {
                // Whether this is a lone one is not known yet.
                (b'\r', None) => break,
                (b'\r', Some(b'\n')) => end + 2,
                _ => end + 1,
            };
            let lone = after == end + 1 && bytes[end] == b'\r';
            if lone && begin == end && !self.pending[index].skip {
                self.taken[index] += 1;
                self.pending[index].block = self.block;
            } else {
                self.line(frame.stream, &bytes, begin..end, after, false, out);
            }
            (begin, scan) = (after, after);
        }
        let pending = &mut self.pending[index];
        pending.scanned = scan - begin;
        pending.bytes = if begin == 0 { bytes } else { bytes[begin..].to_vec() };
        pending.open = !pending.bytes.is_empty();
    }

    fn line(
        &mut self,
        stream: LogStream,
        bytes: &[u8],
        text: std::ops::Range<usize>,
        after: usize,
        continues: bool,
        out: &mut Vec<Line>,
    ) {
        let index = usize::from(stream.number());
        self.taken[index] += (after - text.start) as u64;
        if !continues {
            // The end of a line came with the present block, so what follows it did too.
            self.pending[index].block = self.block;
        }
        if self.pending[index].skip {
            self.pending[index].skip = continues;
            self.since_left_out = Some(0);
            return;
        }
        self.emit(stream, &bytes[text], continues, out);
    }

    fn emit(&mut self, stream: LogStream, text: &[u8], continues: bool, out: &mut Vec<Line>) {
        let time = self.pending[usize::from(stream.number())].last_time;
        self.count();
        out.push(Line {
            source: Source::Stream(stream),
            text: String::from_utf8_lossy(text).into_owned(),
            at: Timestamp::from_microsecond(time).unwrap_or(Timestamp::UNIX_EPOCH),
            continues,
            cursor: self.cursor(),
        });
    }
}

/// Where to cut so that no character is cut: at most three bytes before the end.
fn cut_at(bytes: &[u8]) -> usize {
    let back = bytes.iter().rev().take(4).position(|byte| byte & 0b1100_0000 != 0b1000_0000);
    match back {
        // The last character's first byte is this far from the end: whole if it needs no more.
        Some(back) => {
            let first = bytes[bytes.len() - 1 - back];
            let needs = match first {
                0xf0..=0xf7 => 4,
                0xe0..=0xef => 3,
                0xc0..=0xdf => 2,
                _ => 1,
            };
            if needs > back + 1 { bytes.len() - 1 - back } else { bytes.len() }
        }
        None => bytes.len(),
    }
}
