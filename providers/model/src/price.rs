//! Prices as clouds state them: per hour, exact, dated, with their source.

use std::fmt;

use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::money::{Currency, Money};

/// A price for one hour of a whole offer (all its GPUs), as the cloud sent it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
pub struct HourlyPrice {
    /// Amount per hour.
    pub amount: Decimal,
    /// Currency of the amount.
    pub currency: Currency,
}

impl HourlyPrice {
    /// The price of one hour as money.
    pub fn per_hour(self) -> Money {
        Money::new(self.amount, self.currency)
    }

    /// Whether it is no more than a ceiling, to the last digit. In another currency nobody knows:
    /// it is not.
    pub fn is_within(self, ceiling: Self) -> bool {
        self.currency == ceiling.currency && self.amount <= ceiling.amount
    }
}

impl From<Money> for HourlyPrice {
    fn from(money: Money) -> Self {
        Self { amount: money.amount, currency: money.currency }
    }
}

impl fmt::Display for HourlyPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/h", self.amount, self.currency)
    }
}

/// What is known of a price. Zero is none of these.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum PriceState {
    /// The source states this price.
    Known {
        /// The stated price.
        price: HourlyPrice,
    },
    /// The source lists the offer but states no usable price.
    Unknown,
    /// The source says that it is not sold there.
    NotOffered,
}

impl PriceState {
    /// The price, where one is known.
    pub fn known(&self) -> Option<HourlyPrice> {
        match self {
            Self::Known { price } => Some(*price),
            Self::Unknown | Self::NotOffered => None,
        }
    }
}

/// Whose price it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceKind {
    /// A public list price.
    List,
    /// The price of the connected account.
    Account,
    /// Set by the operator (own machines).
    Configured,
    /// A figure of a bundled catalogue; launches nothing on a cloud.
    Bundled,
}

/// A price with its provenance.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Known, unknown or not offered.
    pub state: PriceState,
    /// Whose price it is.
    pub kind: PriceKind,
    /// Where it was read, for people.
    pub source: String,
    /// When it was read; `None` = unknown age.
    pub observed_at: Option<Timestamp>,
    /// Since when the cloud says it holds.
    pub effective_at: Option<Timestamp>,
}
