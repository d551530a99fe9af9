//! Records of a segment file.
//!
//! A segment is records one after the other; a record is a header (all numbers little-endian) and
//! one zstd frame of log frames:
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | `RWL1` |
//! | 4 | length of the zstd frame |
//! | 4 | length before compression |
//! | 8 | first sequence number |
//! | 8 | last sequence number |
//! | 3 x 8 | stored bytes of system, stdout and stderr after this record |

use bytes::{Buf, BufMut};

use crate::protocol::MAX_BATCH_COMPRESSED_BYTES;

const MAGIC: &[u8; 4] = b"RWL1";
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 52;

/// What a record's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) compressed: u32,
    pub(super) raw: u32,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) ends: [u64; 3],
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut out = &mut bytes[..];
        out.put_slice(MAGIC);
        out.put_u32_le(self.compressed);
        out.put_u32_le(self.raw);
        out.put_u64_le(self.first_seq);
        out.put_u64_le(self.last_seq);
        self.ends.iter().for_each(|end| out.put_u64_le(*end));
        bytes
    }

    /// None where this is no header.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut data = &bytes[..];
        let mut magic = [0; 4];
        data.copy_to_slice(&mut magic);
        let header = Self {
            compressed: data.get_u32_le(),
            raw: data.get_u32_le(),
            first_seq: data.get_u64_le(),
            last_seq: data.get_u64_le(),
            ends: [data.get_u64_le(), data.get_u64_le(), data.get_u64_le()],
        };
        let sane = &magic == MAGIC
            && header.compressed as usize <= MAX_BATCH_COMPRESSED_BYTES
            && header.first_seq > 0
            && header.first_seq <= header.last_seq;
        sane.then_some(header)
    }

    /// Bytes of the whole record.
    pub(super) fn record_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.compressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_nonsense_does_not() {
        let header =
            Header { compressed: 5, raw: 9, first_seq: 3, last_seq: 4, ends: [1, u64::MAX, 3] };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), None);
        let backwards = Header { first_seq: 5, ..header };
        assert_eq!(Header::decode(&backwards.encode()), None);
    }
}
