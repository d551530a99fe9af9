//! Manifests, checked before anything is done with them.

use std::collections::{HashMap, HashSet};

use runwhere_agent::protocol::Digest;
use runwhere_engine::SyncedFile;
use serde::Deserialize;
use unicode_normalization::UnicodeNormalization as _;

use crate::api::text::{Words, plain};

/// Most files of one sync.
pub const MAX_FILES: usize = 200_000;
/// Largest file.
pub const MAX_FILE_BYTES: u64 = 1 << 30;
/// Largest sum of all files.
const MAX_TOTAL_BYTES: u64 = 1 << 40;
const MAX_PATH_BYTES: usize = 1024;
const MAX_NAME_BYTES: usize = 255;

/// A file as a client lists it.
#[derive(Clone, Debug, Deserialize)]
pub struct ListedFile {
    /// Relative path with `/`.
    pub path: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub hash: String,
    /// Size in bytes.
    pub size: u64,
}

/// A checked manifest: safe relative paths, sorted, each once also where case does not count.
#[derive(Clone, Debug)]
pub struct Manifest {
    files: Vec<(String, Digest, u64)>,
}

/// Why a manifest is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ManifestError {
    /// The path could leave the folder, or cannot exist everywhere.
    #[error("{path:?} is not a plain relative path: {why}")]
    Path {
        /// The path, shortened.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The hash is not `sha256:` and 64 digits.
    #[error("the hash of {0:?} is not sha256: and 64 hexadecimal digits")]
    Hash(String),
    /// Twice in the list.
    #[error("{0:?} is listed twice")]
    Twice(String),
    /// Two names that are one where case, or how an accent is encoded, does not count.
    #[error("{0:?} and {1:?} differ only in letter case or in how accents are encoded")]
    Case(String, String),
    /// A file that is also a folder.
    #[error("{0:?} is listed as a file and as a folder")]
    FileAndFolder(String),
    /// A file that is too large.
    #[error("{path:?} has {size} bytes; at most {MAX_FILE_BYTES} are allowed")]
    TooLarge {
        /// The path.
        path: String,
        /// Its size.
        size: u64,
    },
    /// Too many files.
    #[error("{0} files; at most {MAX_FILES} are allowed")]
    TooMany(usize),
    /// Too large in sum.
    #[error("more than {MAX_TOTAL_BYTES} bytes in sum")]
    TooLargeInSum,
    /// One content with two sizes.
    #[error("{0:?} has the hash of a file of another size")]
    Sizes(String),
}

impl ManifestError {
    /// The sentence.
    pub fn words(&self) -> Words {
        let zh = match self {
            Self::Path { path, .. } => format!("文件路径 {} 不是普通的相对路径", plain(path)),
            Self::Hash(path) => {
                format!("文件 {} 的 hash 不是 sha256: 加 64 位十六进制", plain(path))
            }
            Self::Twice(path) => format!("文件 {} 在清单中重复", plain(path)),
            Self::Case(one, other) => {
                format!("{} 与 {} 只有大小写或字符编码方式不同", plain(one), plain(other))
            }
            Self::FileAndFolder(path) => format!("{} 既是文件又是目录", plain(path)),
            Self::TooLarge { path, .. } => format!("文件 {} 超过 1 GiB", plain(path)),
            Self::TooMany(count) => format!("文件数 {count} 超过上限 {MAX_FILES}"),
            Self::TooLargeInSum => "文件总大小超过上限".to_owned(),
            Self::Sizes(path) => format!("文件 {} 的 hash 与另一大小不同的文件相同", plain(path)),
        };
        Words::new(zh, self.to_string())
    }
}

impl Manifest {
    /// Checks a list.
    pub fn check(listed: &[ListedFile]) -> Result<Self, ManifestError> {
        if listed.len() > MAX_FILES {
            return Err(ManifestError::TooMany(listed.len()));
        }
        let mut files = Vec::with_capacity(listed.len());
        let mut folded: Vec<(String, &str)> = Vec::with_capacity(listed.len());
        let mut sizes: HashMap<Digest, u64> = HashMap::with_capacity(listed.len());
        let mut total: u64 = 0;
        for file in listed {
            let path = file.path.as_str();
            plain_path(path).map_err(|why| ManifestError::Path { path: short(path), why })?;
            let digest = file.hash.strip_prefix("sha256:").and_then(|hex| hex.parse().ok());
            let digest: Digest = digest.ok_or_else(|| ManifestError::Hash(short(path)))?;
            if file.size > MAX_FILE_BYTES {
                return Err(ManifestError::TooLarge { path: short(path), size: file.size });
            }
            total = total.saturating_add(file.size);
            if *sizes.entry(digest).or_insert(file.size) != file.size {
                return Err(ManifestError::Sizes(short(path)));
            }
            folded.push((fold(path), path));
            files.push((path.to_owned(), digest, file.size));
        }
        if total > MAX_TOTAL_BYTES {
            return Err(ManifestError::TooLargeInSum);
        }
        apart(&mut folded)?;
        files.sort_unstable();
        Ok(Self { files })
    }

    /// Path, content and size of each file, sorted by path.
    pub fn files(&self) -> &[(String, Digest, u64)] {
        &self.files
    }

    /// Each content once, with its size.
    pub fn contents(&self) -> Vec<(Digest, u64)> {
        let mut seen = HashSet::new();
        let files = self.files.iter().filter(|(_, digest, _)| seen.insert(*digest));
        files.map(|(_, digest, size)| (*digest, *size)).collect()
    }

    /// The files as they are stored.
    pub fn into_synced(self) -> Vec<SyncedFile> {
        let synced = |(path, digest, size): (String, Digest, u64)| SyncedFile {
            path,
            sha256: digest.to_string(),
            size,
        };
        self.files.into_iter().map(synced).collect()
    }
}

/// A path as a file system sees it that knows neither letter case nor ways to encode an accent.
fn fold(path: &str) -> String {
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    // Upper case first: some letters have two small forms.
    path.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfd().collect()
}

/// No file is listed twice or lies below another file, and no two names of files or folders fold to
/// one. In the order of their parts all paths with a common beginning are neighbours, so that
/// looking at neighbours is enough, however deep they are.
fn apart(folded: &mut [(String, &str)]) -> Result<(), ManifestError> {
    folded.sort_unstable_by(|(one_folded, one), (other_folded, other)| {
        one_folded.split('/').cmp(other_folded.split('/')).then_with(|| one.cmp(other))
    });
    for pair in folded.windows(2) {
        let [(one_folded, one), (other_folded, other)] = pair else { continue };
        if one == other {
            return Err(ManifestError::Twice(short(one)));
        }
        let same = one_folded.split('/').zip(other_folded.split('/')).take_while(|(a, b)| a == b);
        let same = same.count();
        let start = |path: &str| path.split('/').take(same).collect::<Vec<_>>().join("/");
        let (one_start, other_start) = (start(one), start(other));
        if one_folded.split('/').count() == same && other_folded.split('/').count() > same {
            return Err(ManifestError::FileAndFolder(short(&other_start)));
        }
        if one_start != other_start {
            return Err(ManifestError::Case(short(&one_start), short(&other_start)));
        }
    }
    Ok(())
}

fn plain_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("it is empty");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("it is longer than 1024 bytes");
    }
    if path.contains('\\') {
        return Err("it contains a backslash");
    }
    if path.chars().any(char::is_control) {
        return Err("it contains a control character");
    }
    if path.starts_with('/') {
        return Err("it is absolute");
    }
    for part in path.split('/') {
        match part {
            "" => return Err("it has an empty part"),
            "." | ".." => return Err("it has the part . or .."),
            part if part.len() > MAX_NAME_BYTES => {
                return Err("a part of it is longer than 255 bytes");
            }
            _ => {}
        }
    }
    Ok(())
}

fn short(path: &str) -> String {
    path.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ListedFile {
        sized(path, "ab", 1)
    }

    fn sized(path: &str, byte: &str, size: u64) -> ListedFile {
        ListedFile { path: path.to_owned(), hash: format!("sha256:{}", byte.repeat(32)), size }
    }

    #[test]
    fn hostile_paths_are_refused() {
        let long = "a/".repeat(600);
        let name = "x".repeat(256);
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a/..",
            "./a",
            "a//b",
            "a/",
            "a\\b",
            "..\\x",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            &long,
            &name,
        ] {
            let refused = Manifest::check(&[file(path)]);
            assert!(matches!(refused, Err(ManifestError::Path { .. })), "{path:?}");
        }
        for path in ["a", "a b/ü.py", "...", "a..b", "-x", "[/x]", ".env2/中"] {
            assert!(Manifest::check(&[file(path)]).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn collisions_are_refused() {
        use ManifestError as E;
        let check = |paths: &[&str]| {
            let files: Vec<_> = paths.iter().map(|path| file(path)).collect();
            Manifest::check(&files).map(|_| ()).unwrap_err()
        };
        assert_eq!(check(&["a", "a"]), E::Twice("a".into()));
        assert_eq!(check(&["Ä/x", "ä/x"]), E::Case("Ä/x".into(), "ä/x".into()));
        assert_eq!(check(&["D/x", "d/y"]), E::Case("D".into(), "d".into()));
        assert_eq!(check(&["é", "e\u{301}"]), E::Case("e\u{301}".into(), "é".into()));
        assert_eq!(check(&["É/x", "e\u{301}/y"]), E::Case("É".into(), "e\u{301}".into()));
        assert_eq!(check(&["ας", "ασ/x"]), E::FileAndFolder("ασ".into()));
        assert_eq!(check(&["a", "a/b"]), E::FileAndFolder("a".into()));
        // Sorted as bytes, others stand between the two.
        assert_eq!(check(&["A", "a-", "a.b", "a/b"]), E::FileAndFolder("a".into()));
        assert_eq!(check(&["x/D/1", "x/c", "x/e", "x/d/2"]), E::Case("x/D".into(), "x/d".into()));
    }

    #[test]
    fn many_deep_paths_are_checked_in_bounded_time_and_space() {
        let files: Vec<_> =
            (0..2000).map(|n| file(&format!("{n}/{}x", "a/".repeat(500)))).collect();
        assert_eq!(Manifest::check(&files).unwrap().files().len(), 2000);
    }

    #[test]
    fn hashes_and_sizes_are_checked() {
        let wrong = |hash: &str| ListedFile { hash: hash.to_owned(), ..file("a") };
        for hash in ["", "sha256:", "sha256:AB", "md5:00", &"a".repeat(64)] {
            assert!(matches!(Manifest::check(&[wrong(hash)]), Err(ManifestError::Hash(_))));
        }
        let large = Manifest::check(&[sized("a", "ab", MAX_FILE_BYTES + 1)]);
        assert!(matches!(large, Err(ManifestError::TooLarge { .. })));
        let two = Manifest::check(&[sized("a", "ab", 1), sized("b", "ab", 2)]);
        assert_eq!(two.unwrap_err(), ManifestError::Sizes("b".into()));
        let same = Manifest::check(&[sized("b", "ab", 1), sized("a", "ab", 1)]).unwrap();
        assert_eq!(same.contents().len(), 1);
        assert_eq!(same.files()[0].0, "a");
        assert!(Manifest::check(&[]).is_ok());
    }
}
