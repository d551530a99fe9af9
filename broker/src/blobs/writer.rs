//! Writing one blob.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use runwhere_agent::protocol::Digest;
use runwhere_failpoint::failpoint;
use sha2::Digest as _;

use super::BlobError;
use crate::disk;

/// How the bytes arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encoding {
    /// As they are stored.
    Identity,
    /// Compressed; decoded on receipt, never past the announced size.
    Gzip,
}

/// An unfinished blob. Dropping it removes what was written.
#[derive(Debug)]
pub struct BlobWriter {
    // `None` only while a chunk is being written on another thread.
    state: Option<State>,
}

#[derive(Debug)]
struct State {
    input: Input,
    place: PathBuf,
    want: Digest,
}

#[derive(Debug)]
enum Input {
    Identity(Sink),
    Gzip { decoder: Box<MultiGzDecoder<Sink>>, fed: bool },
}

impl BlobWriter {
    pub(super) fn create(
        temporary: &Path,
        place: PathBuf,
        want: Digest,
        size: u64,
        encoding: Encoding,
    ) -> Result<Self, BlobError> {
        let path = temporary.join(uuid::Uuid::new_v4().to_string());
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let sink = Sink {
            file: Some(file),
            path,
            hasher: sha2::Sha256::new(),
            written: 0,
            size,
            failure: None,
        };
        let input = match encoding {
            Encoding::Identity => Input::Identity(sink),
            Encoding::Gzip => {
                Input::Gzip { decoder: Box::new(MultiGzDecoder::new(sink)), fed: false }
            }
        };
        Ok(Self { state: Some(State { input, place, want }) })
    }

    /// Takes in some bytes. After an error the writer is of no use any more.
    pub async fn write(&mut self, chunk: Bytes) -> Result<(), BlobError> {
        let mut state = self.state.take().ok_or(BlobError::Mismatch)?;
        let state = disk::blocking(move || {
            state.input.feed(&chunk)?;
            Ok::<_, BlobError>(state)
        })
        .await??;
        self.state = Some(state);
        Ok(())
    }

    /// Checks size and SHA-256, makes the file durable and gives it its name.
    pub async fn finish(mut self) -> Result<(), BlobError> {
        let state = self.state.take().ok_or(BlobError::Mismatch)?;
        disk::blocking(move || state.finish()).await?
    }
}

impl Input {
    fn feed(&mut self, chunk: &[u8]) -> Result<(), BlobError> {
        match self {
            Self::Identity(sink) => {
                let result = sink.write_all(chunk);
                result.map_err(|error| sink.explain(error))
            }
            Self::Gzip { decoder, fed } => {
                *fed |= !chunk.is_empty();
                let result = decoder.write_all(chunk);
                result.map_err(|error| decoder.get_mut().explain(error))
            }
        }
    }
}

impl State {
    fn finish(self) -> Result<(), BlobError> {
        let mut sink = match self.input {
            Input::Identity(sink) => sink,
            Input::Gzip { mut decoder, fed } => {
                if !fed {
                    return Err(BlobError::Gzip);
                }
                if let Err(error) = decoder.try_finish() {
                    return Err(decoder.get_mut().explain(error));
                }
                match decoder.finish() {
                    Ok(sink) => sink,
                    Err(_) => return Err(BlobError::Gzip),
                }
            }
        };
        if sink.written < sink.size {
            return Err(BlobError::TooShort { want: sink.size, got: sink.written });
        }
        if Digest::finish(std::mem::take(&mut sink.hasher)) != self.want {
            return Err(BlobError::Mismatch);
        }
        let file = sink.file.take().ok_or(BlobError::Mismatch)?;
        failpoint!("blob.before_sync");
        file.sync_all()?;
        drop(file);
        let folder = self.place.parent().ok_or(BlobError::Missing)?;
        disk::make_folder(folder)?;
        failpoint!("blob.before_rename");
        fs::rename(&sink.path, &self.place)?;
        failpoint!("blob.renamed");
        disk::sync_folder(folder)?;
        failpoint!("blob.durable");
        Ok(())
    }
}

/// The temporary file with its running hash; refuses the first byte past the size.
#[derive(Debug)]
struct Sink {
    file: Option<File>,
    path: PathBuf,
    hasher: sha2::Sha256,
    written: u64,
    size: u64,
    failure: Option<BlobError>,
}

impl Sink {
    /// What really went wrong: the decoder hands on our own errors as its own.
    fn explain(&mut self, error: io::Error) -> BlobError {
        match self.failure.take() {
            Some(failure) => failure,
            None if disk::is_full(&error) => BlobError::Full,
            None => BlobError::Gzip,
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.written + bytes.len() as u64 > self.size {
            self.failure = Some(BlobError::TooLong(self.size));
            return Err(io::Error::other("longer than announced"));
        }
        let file = self.file.as_mut().ok_or_else(|| io::Error::other("finished"))?;
        if let Err(error) = file.write_all(bytes) {
            let kind = error.kind();
            self.failure = Some(error.into());
            return Err(kind.into());
        }
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // After a rename there is nothing of this name; what cannot be removed now is at the next
        // start.
        let _ = fs::remove_file(&self.path);
    }
}
