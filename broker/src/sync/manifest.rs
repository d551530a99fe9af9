//! What a manifest may hold. Pure.

use std::collections::{HashMap, HashSet};

use runwhere_agent::protocol::Digest;
use runwhere_engine::SyncedFile;
use serde::Deserialize;

use crate::api::text::Words;

/// Most files of one sync.
pub(super) const MAX_FILES: usize = 200_000;
/// Largest single file: what one presigned upload may carry.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;
/// Largest sum of all files.
pub(super) const MAX_TOTAL_BYTES: u64 = 1 << 40;
const MAX_PATH_BYTES: usize = 1024;
const MAX_PART_BYTES: usize = 255;

/// One file as a client sends it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WireFile {
    pub(super) path: String,
    pub(super) hash: String,
    pub(super) size: u64,
}

/// A checked manifest, sorted by path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    files: Vec<(SyncedFile, Digest)>,
}

/// Why a manifest is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManifestProblem {
    /// More files than allowed.
    TooMany,
    /// All files together are too large.
    TooLarge,
    /// One file is too large.
    FileTooLarge(String),
    /// The path is not relative, or leaves the folder, or has characters no file should have.
    Path(String),
    /// The hash is not `sha256:` and 64 lower-case hexadecimal digits.
    Hash(String),
    /// The path comes twice.
    Duplicate(String),
    /// Two paths differ only in letter case: on some systems they are one file.
    CaseCollision(String, String),
    /// A file's path is also a folder of another file.
    FileAndFolder(String),
}

impl ManifestProblem {
    /// What is wrong, for people.
    pub fn message(&self) -> Words {
        let shown = |path: &str| -> String {
            path.chars()
                .map(|c| if c.is_control() || c == '[' || c == ']' { '?' } else { c })
                .take(120)
                .collect()
        };
        match self {
            Self::TooMany => Words::new(
                format!("文件数超过上限 {MAX_FILES}"),
                format!("more than {MAX_FILES} files"),
            ),
            Self::TooLarge => Words::new("文件总大小超过上限", "the files together are too large"),
            Self::FileTooLarge(path) => Words::new(
                format!("文件超过 1 GiB：{}", shown(path)),
                format!("larger than 1 GiB: {}", shown(path)),
            ),
            Self::Path(path) => Words::new(
                format!("路径不在工作目录内或含有不允许的字符：{}", shown(path)),
                format!(
                    "the path leaves the work folder or has characters that are not allowed: {}",
                    shown(path)
                ),
            ),
            Self::Hash(path) => Words::new(
                format!("hash 不是 sha256: 加 64 位小写十六进制：{}", shown(path)),
                format!(
                    "the hash is not sha256: and 64 lower-case hexadecimal digits: {}",
                    shown(path)
                ),
            ),
            Self::Duplicate(path) => Words::new(
                format!("路径重复：{}", shown(path)),
                format!("the path comes twice: {}", shown(path)),
            ),
            Self::CaseCollision(one, other) => Words::new(
                format!("两个路径只有大小写不同：{} 与 {}", shown(one), shown(other)),
                format!(
                    "two paths differ only in letter case: {} and {}",
                    shown(one),
                    shown(other)
                ),
            ),
            Self::FileAndFolder(path) => Words::new(
                format!("路径既是文件又是目录：{}", shown(path)),
                format!("the path is a file and a folder: {}", shown(path)),
            ),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> Words {
        match self {
            Self::TooMany | Self::TooLarge | Self::FileTooLarge(_) => {
                Words::new("把数据和缓存写进 .runwignore", "name data and caches in .runwignore")
            }
            Self::Path(_) => Words::new(
                "使用工作目录内的相对路径，以 / 分隔",
                "use paths relative to the work folder, with / between their parts",
            ),
            Self::Hash(_) => Words::new("更新客户端后重试", "update the client and try again"),
            Self::Duplicate(_) | Self::CaseCollision(..) | Self::FileAndFolder(_) => {
                Words::new("重命名其中一个", "rename one of them")
            }
        }
    }
}

impl Manifest {
    /// Checks what a client sent.
    pub(super) fn check(wire: Vec<WireFile>) -> Result<Self, ManifestProblem> {
        if wire.len() > MAX_FILES {
            return Err(ManifestProblem::TooMany);
        }
        let mut files = Vec::with_capacity(wire.len());
        let mut total: u64 = 0;
        for file in wire {
            if !path_is_safe(&file.path) {
                return Err(ManifestProblem::Path(file.path));
            }
            let Some(digest) =
                file.hash.strip_prefix("sha256:").and_then(|hex| hex.parse::<Digest>().ok())
            else {
                return Err(ManifestProblem::Hash(file.path));
            };
            if file.size > MAX_FILE_BYTES {
                return Err(ManifestProblem::FileTooLarge(file.path));
            }
            total = total.saturating_add(file.size);
            let sha256 = digest.to_string();
            files.push((SyncedFile { path: file.path, sha256, size: file.size }, digest));
        }
        if total > MAX_TOTAL_BYTES {
            return Err(ManifestProblem::TooLarge);
        }
        files.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        check_collisions(&files)?;
        Ok(Self { files })
    }

    /// The files, sorted by path.
    pub fn files(&self) -> impl Iterator<Item = &SyncedFile> {
        self.files.iter().map(|(file, _)| file)
    }

    /// Each file with its digest.
    pub fn digests(&self) -> impl Iterator<Item = (&SyncedFile, Digest)> {
        self.files.iter().map(|(file, digest)| (file, *digest))
    }

    /// The files themselves.
    pub fn into_files(self) -> Vec<SyncedFile> {
        self.files.into_iter().map(|(file, _)| file).collect()
    }
}

fn path_is_safe(path: &str) -> bool {
    !path.is_empty()
        && path.len() <= MAX_PATH_BYTES
        && !path.chars().any(|c| c.is_control() || c == '\\')
        && path.split('/').all(|part| {
            !part.is_empty() && part != "." && part != ".." && part.len() <= MAX_PART_BYTES
        })
}

fn check_collisions(files: &[(SyncedFile, Digest)]) -> Result<(), ManifestProblem> {
    let mut folded: HashMap<String, &str> = HashMap::with_capacity(files.len());
    for (file, _) in files {
        if let Some(other) = folded.insert(file.path.to_lowercase(), &file.path) {
            return Err(match other == file.path {
                true => ManifestProblem::Duplicate(file.path.clone()),
                false => ManifestProblem::CaseCollision(other.to_owned(), file.path.clone()),
            });
        }
    }
    let mut folders: HashSet<String> = HashSet::new();
    for (file, _) in files {
        let mut rest = file.path.as_str();
        while let Some((folder, _)) = rest.rsplit_once('/') {
            rest = folder;
            let folder = folder.to_lowercase();
            if let Some(file) = folded.get(&folder) {
                return Err(ManifestProblem::FileAndFolder((*file).to_owned()));
            }
            if !folders.insert(folder) {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn check(paths: &[&str]) -> Result<Manifest, ManifestProblem> {
        let file = |path: &&str| WireFile { path: (*path).into(), hash: HASH.into(), size: 0 };
        Manifest::check(paths.iter().map(file).collect())
    }

    #[test]
    fn paths_stay_in_the_work_folder() {
        assert!(check(&["train.py", "a/b/c.txt", "数据/文件.csv", "a/.b"]).is_ok());
        for bad in
            ["../x", "a/../x", "/etc/passwd", "", "a//b", "a/", "./a", "a\0b", "a\\b", "a\nb"]
        {
            assert_eq!(check(&[bad]), Err(ManifestProblem::Path(bad.into())), "{bad:?}");
        }
        let long = "x/".repeat(600) + "y";
        assert!(matches!(check(&[&long]), Err(ManifestProblem::Path(_))));
    }

    #[test]
    fn one_place_holds_one_file() {
        assert_eq!(check(&["a", "a"]), Err(ManifestProblem::Duplicate("a".into())));
        assert!(matches!(
            check(&["Makefile", "makefile"]),
            Err(ManifestProblem::CaseCollision(..))
        ));
        assert!(matches!(check(&["É.py", "é.py"]), Err(ManifestProblem::CaseCollision(..))));
        assert!(matches!(check(&["a", "a/b"]), Err(ManifestProblem::FileAndFolder(_))));
        assert!(matches!(check(&["x/A", "x/a/b/c"]), Err(ManifestProblem::FileAndFolder(_))));
    }

    #[test]
    fn hashes_and_sizes_are_checked() {
        let file = |hash: &str, size| vec![WireFile { path: "f".into(), hash: hash.into(), size }];
        for hash in ["", "sha256:", "e3b0c442", "SHA256:00", &HASH.to_uppercase()] {
            assert!(
                matches!(Manifest::check(file(hash, 1)), Err(ManifestProblem::Hash(_))),
                "{hash}"
            );
        }
        assert!(Manifest::check(file(HASH, MAX_FILE_BYTES)).is_ok());
        assert!(matches!(
            Manifest::check(file(HASH, MAX_FILE_BYTES + 1)),
            Err(ManifestProblem::FileTooLarge(_))
        ));
    }

    #[test]
    fn messages_carry_no_markup_and_no_terminal_codes() {
        let Err(problem) = check(&["[/x]\u{1b}[31m/../y"]) else { panic!("accepted") };
        let words = problem.message();
        for text in [words.zh, words.en] {
            assert!(!text.contains(['[', ']', '\u{1b}']), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_can_be_laid_out_in_one_folder(
            paths in proptest::collection::vec("[a-cA-C./\\\\]{1,6}", 0..12),
        ) {
            let refs: Vec<&str> = paths.iter().map(String::as_str).collect();
            if check(&refs).is_ok() {
                let folder = tempfile::tempdir().unwrap();
                for path in &paths {
                    let place = folder.path().join(path);
                    prop_assert!(!place.exists());
                    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                    std::fs::write(&place, path).unwrap();
                    prop_assert!(place.canonicalize().unwrap().starts_with(folder.path().canonicalize().unwrap()));
                }
            }
        }
    }
}
