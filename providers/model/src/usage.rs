//! A provider's own bill.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::money::Money;

/// A half-open span of time `[start, end)`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// First instant.
    pub start: Timestamp,
    /// First instant after.
    pub end: Timestamp,
}

/// One line of the provider's bill for one node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The node.
    pub node: NodeId,
    /// Billed span.
    pub period: Period,
    /// Billed microseconds after the provider's rounding.
    pub billed_micros: u64,
    /// Amount, where stated.
    pub amount: Option<Money>,
}

impl UsageRecord {
    /// Which line it is: the node and the first instant.
    pub fn id(&self) -> String {
        format!("{}@{}", self.node, self.period.start)
    }
}

/// What the provider billed in a period.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UsageRecords {
    /// The lines.
    pub records: Vec<UsageRecord>,
    /// Whether the bill of the period is final.
    pub complete: bool,
}
