//! `GET /instance-types`, as sent.

use std::collections::BTreeMap;

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Types {
    pub(super) data: BTreeMap<String, Row<Entry>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) instance_type: InstanceType,
    pub(super) regions_with_capacity_available: Option<Vec<Region>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Region {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct InstanceType {
    pub(super) name: String,
    pub(super) gpu_description: Option<String>,
    pub(super) description: Option<String>,
    pub(super) price_cents_per_hour: Option<RawNumber>,
    pub(super) specs: Specs,
}

#[derive(Debug, Deserialize)]
pub(super) struct Specs {
    pub(super) vcpus: Option<RawNumber>,
    pub(super) memory_gib: Option<RawNumber>,
    pub(super) gpus: Option<RawNumber>,
}
