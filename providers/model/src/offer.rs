//! Offers: what one can rent now, and the sheets they come in.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gpu::{GpuCount, GpuModelId};
use crate::key::OfferKey;
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
}
