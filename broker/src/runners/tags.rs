//! Tags: what users label trials with.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::text::{Words, words};

const MOST: usize = 16;
const KEY_CHARACTERS: usize = 64;
const VALUE_CHARACTERS: usize = 256;

/// Reads the `tags` of a request; the error is a sentence that names the key.
///
/// At most 16 pairs. Keys are `[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}`. Values may be empty and have at
/// most 256 printable characters, counted as code points: no control, private-use, unassigned or
/// format-only ones, except the joiner U+200D and the selector U+FE0F between others. Characters
/// are as of the Unicode version of this build's standard library.
pub(super) fn read(value: &Value) -> Result<BTreeMap<String, String>, Words> {
    let Value::Object(members) = value else {
        return Err(words!("tags 必须是值为字符串的对象", "tags must be an object of strings"));
    };
    let count = members.len();
    if count > MOST {
        return Err(words!(
            "tags：最多 {MOST} 对，现有 {count} 对",
            "tags: at most {MOST} pairs, there are {count}"
        ));
    }
    let mut tags = BTreeMap::new();
    for (key, value) in members {
        let shown: String = key.chars().filter(|c| !c.is_control()).take(70).collect();
        if !key_is_good(key) {
            return Err(words!(
                "tags：键 `{shown}` 只能有字母、数字、`_`、`.` 和 `-`，1 到 64 个，以字母、数字或 `_` 开头",
                "tags: the key `{shown}` must have letters, digits, `_`, `.` and `-`, 1 to 64, \
                 beginning with a letter, a digit or `_`"
            ));
        }
        let Value::String(text) = value else {
            return Err(words!(
                "tags：`{shown}` 的值必须是字符串",
                "tags: the value of `{shown}` must be a string"
            ));
        };
        let count = text.chars().count();
        if count > VALUE_CHARACTERS {
            return Err(words!(
                "tags：`{shown}` 的值有 {count} 个字符，最多 {VALUE_CHARACTERS} 个",
                "tags: the value of `{shown}` has {count} characters, at most {VALUE_CHARACTERS} are allowed"
            ));
        }
        if !printable(text) {
            return Err(words!(
                "tags：`{shown}` 的值含有不可打印的字符",
                "tags: the value of `{shown}` holds a character that is not printable"
            ));
        }
        tags.insert(key.clone(), text.clone());
    }
    Ok(tags)
}

fn key_is_good(key: &str) -> bool {
    let begin = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    key.len() <= KEY_CHARACTERS
        && key.as_bytes().first().is_some_and(begin)
        && key.bytes().all(|b| begin(&b) || matches!(b, b'.' | b'-'))
}

fn printable(text: &str) -> bool {
    let characters: Vec<char> = text.chars().collect();
    let last = characters.len().saturating_sub(1);
    characters.iter().enumerate().all(|(index, c)| match c {
        // They join or choose what stands before them.
        '\u{200d}' => index > 0 && index < last,
        '\u{fe0f}' => index > 0,
        c => shows(*c),
    })
}

fn shows(c: char) -> bool {
    let escaped = c.escape_debug();
    // What the standard library escapes is control, private, unassigned, format or a separator;
    // marks that join the character before them and quotes are escaped too, but do show.
    let plain = escaped.len() == 1 || matches!(c, '\\' | '"' | '\'');
    plain || is_mark(c)
}

fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c) && !c.is_control()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_exact_and_count_code_points() {
        let many =
            |n: usize| Value::Object((0..n).map(|i| (format!("k{i}"), json!("v"))).collect());
        assert_eq!(read(&many(16)).unwrap().len(), 16);
        assert!(read(&many(17)).is_err());
        assert!(read(&json!({})).unwrap().is_empty());
        for good in [
            "",
            "a b",
            "é",
            "e\u{301}",
            "👩\u{200d}💻",
            "❤\u{fe0f}",
            "中文，标点",
            "\"quoted\" 'x' \\",
        ] {
            assert!(read(&json!({ "k": good })).is_ok(), "{good:?}");
        }
        for (unit, count) in [("x", 256), ("😀", 256), ("e\u{301}", 128)] {
            assert!(read(&json!({ "k": unit.repeat(count) })).is_ok());
            assert!(read(&json!({ "k": format!("{}y", unit.repeat(count)) })).is_err());
        }
        for bad in [
            "a\nb",
            "\t",
            "\u{7f}",
            "\u{0}",
            "\u{200b}",
            "\u{202e}x",
            "\u{200d}",
            "x\u{200d}",
            "\u{e000}",
            "\u{fffff}",
            "\u{feff}",
            "\u{2028}",
        ] {
            assert!(read(&json!({ "k": bad })).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_are_ascii_words() {
        let long = "k".repeat(64);
        for good in ["a", "_", "0", "a.b-c_D", &long] {
            assert!(read(&json!({ good: "v" })).is_ok(), "{good}");
        }
        let longer = "k".repeat(65);
        for bad in ["", ".a", "-a", "a b", "é", "a/b", "a\n", &longer] {
            assert!(read(&json!({ bad: "v" })).is_err(), "{bad}");
        }
        for wrong in
            [json!([]), json!("x"), json!({ "k": 1 }), json!({ "k": null }), json!({ "k": ["v"] })]
        {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
