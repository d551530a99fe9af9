//! A position between two lines.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut};

/// Where a reader goes on: after which bytes of each stream, and from which block on to look for
/// them. Opaque as text; valid for the log it came from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cursor {
    /// Position of the first block that holds something unread.
    pub(super) block: u64,
    /// Bytes of each stream that were read as whole lines.
    pub(super) taken: [u64; 3],
    /// Notes that were read.
    pub(super) notes: u64,
}

/// The text is no cursor.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a log cursor: use one as an earlier answer gave it")]
pub struct CursorError;

const VERSION: u8 = 1;
const BYTES: usize = 41;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut data = Vec::with_capacity(BYTES);
        data.put_u8(VERSION);
        data.put_u64(self.block);
        self.taken.iter().for_each(|taken| data.put_u64(*taken));
        data.put_u64(self.notes);
        f.write_str(&URL_SAFE_NO_PAD.encode(data))
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        if text.len() > 2 * BYTES {
            return Err(CursorError);
        }
        let data = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError)?;
        let mut data = data.as_slice();
        if data.len() != BYTES || data.get_u8() != VERSION {
            return Err(CursorError);
        }
        Ok(Self {
            block: data.get_u64(),
            taken: [data.get_u64(), data.get_u64(), data.get_u64()],
            notes: data.get_u64(),
        })
    }
}
