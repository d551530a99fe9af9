//! The complete list of a sync's files.

use std::collections::BTreeMap;

use runwhere_agent::protocol::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FoundFile, Hashed};

/// One file of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// Bytes.
    pub size: u64,
}

/// All files of a sync, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Files by path, relative to the sync root, with slashes.
    pub files: BTreeMap<String, ManifestFile>,
}

/// How two manifests differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only in the newer one.
    pub added: usize,
    /// In both, with other bytes.
    pub changed: usize,
    /// Only in the older one.
    pub removed: usize,
}

impl Changes {
    /// Whether there are any.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

impl Manifest {
    /// The manifest of files and, in their order, what was hashed.
    #[must_use]
    pub fn of(files: BTreeMap<String, FoundFile>, hashed: &[Hashed]) -> Self {
        let file =
            |hashed: &Hashed| ManifestFile { sha256: hashed.sha256, size: hashed.stamp.size };
        Self { files: files.into_keys().zip(hashed.iter().map(file)).collect() }
    }

    /// As the server wants it.
    #[must_use]
    pub fn wire(&self) -> Vec<Value> {
        self.files
            .iter()
            .map(|(path, file)| json!({"path": path, "hash": format!("sha256:{}", file.sha256), "size": file.size}))
            .collect()
    }

    /// Sum of sizes in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.size).sum()
    }

    /// What changed since `older`.
    #[must_use]
    pub fn since(&self, older: &Self) -> Changes {
        let mut changes = Changes::default();
        for (path, file) in &self.files {
            match older.files.get(path) {
                None => changes.added += 1,
                Some(before) if before != file => changes.changed += 1,
                Some(_) => {}
            }
        }
        changes.removed = older.files.keys().filter(|path| !self.files.contains_key(*path)).count();
        changes
    }
}

/// Bytes as megabytes with one decimal, as the documents show them.
#[must_use]
pub fn megabytes(bytes: u64) -> String {
    let tenths = (bytes + 50_000) / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(files: &[(&str, &str)]) -> Manifest {
        let file = |(path, sha): &(&str, &str)| {
            ((*path).to_owned(), ManifestFile { sha256: Digest::of(sha.as_bytes()), size: 1 })
        };
        Manifest { files: files.iter().map(file).collect() }
    }

    #[test]
    fn changes_are_counted() {
        let old = manifest(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let new = manifest(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert_eq!(new.since(&old), Changes { added: 1, changed: 1, removed: 1 });
        assert!(!old.since(&old).any());
    }

    #[test]
    fn small_syncs_show_as_in_the_document() {
        assert_eq!(megabytes(700), "0.0");
        assert_eq!(megabytes(50_000), "0.1");
        assert_eq!(megabytes(1_234_567), "1.2");
    }
}
