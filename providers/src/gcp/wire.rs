//! `GET /v1/services/{service}/skus`, as sent.

use jiff::Timestamp;
use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    pub(super) skus: Vec<Row<Sku>>,
    pub(super) next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sku {
    pub(super) description: String,
    pub(super) category: Category,
    #[serde(default)]
    pub(super) service_regions: Vec<String>,
    #[serde(default)]
    pub(super) pricing_info: Vec<PricingInfo>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Category {
    pub(super) usage_type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PricingInfo {
    pub(super) effective_time: Option<Timestamp>,
    pub(super) pricing_expression: Expression,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Expression {
    pub(super) usage_unit: String,
    pub(super) tiered_rates: Vec<Rate>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rate {
    pub(super) unit_price: UnitPrice,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnitPrice {
    pub(super) currency_code: String,
    /// A whole number as text.
    pub(super) units: Option<RawNumber>,
    pub(super) nanos: Option<RawNumber>,
}
