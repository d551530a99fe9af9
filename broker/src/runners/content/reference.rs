//! Names of published content: `envloop://recipes/namespace/name@revision` and its digest.

use std::fmt;

use runwhere_engine::PublicationKind;
use serde_json::{Map, Value};

use crate::api::text::{Words, words};
use crate::runners::refusal::{Code, Refused};
use crate::runners::registry::name_is_good;

const SCHEME: &str = "envloop://";

/// A kind of content.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ContentKind {
    /// Sources that a runner executes.
    Recipe,
    /// Data that it reads.
    Dataset,
    /// Additions that a project's administrator has approved.
    Plugin,
}

impl ContentKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Recipe, Self::Dataset, Self::Plugin];

    /// The word in addresses and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Recipe => "recipes",
            Self::Dataset => "datasets",
            Self::Plugin => "plugins",
        }
    }

    /// The kind of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The file that declares it.
    pub fn declared_in(self) -> &'static str {
        match self {
            Self::Recipe => "recipe.toml",
            Self::Dataset => "dataset.toml",
            Self::Plugin => "plugin.toml",
        }
    }

    /// The kind of its rows.
    pub(crate) fn row(self) -> PublicationKind {
        match self {
            Self::Recipe => PublicationKind::Recipe,
            Self::Dataset => PublicationKind::Dataset,
            Self::Plugin => PublicationKind::Plugin,
        }
    }

    /// The kind of a row, where it is content.
    pub(crate) fn of(row: PublicationKind) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.row() == row)
    }
}

/// `envloop://<kind>/<namespace>/<name>@<revision>`. The revision of a recipe is its manifest's
/// SHA-256; that of anything else a version, or likewise the digest.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ContentRef {
    /// What it is.
    pub kind: ContentKind,
    /// `namespace/name`.
    pub name: String,
    /// Version or digest.
    pub revision: String,
}

impl fmt::Display for ContentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}@{}", self.kind.word(), self.name, self.revision)
    }
}

/// Whether a text is a whole SHA-256 in lower-case hexadecimal.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether a text can be a version: nothing that a digest could be taken for.
pub(crate) fn is_version(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !is_digest(text)
}

impl ContentRef {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it, in one sentence.
    pub fn parse(text: &str) -> Result<Self, Words> {
        let form = || {
            words!(
                "地址的形式是 envloop://recipes/namespace/name@revision",
                "an address has the form envloop://recipes/namespace/name@revision"
            )
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (kind, rest) = rest.split_once('/').ok_or_else(form)?;
        let kind = ContentKind::parse(kind).ok_or_else(|| match kind {
            "artifacts" => words!(
                "artifacts 是任务留下的产物，不能作为输入",
                "artifacts are what jobs leave behind; they are no input"
            ),
            _ => words!(
                "地址中的类别是 recipes、datasets 或 plugins",
                "the kind in an address is recipes, datasets or plugins"
            ),
        })?;
        let (name, revision) = rest.split_once('@').ok_or_else(form)?;
        if !name_is_good(name) {
            return Err(form());
        }
        let good = match kind {
            ContentKind::Recipe => is_digest(revision),
            ContentKind::Dataset | ContentKind::Plugin => {
                is_digest(revision) || is_version(revision)
            }
        };
        if !good {
            return Err(match kind {
                ContentKind::Recipe => words!(
                    "recipe 的 revision 是其 manifest 的完整 SHA-256：64 位十六进制，由 \
                     `el content publish` 给出",
                    "the revision of a recipe is the whole SHA-256 of its manifest: 64 hexadecimal \
                     digits, as `el content publish` prints it"
                ),
                _ => words!(
                    "revision 是已发布的版本，或 manifest 的完整 SHA-256",
                    "a revision is a published version, or the whole SHA-256 of the manifest"
                ),
            });
        }
        Ok(Self { kind, name: name.to_owned(), revision: revision.to_owned() })
    }
}

/// An address with the digest that it must have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Pinned {
    /// What.
    pub target: ContentRef,
    /// SHA-256 of its manifest.
    pub manifest_sha256: String,
}

impl Pinned {
    /// Takes `uri` and `manifest_sha256` out of an object; the address must be of this kind, and
    /// agree with the digest where it names one itself.
    pub(super) fn take(
        map: &mut Map<String, Value>,
        kind: ContentKind,
        place: &str,
    ) -> Result<Self, Refused> {
        let wrong = |field: &str, why: &Words| {
            let field = format!("{place}.{field}");
            Refused::new(Code::InvalidProfile, why.about(&field)).at(field)
        };
        let target = match map.remove("uri") {
            Some(Value::String(text)) => {
                ContentRef::parse(&text).map_err(|why| wrong("uri", &why))?
            }
            _ => {
                let why = words!(
                    "缺少地址，例如 envloop://datasets/a/b@1",
                    "an address such as envloop://datasets/a/b@1 is needed"
                );
                return Err(wrong("uri", &why));
            }
        };
        if target.kind != kind {
            let word = kind.word();
            let why = words!(
                "这里需要 envloop://{word}/ 之下的地址",
                "an address below envloop://{word}/ is needed here"
            );
            return Err(wrong("uri", &why));
        }
        let manifest_sha256 = match map.remove("manifest_sha256") {
            Some(Value::String(text)) if is_digest(&text) => text,
            _ => {
                let why = words!(
                    "需要已发布 manifest 的完整 SHA-256，64 位十六进制",
                    "the whole SHA-256 of the published manifest is needed, 64 hexadecimal digits"
                );
                return Err(wrong("manifest_sha256", &why));
            }
        };
        if is_digest(&target.revision) && target.revision != manifest_sha256 {
            let field = format!("{place}.manifest_sha256");
            let why = words!("与 uri 中的摘要不一致", "it is another digest than that in uri")
                .about(&field);
            return Err(Refused::new(Code::ProfileHashMismatch, why).at(field));
        }
        Ok(Self { target, manifest_sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed_alike() {
        let digest = "0a".repeat(32);
        for text in [
            format!("envloop://recipes/envloop/pev-recipe@{digest}"),
            "envloop://datasets/envloop/pev-smoke-data@smoke-1".to_owned(),
            format!("envloop://plugins/a/b@{digest}"),
        ] {
            assert_eq!(ContentRef::parse(&text).unwrap().to_string(), text);
        }
        for (text, word) in [
            ("recipes/a/b@1", "form"),
            ("envloop://recipes/a/b", "form"),
            ("envloop://recipes/b@1", "form"),
            ("envloop://recipes/a/../b@1", "form"),
            ("envloop://recipes/a/b@<recipe-manifest-sha256>", "64 hexadecimal"),
            ("envloop://recipes/a/b@0a0a0a0", "64 hexadecimal"),
            (&format!("envloop://recipes/a/b@{}", "0A".repeat(32)), "64 hexadecimal"),
            ("envloop://datasets/a/b@", "published version"),
            ("envloop://datasets/a/b@x y", "published version"),
            ("envloop://artifacts/a/b@1", "no input"),
            ("envloop://models/a/b@1", "recipes, datasets or plugins"),
        ] {
            let why = ContentRef::parse(text).unwrap_err().en;
            assert!(why.contains(word), "{text}: {why}");
        }
        assert!(!is_version(&digest) && is_version("smoke-1") && !is_version(".x"));
    }
}
