//! Answers of CVM, as sent.

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Envelope<T> {
    pub(super) response: T,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Regions {
    pub(super) region_set: Vec<Region>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Region {
    pub(super) region: String,
    pub(super) region_state: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Configs {
    pub(super) instance_type_config_set: Vec<Row<Config>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Config {
    pub(super) instance_type: String,
    pub(super) gpu_count: Option<RawNumber>,
    pub(super) gpu_type: Option<String>,
    /// GiB of one card.
    pub(super) gpu_memory: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Quotas {
    pub(super) instance_type_quota_set: Vec<Row<Quota>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Quota {
    pub(super) zone: String,
    pub(super) instance_type: String,
    pub(super) instance_charge_type: String,
    pub(super) cpu: Option<RawNumber>,
    /// GiB.
    pub(super) memory: Option<RawNumber>,
    pub(super) gpu: Option<RawNumber>,
    pub(super) gpu_count: Option<RawNumber>,
    pub(super) status: Option<String>,
    pub(super) status_category: Option<String>,
    pub(super) price: Option<ItemPrice>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ItemPrice {
    pub(super) unit_price: Option<RawNumber>,
    pub(super) unit_price_discount: Option<RawNumber>,
    pub(super) charge_unit: Option<String>,
    pub(super) unit_price_discount_second_step: Option<RawNumber>,
    pub(super) unit_price_discount_third_step: Option<RawNumber>,
}
