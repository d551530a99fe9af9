//! Money: an exact amount that always carries its currency.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::decimal::{DecimalError, parse_decimal};

/// An ISO 4217 currency, written as its upper-case code.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Currency(iso_currency::Currency);

impl Currency {
    /// Chinese yuan.
    pub const CNY: Self = Self(iso_currency::Currency::CNY);
    /// US dollar.
    pub const USD: Self = Self(iso_currency::Currency::USD);
    /// Euro.
    pub const EUR: Self = Self(iso_currency::Currency::EUR);

    /// The three-letter code, for example `CNY`.
    pub fn code(&self) -> &'static str {
        self.0.code()
    }

    /// Digits of the minor unit (CNY 2, JPY 0, KWD 3); `None` where ISO 4217 states none.
    pub fn minor_digits(&self) -> Option<u32> {
        self.0.exponent().map(u32::from)
    }
}

impl PartialOrd for Currency {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Currency {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.code().cmp(other.code())
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// The text is not an ISO 4217 code.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not an ISO 4217 currency code such as CNY or USD: {0:?}")]
pub struct CurrencyError(pub String);

impl FromStr for Currency {
    type Err = CurrencyError;

    /// Accepts any letter case (`usd` is how one cloud writes it).
    fn from_str(text: &str) -> Result<Self, CurrencyError> {
        iso_currency::Currency::from_code(&text.to_ascii_uppercase())
            .map(Self)
            .ok_or_else(|| CurrencyError(text.chars().take(16).collect()))
    }
}

impl Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An amount in a currency. There is no arithmetic across currencies.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub struct Money {
    /// The amount in major units (yuan, dollars).
    pub amount: Decimal,
    /// Its currency.
    pub currency: Currency,
}

/// Why a money calculation or text was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MoneyError {
    /// Two currencies met without a rate.
    #[error("cannot combine {0} with {1} without an exchange rate")]
    Currencies(Currency, Currency),
    /// The result needs more digits than can be kept.
    #[error("amount out of range")]
    Range,
    /// The text is not `<decimal> <currency>`.
    #[error("expected an amount and a currency such as \"36.44 CNY\"")]
    Syntax,
    /// The amount is not an exact decimal.
    #[error("amount: {0}")]
    Amount(#[from] DecimalError),
    /// The currency is not known.
    #[error(transparent)]
    Currency(#[from] CurrencyError),
}

impl Money {
    /// An amount of a currency.
    pub fn new(amount: Decimal, currency: Currency) -> Self {
        Self { amount, currency }
    }

    /// Nothing, in a currency.
    pub fn zero(currency: Currency) -> Self {
        Self::new(Decimal::ZERO, currency)
    }

    /// The sum; refused across currencies.
    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        self.combine(other, Decimal::checked_add)
    }

    /// The difference; refused across currencies.
    pub fn checked_sub(self, other: Self) -> Result<Self, MoneyError> {
        self.combine(other, Decimal::checked_sub)
    }

    fn combine(
        self,
        other: Self,
        with: impl Fn(Decimal, Decimal) -> Option<Decimal>,
    ) -> Result<Self, MoneyError> {
        if self.currency != other.currency {
            return Err(MoneyError::Currencies(self.currency, other.currency));
        }
        let amount = with(self.amount, other.amount).ok_or(MoneyError::Range)?;
        Ok(Self::new(amount, self.currency))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.currency)
    }
}

impl FromStr for Money {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let (amount, currency) = text.trim().split_once(' ').ok_or(MoneyError::Syntax)?;
        Ok(Self::new(parse_decimal(amount)?, currency.trim().parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_amount_and_currency() {
        let money: Money = "36.44 CNY".parse().expect("a valid amount");
        assert_eq!(money.to_string(), "36.44 CNY");
        assert_eq!("1 usd".parse::<Money>().map(|m| m.currency), Ok(Currency::USD));
        for bad in ["36.44", "CNY 36.44", "1 YUAN", "", "1e99 CNY"] {
            assert!(bad.parse::<Money>().is_err(), "{bad}");
        }
    }

    #[test]
    fn never_adds_across_currencies() {
        let one = Money::new(Decimal::ONE, Currency::CNY);
        let other = Money::new(Decimal::ONE, Currency::USD);
        assert_eq!(
            one.checked_add(other),
            Err(MoneyError::Currencies(Currency::CNY, Currency::USD))
        );
    }

    #[test]
    fn json_keeps_every_digit_as_text() {
        let money =
            Money::new(parse_decimal("0.1234567890123456789012345678").unwrap(), Currency::USD);
        let json = serde_json::to_string(&money).unwrap();
        assert_eq!(json, r#"{"amount":"0.1234567890123456789012345678","currency":"USD"}"#);
        assert_eq!(serde_json::from_str::<Money>(&json).unwrap(), money);
        assert!(serde_json::from_str::<Money>(r#"{"amount":0.1,"currency":"USD"}"#).is_err());
    }
}
