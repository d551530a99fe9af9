//! Decimals as texts, in place.

use std::fmt;
use std::ops::Deref;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest: 29 digits, a point and a sign, or a zero more and a digit less.
const MOST: usize = 31;

/// A decimal as text, every digit of it. It takes no memory of its own: answers are full of them.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Digits {
    /// Where the text begins; it ends with the field.
    start: u8,
    text: [u8; MOST],
}

impl From<Decimal> for Digits {
    fn from(number: Decimal) -> Self {
        let (mut text, mut start) = ([b'0'; MOST], MOST);
        let mut put = |byte: u8| {
            start -= 1;
            text[start] = byte;
        };
        let scale = number.scale();
        let (mut left, mut place) = (number.mantissa().unsigned_abs(), 0);
        while left > 0 || place <= scale {
            if place == scale && scale > 0 {
                put(b'.');
            }
            put(b'0' + last_digit(&mut left));
            place += 1;
        }
        if number.is_sign_negative() {
            put(b'-');
        }
        Self { start: u8::try_from(start).unwrap_or(0), text }
    }
}

/// Takes the last digit off a number.
fn last_digit(left: &mut u128) -> u8 {
    // Numbers of two words divide slowly; nearly all fit one.
    let digit = match u64::try_from(*left) {
        Ok(word) => {
            *left = u128::from(word / 10);
            word % 10
        }
        Err(_) => {
            let digit = *left % 10;
            *left /= 10;
            u64::try_from(digit).unwrap_or(0)
        }
    };
    u8::try_from(digit).unwrap_or(0)
}

impl Deref for Digits {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.text[usize::from(self.start)..]).unwrap_or_default()
    }
}

impl PartialEq<str> for Digits {
    fn eq(&self, text: &str) -> bool {
        **self == *text
    }
}

impl PartialEq<&str> for Digits {
    fn eq(&self, text: &&str) -> bool {
        **self == **text
    }
}

impl fmt::Debug for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Decimal::from_str_exact(&text).map(Self::from).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(number: Decimal) {
        let digits = Digits::from(number);
        assert_eq!(&*digits, number.to_string());
        let json = serde_json::to_string(&digits).unwrap();
        let again = serde_json::from_str::<Digits>(&json).unwrap();
        assert_eq!(again.trim_start_matches('-'), digits.trim_start_matches('-'));
    }

    #[test]
    fn the_longest_and_the_shortest_fit() {
        let least = Decimal::from_i128_with_scale(-1, 28);
        let zeros = (0..=28).map(|scale| Decimal::new(0, scale));
        let all = [Decimal::MAX, Decimal::MIN, least, -Decimal::ZERO];
        all.into_iter().chain(zeros).for_each(same);
        let widest = (0..=28).filter_map(|scale| {
            Decimal::try_from_i128_with_scale(Decimal::MIN.mantissa(), scale).ok()
        });
        widest.for_each(same);
    }

    proptest! {
        #[test]
        fn digits_are_those_of_the_decimal(low: u32, mid: u32, high: u32, minus: bool, scale in 0u32..=28) {
            same(Decimal::from_parts(low, mid, high, minus, scale));
            same(Decimal::from_parts(low, 0, 0, minus, scale));
        }
    }
}
