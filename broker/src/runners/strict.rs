//! JSON in which no object names a key twice: of two meanings neither is the right one.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::api::text::{Words, words};

/// Why a text is no JSON with every key once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JsonFault {
    /// The key that is there twice, if that is it.
    pub twice: Option<String>,
    line: usize,
    column: usize,
}

impl JsonFault {
    /// What is wrong and where, without values.
    pub fn words(&self) -> Words {
        let Self { twice, line, column } = self;
        match twice {
            Some(key) => words!(
                "键 `{key}` 重复（第 {line} 行第 {column} 列）",
                "the key `{key}` is there twice, at line {line}, column {column}"
            ),
            None => words!(
                "第 {line} 行第 {column} 列不是有效的 JSON",
                "not JSON at line {line}, column {column}"
            ),
        }
    }
}

/// Parses JSON; a repeated key is an error that names it.
///
/// # Errors
/// What is wrong and where, without values.
pub fn parse_strict(text: &[u8]) -> Result<Value, JsonFault> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let twice = Cell::new(None);
    let value = Strict(&twice).deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    // The error's own text may show values.
    value.map_err(|error| {
        let (line, column) = (error.line(), error.column());
        JsonFault { twice: twice.take(), line, column }
    })
}

/// Notes the first key that is there twice.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Cell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is too large"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            found.push(item);
        }
        Ok(Value::Array(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if found.contains_key(&key) {
                let shown: String = key.chars().filter(|c| !c.is_control()).take(64).collect();
                self.0.set(Some(shown));
                return Err(A::Error::custom("a key is there twice"));
            }
            found.insert(key, value);
        }
        Ok(Value::Object(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_is_refused_at_any_depth() {
        assert_eq!(parse_strict(br#"{"a":[1,{"b":null}]}"#).unwrap()["a"][0], 1);
        for twice in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#] {
            let fault = parse_strict(twice.as_bytes()).unwrap_err();
            assert_eq!(fault.twice.as_deref(), Some("a"), "{twice}");
            let Words { zh, en } = fault.words();
            assert!(
                zh.contains("键 `a` 重复（第 1 行") && en.contains("`a` is there twice, at line 1")
            );
        }
        for bad in ["", "{", "{} x", "NaN", "{\"a\":1e999}", "\u{feff}{}"] {
            assert_eq!(parse_strict(bad.as_bytes()).unwrap_err().twice, None, "{bad}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse_strict(deep.as_bytes()).is_err());
    }
}
