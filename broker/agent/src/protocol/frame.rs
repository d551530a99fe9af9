//! Log frames.
//!
//! A frame is a header of 29 bytes and raw bytes of one stream, all numbers little-endian:
//!
//! | bytes | field |
//! | --- | --- |
//! | 8 | `seq`, from 1, without gaps over all streams of a trial |
//! | 1 | `stream`: 0 system, 1 stdout, 2 stderr |
//! | 8 | `time_us`, signed, microseconds since 1970, the node's clock |
//! | 8 | `offset`, stored bytes of this stream before this frame |
//! | 4 | `len`, at most [`MAX_FRAME_BYTES`] |
//! | `len` | the bytes, cut anywhere, also inside a line or a character |
//!
//! A batch is frames one after the other, zstd-compressed; several zstd frames one after the other
//! are one batch too, so that batches can be joined without compressing them again. No frame goes
//! on in the next zstd frame: the broker stores large zstd frames as they came.

use std::io::Read;

use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 29;
/// Most bytes in one frame, without its header.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Most bytes of a batch before compression, headers included.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// Most bytes of a batch on the wire; what does not compress grows a little.
pub const MAX_BATCH_COMPRESSED_BYTES: usize = MAX_BATCH_BYTES + (1 << 20);

// 16 MiB: no honest batch needs a larger window, and a hostile one gets no more memory.
const MAX_WINDOW_LOG: u32 = 24;
/// A fast level: a flood of output is bound by the processor, not by the line.
pub(crate) const ZSTD_LEVEL: i32 = -4;

/// Which stream of a trial.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Lines of the platform.
    #[default]
    System,
    /// The program's standard output.
    Stdout,
    /// The program's standard error.
    Stderr,
}

impl LogStream {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::System, Self::Stdout, Self::Stderr];

    /// Number on the wire, also the place in arrays of three.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::System => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }

    /// The stream of a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::System),
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// A piece of a trial's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFrame {
    /// From 1, without gaps over all streams of a trial.
    pub seq: u64,
    /// Where the bytes come from.
    pub stream: LogStream,
    /// Microseconds since 1970 on the node's clock.
    pub time_us: i64,
    /// Stored bytes of this stream before this frame.
    pub offset: u64,
    /// Raw bytes.
    pub bytes: Bytes,
}

/// Reply of `POST /agent/v1/logs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsReply {
    /// Every frame up to this number is on the broker's disk; 0 for none.
    pub durable_seq: u64,
}

/// Why a batch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too large before or after decompression.
    #[error("log batch is larger than {limit} bytes")]
    BatchTooLarge {
        /// The limit that was passed.
        limit: usize,
    },
    /// Too large a frame.
    #[error("log frame {seq} has {len} bytes, more than {MAX_FRAME_BYTES}")]
    FrameTooLarge {
        /// Its number.
        seq: u64,
        /// Its length field.
        len: u64,
    },
    /// The batch ends inside a frame.
    #[error("log batch ends inside a frame")]
    Truncated,
    /// No such stream.
    #[error("log frame {seq} names the unknown stream {stream}")]
    UnknownStream {
        /// Its number.
        seq: u64,
        /// What it says.
        stream: u8,
    },
    /// Numbers must follow each other and start above 0.
    #[error("log frame {found} follows {previous}; numbers must be contiguous")]
    NotContiguous {
        /// The frame before, 0 for none.
        previous: u64,
        /// The offending frame.
        found: u64,
    },
    /// Stream offsets must follow each other within a batch.
    #[error("log frame {seq} starts at offset {found} of its stream, expected {expected}")]
    OffsetMismatch {
        /// Its number.
        seq: u64,
        /// End of the stream's frame before.
        expected: u64,
        /// What it says.
        found: u64,
    },
    /// Not zstd, or damaged.
    #[error("log batch cannot be decompressed")]
    Compression,
}

/// Frames one after the other, uncompressed.
///
/// # Errors
/// A frame or the whole is too large.
pub fn encode_frames(frames: &[LogFrame]) -> Result<Vec<u8>, FrameError> {
    let total: usize = frames.iter().map(|frame| FRAME_HEADER_BYTES + frame.bytes.len()).sum();
    if total > MAX_BATCH_BYTES {
        return Err(FrameError::BatchTooLarge { limit: MAX_BATCH_BYTES });
    }
    let mut out = Vec::with_capacity(total);
    for frame in frames {
        if frame.bytes.len() > MAX_FRAME_BYTES {
            return Err(FrameError::FrameTooLarge {
                seq: frame.seq,
                len: frame.bytes.len() as u64,
            });
        }
        out.put_u64_le(frame.seq);
        out.put_u8(frame.stream.number());
        out.put_i64_le(frame.time_us);
        out.put_u64_le(frame.offset);
        out.put_u32_le(frame.bytes.len() as u32);
        out.extend_from_slice(&frame.bytes);
    }
    Ok(out)
}

/// A batch as it goes over the wire.
///
/// # Errors
/// As [`encode_frames`].
pub fn encode_batch(frames: &[LogFrame]) -> Result<Vec<u8>, FrameError> {
    zstd::bulk::compress(&encode_frames(frames)?, ZSTD_LEVEL).map_err(|_| FrameError::Compression)
}

/// Streams and bytes of frames as [`encode_frames`] writes them; ends where something else begins.
pub(crate) fn stream_parts(mut raw: &[u8]) -> impl Iterator<Item = (LogStream, &[u8])> {
    std::iter::from_fn(move || {
        let (header, rest) = raw.split_at_checked(FRAME_HEADER_BYTES)?;
        let stream = LogStream::from_number(header[8])?;
        let len = (&header[FRAME_HEADER_BYTES - 4..]).get_u32_le();
        let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        raw = rest;
        Some((stream, bytes))
    })
}

/// Frames of uncompressed bytes; they share one buffer with `data`. Numbers must be contiguous, and
/// offsets must be so for each stream.
///
/// # Errors
/// Anything that [`encode_frames`] would not have written.
pub fn decode_frames(data: Bytes) -> Result<Vec<LogFrame>, FrameError> {
    let mut frames = Vec::new();
    Order::default().decode(data, &mut frames)?;
    Ok(frames)
}

/// What the next frame must be.
#[derive(Debug, Default)]
struct Order {
    previous: u64,
    ends: [Option<u64>; 3],
}

impl Order {
    fn decode(&mut self, mut data: Bytes, frames: &mut Vec<LogFrame>) -> Result<(), FrameError> {
        while data.has_remaining() {
            if data.remaining() < FRAME_HEADER_BYTES {
                return Err(FrameError::Truncated);
            }
            let seq = data.get_u64_le();
            let number = data.get_u8();
            let time_us = data.get_i64_le();
            let offset = data.get_u64_le();
            let len = data.get_u32_le() as usize;
            let previous = self.previous;
            if seq == 0 || (previous != 0 && previous.checked_add(1) != Some(seq)) {
                return Err(FrameError::NotContiguous { previous, found: seq });
            }
            let stream = LogStream::from_number(number)
                .ok_or(FrameError::UnknownStream { seq, stream: number })?;
            if len > MAX_FRAME_BYTES {
                return Err(FrameError::FrameTooLarge { seq, len: len as u64 });
            }
            if data.remaining() < len {
                return Err(FrameError::Truncated);
            }
            let end = &mut self.ends[usize::from(number)];
            if let Some(expected) = *end
                && expected != offset
            {
                return Err(FrameError::OffsetMismatch { seq, expected, found: offset });
            }
            *end = Some(offset.checked_add(len as u64).ok_or(FrameError::OffsetMismatch {
                seq,
                expected: 0,
                found: offset,
            })?);
            self.previous = seq;
            frames.push(LogFrame { seq, stream, time_us, offset, bytes: data.split_to(len) });
        }
        Ok(())
    }
}

/// Frames that came together.
#[derive(Debug, Clone, Default)]
pub struct BatchPart {
    /// The frames.
    pub frames: Vec<LogFrame>,
    /// The zstd frame that holds exactly them, as it came over the wire, if it is worth keeping.
    pub packed: Option<Bytes>,
    /// Bytes before compression, headers included.
    pub raw: usize,
}

impl From<Vec<LogFrame>> for BatchPart {
    fn from(frames: Vec<LogFrame>) -> Self {
        let raw = frames.iter().map(|frame| FRAME_HEADER_BYTES + frame.bytes.len()).sum();
        Self { frames, packed: None, raw }
    }
}

/// A batch as it came over the wire, in parts. Zstd frames of at least `kept_from` bytes before
/// compression are parts of their own, smaller ones are put together. Never uses more than a bounded
/// amount of memory, whatever the batch says.
///
/// # Errors
/// A batch that is too large, damaged, or not contiguous.
pub fn decode_parts(mut batch: Bytes, kept_from: usize) -> Result<Vec<BatchPart>, FrameError> {
    if batch.len() > MAX_BATCH_COMPRESSED_BYTES {
        return Err(FrameError::BatchTooLarge { limit: MAX_BATCH_COMPRESSED_BYTES });
    }
    let mut unpacker = zstd::bulk::Decompressor::new().map_err(|_| FrameError::Compression)?;
    let mut order = Order::default();
    let mut parts: Vec<BatchPart> = Vec::new();
    let mut left = MAX_BATCH_BYTES;
    while !batch.is_empty() {
        let len = zstd::zstd_safe::find_frame_compressed_size(&batch)
            .map_err(|_| FrameError::Compression)?;
        if len == 0 || len > batch.len() {
            return Err(FrameError::Compression);
        }
        let packed = batch.split_to(len);
        let raw = unpack(&mut unpacker, &packed, left)?;
        left -= raw.len();
        let size = raw.len();
        if size >= kept_from {
            let mut part = BatchPart { packed: Some(packed), raw: size, ..BatchPart::default() };
            order.decode(raw.into(), &mut part.frames)?;
            parts.push(part);
        } else {
            if parts.last().is_none_or(|part| part.packed.is_some()) {
                parts.push(BatchPart::default());
            }
            if let Some(part) = parts.last_mut() {
                part.raw += size;
                order.decode(raw.into(), &mut part.frames)?;
            }
        }
    }
    Ok(parts)
}

/// What is in one zstd frame.
fn unpack(
    unpacker: &mut zstd::bulk::Decompressor<'_>,
    packed: &[u8],
    limit: usize,
) -> Result<Vec<u8>, FrameError> {
    let too_large = FrameError::BatchTooLarge { limit: MAX_BATCH_BYTES };
    let stated =
        zstd::zstd_safe::get_frame_content_size(packed).map_err(|_| FrameError::Compression)?;
    if let Some(stated) = stated {
        // At once and straight to where it is wanted; more than it states is an error.
        return match usize::try_from(stated) {
            Ok(stated) if stated <= limit => {
                unpacker.decompress(packed, stated).map_err(|_| FrameError::Compression)
            }
            _ => Err(too_large),
        };
    }
    let mut decoder =
        zstd::stream::read::Decoder::with_buffer(packed).map_err(|_| FrameError::Compression)?;
    decoder.window_log_max(MAX_WINDOW_LOG).map_err(|_| FrameError::Compression)?;
    let mut raw = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut raw).map_err(|_| FrameError::Compression)?;
    if raw.len() > limit { Err(too_large) } else { Ok(raw) }
}

/// Frames of a batch as it came over the wire, see [`decode_parts`].
///
/// # Errors
/// As [`decode_parts`].
pub fn decode_batch(batch: impl Into<Bytes>) -> Result<Vec<LogFrame>, FrameError> {
    let mut parts = decode_parts(batch.into(), usize::MAX)?;
    Ok(parts.pop().map(|part| part.frames).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn frames(first: u64, parts: &[(u8, Vec<u8>)]) -> Vec<LogFrame> {
        let mut offsets = [0_u64; 3];
        let mut out = Vec::new();
        for (seq, (stream, bytes)) in (first..).zip(parts) {
            let stream = LogStream::from_number(stream % 3).unwrap();
            let offset = &mut offsets[usize::from(stream.number())];
            out.push(LogFrame {
                seq,
                stream,
                time_us: -5 + seq as i64,
                offset: *offset,
                bytes: Bytes::copy_from_slice(bytes),
            });
            *offset += bytes.len() as u64;
        }
        out
    }

    proptest! {
        #[test]
        fn every_batch_reads_back(
            first in 1_u64..u64::from(u32::MAX),
            parts in prop::collection::vec((0_u8..3, prop::collection::vec(any::<u8>(), 0..200)), 0..40),
            cut in 0_usize..40,
        ) {
            let frames = frames(first, &parts);
            let batch = encode_batch(&frames).unwrap();
            prop_assert_eq!(&decode_batch(batch).unwrap(), &frames);
            let (head, tail) = frames.split_at(cut.min(frames.len()));
            let mut joined = encode_batch(head).unwrap();
            joined.extend(encode_batch(tail).unwrap());
            prop_assert_eq!(decode_batch(joined).unwrap(), frames);
        }

        #[test]
        fn damage_is_an_error_or_other_valid_frames_but_never_a_crash(
            parts in prop::collection::vec((0_u8..3, prop::collection::vec(any::<u8>(), 0..50)), 1..10),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut raw = encode_frames(&frames(1, &parts)).unwrap();
            let keep = keep.index(raw.len() + 1);
            let place = at.index(raw.len());
            raw[place] = value;
            raw.truncate(keep);
            if let Ok(read) = decode_frames(Bytes::from(raw.clone())) {
                prop_assert_eq!(encode_frames(&read).unwrap(), raw);
            }
        }

        #[test]
        fn random_bytes_never_crash(data in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_batch(data.clone());
            let _ = decode_frames(Bytes::from(data));
        }
    }

    #[test]
    fn refuses_gaps_wrong_offsets_unknown_streams_and_zero() {
        let base = frames(4, &[(1, vec![1; 3]), (1, vec![2; 3])]);
        let refused = |change: &dyn Fn(&mut Vec<LogFrame>)| {
            let mut frames = base.clone();
            change(&mut frames);
            decode_frames(Bytes::from(encode_frames(&frames).unwrap())).unwrap_err()
        };
        assert_eq!(refused(&|f| f[1].seq = 6), FrameError::NotContiguous { previous: 4, found: 6 });
        assert_eq!(refused(&|f| f[0].seq = 0), FrameError::NotContiguous { previous: 0, found: 0 });
        assert_eq!(
            refused(&|f| f[1].offset = 4),
            FrameError::OffsetMismatch { seq: 5, expected: 3, found: 4 }
        );
        let mut raw = encode_frames(&base).unwrap();
        raw[8] = 3;
        assert_eq!(
            decode_frames(Bytes::from(raw)),
            Err(FrameError::UnknownStream { seq: 4, stream: 3 })
        );
    }

    #[test]
    fn a_bomb_is_refused_without_being_unpacked() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert_eq!(decode_batch(bomb), Err(FrameError::BatchTooLarge { limit: MAX_BATCH_BYTES }));
    }

    #[test]
    fn large_parts_stay_as_they_came_and_small_ones_are_put_together() {
        let all = frames(1, &[(1, vec![1; 10]), (1, vec![2; 10]), (2, vec![3; 500]), (1, vec![4])]);
        let packed: Vec<_> =
            all.iter().map(|frame| encode_batch(std::slice::from_ref(frame)).unwrap()).collect();
        let parts = decode_parts(packed.concat().into(), 500).unwrap();
        let shape: Vec<_> =
            parts.iter().map(|part| (part.frames.len(), part.packed.is_some())).collect();
        assert_eq!(shape, [(2, false), (1, true), (1, false)]);
        assert_eq!(parts[1].packed.as_deref(), Some(&packed[2][..]));
        assert_eq!(parts[1].raw, 500 + FRAME_HEADER_BYTES);
        let read: Vec<_> = parts.into_iter().flat_map(|part| part.frames).collect();
        assert_eq!(read, all);
    }

    #[test]
    fn numbers_must_follow_over_all_parts_and_no_frame_is_cut_by_one() {
        let all = frames(1, &[(1, vec![1; 10]), (1, vec![2; 10]), (1, vec![3; 10])]);
        let batch = |frames: &[LogFrame]| encode_batch(frames).unwrap();
        let hole = [batch(&all[..1]), batch(&all[2..])].concat();
        assert_eq!(decode_batch(hole), Err(FrameError::NotContiguous { previous: 1, found: 3 }));
        let mut moved = all[1].clone();
        moved.offset = 11;
        let moved = [batch(&all[..1]), batch(&[moved])].concat();
        assert!(matches!(decode_batch(moved), Err(FrameError::OffsetMismatch { seq: 2, .. })));
        let raw = encode_frames(&all).unwrap();
        let (a, b) = raw.split_at(50);
        let cut = [a, b].map(|part| zstd::bulk::compress(part, 1).unwrap()).concat();
        assert_eq!(decode_batch(cut), Err(FrameError::Truncated));
    }

    #[test]
    fn a_batch_without_stated_sizes_is_read_and_is_bounded_as_well() {
        let all = frames(1, &[(1, vec![1; 10]), (1, vec![2; 10])]);
        // A stream that was flushed has told its header before its end.
        let unstated = |raw: &[u8]| {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.write_all(raw).unwrap();
            encoder.flush().unwrap();
            encoder.finish().unwrap()
        };
        let batch = unstated(&encode_frames(&all).unwrap());
        assert_eq!(zstd::zstd_safe::get_frame_content_size(&batch).unwrap(), None);
        assert_eq!(decode_batch(batch).unwrap(), all);
        let bomb = unstated(&vec![0; MAX_BATCH_BYTES + 1]);
        assert_eq!(decode_batch(bomb), Err(FrameError::BatchTooLarge { limit: MAX_BATCH_BYTES }));
        let half = unstated(&vec![0; MAX_BATCH_BYTES / 2 + 1]);
        let twice = [half.clone(), half].concat();
        assert!(decode_batch(twice).is_err());
    }

    #[test]
    fn oversized_frames_are_refused_on_both_sides() {
        let big = LogFrame {
            seq: 1,
            stream: LogStream::Stdout,
            time_us: 0,
            offset: 0,
            bytes: Bytes::from(vec![0; MAX_FRAME_BYTES + 1]),
        };
        let error = FrameError::FrameTooLarge { seq: 1, len: MAX_FRAME_BYTES as u64 + 1 };
        assert_eq!(encode_frames(std::slice::from_ref(&big)), Err(error.clone()));
        let mut raw = Vec::new();
        raw.put_u64_le(1);
        raw.put_u8(1);
        raw.put_i64_le(0);
        raw.put_u64_le(0);
        raw.put_u32_le(MAX_FRAME_BYTES as u32 + 1);
        raw.extend_from_slice(&big.bytes);
        assert_eq!(decode_frames(Bytes::from(raw)), Err(error));
    }
}
