//! `GET /v2/sizes`, as sent.

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) sizes: Vec<Row<Size>>,
    #[serde(default)]
    pub(super) links: Links,
    pub(super) meta: Option<Meta>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Links {
    pub(super) pages: Option<Around>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Around {
    pub(super) next: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Meta {
    pub(super) total: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Size {
    pub(super) slug: String,
    pub(super) memory: Option<RawNumber>,
    pub(super) vcpus: Option<RawNumber>,
    pub(super) price_hourly: Option<RawNumber>,
    pub(super) regions: Option<Vec<String>>,
    pub(super) available: Option<bool>,
    pub(super) gpu_info: Option<GpuInfo>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GpuInfo {
    pub(super) count: RawNumber,
    pub(super) model: Option<String>,
    pub(super) vram: Option<Vram>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Vram {
    pub(super) amount: Option<RawNumber>,
    pub(super) unit: Option<String>,
}
