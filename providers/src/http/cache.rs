//! Pages that were read before, so that what has not changed is not fetched again.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::digest::sha256_hex;

/// A page with what its server needs to tell whether it is still the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CachedPage {
    /// `ETag` as sent.
    pub etag: Option<String>,
    /// `Last-Modified` as sent.
    pub last_modified: Option<String>,
    /// The body, or what was kept of it.
    pub body: Bytes,
}

/// Keeps pages. A cache that cannot read or write is an empty one: it only costs time.
pub trait PageCache: fmt::Debug + Send + Sync + 'static {
    /// The page stored under a key.
    fn load(&self, key: &str) -> Option<CachedPage>;
    /// Stores a page, replacing an older one.
    fn store(&self, key: &str, page: &CachedPage);
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCache;

impl PageCache for NoCache {
    fn load(&self, _key: &str) -> Option<CachedPage> {
        None
    }
    fn store(&self, _key: &str, _page: &CachedPage) {}
}

/// Keeps pages as files of one folder; each is replaced as a whole.
#[derive(Clone, Debug)]
pub struct FolderCache {
    folder: PathBuf,
}

/// First line of a cached file.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    key: String,
    etag: Option<String>,
    last_modified: Option<String>,
    length: usize,
    sha256: String,
}

const FORMAT: u32 = 1;

impl FolderCache {
    /// A cache in `folder`, which is made when something is stored.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{}.page", &sha256_hex(key.as_bytes())[..32]))
    }

    fn write(&self, path: &Path, key: &str, page: &CachedPage) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let header = Header {
            format: FORMAT,
            key: key.to_owned(),
            etag: page.etag.clone(),
            last_modified: page.last_modified.clone(),
            length: page.body.len(),
            sha256: sha256_hex(&page.body),
        };
        // Two writers must not share a half-written file.
        let mut unique = [0u8; 8];
        getrandom::fill(&mut unique).map_err(|_| io::Error::other("no random numbers"))?;
        let half = path.with_extension(format!("{}.half", hex::encode(unique)));
        let written = (|| {
            let mut file = fs::File::create_new(&half)?;
            serde_json::to_writer(&mut file, &header)?;
            file.write_all(b"\n")?;
            file.write_all(&page.body)?;
            file.sync_data()?;
            fs::rename(&half, path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&half);
        }
        written
    }
}

impl PageCache for FolderCache {
    fn load(&self, key: &str) -> Option<CachedPage> {
        let bytes = Bytes::from(fs::read(self.file(key)).ok()?);
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
        let body = bytes.slice(end + 1..);
        let whole = header.format == FORMAT
            && header.key == key
            && header.length == body.len()
            && header.sha256 == sha256_hex(&body);
        whole.then_some(CachedPage { etag: header.etag, last_modified: header.last_modified, body })
    }

    fn store(&self, key: &str, page: &CachedPage) {
        if let Err(error) = self.write(&self.file(key), key, page) {
            tracing::warn!(folder = %self.folder.display(), %error, "a fetched page could not be kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let cache = FolderCache::new(folder.path().join("pages"));
        assert_eq!(cache.load("a"), None);
        let page = CachedPage {
            etag: Some("\"1\"".to_owned()),
            last_modified: None,
            body: Bytes::from_static(b"one\ntwo"),
        };
        cache.store("a", &page);
        assert_eq!(cache.load("a"), Some(page.clone()));
        assert_eq!(cache.load("b"), None);
        let file = cache.file("a");
        let mut bytes = fs::read(&file).unwrap();
        bytes.pop();
        fs::write(&file, &bytes).unwrap();
        assert_eq!(cache.load("a"), None, "a cut file is no page");
        cache.store("a", &page);
        assert_eq!(fs::read_dir(folder.path().join("pages")).unwrap().count(), 1);
    }
}
