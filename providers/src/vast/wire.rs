//! `POST /bundles/`, as sent.

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) offers: Vec<Row<Ask>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ask {
    pub(super) id: RawNumber,
    pub(super) gpu_name: Option<String>,
    pub(super) num_gpus: RawNumber,
    pub(super) gpu_ram: Option<RawNumber>,
    pub(super) cpu_cores: Option<RawNumber>,
    pub(super) cpu_cores_effective: Option<RawNumber>,
    pub(super) cpu_ram: Option<RawNumber>,
    pub(super) storage_cost: Option<RawNumber>,
    pub(super) dph_base: Option<RawNumber>,
    pub(super) min_bid: Option<RawNumber>,
    pub(super) geolocation: Option<String>,
    pub(super) rentable: Option<bool>,
    pub(super) end_date: Option<RawNumber>,
}
