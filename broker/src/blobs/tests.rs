use std::io::Write as _;

use bytes::Bytes;
use runwhere_agent::protocol::Digest;
use runwhere_model::ProjectId;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;

use super::{BlobError, Blobs, Encoding};

fn folder() -> (TempDir, Blobs, ProjectId) {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(folder.path().join("blobs")).unwrap();
    (folder, blobs, ProjectId::new("p1").unwrap())
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

async fn put(
    blobs: &Blobs,
    project: &ProjectId,
    sha256: Digest,
    size: u64,
    encoding: Encoding,
    body: &[u8],
) -> Result<(), BlobError> {
    let mut writer = blobs.begin(project, sha256, size, encoding).await?;
    for chunk in body.chunks(7919) {
        writer.write(Bytes::copy_from_slice(chunk)).await?;
    }
    writer.finish().await.map(|digest| assert_eq!(digest, sha256))
}

fn files_below(folder: &std::path::Path) -> usize {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

#[tokio::test]
async fn stores_both_encodings_of_one_content_and_reads_it_back() {
    let (folder, blobs, project) = folder();
    let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let sha256 = Digest::of(&data);
    put(&blobs, &project, sha256, data.len() as u64, Encoding::Gzip, &gzip(&data)).await.unwrap();
    put(&blobs, &project, sha256, data.len() as u64, Encoding::Identity, &data).await.unwrap();
    let (mut file, size) = blobs.read(&project, &sha256).await.unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).await.unwrap();
    assert_eq!((read, size), (data.clone(), data.len() as u64));
    assert_eq!(blobs.verify(&project, &sha256).await.unwrap(), size);
    assert_eq!(files_below(folder.path()), 1);
}

#[tokio::test]
async fn content_of_any_digest_is_found_by_its_own() {
    let (folder, blobs, project) = folder();
    // Large enough to be brought to the disk while it arrives.
    let data: Vec<u8> = (0..9_000_000_u32).flat_map(u32::to_le_bytes).collect();
    for (content, whole) in [(data.as_slice(), true), (b"", true), (b"short", false)] {
        let size = content.len() as u64 + u64::from(!whole);
        let mut writer = blobs.begin_any(&project, size).await.unwrap();
        for chunk in content.chunks(1 << 20) {
            writer.write(Bytes::copy_from_slice(chunk)).await.unwrap();
        }
        let sha256 = Digest::of(content);
        match (writer.finish().await, whole) {
            (Ok(digest), true) => {
                assert_eq!(digest, sha256);
                assert_eq!(blobs.verify(&project, &sha256).await.unwrap(), size);
            }
            (finished, _) => {
                assert!(matches!(finished, Err(BlobError::TooShort { want: 6, got: 5 })));
                assert_eq!(blobs.size(&project, &sha256).await.unwrap(), None);
            }
        }
    }
    let mut writer = blobs.begin_any(&project, 3).await.unwrap();
    let _ = writer.write(Bytes::from_static(b"long")).await;
    assert!(matches!(writer.finish().await, Err(BlobError::TooLong(3))));
    assert_eq!(files_below(folder.path()), 2);
}

#[tokio::test]
async fn the_empty_file_arrives_in_both_encodings() {
    let (_folder, blobs, project) = folder();
    let sha256 = Digest::of(b"");
    put(&blobs, &project, sha256, 0, Encoding::Gzip, &gzip(b"")).await.unwrap();
    put(&blobs, &project, sha256, 0, Encoding::Identity, b"").await.unwrap();
    assert_eq!(blobs.size(&project, &sha256).await.unwrap(), Some(0));
}

#[tokio::test]
async fn what_is_not_as_announced_leaves_nothing() {
    let (folder, blobs, project) = folder();
    let data = b"hello".as_slice();
    let sha256 = Digest::of(data);
    let bomb = gzip(&vec![0; 64 << 20]);
    let truncated = &gzip(&[1; 5])[..12];
    use Encoding::{Gzip, Identity};
    let cases: [(u64, Encoding, &[u8]); 8] = [
        (4, Identity, data),
        (6, Identity, data),
        (5, Identity, b"jello"),
        (5, Gzip, data),
        (5, Gzip, b""),
        (5, Gzip, &bomb),
        (5, Gzip, truncated),
        (0, Identity, b""),
    ];
    for (number, (size, encoding, body)) in cases.into_iter().enumerate() {
        let error = put(&blobs, &project, sha256, size, encoding, body).await.unwrap_err();
        let as_expected = match number {
            0 => matches!(error, BlobError::TooLong(4)),
            1 => matches!(error, BlobError::TooShort { want: 6, got: 5 }),
            2 | 7 => matches!(error, BlobError::Mismatch),
            5 => matches!(error, BlobError::TooLong(5)),
            // How much of a broken stream was readable does not matter.
            _ => matches!(error, BlobError::Gzip | BlobError::TooShort { .. }),
        };
        assert!(as_expected, "case {number}: {error:?}");
        assert_eq!(files_below(folder.path()), 0, "case {number}");
    }
}

#[tokio::test]
async fn another_project_neither_sees_nor_reads_it() {
    let (_folder, blobs, project) = folder();
    let other = ProjectId::new("..").unwrap();
    let sha256 = Digest::of(b"secret");
    put(&blobs, &project, sha256, 6, Encoding::Identity, b"secret").await.unwrap();
    assert_eq!(blobs.lacking(&other, vec![(sha256, 6)]).await.unwrap(), [(sha256, 6)]);
    assert_eq!(
        blobs.lacking(&project, vec![(sha256, 6), (sha256, 7)]).await.unwrap(),
        [(sha256, 7)]
    );
    assert!(matches!(blobs.read(&other, &sha256).await, Err(BlobError::Missing)));
    put(&blobs, &other, sha256, 6, Encoding::Identity, b"secret").await.unwrap();
    assert_eq!(blobs.verify(&other, &sha256).await.unwrap(), 6);
}

#[tokio::test]
async fn damage_is_found_and_a_new_upload_mends_it() {
    let (folder, blobs, project) = folder();
    let sha256 = Digest::of(b"good");
    put(&blobs, &project, sha256, 4, Encoding::Identity, b"good").await.unwrap();
    let name = sha256.to_string();
    let path = folder.path().join("blobs/p-p1").join(&name[..2]).join(&name);
    std::fs::write(path, "evil").unwrap();
    assert!(matches!(blobs.verify(&project, &sha256).await, Err(BlobError::Mismatch)));
    put(&blobs, &project, sha256, 4, Encoding::Identity, b"good").await.unwrap();
    assert_eq!(blobs.verify(&project, &sha256).await.unwrap(), 4);
}

#[tokio::test]
async fn many_at_once_are_one_file_and_a_restart_removes_unfinished_ones() {
    let (folder, blobs, project) = folder();
    let data = vec![7; 300_000];
    let sha256 = Digest::of(&data);
    let writes = (0..8).map(|_| put(&blobs, &project, sha256, 300_000, Encoding::Identity, &data));
    for result in futures_util::future::join_all(writes).await {
        result.unwrap();
    }
    let mut unfinished =
        blobs.begin(&project, Digest::of(b"x"), 9, Encoding::Identity).await.unwrap();
    unfinished.write(Bytes::from_static(b"x")).await.unwrap();
    std::mem::forget(unfinished);
    assert_eq!(files_below(folder.path()), 2);
    Blobs::open(folder.path().join("blobs")).unwrap();
    assert_eq!(files_below(folder.path()), 1);
}

#[tokio::test]
async fn room_is_promised_once() {
    let (folder, blobs, project) = folder();
    let disk = rustix::fs::statvfs(folder.path()).unwrap();
    // Two of these have no room together.
    let most = disk.f_bavail * disk.f_frsize / 10 * 7;
    let begin = |name: &[u8]| blobs.begin(&project, Digest::of(name), most, Encoding::Identity);
    let first = begin(b"one").await.unwrap();
    assert!(matches!(begin(b"two").await, Err(BlobError::Full)));
    // Nothing of it was written, and all of it is given back.
    drop(first);
    begin(b"two").await.unwrap();
    // What is written is on the disk, and no promise any more.
    let data = vec![7; 100_000];
    let size = data.len() as u64;
    put(&blobs, &project, Digest::of(&data), size, Encoding::Gzip, &gzip(&data)).await.unwrap();
    begin(b"three").await.unwrap();
}
