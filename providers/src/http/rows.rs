//! Rows of an answer that are judged one by one, so that one odd row does not cost the page.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One element of a list: read, or the reason why it could not be read.
#[derive(Clone, Debug)]
pub enum Row<T> {
    /// It has the expected shape.
    Read(T),
    /// It has not.
    Odd {
        /// The start of the row's own text, to recognise it.
        row: String,
        /// What does not fit.
        reason: String,
    },
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Row<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        Ok(match serde_json::from_str(raw.get()) {
            Ok(row) => Self::Read(row),
            Err(error) => {
                Self::Odd { row: raw.get().chars().take(120).collect(), reason: error.to_string() }
            }
        })
    }
}
