//! The retail price API's answer, as sent.

use jiff::Timestamp;
use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Page {
    pub(super) items: Vec<Row<Meter>>,
    pub(super) next_page_link: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meter {
    pub(super) currency_code: String,
    pub(super) tier_minimum_units: Option<RawNumber>,
    pub(super) retail_price: Option<RawNumber>,
    pub(super) arm_region_name: String,
    pub(super) arm_sku_name: String,
    pub(super) meter_name: String,
    pub(super) product_name: String,
    #[serde(default)]
    pub(super) sku_name: String,
    pub(super) unit_of_measure: String,
    #[serde(rename = "type")]
    pub(super) price_type: String,
    pub(super) effective_start_date: Option<Timestamp>,
    pub(super) effective_end_date: Option<Timestamp>,
    pub(super) is_primary_meter_region: Option<bool>,
}
