//! The bearer token.

use std::fmt;

/// A bearer token. Its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token, trimmed; `None` when nothing is left.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// Whether the token can stand in an HTTP header at all.
    #[must_use]
    pub fn is_printable(&self) -> bool {
        self.0.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
    }

    /// The secret itself, for the request header and the configuration file.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}
