//! Proof that files are those of a Git commit: the objects from the commit down to the files.

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use crate::api::text::{Words, words};

/// The objects of a commit that lead to a runner's folder.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct GitProof {
    /// The commit object's content, base64.
    pub commit: String,
    /// The tree objects' contents from the root to the runner's folder, base64.
    pub trees: Vec<String>,
    /// Names of the folders below the root; one fewer than trees.
    #[serde(default)]
    pub path: Vec<String>,
}

/// Why files are not proved to be the commit's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GitProofError {
    /// Not a full commit.
    Revision,
    /// An object is not what its id says.
    Object(&'static str),
    /// An object cannot be read.
    Damaged(&'static str),
    /// A folder on the way is missing.
    Folder(String),
    /// The folder holds something else than two regular files.
    Entry(String),
    /// A file's content is not the commit's.
    File(String),
}

impl GitProofError {
    /// The sentence.
    pub fn words(&self) -> Words {
        match self {
            Self::Revision => words!(
                "revision 是 40 位小写十六进制的完整 commit",
                "a revision is the full commit of 40 lower-case hexadecimal digits"
            ),
            Self::Object(kind) => words!(
                "{kind} 对象不是该 commit 指明的那个",
                "the {kind} object is not the one that the commit names"
            ),
            Self::Damaged(kind) => words!("{kind} 对象已损坏", "the {kind} object is damaged"),
            Self::Folder(name) => {
                words!("该 commit 没有目录 `{name}`", "the commit has no folder `{name}`")
            }
            Self::Entry(name) => words!(
                "Runner 的目录必须恰好有两个普通文件；`{name}` 不在其中",
                "the runner's folder must hold exactly two regular files; `{name}` is not one of them"
            ),
            Self::File(name) => {
                words!("`{name}` 不是该 commit 中的文件", "`{name}` is not the file of the commit")
            }
        }
    }
}

/// Whether a text is a full commit.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn object_id(kind: &str, content: &[u8]) -> [u8; 20] {
    let mut hasher = Sha1::new();
    hasher.update(format!("{kind} {}\0", content.len()).as_bytes());
    hasher.update(content);
    hasher.finalize().into()
}

/// One entry of a tree.
#[derive(Debug, Eq, PartialEq)]
struct Entry<'a> {
    mode: &'a str,
    name: &'a str,
    id: [u8; 20],
}

fn entries(mut tree: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut found = Vec::new();
    while !tree.is_empty() {
        let blank = tree.iter().position(|b| *b == b' ')?;
        let end = tree.iter().position(|b| *b == 0)?;
        let name = tree.get(blank + 1..end)?;
        let id = tree.get(end + 1..end + 21)?;
        found.push(Entry {
            mode: std::str::from_utf8(&tree[..blank]).ok()?,
            name: std::str::from_utf8(name).ok()?,
            id: id.try_into().ok()?,
        });
        tree = &tree[end + 21..];
    }
    Some(found)
}

fn decode(text: &str, what: &'static str) -> Result<Vec<u8>, GitProofError> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| GitProofError::Damaged(what))
}

impl GitProof {
    /// Checks that `files` are all and only the files of the folder in commit `revision`.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn verify(&self, revision: &str, files: &[(String, Vec<u8>)]) -> Result<(), GitProofError> {
        if !is_commit(revision) {
            return Err(GitProofError::Revision);
        }
        let commit = decode(&self.commit, "commit")?;
        if hex::encode(object_id("commit", &commit)) != revision {
            return Err(GitProofError::Object("commit"));
        }
        let tree = commit
            .strip_prefix(b"tree ")
            .and_then(|rest| rest.get(..40))
            .and_then(|id| hex::decode(id).ok())
            .ok_or(GitProofError::Damaged("commit"))?;
        if self.trees.is_empty() || self.trees.len() != self.path.len() + 1 {
            return Err(GitProofError::Damaged("tree"));
        }
        let mut wanted: Vec<u8> = tree;
        for (index, text) in self.trees.iter().enumerate() {
            let tree = decode(text, "tree")?;
            if object_id("tree", &tree).as_slice() != wanted {
                return Err(GitProofError::Object("tree"));
            }
            let listed = entries(&tree).ok_or(GitProofError::Damaged("tree"))?;
            match self.path.get(index) {
                Some(folder) => {
                    let found = listed.iter().find(|entry| entry.name == folder);
                    let found = found.filter(|entry| matches!(entry.mode, "40000" | "040000"));
                    let found = found.ok_or_else(|| GitProofError::Folder(folder.clone()))?;
                    wanted = found.id.to_vec();
                }
                None => return Self::files_match(&listed, files),
            }
        }
        Err(GitProofError::Damaged("tree"))
    }

    fn files_match(listed: &[Entry<'_>], files: &[(String, Vec<u8>)]) -> Result<(), GitProofError> {
        for entry in listed {
            let regular = matches!(entry.mode, "100644" | "100755" | "100664");
            let given = files.iter().find(|(name, _)| name == entry.name);
            match given {
                Some((_, content)) if regular => {
                    if object_id("blob", content) != entry.id {
                        return Err(GitProofError::File(entry.name.to_owned()));
                    }
                }
                _ => return Err(GitProofError::Entry(entry.name.chars().take(100).collect())),
            }
        }
        match files.iter().find(|(name, _)| listed.iter().all(|entry| entry.name != name)) {
            Some((name, _)) => Err(GitProofError::File(name.clone())),
            None => Ok(()),
        }
    }
}

/// A commit made of two files with fixed author and time, for what ships with the program.
pub(crate) fn synthetic(
    files: &[(String, Vec<u8>)],
    message: &str,
    seconds: i64,
) -> (String, GitProof) {
    use base64::Engine as _;
    let engine = base64::engine::general_purpose::STANDARD;
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut tree = Vec::new();
    for (name, content) in sorted {
        tree.extend_from_slice(format!("100644 {name}\0").as_bytes());
        tree.extend_from_slice(&object_id("blob", content));
    }
    let id = hex::encode(object_id("tree", &tree));
    let who = format!("runwhere <runwhere@localhost> {seconds} +0000");
    let commit = format!("tree {id}\nauthor {who}\ncommitter {who}\n\n{message}\n");
    let revision = hex::encode(object_id("commit", commit.as_bytes()));
    let proof = GitProof {
        commit: engine.encode(commit),
        trees: vec![engine.encode(tree)],
        path: Vec::new(),
    };
    (revision, proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<(String, Vec<u8>)> {
        vec![
            ("runner.toml".into(), b"[execution]\nentrypoint = \"main.sh\"\n".to_vec()),
            ("main.sh".into(), b"echo hi\n".to_vec()),
        ]
    }

    #[test]
    fn only_the_commits_own_files_are_proved() {
        let (revision, proof) = synthetic(&files(), "one", 1_790_000_000);
        assert_eq!(proof.verify(&revision, &files()), Ok(()));
        let mut changed = files();
        changed[1].1.push(b'x');
        assert_eq!(proof.verify(&revision, &changed), Err(GitProofError::File("main.sh".into())));
        let fewer = &files()[..1];
        assert_eq!(proof.verify(&revision, fewer), Err(GitProofError::Entry("main.sh".into())));
        let mut more = files();
        more.push(("x".into(), Vec::new()));
        assert_eq!(proof.verify(&revision, &more), Err(GitProofError::File("x".into())));
        let other = "0".repeat(40);
        assert_eq!(proof.verify(&other, &files()), Err(GitProofError::Object("commit")));
        assert_eq!(proof.verify("HEAD", &files()), Err(GitProofError::Revision));
        assert_eq!(proof.verify(&revision.to_uppercase(), &files()), Err(GitProofError::Revision));
        let (other, wrong) = synthetic(&changed, "two", 1_790_000_000);
        let mixed = GitProof { trees: proof.trees.clone(), ..wrong };
        assert_eq!(mixed.verify(&other, &files()), Err(GitProofError::Object("tree")));
    }

    #[test]
    fn a_made_commit_is_what_git_makes() {
        // `git hash-object -t tree` and `-t commit` of the same content.
        assert_eq!(hex::encode(object_id("blob", b"")), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(hex::encode(object_id("tree", b"")), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    }
}
