//! Rows as JSON documents, and the types of SQLite's columns.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::StoreError;

/// A row as it is stored.
pub(super) fn write(row: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(row)
        .map_err(|error| StoreError::Failed(format!("a row cannot be written: {error}")))
}

/// A stored row. The error names place and table only: documents hold users' environments.
pub(super) fn read<T: DeserializeOwned>(table: &str, document: &str) -> Result<T, StoreError> {
    serde_json::from_str(document).map_err(|error| {
        StoreError::Failed(format!(
            "a row of {table} does not fit this version (column {} of its document)",
            error.column()
        ))
    })
}

/// Nanoseconds since 1970; instants beyond the years 1677 to 2262 are taken for these ends.
pub(super) fn nanos(at: Timestamp) -> i64 {
    let nanos = at.as_nanosecond();
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// The instant of a column.
pub(super) fn instant(nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or(Timestamp::MAX)
}

/// A counter as SQLite keeps it.
pub(super) fn integer(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value)
        .map_err(|_| StoreError::Failed("a number is too large for the database".to_owned()))
}

/// A position that SQLite gave.
pub(super) fn position(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}
