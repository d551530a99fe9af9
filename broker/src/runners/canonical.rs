//! One text for all spellings of the same JSON value.

use std::fmt::Write as _;

use serde_json::Value;

/// The value without blanks, with object keys in the order of their code points, absent for null
/// members, and whole numbers without fraction or exponent. Two values have the same text exactly
/// when they differ in nothing else than that.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match whole(number) {
            Some(whole) => {
                let _ = write!(out, "{whole}");
            }
            None => {
                let _ = write!(out, "{number}");
            }
        },
        Value::String(text) => quoted(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().filter(|(_, value)| !value.is_null()).collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                quoted(key, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

fn quoted(text: &str, out: &mut String) {
    // A string always has a JSON form.
    out.push_str(&Value::from(text).to_string());
}

/// The whole number that a JSON number is, however it is spelt (`600`, `600.0`, `6e2`).
#[expect(clippy::disallowed_methods, reason = "whether it is a whole number, not how much it is")]
pub(super) fn whole(number: &serde_json::Number) -> Option<i128> {
    if let Some(whole) = number.as_i128() {
        return Some(whole);
    }
    let float = number.as_f64()?;
    // Beyond 2^53 a float does not say which whole number was meant.
    let exact = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
    exact.then(|| format!("{float:.0}").parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn spellings_of_one_value_have_one_text() {
        let value = |text: &str| canonical(&serde_json::from_str(text).unwrap());
        assert_eq!(
            value(r#"{"b":600.0,"a":[6e2, -0.0, 1.5],"c":null}"#),
            r#"{"a":[600,0,1.5],"b":600}"#
        );
        assert_eq!(value(r#""\u00e9\n""#), value("\"é\\n\""));
        assert_ne!(value("[null]"), value("[]"));
        assert_ne!(value("\"1\""), value("1"));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // Eighths: what every reader of JSON reads to the last digit.
            any::<i32>().prop_map(|eighths| json!(f64::from(eighths) / 8.0)),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn reading_the_text_again_changes_nothing(value in values()) {
            let text = canonical(&value);
            let again: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(canonical(&again), text);
        }

        #[test]
        fn the_order_of_keys_does_not_count(mut pairs in prop::collection::vec(("[a-e]", values()), 0..5), seed in any::<u64>()) {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs.dedup_by(|a, b| a.0 == b.0);
            let text = |pairs: &[(String, Value)]| {
                let members: Vec<String> = pairs.iter()
                    .map(|(key, value)| format!("{}: {value}", Value::from(key.as_str()))).collect();
                format!("{{ {} }}", members.join(" ,\n"))
            };
            let first: Value = serde_json::from_str(&text(&pairs)).unwrap();
            let turn = usize::try_from(seed % 5).unwrap() % pairs.len().max(1);
            pairs.rotate_left(turn);
            let second: Value = serde_json::from_str(&text(&pairs)).unwrap();
            prop_assert_eq!(canonical(&first), canonical(&second));
        }
    }
}
