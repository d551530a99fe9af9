//! What an unquoted YAML word means.
//!
//! YAML 1.1 readers (PyYAML, used by the published client) and YAML 1.2 readers disagree on many words. A word that
//! either of them takes for something else than a string is no string here, so that no file means two things.

use super::problem::Found;

/// How readers of YAML 1.1 or 1.2 take the unquoted `text`.
pub(super) fn plain(text: &str) -> Found {
    if matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        Found::Null
    } else if boolean(text).is_some() || matches!(text, "y" | "Y" | "n" | "N") {
        Found::Bool
    } else if is_integer(text) {
        Found::Integer
    } else if is_float(text) {
        Found::Float
    } else if is_date(text) {
        Found::Date
    } else {
        Found::Text
    }
}

/// The truth value on which YAML 1.1 readers agree; `y` and `n` have none.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

/// All of `text` is made of `allowed` or `_`, with at least one that is not `_`.
fn all(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    text.bytes().any(&allowed) && text.bytes().all(|b| b == b'_' || allowed(b))
}

fn is_integer(text: &str) -> bool {
    let digits = unsigned(text);
    if let Some(hex) = digits.strip_prefix("0x") {
        return all(hex, |b| b.is_ascii_hexdigit());
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return all(binary, |b| matches!(b, b'0' | b'1'));
    }
    if let Some(octal) = digits.strip_prefix("0o") {
        return all(octal, |b| b.is_ascii_digit());
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    all(digits, |b| b.is_ascii_digit()) || is_sexagesimal(digits)
}

/// `1:30` is ninety to YAML 1.1.
fn is_sexagesimal(digits: &str) -> bool {
    let mut parts = digits.split(':');
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    all(first, |b| b.is_ascii_digit())
        && rest.peek().is_some()
        && rest.all(|part| {
            let whole = part.split('.').next().unwrap_or_default();
            matches!(whole.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        })
}

fn is_float(text: &str) -> bool {
    let number = unsigned(text);
    if matches!(number, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(unsigned(exponent))),
        None => (number, None),
    };
    if exponent.is_some_and(|e| e.is_empty() || !e.bytes().all(|b| b.is_ascii_digit())) {
        return false;
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    mantissa.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && mantissa.bytes().any(|b| b.is_ascii_digit())
        && whole.bytes().chain(fraction.bytes()).all(|b| b == b'_' || b.is_ascii_digit())
}

fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let day = rest.bytes().take_while(u8::is_ascii_digit).count();
    year.len() == 4
        && digits(year)
        && matches!(month.len(), 1 | 2)
        && digits(month)
        && matches!(day, 1 | 2)
        && rest[day..].bytes().next().is_none_or(|b| matches!(b, b'T' | b't' | b' ' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_any_reader_takes_for_another_type_are_no_strings() {
        for (found, words) in [
            (Found::Null, &["", "~", "null", "NULL"][..]),
            (Found::Bool, &["yes", "No", "ON", "off", "y", "N", "true", "False"]),
            (
                Found::Integer,
                &["0", "-1", "+7", "010", "0x1F", "0o17", "0b1", "1_000", "1:30", "190:20:30"],
            ),
            (Found::Float, &["1.5", "1e3", ".5", "1.", "-.inf", ".nan", "6.8523015e+5", "1_0.5"]),
            (
                Found::Date,
                &["2026-01-31", "2026-1-3", "2001-12-14t21:59:43.10-05:00", "2001-12-14 21:59:43"],
            ),
            (
                Found::Text,
                &[
                    "v1",
                    "nO",
                    "yess",
                    "a100-80g",
                    "1.2.3",
                    "30m",
                    "0x",
                    "0xzz",
                    "--",
                    "-",
                    "-m",
                    "1-2",
                    "e3",
                    ".",
                    "2026-01",
                    "2026-01-31-final",
                    "1:99x",
                    "a:b",
                    "+",
                    "12ab",
                    "_",
                    "nan",
                    "inf",
                    "1:",
                    "::",
                ],
            ),
        ] {
            for word in words {
                assert_eq!(plain(word), found, "{word}");
            }
        }
    }
}
