//! Uploads one file to the address that the server gave for it.

use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Body, Response};
use runwhere_agent::protocol::Digest;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio::io::AsyncReadExt;

use super::ManifestFile;
use crate::api::Transport;
use crate::api::upload_retry::{Attempt, Repeat, jitter, pause, reason};

/// Files up to this size are read whole, and compressed where that helps.
const WHOLE: u64 = 8 << 20;
const PIECE: usize = 256 << 10;
/// Text files, which compress well.
const TEXT: &[&str] =
    &["py", "yaml", "yml", "json", "txt", "md", "sh", "cfg", "toml", "ini", "csv", "xml"];

/// One upload.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    /// Path in the manifest.
    pub(super) path: String,
    /// Where the bytes are.
    pub(super) disk: std::path::PathBuf,
    /// What they must be.
    pub(super) file: ManifestFile,
    /// Where they go. Holds a signature: never shown.
    pub(super) url: String,
    /// Their media type.
    pub(super) content_type: Option<String>,
}

/// Why an upload failed.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The file is not what was hashed any more.
    Changed,
    /// The file cannot be read.
    Unreadable(String),
    /// The connection broke.
    Network(String),
    /// The server answered with an error; its body may say why.
    Refused { status: u16, reason: String },
}

/// Uploads, with retries: the server knows the bytes by their hash, so sending them twice is harmless. Returns the bytes sent.
pub(super) async fn upload(transport: &Transport, upload: &Upload) -> Result<u64, UploadError> {
    let mut made = 0;
    loop {
        made += 1;
        let (error, attempt) = match once(transport, upload).await {
            Ok(sent) => return Ok(sent),
            Err(failed) => failed,
        };
        match attempt.and_then(|attempt| pause(Repeat::Safe, made, attempt, jitter())) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(error),
        }
    }
}

async fn once(
    transport: &Transport,
    upload: &Upload,
) -> Result<u64, (UploadError, Option<Attempt>)> {
    let local = |error| (error, None);
    let (body, length, gzip) = body(upload).await.map_err(local)?;
    let pool = transport.pool(&upload.url).map_err(|failure| {
        local(UploadError::Network(failure.message.get(crate::texts::Lang::En).to_owned()))
    })?;
    let media = upload.content_type.as_deref().unwrap_or("application/octet-stream");
    let mut request =
        pool.put(&upload.url).header(CONTENT_TYPE, media).header(CONTENT_LENGTH, length).body(body);
    if gzip {
        request = request.header(CONTENT_ENCODING, "gzip");
    }
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => {
            if is_changed(&error) {
                return Err(local(UploadError::Changed));
            }
            let attempt = if error.is_connect() { Attempt::NotSent } else { Attempt::Broken };
            return Err((UploadError::Network(reason(&error)), Some(attempt)));
        }
    };
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(length);
    }
    let after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let reason = refusal(response).await;
    Err((UploadError::Refused { status, reason }, Some(Attempt::Status(status, after))))
}

/// The body, its length as sent, and whether it is compressed.
async fn body(upload: &Upload) -> Result<(Body, u64, bool), UploadError> {
    let unreadable = |error: std::io::Error| UploadError::Unreadable(error.to_string());
    if upload.file.size > WHOLE {
        let file = tokio::fs::File::open(&upload.disk).await.map_err(unreadable)?;
        return Ok((Body::wrap_stream(verified(file, upload.file)), upload.file.size, false));
    }
    let bytes = tokio::fs::read(&upload.disk).await.map_err(unreadable)?;
    if bytes.len() as u64 != upload.file.size || Digest::of(&bytes) != upload.file.sha256 {
        return Err(UploadError::Changed);
    }
    if is_text(&upload.path) {
        let packed = gzip(&bytes).map_err(unreadable)?;
        if packed.len() < bytes.len() {
            let length = packed.len() as u64;
            return Ok((packed.into(), length, true));
        }
    }
    let length = bytes.len() as u64;
    Ok((bytes.into(), length, false))
}

fn is_text(path: &str) -> bool {
    Path::new(path)
        .extension()
        .and_then(|suffix| suffix.to_str())
        .is_some_and(|suffix| TEXT.iter().any(|text| suffix.eq_ignore_ascii_case(text)))
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// The file's pieces. The last piece is handed on only when all of them together are what was hashed.
fn verified(
    file: tokio::fs::File,
    wanted: ManifestFile,
) -> impl stream::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let start = (file, Sha256::new(), 0_u64, wanted);
    stream::try_unfold(start, |(mut file, mut digest, mut read, wanted)| async move {
        let left = wanted.size - read;
        if left == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
        let got = file.read(&mut piece).await?;
        piece.truncate(got);
        digest.update(&piece);
        read += got as u64;
        if got == 0 || (read == wanted.size && Digest::finish(digest.clone()) != wanted.sha256) {
            return Err(std::io::Error::other(ChangedFile));
        }
        Ok(Some((Bytes::from(piece), (file, digest, read, wanted))))
    })
}

/// The mark of a file that changed, inside a transport error.
#[derive(Debug, thiserror::Error)]
#[error("the file changed")]
struct ChangedFile;

fn is_changed(error: &reqwest::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        let io = inner.downcast_ref::<std::io::Error>();
        if inner.is::<ChangedFile>()
            || io.and_then(|io| io.get_ref()).is_some_and(|inner| inner.is::<ChangedFile>())
        {
            return true;
        }
        source = inner.source();
    }
    false
}

/// What an object store (XML) or our own server (JSON) says, shortened.
async fn refusal(response: Response) -> String {
    let status = response.status();
    let bytes = response.bytes().await.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned();
    let tag = |name: &str| {
        let rest = text.split_once(&format!("<{name}>"))?.1;
        rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner.to_owned())
    };
    let json = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
    let json = json.and_then(|value| value["message"].as_str().map(str::to_owned));
    let said =
        [tag("Code"), tag("Message"), json].into_iter().flatten().collect::<Vec<_>>().join(" ");
    if said.is_empty() {
        format!("HTTP {}", status.as_u16())
    } else {
        format!("HTTP {} {said}", status.as_u16())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    fn wanted(bytes: &[u8]) -> ManifestFile {
        ManifestFile { sha256: Digest::of(bytes), size: bytes.len() as u64 }
    }

    fn upload_of(path: &str, disk: &Path, bytes: &[u8]) -> Upload {
        Upload {
            path: path.to_owned(),
            disk: disk.to_owned(),
            file: wanted(bytes),
            url: "http://127.0.0.1:1/".to_owned(),
            content_type: None,
        }
    }

    #[tokio::test]
    async fn text_is_compressed_only_when_that_makes_it_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("file");
        for (name, bytes, packed) in [
            ("a.py", vec![b'x'; 10_000], true),
            ("a.PY", vec![b'x'; 10_000], true),
            ("a.bin", vec![b'x'; 10_000], false),
            ("tiny.txt", b"x".to_vec(), false),
            ("empty.txt", Vec::new(), false),
        ] {
            std::fs::write(&disk, &bytes).unwrap();
            let (_, length, gzip) = body(&upload_of(name, &disk, &bytes)).await.unwrap();
            assert_eq!(gzip, packed, "{name}");
            assert_eq!(length < bytes.len() as u64, packed, "{name}");
        }
    }

    #[tokio::test]
    async fn a_small_file_that_changed_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("file");
        std::fs::write(&disk, "new!").unwrap();
        let error = body(&upload_of("a", &disk, b"old!")).await.unwrap_err();
        assert!(matches!(error, UploadError::Changed));
    }

    #[tokio::test]
    async fn a_large_file_that_changed_breaks_its_own_upload() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("file");
        let bytes = vec![7; PIECE * 2 + 5];
        std::fs::write(&disk, &bytes).unwrap();
        let open = || async { tokio::fs::File::open(&disk).await.unwrap() };
        let whole: Vec<Bytes> = verified(open().await, wanted(&bytes)).try_collect().await.unwrap();
        assert_eq!(whole.concat(), bytes);

        let mut other = bytes.clone();
        other[PIECE] = 8;
        let broken: Result<Vec<Bytes>, _> =
            verified(open().await, wanted(&other)).try_collect().await;
        assert!(broken.is_err());
        let longer = [bytes.as_slice(), b"more"].concat();
        let broken: Result<Vec<Bytes>, _> =
            verified(open().await, wanted(&longer)).try_collect().await;
        assert!(broken.is_err());
    }
}
