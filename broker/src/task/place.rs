//! Where in a task file something stands.

use std::fmt;

use serde::Serialize;

use super::shown::shown;

/// A place in the text. Both numbers count from 1; columns count characters, not bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl Position {
    /// The first character of the text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a mapping, made safe to show.
    Key(String),
    /// An element of a list, from 0.
    Index(usize),
}

/// The path of a field, such as `storage.models[0].source`; empty for the whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Vec<Segment>);

impl FieldPath {
    /// The whole file.
    pub fn root() -> Self {
        Self::default()
    }

    /// The path of `key` below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Key(shown(key)));
        Self(segments)
    }

    /// The path of the element `index` (from 0) below this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut segments = self.0.clone();
        segments.push(Segment::Index(index));
        Self(segments)
    }

    /// The steps from the top level down.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether this is the whole file.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path without square brackets (`storage.models.0.source`), for text that a client may read as markup.
    pub fn dotted(&self) -> String {
        let mut text = String::new();
        for segment in &self.0 {
            if !text.is_empty() {
                text.push('.');
            }
            match segment {
                Segment::Key(key) => text.push_str(key),
                Segment::Index(index) => text.push_str(&index.to_string()),
            }
        }
        text
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if depth == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Serialize for FieldPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
