//! A tolerant look at a JSON answer: fields may be missing, null, or of another type, and further ones may stand beside them.

use std::str::FromStr;

use rust_decimal::Decimal;
use serde_json::Value;

/// A tolerant look at one JSON object.
#[derive(Clone, Copy, Debug)]
pub struct View<'a>(pub &'a Value);

impl<'a> View<'a> {
    /// The value of `key`; null counts as absent.
    #[must_use]
    pub fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The object under `key`.
    #[must_use]
    pub fn at(self, key: &str) -> Option<Self> {
        self.get(key).filter(|value| value.is_object()).map(View)
    }

    /// A text; numbers and booleans are printed as they stand.
    #[must_use]
    pub fn text(self, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    /// The first of `keys` that has a text.
    #[must_use]
    pub fn first_text(self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| self.text(key))
    }

    /// A decimal, from a string or a number.
    #[must_use]
    pub fn decimal(self, key: &str) -> Option<Decimal> {
        let text = self.text(key)?;
        Decimal::from_str(&text).or_else(|_| Decimal::from_scientific(&text)).ok()
    }

    /// A whole number, from a string or a number.
    #[must_use]
    pub fn integer(self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
        .or_else(|| i64::try_from(self.decimal(key)?.trunc()).ok())
    }

    /// A truth value.
    #[must_use]
    pub fn flag(self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// The list under `key`, empty when absent.
    #[must_use]
    pub fn list(self, key: &str) -> &'a [Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_strings_read_alike() {
        let value =
            json!({"a": 36.44, "b": "36.4400", "c": null, "d": 12, "e": "12", "f": "x", "g": 12.9});
        let view = View(&value);
        assert_eq!(view.decimal("a"), view.decimal("b"));
        assert_eq!(view.decimal("c"), None);
        assert_eq!(view.integer("d"), view.integer("e"));
        assert_eq!(view.decimal("f"), None);
        assert_eq!(view.integer("g"), Some(12));
        assert_eq!(view.text("c"), None);
        assert!(view.list("a").is_empty());
    }
}
