//! `GET /plans`, `/plans-metal` and `/regions/{id}/availability`, as sent.

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Page {
    #[serde(alias = "plans_metal")]
    pub(super) plans: Vec<Row<Plan>>,
    pub(super) meta: Option<Meta>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Meta {
    pub(super) links: Option<Links>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Links {
    pub(super) next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Plan {
    pub(super) id: String,
    #[serde(alias = "cpu_threads")]
    pub(super) vcpu_count: Option<RawNumber>,
    pub(super) ram: Option<RawNumber>,
    pub(super) hourly_cost: Option<RawNumber>,
    pub(super) gpu_type: Option<String>,
    pub(super) gpu_vram_gb: Option<RawNumber>,
    pub(super) locations: Option<Vec<String>>,
    pub(super) deploy_ondemand: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Availability {
    pub(super) available_plans: Vec<String>,
}
