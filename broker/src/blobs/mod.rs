//! Files by content: `<data>/blobs/<project>/<aa>/<sha256>`.
//!
//! Each project has a folder of its own, so that nobody learns from an upload that is skipped
//! what another tenant has. A file appears under its name only when it is whole, verified and on
//! disk; writing the same content twice, also at once, is harmless.

mod store;
mod writer;

#[cfg(test)]
mod tests;

pub use store::Blobs;
pub use writer::{BlobWriter, Encoding};

/// Why a blob was not stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The project has no such content.
    #[error("no such content")]
    Missing,
    /// More bytes than announced.
    #[error("the content is longer than the announced {0} bytes")]
    TooLong(u64),
    /// Fewer bytes than announced.
    #[error("the content has {got} bytes, announced were {want}")]
    TooShort {
        /// Announced.
        want: u64,
        /// Received.
        got: u64,
    },
    /// The bytes have another SHA-256.
    #[error("the content has another SHA-256 than announced")]
    Mismatch,
    /// The bytes are not gzip as announced.
    #[error("the content is not valid gzip")]
    Gzip,
    /// No space left; nothing was stored.
    #[error("no space left for the data folder")]
    Full,
    /// The disk.
    #[error("blob store: {0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for BlobError {
    fn from(error: std::io::Error) -> Self {
        if crate::disk::is_full(&error) { Self::Full } else { Self::Io(error) }
    }
}
