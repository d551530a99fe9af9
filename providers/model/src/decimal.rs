//! One parser for every decimal that enters the system.

use rust_decimal::Decimal;

/// Why a text is not an exact decimal.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecimalError {
    /// The text is not `-?digits(.digits)?([eE][+-]?digits)?`.
    #[error("not a decimal number")]
    Syntax,
    /// The number needs more digits than fit: rounding it silently would change a price.
    #[error("more digits than can be kept exactly (28)")]
    Inexact,
}

/// Parses the text of a number exactly, or says why not; never rounds.
///
/// Accepts the JSON number grammar (so raw JSON text passes as it is), nothing else: no `+`, no
/// `_`, no blanks, no leading dot. Trailing zeros are dropped, so that `4.0` and `4` are the same
/// text afterwards.
pub fn parse_decimal(text: &str) -> Result<Decimal, DecimalError> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let digits = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return Err(DecimalError::Syntax);
    }
    // Trailing zeros of the fraction carry no value but would use up digits.
    let trimmed = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    let number = Decimal::from_str_exact(trimmed).map_err(|_| DecimalError::Inexact)?;
    let number = scale(number, exponent)?.normalize();
    Ok(if number.is_zero() { Decimal::ZERO } else { number })
}

fn parse_exponent(text: &str) -> Result<i32, DecimalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DecimalError::Syntax);
    }
    // Beyond three digits no value but zero could be kept anyway.
    let value: i32 = digits.parse().map_err(|_| DecimalError::Inexact)?;
    if value > 999 {
        return Err(DecimalError::Inexact);
    }
    Ok(if text.starts_with('-') { -value } else { value })
}

fn scale(number: Decimal, exponent: i32) -> Result<Decimal, DecimalError> {
    if number.is_zero() || exponent == 0 {
        return Ok(number);
    }
    let mut number = number.normalize();
    if exponent < 0 {
        let scale = number.scale() + exponent.unsigned_abs();
        number.set_scale(scale).map_err(|_| DecimalError::Inexact)?;
        return Ok(number);
    }
    let mut left = exponent.unsigned_abs();
    let taken = left.min(number.scale());
    number.set_scale(number.scale() - taken).map_err(|_| DecimalError::Inexact)?;
    left -= taken;
    for _ in 0..left {
        number = number.checked_mul(Decimal::TEN).ok_or(DecimalError::Inexact)?;
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_clouds_send() {
        for (text, want) in [
            ("32.7726000000", "32.7726"),
            ("1.413400", "1.4134"),
            ("4.0", "4"),
            ("0.060", "0.06"),
            ("1e-3", "0.001"),
            ("2.5E2", "250"),
            ("-0.0", "0"),
            ("0.0000000000000000000000000001", "0.0000000000000000000000000001"),
        ] {
            assert_eq!(parse_decimal(text).map(|d| d.to_string()), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_would_have_to_be_guessed_or_rounded() {
        for text in ["", "+1", "1_000", " 1", ".5", "5.", "1e", "NaN", "inf", "1,5", "0x1", "--1"] {
            assert_eq!(parse_decimal(text), Err(DecimalError::Syntax), "{text:?}");
        }
        for text in
            ["0.12345678901234567890123456789", "1e40", "1e-40", "99999999999999999999999999999"]
        {
            assert_eq!(parse_decimal(text), Err(DecimalError::Inexact), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn text_round_trips(mantissa in proptest::num::i64::ANY, scale in 0u32..=18) {
            let number = Decimal::new(mantissa, scale).normalize();
            proptest::prop_assert_eq!(parse_decimal(&number.to_string()), Ok(number));
        }

        #[test]
        fn never_panics(text in "[-+0-9eE._ ]{0,40}") {
            let _ = parse_decimal(&text);
        }
    }
}
