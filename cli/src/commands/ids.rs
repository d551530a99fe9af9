//! Names and amounts as typed on the command line.

use std::str::FromStr;

use runwhere_model::{Currency, Money};
use rust_decimal::Decimal;

use crate::failure::{Failure, Outcome};
use crate::texts;

/// Checks a job name or id before it becomes part of a path: nothing that passes needs escaping, or means another path.
pub(super) fn job_name(name: &str) -> Outcome<&str> {
    let mut bytes = name.bytes();
    let good = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        && name.len() <= 63;
    if good { Ok(name) } else { Err(Failure::usage("name_invalid", texts::name_invalid(name))) }
}

/// A price per hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ceiling(pub(super) Money);

impl Ceiling {
    /// Reads `50`, `50 CNY`, `7usd`, `¥50` or `$7`.
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        let invalid = || Failure::usage("price_invalid", texts::price_invalid(text));
        let rest = text.trim();
        let (rest, sign) = match rest.strip_prefix(['¥', '￥']) {
            Some(rest) => (rest, Some("CNY")),
            None => rest.strip_prefix('$').map_or((rest, None), |rest| (rest, Some("USD"))),
        };
        let at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (amount, word) = rest.split_at(at);
        let word = word.trim();
        let currency = match (word, sign) {
            ("", sign) => sign.unwrap_or("CNY").to_owned(),
            (word, None)
                if word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_alphabetic()) =>
            {
                word.to_ascii_uppercase()
            }
            _ => return Err(invalid()),
        };
        // Exact, or refused: a ceiling is never rounded.
        let amount = runwhere_model::parse_decimal(amount).map_err(|_| invalid())?;
        if amount <= Decimal::ZERO {
            return Err(invalid());
        }
        let currency = Currency::from_str(&currency).map_err(|_| invalid())?;
        Ok(Self(Money::new(amount, currency)))
    }
}

impl std::fmt::Display for Ceiling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0.amount, self.0.currency.code())
    }
}

/// Checks `YYYY-MM-DD`.
pub(super) fn date(text: &str) -> Outcome<&str> {
    jiff::civil::Date::from_str(text)
        .ok()
        .filter(|_| text.len() == 10)
        .map(|_| text)
        .ok_or_else(|| Failure::usage("date_invalid", texts::date_invalid(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_never_reach_a_path() {
        for name in [
            "",
            "..",
            ".",
            "../x",
            "a/b",
            "a?b",
            "a#b",
            "a b",
            "a[/x]",
            "-f",
            "_x",
            "a\u{1b}[2J",
            "名称",
            &"x".repeat(64),
        ] {
            assert!(job_name(name).is_err(), "{name}");
        }
        for name in ["a", "llama-finetune", "job-efa79e36", "a..b", "0", &"x".repeat(63)] {
            assert!(job_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn ceilings_carry_their_currency() {
        for (text, amount, currency) in [
            ("50", "50", "CNY"),
            ("50.5 cny", "50.5", "CNY"),
            ("7USD", "7", "USD"),
            ("$7", "7", "USD"),
            ("¥50", "50", "CNY"),
        ] {
            let ceiling = Ceiling::parse(text).unwrap();
            assert_eq!(
                (ceiling.0.amount.to_string().as_str(), ceiling.0.currency.code()),
                (amount, currency),
                "{text}"
            );
        }
        for text in ["", "0", "-1", "1e3", "NaN", "50 yuan", "$7 CNY", "1.2.3", "1,5"] {
            assert!(Ceiling::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dates_are_whole_days_that_exist() {
        assert!(date("2026-07-31").is_ok());
        for text in ["2026-02-30", "2026-7-1", "yesterday", "", "2026-07-31T00:00"] {
            assert!(date(text).is_err(), "{text}");
        }
    }
}
