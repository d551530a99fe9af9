//! A number of a JSON answer, read from its text.

use runwhere_model::decimal::{DecimalError, parse_decimal};
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A JSON number, or a string that holds one, exactly as sent: never through a float.
///
/// Only for fields of plain structs read by `serde_json` (not inside flattened, tagged or untagged
/// types, which buffer numbers as floats).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exact {
    text: String,
    value: Result<Decimal, DecimalError>,
}

impl Exact {
    /// The number of a text that is not JSON (a CSV cell, an attribute).
    pub fn parse(text: &str) -> Self {
        Self { text: text.chars().take(64).collect(), value: parse_decimal(text) }
    }

    /// The value; the reason names the text.
    pub fn value(&self) -> Result<Decimal, String> {
        self.value.clone().map_err(|error| format!("{error}: {:?}", self.text))
    }

    /// As a whole number of at most 32 bits (counts, sizes); `None` where it is none.
    pub fn whole(&self) -> Option<u32> {
        let value = self.value.as_ref().ok()?;
        value.fract().is_zero().then(|| u32::try_from(*value).ok())?
    }

    /// The text as sent, at most 64 characters of it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => {
                let inner: String = serde_json::from_str(text).map_err(serde::de::Error::custom)?;
                Ok(Self::parse(inner.trim()))
            }
            Some(b'-' | b'0'..=b'9') => Ok(Self::parse(text)),
            _ => Err(serde::de::Error::custom("expected a number or a text that holds one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Holder {
        price: Option<Exact>,
    }

    fn read(json: &str) -> Option<Exact> {
        serde_json::from_str::<Holder>(json).unwrap().price
    }

    #[test]
    fn numbers_and_texts_survive_digit_for_digit() {
        for (json, want) in [
            (r#"{"price": 0.1}"#, "0.1"),
            (r#"{"price": 1e-5}"#, "0.00001"),
            (r#"{"price": 0.39999999999999997}"#, "0.39999999999999997"),
            (r#"{"price": "32.7726000000"}"#, "32.7726"),
            (r#"{"price": 8}"#, "8"),
        ] {
            assert_eq!(read(json).unwrap().value().unwrap().to_string(), want, "{json}");
        }
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"price": null}"#), None);
    }

    #[test]
    fn what_cannot_be_kept_exactly_has_a_reason() {
        let thirty = read(r#"{"price": 0.123456789012345678901234567890123}"#).unwrap();
        assert!(thirty.value().unwrap_err().contains("more digits"));
        assert!(read(r#"{"price": "call us"}"#).unwrap().value().unwrap_err().contains("call us"));
        assert!(serde_json::from_str::<Holder>(r#"{"price": {}}"#).is_err());
    }
}
