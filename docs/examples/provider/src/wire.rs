//! What Harbour sends and receives, exactly.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_providers::model::Secret;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A row of `flavors.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Flavor {
    pub(crate) name: String,
    pub(crate) site: String,
    pub(crate) gpu: String,
    pub(crate) gpus: u32,
    pub(crate) cpus: Option<u32>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) hourly: Option<Hourly>,
}

/// A price. Its number is kept as the text that was sent: a float would change it.
#[derive(Debug, Deserialize)]
pub(crate) struct Hourly {
    pub(crate) price: Box<RawValue>,
    pub(crate) unit: String,
}

/// `orders/<name>.json`: a machine as it was ordered. Names are unique and never free again.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) flavor: String,
    pub(crate) site: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) price: String,
    pub(crate) unit: String,
    pub(crate) ordered_at: Timestamp,
    pub(crate) runs_at: Timestamp,
    /// Harbour ends the machine then, whoever is still there.
    pub(crate) end_by: Option<Timestamp>,
    /// What the machine reads at its first start. Holds the lease token.
    pub(crate) user_data: Secret,
}

/// `ends/<name>.json`: the machine's end was asked for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct End {
    pub(crate) asked_at: Timestamp,
}

/// A machine as Harbour shows it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) order: Order,
    pub(crate) end: Option<End>,
}
