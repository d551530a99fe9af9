//! Writing one blob.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use runwhere_agent::protocol::Digest;
use runwhere_failpoint::failpoint;
use sha2::Digest as _;
use tokio::task::JoinHandle;

use super::BlobError;
use super::store::{Promise, place_in};
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
    at: At,
    /// What has arrived and is not being written yet.
    waiting: Vec<Bytes>,
}

/// Bytes that go to the other thread at once: changing threads costs more than a small chunk.
const PIECE_BYTES: usize = 512 << 10;
/// A body can come byte by byte: no more chunks than this wait for a piece to be full.
const PIECE_CHUNKS: usize = 256;

/// Where the unfinished blob is.
#[derive(Debug)]
enum At {
    Here(Box<State>),
    /// A piece is being written and hashed on another thread, while the next one arrives.
    Writing(JoinHandle<Result<Box<State>, BlobError>>),
    /// After an error.
    Gone,
}

#[derive(Debug)]
struct State {
    input: Input,
    goal: Goal,
}

/// What the content is to be.
#[derive(Debug)]
pub(super) enum Goal {
    /// Content of this digest, at this place.
    Known(Digest, PathBuf),
    /// Whatever arrives, below this folder of a project.
    Any(PathBuf),
}

#[derive(Debug)]
enum Input {
    Identity(Box<Sink>),
    Gzip { decoder: Box<MultiGzDecoder<Sink>>, fed: bool },
}

impl BlobWriter {
    pub(super) fn create(
        temporary: &Path,
        goal: Goal,
        size: u64,
        encoding: Encoding,
        promise: Promise,
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
            flusher: Flusher::default(),
            promise,
        };
        let input = match encoding {
            Encoding::Identity => Input::Identity(Box::new(sink)),
            Encoding::Gzip => {
                Input::Gzip { decoder: Box::new(MultiGzDecoder::new(sink)), fed: false }
            }
        };
        let at = At::Here(Box::new(State { input, goal }));
        Ok(Self { at, waiting: Vec::new() })
    }

    /// Takes in some bytes; what is wrong with them may be told with the next ones, or at the end.
    /// After an error the writer is of no use any more.
    pub async fn write(&mut self, chunk: Bytes) -> Result<(), BlobError> {
        self.waiting.push(chunk);
        if !self.is_piece() {
            return Ok(());
        }
        let mut state = self.state().await?;
        let piece = std::mem::take(&mut self.waiting);
        // Not waited for: one piece is received while the one before it is hashed.
        self.at = At::Writing(tokio::task::spawn_blocking(move || {
            state.feed(&piece)?;
            Ok(state)
        }));
        Ok(())
    }

    /// Checks size and SHA-256, makes the file durable and gives it its name. Returns the digest.
    pub async fn finish(mut self) -> Result<Digest, BlobError> {
        let mut state = self.state().await?;
        let rest = self.waiting;
        disk::blocking(move || {
            state.feed(&rest)?;
            state.finish()
        })
        .await?
    }

    fn is_piece(&self) -> bool {
        self.waiting.len() >= PIECE_CHUNKS
            || self.waiting.iter().map(Bytes::len).sum::<usize>() >= PIECE_BYTES
    }

    async fn state(&mut self) -> Result<Box<State>, BlobError> {
        match std::mem::replace(&mut self.at, At::Gone) {
            At::Here(state) => Ok(state),
            At::Writing(writing) => {
                writing.await.map_err(|_| io::Error::other("the file work was interrupted"))?
            }
            At::Gone => Err(BlobError::Mismatch),
        }
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
    fn feed(&mut self, piece: &[Bytes]) -> Result<(), BlobError> {
        piece.iter().try_for_each(|chunk| self.input.feed(chunk))
    }

    fn finish(self) -> Result<Digest, BlobError> {
        let State { input, goal } = self;
        let mut sink = match input {
            Input::Identity(sink) => *sink,
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
        let digest = Digest::finish(std::mem::take(&mut sink.hasher));
        let place = match goal {
            Goal::Known(wanted, _) if digest != wanted => return Err(BlobError::Mismatch),
            Goal::Known(_, place) => place,
            Goal::Any(project) => place_in(&project, &digest),
        };
        let file = sink.file.take().ok_or(BlobError::Mismatch)?;
        failpoint!("blob.before_sync");
        sink.flusher.finish()?;
        file.sync_all()?;
        drop(file);
        let folder = place.parent().ok_or(BlobError::Missing)?;
        disk::make_folder(folder)?;
        failpoint!("blob.before_rename");
        fs::rename(&sink.path, &place)?;
        failpoint!("blob.renamed");
        disk::sync_folder(folder)?;
        failpoint!("blob.durable");
        Ok(digest)
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
    flusher: Flusher,
    /// The room for it.
    promise: Promise,
}

/// Brings a large file to the disk while more of it arrives, so that its end need not wait for
/// all of it.
#[derive(Debug, Default)]
struct Flusher {
    flushed: u64,
    flushing: Option<thread::JoinHandle<io::Result<()>>>,
}

/// So much of a file is written before what it has is brought to the disk.
const FLUSH_BYTES: u64 = 32 << 20;

impl Flusher {
    fn written(&mut self, file: &File, written: u64) -> io::Result<()> {
        if written - self.flushed < FLUSH_BYTES {
            return Ok(());
        }
        if self.flushing.as_ref().is_some_and(|flushing| !flushing.is_finished()) {
            return Ok(());
        }
        self.finish()?;
        self.flushed = written;
        let file = file.try_clone()?;
        let begun = thread::Builder::new().stack_size(128 << 10).name("blob-flush".to_owned());
        // Without a thread the end waits for everything.
        self.flushing = begun.spawn(move || file.sync_data()).ok();
        Ok(())
    }

    /// Waits for what was begun. The system tells of a failed write only once, so its error counts.
    fn finish(&mut self) -> io::Result<()> {
        let Some(flushing) = self.flushing.take() else { return Ok(()) };
        flushing.join().unwrap_or_else(|_| Err(io::Error::other("the file work was interrupted")))
    }
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
        if let Err(error) = self.flusher.written(file, self.written) {
            let kind = error.kind();
            self.failure = Some(error.into());
            return Err(kind.into());
        }
        self.promise.written(bytes.len() as u64);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::Blobs;

    #[tokio::test]
    async fn a_body_that_comes_byte_by_byte_does_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path().join("blobs")).unwrap();
        let data: Vec<u8> = (0..5_000_u32).map(|n| (n % 251) as u8).collect();
        let (sha256, size) = (Digest::of(&data), data.len() as u64);
        let project = "p1".parse().unwrap();
        let mut writer = blobs.begin(&project, sha256, size, Encoding::Identity).await.unwrap();
        for byte in &data {
            writer.write(Bytes::copy_from_slice(std::slice::from_ref(byte))).await.unwrap();
            assert!(writer.waiting.len() < PIECE_CHUNKS);
        }
        assert_eq!(writer.finish().await.unwrap(), sha256);
        assert_eq!(blobs.verify(&project, &sha256).await.unwrap(), size);
    }
}
