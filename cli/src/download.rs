//! Downloads: checked while they are written, renamed into place when whole.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use reqwest::Response;
use sha2::{Digest as _, Sha256};

/// What the server says of a file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Expected {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Lower-case hexadecimal SHA-256.
    pub sha256: Option<String>,
}

/// Why a file was not downloaded. Nothing stands under its name then.
#[derive(Debug)]
pub enum DownloadError {
    /// The connection broke.
    Network(reqwest::Error),
    /// The disk said no.
    Disk(PathBuf, io::Error),
    /// The bytes are not as many as announced.
    Size,
    /// The bytes have another SHA-256 than announced.
    Hash,
}

/// Whether a name stays below its folder.
#[must_use]
pub fn is_safe(name: &str) -> bool {
    let drive = cfg!(windows) && name.as_bytes().get(1) == Some(&b':');
    !name.is_empty()
        && !drive
        && !name.contains('\\')
        && !name.chars().any(char::is_control)
        && !name.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// Whether the file is already there, byte for byte.
///
/// # Errors
/// When it cannot be read.
pub fn is_there(target: &Path, expected: &Expected) -> io::Result<bool> {
    let (Some(size), Some(sha256)) = (expected.size, &expected.sha256) else { return Ok(false) };
    let mut file = match fs::File::open(target) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() != size {
        return Ok(false);
    }
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex::encode(hash.finalize()) == *sha256),
            read => hash.update(&piece[..read]),
        }
    }
}

/// Writes an answer to `target`, making its folders. `seen` hears the bytes of each piece.
///
/// # Errors
/// See [`DownloadError`].
pub async fn save(
    mut response: Response,
    target: &Path,
    expected: &Expected,
    mut seen: impl FnMut(u64),
) -> Result<(), DownloadError> {
    let disk = |path: &Path, error| DownloadError::Disk(path.to_owned(), error);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder).map_err(|error| disk(folder, error))?;
    }
    let temp = PathBuf::from(format!("{}.part-{}", target.display(), std::process::id()));
    let mut file = fs::File::create(&temp).map_err(|error| disk(&temp, error))?;
    let (mut hash, mut count) = (Sha256::new(), 0_u64);
    let copied = async {
        while let Some(piece) = response.chunk().await.map_err(DownloadError::Network)? {
            count += piece.len() as u64;
            if expected.size.is_some_and(|size| count > size) {
                return Err(DownloadError::Size);
            }
            hash.update(&piece);
            file.write_all(&piece).map_err(|error| disk(&temp, error))?;
            seen(piece.len() as u64);
        }
        if expected.size.is_some_and(|size| size != count) {
            return Err(DownloadError::Size);
        }
        if expected.sha256.as_ref().is_some_and(|sha256| *sha256 != hex::encode(hash.finalize())) {
            return Err(DownloadError::Hash);
        }
        file.sync_all().map_err(|error| disk(&temp, error))?;
        fs::rename(&temp, target).map_err(|error| disk(target, error))
    };
    let copied = copied.await;
    if copied.is_err() {
        let _ = fs::remove_file(&temp);
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_the_folder_are_safe() {
        assert!(is_safe("a") && is_safe("d/e.bin") && is_safe("日志"));
        // A drive only where there are drives.
        assert_eq!(is_safe("c:x"), !cfg!(windows));
        for bad in ["", "/a", "a//b", "../a", "a/..", ".", "a\\b", "a\nb", "a/"] {
            assert!(!is_safe(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_there_is_told_by_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let sha256 = Some(hex::encode(Sha256::digest(b"abc")));
        let expected = Expected { size: Some(3), sha256 };
        assert!(!is_there(&path, &expected).unwrap());
        for (bytes, there) in [(&b"abd"[..], false), (b"abcd", false), (b"abc", true)] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(is_there(&path, &expected).unwrap(), there);
        }
        assert!(!is_there(&path, &Expected::default()).unwrap());
    }
}
