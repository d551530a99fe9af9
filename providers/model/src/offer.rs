//! Offers: what one can rent now, and the sheets they come in.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::detail::OfferDetails;
use crate::gpu::{GpuCount, GpuModelId};
use crate::key::OfferKey;
use crate::mark::Marks;
use crate::price::Price;

/// What is said of availability. Never guessed: a listing is no stock.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stock {
    /// There is some.
    #[serde(rename = "in_stock")]
    Available,
    /// The last ones.
    Low,
    /// None now; the price still holds.
    SoldOut,
    /// The provider does not say.
    Unstated,
}

/// Something one can rent.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name.
    pub key: OfferKey,
    /// The GPU model; `None` when the raw name is not known (never a near guess).
    pub gpu: Option<GpuModelId>,
    /// The provider's own GPU name.
    pub gpu_raw: String,
    /// How many GPUs, possibly a fraction of one.
    pub gpu_count: GpuCount,
    /// Memory of one whole GPU in MiB as the source states it; the table of models has the true
    /// one. Both are kept, and a difference is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mib: Option<u64>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Main memory in MiB.
    pub memory_mib: Option<u64>,
    /// Its price per hour for everything.
    pub price: Price,
    /// Availability.
    pub stock: Stock,
    /// Whether a connected account can launch it now at a price that is not stale.
    pub launchable: bool,
    /// The local machine pretends to have these GPUs.
    #[serde(default)]
    pub pretended: bool,
    /// What is to be known of the figures.
    #[serde(default, skip_serializing_if = "Marks::is_none")]
    pub marks: Marks,
    /// What few offers have: parts of the price, steps, other prices, origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<OfferDetails>>,
}

impl Offer {
    /// What a list says at least. The rest is not stated, and nothing can launch it.
    pub fn listed(key: OfferKey, gpu_raw: String, gpu_count: GpuCount, price: Price) -> Self {
        Self {
            key,
            gpu: None,
            gpu_raw,
            gpu_count,
            gpu_memory_mib: None,
            vcpus: None,
            memory_mib: None,
            price,
            stock: Stock::Unstated,
            launchable: false,
            pretended: false,
            marks: Marks::NONE,
            details: None,
        }
    }
}

/// A row that could not be mapped; counted and shown, never dropped silently.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct RejectedRow {
    /// The row's own name as far as it has one.
    pub row: String,
    /// What does not fit.
    pub reason: String,
}

/// Which offers are wanted.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct OfferScope {
    /// Only these regions; empty = all.
    pub regions: Vec<String>,
    /// The validator of the last complete sheet (see [`OfferSheet::validator`]): a source that can
    /// ask "changed since?" does, and answers with an unchanged sheet.
    #[serde(default)]
    pub validator: Option<String>,
}

/// A part of a source that could not be read: a region, a page, a kind of price.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// Which part.
    pub part: String,
    /// What went wrong.
    pub reason: String,
}

/// What a source promises and needs; what the refresh holds its sheets against.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceTerms {
    /// How often it is worth reading.
    pub refresh: Duration,
    /// How old an on-demand price may be before it is stale.
    pub max_age: Duration,
    /// How old a spot price may be before it is stale.
    pub spot_max_age: Duration,
    /// The least rows of a complete sheet.
    pub min_rows: usize,
    /// Models that every complete sheet has.
    pub required: Vec<GpuModelId>,
    /// The most readings in an hour; a reading may be many calls.
    pub readings_per_hour: u32,
}

impl Default for SourceTerms {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(6 * 3600),
            max_age: Duration::from_secs(24 * 3600),
            spot_max_age: Duration::from_secs(3600),
            min_rows: 0,
            required: Vec::new(),
            readings_per_hour: 120,
        }
    }
}

/// One reading of a source.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OfferSheet {
    /// What was mapped.
    pub offers: Vec<Offer>,
    /// What was not.
    pub rejected: Vec<RejectedRow>,
    /// When it was read.
    pub observed_at: Timestamp,
    /// Whether all of it was read.
    pub complete: bool,
    /// Nothing changed since the validator of the scope: no offers are repeated here, the last
    /// ones hold and are as fresh as this sheet.
    #[serde(default)]
    pub unchanged: bool,
    /// What tells the source next time what we have (an ETag, a version, a publication date).
    #[serde(default)]
    pub validator: Option<String>,
    /// What could not be read, where the sheet is not complete.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

impl OfferSheet {
    /// A complete sheet.
    pub fn complete(
        offers: Vec<Offer>,
        rejected: Vec<RejectedRow>,
        observed_at: Timestamp,
    ) -> Self {
        Self {
            offers,
            rejected,
            observed_at,
            complete: true,
            unchanged: false,
            validator: None,
            gaps: Vec::new(),
        }
    }

    /// "Nothing changed": the last offers hold.
    pub fn unchanged(validator: Option<String>, observed_at: Timestamp) -> Self {
        Self { unchanged: true, validator, ..Self::complete(Vec::new(), Vec::new(), observed_at) }
    }
}
