//! The short code of an offer: 8 upper-case letters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::key::OfferKey;

/// Eight upper-case ASCII letters that name an offer in a catalogue.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OfferCode([u8; 8]);

/// The text is not eight upper-case letters.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("an offer code is exactly 8 upper-case letters")]
pub struct OfferCodeError;

impl OfferCode {
    /// The candidate code of a key. The catalogue assigns the first round (from 0) whose code is
    /// free and keeps the assignment; two catalogues agree as long as nothing collides.
    pub fn candidate(key: &OfferKey, round: u32) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(round.to_be_bytes());
        hasher.update(key.to_string().as_bytes());
        let digest = hasher.finalize();
        let mut number = u64::from_be_bytes(digest[..8].try_into().expect("SHA-256 has 32 bytes"));
        let mut letters = [b'A'; 8];
        for letter in &mut letters {
            *letter = b'A' + (number % 26) as u8;
            number /= 26;
        }
        Self(letters)
    }

    /// The eight letters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("only ASCII letters are stored")
    }
}

impl fmt::Display for OfferCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OfferCode {
    type Err = OfferCodeError;

    fn from_str(text: &str) -> Result<Self, OfferCodeError> {
        let letters: [u8; 8] = text.as_bytes().try_into().map_err(|_| OfferCodeError)?;
        match letters.iter().all(u8::is_ascii_uppercase) {
            true => Ok(Self(letters)),
            false => Err(OfferCodeError),
        }
    }
}

impl TryFrom<String> for OfferCode {
    type Error = OfferCodeError;
    fn try_from(text: String) -> Result<Self, OfferCodeError> {
        text.parse()
    }
}

impl From<OfferCode> for String {
    fn from(code: OfferCode) -> String {
        code.to_string()
    }
}
