//! Manifests, checked before anything is done with them.

use std::collections::{HashMap, HashSet};

use runwhere_agent::protocol::Digest;
use runwhere_engine::SyncedFile;
use serde::Deserialize;

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
    /// Two names that are one where case does not count.
    #[error("{0:?} and {1:?} differ only in letter case")]
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

impl Manifest {
    /// Checks a list.
    pub fn check(listed: &[ListedFile]) -> Result<Self, ManifestError> {
        if listed.len() > MAX_FILES {
            return Err(ManifestError::TooMany(listed.len()));
        }
        let mut files = Vec::with_capacity(listed.len());
        let mut folded: HashMap<String, &str> = HashMap::with_capacity(listed.len());
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
            match folded.insert(path.to_lowercase(), path) {
                Some(other) if other == path => return Err(ManifestError::Twice(short(path))),
                Some(other) => return Err(ManifestError::Case(short(other), short(path))),
                None => {}
            }
            files.push((path.to_owned(), digest, file.size));
        }
        if total > MAX_TOTAL_BYTES {
            return Err(ManifestError::TooLargeInSum);
        }
        folders_apart(&files, &folded)?;
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

/// No file lies below another file, also where case does not count; and folders do not differ
/// only in case.
fn folders_apart(
    files: &[(String, Digest, u64)],
    folded: &HashMap<String, &str>,
) -> Result<(), ManifestError> {
    let mut folders: HashMap<String, &str> = HashMap::new();
    for (path, _, _) in files {
        for (at, _) in path.match_indices('/') {
            let folder = &path[..at];
            let lower = folder.to_lowercase();
            if folded.contains_key(&lower) {
                return Err(ManifestError::FileAndFolder(short(folder)));
            }
            let other = *folders.entry(lower).or_insert(folder);
            if other != folder {
                return Err(ManifestError::Case(short(other), short(folder)));
            }
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
        assert_eq!(check(&["a", "a/b"]), E::FileAndFolder("a".into()));
        assert_eq!(check(&["A", "a/b"]), E::FileAndFolder("a".into()));
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
