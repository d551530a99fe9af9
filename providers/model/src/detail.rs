//! What only some offers have.

use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::price::HourlyPrice;

/// More about an offer; every field may be absent.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferDetails {
    /// The GPU count as the source writes it, where it was corrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated_gpu_count: Option<String>,
    /// The parts of the hourly price. They add up to the price exactly where all are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PricePart>,
    /// Lower prices after so many hours, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
    /// The public list price, where the price is the account's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_price: Option<HourlyPrice>,
    /// The median over like offers, where the source states one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_price: Option<HourlyPrice>,
    /// What disk costs beside the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskPrice>,
    /// The cloud whose machine it is, where a broker sells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Until when it can be had at this price (marketplace asks).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Timestamp>,
    /// Two-letter country code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    /// Percent of such spot machines that were taken back within 30 days, by the provider's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_percent: Option<Decimal>,
    /// Other prices that the source had for the same thing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
}

/// A part of an hourly price.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PricePart {
    /// What it is for: `cpu`, `memory`, `gpu`, `local_ssd`, `system_disk`.
    pub part: String,
    /// Amount per hour in the price's currency; `None` = unknown.
    pub amount: Option<Decimal>,
}

/// A price from a number of hours on.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PriceTier {
    /// Hours of the node's life before it applies.
    pub after_hours: u32,
    /// Amount per hour in the price's currency.
    pub amount: Decimal,
}

/// What disk costs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct DiskPrice {
    /// Amount per GiB and month in the price's currency.
    pub per_gib_month: Decimal,
    /// Hours of a month in the provider's bill, usually 730 or 720.
    pub month_hours: u32,
    /// GiB that are in the machine's price.
    pub included_gib: u32,
    /// The disk is billed while the machine is stopped.
    pub billed_when_stopped: bool,
}

/// Another price for the same thing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// The price.
    pub price: HourlyPrice,
    /// What it belongs to, in the source's words.
    pub of: String,
}
