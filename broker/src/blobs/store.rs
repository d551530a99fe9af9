//! The folder of blobs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runwhere_agent::protocol::Digest;
use runwhere_model::ProjectId;
use sha2::Digest as _;

use super::BlobError;
use super::writer::{BlobWriter, Encoding, Goal};
use crate::disk::{self, DiskRoom};
use crate::ports::Room as _;

/// The content-addressed store of one data folder.
#[derive(Clone, Debug)]
pub struct Blobs {
    root: PathBuf,
    promised: Promised,
}

/// Bytes that unfinished blobs have yet to write: room that is given already.
#[derive(Clone, Debug, Default)]
struct Promised(Arc<Mutex<u64>>);

impl Promised {
    fn sum(&self) -> MutexGuard<'_, u64> {
        // A number is never half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for `size` bytes, beside what was promised before.
    fn promise(&self, room: &DiskRoom, size: u64) -> Result<Promise, BlobError> {
        let mut sum = self.sum();
        let all = sum.checked_add(size).filter(|all| room.fits(*all));
        *sum = all.ok_or(BlobError::Full)?;
        drop(sum);
        Ok(Promise { promised: self.clone(), left: size })
    }
}

/// Room for one blob, given back as it is written, and the rest of it at the end.
#[derive(Debug)]
pub(super) struct Promise {
    promised: Promised,
    left: u64,
}

impl Promise {
    pub(super) fn written(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        *self.promised.sum() -= bytes;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.written(self.left);
    }
}

impl Blobs {
    /// Opens (or makes) the folder and removes what unfinished writes left. Only one process may
    /// have it open.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, BlobError> {
        let root = root.into();
        disk::make_folder(&root)?;
        let temporary = root.join(TEMPORARY);
        if temporary.is_dir() {
            fs::remove_dir_all(&temporary)?;
        }
        disk::make_folder(&temporary)?;
        Ok(Self { root, promised: Promised::default() })
    }

    /// Starts to store content of a known digest and size; nothing is visible until
    /// [`BlobWriter::finish`]. What would leave running jobs no room is [`BlobError::Full`] at once.
    pub async fn begin(
        &self,
        project: &ProjectId,
        sha256: Digest,
        size: u64,
        encoding: Encoding,
    ) -> Result<BlobWriter, BlobError> {
        let goal = Goal::Known(sha256, self.place(project, &sha256));
        self.begin_with(goal, size, encoding).await
    }

    /// As [`Self::begin`], for content whose digest is only known once it has arrived.
    pub async fn begin_any(&self, project: &ProjectId, size: u64) -> Result<BlobWriter, BlobError> {
        let goal = Goal::Any(self.folder_of(project));
        self.begin_with(goal, size, Encoding::Identity).await
    }

    async fn begin_with(
        &self,
        goal: Goal,
        size: u64,
        encoding: Encoding,
    ) -> Result<BlobWriter, BlobError> {
        let temporary = self.root.join(TEMPORARY);
        let (room, promised) = (DiskRoom::of(&self.root), self.promised.clone());
        disk::blocking(move || {
            let promise = promised.promise(&room, size)?;
            // Whoever cleans up temporary files may have taken the folder away.
            disk::make_folder(&temporary)?;
            BlobWriter::create(&temporary, goal, size, encoding, promise)
        })
        .await?
    }

    /// The size of content that the project has stored.
    pub async fn size(
        &self,
        project: &ProjectId,
        sha256: &Digest,
    ) -> Result<Option<u64>, BlobError> {
        let place = self.place(project, sha256);
        disk::blocking(move || size_of(&place)).await?.map_err(BlobError::from)
    }

    /// Which of the contents the project lacks, in order; content of another size counts as
    /// lacking.
    pub async fn lacking(
        &self,
        project: &ProjectId,
        wanted: Vec<(Digest, u64)>,
    ) -> Result<Vec<(Digest, u64)>, BlobError> {
        let blobs = self.clone();
        let project = project.clone();
        disk::blocking(move || {
            let mut lacking = Vec::new();
            for (sha256, size) in wanted {
                if size_of(&blobs.place(&project, &sha256))? != Some(size) {
                    lacking.push((sha256, size));
                }
            }
            Ok(lacking)
        })
        .await?
    }

    /// Opens content for reading, with its size.
    pub async fn read(
        &self,
        project: &ProjectId,
        sha256: &Digest,
    ) -> Result<(tokio::fs::File, u64), BlobError> {
        let place = self.place(project, sha256);
        let (file, size) = disk::blocking(move || {
            let file = open(&place)?;
            let size = file.metadata()?.len();
            Ok::<_, BlobError>((file, size))
        })
        .await??;
        Ok((tokio::fs::File::from_std(file), size))
    }

    /// Reads content again from the disk and returns its size; content that is no longer what its
    /// name says is [`BlobError::Mismatch`].
    pub async fn verify(&self, project: &ProjectId, sha256: &Digest) -> Result<u64, BlobError> {
        let place = self.place(project, sha256);
        let sha256 = *sha256;
        disk::blocking(move || {
            let mut file = open(&place)?;
            let mut hasher = sha2::Sha256::new();
            let mut buffer = vec![0; 256 << 10];
            let mut size = 0;
            loop {
                let read = match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error.into()),
                };
                hasher.update(&buffer[..read]);
                size += read as u64;
            }
            if Digest::finish(hasher) == sha256 { Ok(size) } else { Err(BlobError::Mismatch) }
        })
        .await?
    }

    /// Makes content of one project another's too, without a second copy; false where the first
    /// has none of that size.
    pub async fn share(
        &self,
        from: &ProjectId,
        to: &ProjectId,
        sha256: &Digest,
        size: u64,
    ) -> Result<bool, BlobError> {
        let (source, place) = (self.place(from, sha256), self.place(to, sha256));
        disk::blocking(move || {
            if size_of(&source)? != Some(size) {
                return Ok(false);
            }
            if size_of(&place)? == Some(size) {
                return Ok(true);
            }
            if let Some(folder) = place.parent() {
                disk::make_folder(folder)?;
            }
            match fs::hard_link(&source, &place) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(folder) = place.parent() {
                File::open(folder)?.sync_all()?;
            }
            Ok(true)
        })
        .await?
    }

    fn place(&self, project: &ProjectId, sha256: &Digest) -> PathBuf {
        place_in(&self.folder_of(project), sha256)
    }

    fn folder_of(&self, project: &ProjectId) -> PathBuf {
        // The prefix keeps the ids `.` and `..` from being folders of another meaning.
        self.root.join(format!("p-{project}"))
    }
}

/// Where content lies in a project's folder.
pub(super) fn place_in(project: &Path, sha256: &Digest) -> PathBuf {
    let name = sha256.to_string();
    project.join(&name[..2]).join(name)
}

/// Name of the folder of unfinished writes; no project's folder is called so.
const TEMPORARY: &str = "unfinished";

fn size_of(place: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(place) {
        Ok(data) => Ok(Some(data.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(place: &Path) -> Result<File, BlobError> {
    File::open(place).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BlobError::Missing,
        _ => error.into(),
    })
}
