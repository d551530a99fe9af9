//! Numbers in JSON, read from their text: exactly, or refused with a reason.

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decimal::{DecimalError, parse_decimal};

/// A number of a JSON document as its text: a number (`0.1`, `1e-5`), or the same written as text
/// (`"0.1"`). Read by a JSON deserializer only. A value of another kind is kept, and refused when it is
/// asked for, so that one bad cell rejects its row and not its page.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct RawNumber(Box<RawValue>);

impl RawNumber {
    /// The exact value.
    pub fn decimal(&self) -> Result<Decimal, DecimalError> {
        let raw = self.0.get();
        match raw.starts_with('"') {
            true => {
                let text: String = serde_json::from_str(raw).map_err(|_| DecimalError::Syntax)?;
                parse_decimal(text.trim())
            }
            false => parse_decimal(raw),
        }
    }

    /// The text as it was sent, for messages; cut at 40 characters.
    pub fn text(&self) -> String {
        self.0.get().chars().take(40).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Row {
        price: Option<RawNumber>,
    }

    fn price(json: &str) -> Option<Result<String, DecimalError>> {
        let row: Row = serde_json::from_str(&format!(r#"{{"price":{json}}}"#)).unwrap();
        row.price.map(|number| number.decimal().map(|decimal| decimal.to_string()))
    }

    #[test]
    fn digits_survive_or_are_refused() {
        let exact = |json: &str| price(json).unwrap().unwrap();
        assert_eq!(exact("0.1"), "0.1");
        assert_eq!(exact("1e-5"), "0.00001");
        assert_eq!(exact("0.30000000000000004"), "0.30000000000000004");
        assert_eq!(exact("\"21.957642\""), "21.957642");
        assert_eq!(exact("4"), "4");
        assert_eq!(price("null").map(|r| r.is_err()), None);
        // Thirty digits: kept where they are zeros, refused where they count.
        assert_eq!(exact("0.100000000000000000000000000000"), "0.1");
        assert_eq!(price("0.123456789012345678901234567891").unwrap(), Err(DecimalError::Inexact));
        for bad in ["true", "[1]", "{}", "\"free\"", "\"\""] {
            assert_eq!(price(bad).unwrap(), Err(DecimalError::Syntax), "{bad}");
        }
    }
}
