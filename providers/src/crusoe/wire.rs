//! Answers, as sent.

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Types {
    pub(super) items: Vec<Row<VmType>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct VmType {
    pub(super) product_name: String,
    pub(super) num_gpu: Option<RawNumber>,
    pub(super) gpu_type: Option<String>,
    pub(super) cpu_cores: Option<RawNumber>,
    pub(super) memory_gb: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Capacities {
    pub(super) items: Vec<Row<Capacity>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Capacity {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) location: String,
    pub(super) quantity: RawNumber,
}
