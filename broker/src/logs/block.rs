//! A block of the log file.
//!
//! | bytes | field, little-endian |
//! | --- | --- |
//! | 4 | `RWL1` |
//! | 1, 3 | kind: 1 frames, 2 note, 3 seal, 4 session; zeros |
//! | 4, 4 | length of the payload as stored (zstd) and before |
//! | 8 | last frame number up to here |
//! | 3 x 8 | bytes of each stream up to here |
//! | 8 | notes up to here |
//! | 2 x 8 | 1 + position of the newest note's, session's block; 0 for none |
//! | 4 | line ends in this block |
//! | 4, 4 | CRC-32 of the payload as stored, then of the header before it |
//! | n | payload: frames as in the node protocol, or JSON |
//! | 4 | length of the whole block, to walk backwards |

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::{Buf, BufMut, Bytes};
use runwhere_agent::protocol::{LogFrame, decode_frames};
use serde::{Deserialize, Serialize};

use super::LogError;
use super::note::NoteRecord;

const MAGIC: [u8; 4] = *b"RWL1";
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 84;
const TRAILER_BYTES: usize = 4;
/// Most bytes of a payload before compression: one full frame and its header, and room.
pub(super) const MAX_RAW_BYTES: usize = 2 << 20;
const MAX_STORED_BYTES: usize = MAX_RAW_BYTES + (64 << 10);
/// A fast level: what arrives is stored as fast as the disk takes it.
const LEVEL: i32 = -4;

/// What a block holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Frames,
    Note,
    Seal,
    Session,
}

/// What is known after a block.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals {
    pub(super) last_seq: u64,
    pub(super) ends: [u64; 3],
    pub(super) notes: u64,
    pub(super) newest_note: u64,
    pub(super) newest_session: u64,
}

/// A block's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) stored: u32,
    pub(super) raw: u32,
    pub(super) totals: Totals,
    pub(super) line_ends: u32,
    crc: u32,
}

/// The payload of a note's block: the note, and every key so far, so that an opening finds them
/// without reading the whole log.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NotePayload {
    pub(super) record: NoteRecord,
    pub(super) keys: Vec<String>,
}

/// The beginning of an agent's frames: a trial may have had an agent before, whose numbers began at
/// 1 too. Stored numbers and offsets go on over all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) lease: String,
    pub(super) seq: u64,
    pub(super) ends: [u64; 3],
}

impl Session {
    /// Whether stored numbers and offsets are those of its agent.
    pub(super) fn is_first(&self) -> bool {
        self.seq == 0 && self.ends == [0; 3]
    }
}

/// What a block says, decoded.
#[derive(Debug)]
pub(super) enum Content {
    Frames(Vec<LogFrame>),
    Note(NotePayload),
    Session(Session),
    Seal,
}

impl Header {
    /// Bytes of the whole block.
    pub(super) fn block_len(&self) -> u64 {
        (HEADER_BYTES + TRAILER_BYTES) as u64 + u64::from(self.stored)
    }

    fn parse(mut data: &[u8]) -> Option<Self> {
        let whole = data;
        let crc_at = HEADER_BYTES - 4;
        if data.len() < HEADER_BYTES || crc(&whole[..crc_at]) != (&whole[crc_at..]).get_u32_le() {
            return None;
        }
        if data.copy_to_bytes(4)[..] != MAGIC {
            return None;
        }
        let kind = match data.get_u8() {
            1 => Kind::Frames,
            2 => Kind::Note,
            3 => Kind::Seal,
            4 => Kind::Session,
            _ => return None,
        };
        data.advance(3);
        let (stored, raw) = (data.get_u32_le(), data.get_u32_le());
        let last_seq = data.get_u64_le();
        let ends = [data.get_u64_le(), data.get_u64_le(), data.get_u64_le()];
        let notes = data.get_u64_le();
        let (newest_note, newest_session) = (data.get_u64_le(), data.get_u64_le());
        let (line_ends, crc) = (data.get_u32_le(), data.get_u32_le());
        let fits = stored as usize <= MAX_STORED_BYTES && raw as usize <= MAX_RAW_BYTES;
        fits.then_some(Self {
            kind,
            stored,
            raw,
            totals: Totals { last_seq, ends, notes, newest_note, newest_session },
            line_ends,
            crc,
        })
    }
}

/// Appends a block to a buffer.
pub(super) fn encode(
    out: &mut Vec<u8>,
    kind: Kind,
    totals: Totals,
    line_ends: u32,
    raw: &[u8],
) -> io::Result<()> {
    debug_assert!(raw.len() <= MAX_RAW_BYTES);
    let payload = zstd::bulk::compress(raw, LEVEL)?;
    put(out, kind, totals, line_ends, raw.len(), &payload);
    Ok(())
}

/// Whether compressed frames can be the payload of a block as they are.
pub(super) fn takes(payload: &[u8], raw_len: usize) -> bool {
    payload.len() <= MAX_STORED_BYTES && raw_len <= MAX_RAW_BYTES
}

/// Appends a block to a buffer whose payload is compressed already.
pub(super) fn put(
    out: &mut Vec<u8>,
    kind: Kind,
    totals: Totals,
    line_ends: u32,
    raw_len: usize,
    payload: &[u8],
) {
    let begin = out.len();
    out.reserve(HEADER_BYTES + payload.len() + TRAILER_BYTES);
    out.put_slice(&MAGIC);
    out.put_u8(match kind {
        Kind::Frames => 1,
        Kind::Note => 2,
        Kind::Seal => 3,
        Kind::Session => 4,
    });
    out.put_bytes(0, 3);
    out.put_u32_le(payload.len() as u32);
    out.put_u32_le(raw_len as u32);
    out.put_u64_le(totals.last_seq);
    totals.ends.iter().for_each(|end| out.put_u64_le(*end));
    out.put_u64_le(totals.notes);
    out.put_u64_le(totals.newest_note);
    out.put_u64_le(totals.newest_session);
    out.put_u32_le(line_ends);
    out.put_u32_le(crc(payload));
    let header_crc = crc(&out[begin..]);
    out.put_u32_le(header_crc);
    out.put_slice(payload);
    out.put_u32_le((HEADER_BYTES + TRAILER_BYTES + payload.len()) as u32);
}

/// The header at a position; `None` where there is no valid one before `end`.
pub(super) fn header_at(file: &File, at: u64, end: u64) -> io::Result<Option<Header>> {
    if end.saturating_sub(at) < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        return Ok(None);
    }
    let mut data = [0; HEADER_BYTES];
    file.read_exact_at(&mut data, at)?;
    Ok(Header::parse(&data).filter(|header| header.block_len() <= end - at))
}

/// Position and header of the block that ends at a position.
pub(super) fn before(file: &File, end: u64) -> io::Result<Option<(u64, Header)>> {
    if end < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        return Ok(None);
    }
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, end - TRAILER_BYTES as u64)?;
    let Some(at) = end.checked_sub(u64::from(u32::from_le_bytes(trailer))) else { return Ok(None) };
    let header = header_at(file, at, end)?.filter(|header| at + header.block_len() == end);
    Ok(header.map(|header| (at, header)))
}

/// The stored payload, if it is undamaged.
pub(super) fn payload(file: &File, at: u64, header: &Header) -> io::Result<Option<Vec<u8>>> {
    let mut data = vec![0; header.stored as usize + TRAILER_BYTES];
    file.read_exact_at(&mut data, at + HEADER_BYTES as u64)?;
    let trailer = data.split_off(header.stored as usize);
    let whole = (&trailer[..]).get_u32_le();
    let good = crc(&data) == header.crc && u64::from(whole) == header.block_len();
    Ok(good.then_some(data))
}

/// Reads and decodes the block at a position.
pub(super) fn read(file: &File, at: u64, end: u64) -> Result<(Header, Content), LogError> {
    let damaged = || LogError::Damaged(at);
    let header = header_at(file, at, end)?.ok_or_else(damaged)?;
    let payload = payload(file, at, &header)?.ok_or_else(damaged)?;
    let raw = zstd::bulk::decompress(&payload, header.raw as usize).map_err(|_| damaged())?;
    let content = match header.kind {
        Kind::Frames => Content::Frames(decode_frames(Bytes::from(raw)).map_err(|_| damaged())?),
        Kind::Note => Content::Note(serde_json::from_slice(&raw).map_err(|_| damaged())?),
        Kind::Session => Content::Session(serde_json::from_slice(&raw).map_err(|_| damaged())?),
        Kind::Seal => Content::Seal,
    };
    Ok((header, content))
}

fn crc(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}
