//! Percent-encoding as RFC 3986 has it, which the signatures agree on.

use std::fmt::Write as _;

/// Encodes everything but letters, digits and `-_.~`; a blank becomes `%20`.
pub fn encode_component(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// `name=value` pairs, encoded and joined in the given order.
pub fn query_text<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(&encode_component(name.as_ref()));
        text.push('=');
        text.push_str(&encode_component(value.as_ref()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(encode_component("a b*~+/é"), "a%20b%2A~%2B%2F%C3%A9");
        assert_eq!(query_text([("a", "1 2"), ("b:", "")]), "a=1%202&b%3A=");
    }
}
