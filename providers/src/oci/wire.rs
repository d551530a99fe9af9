//! The cost estimator's files and the shapes of a region, as sent.

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Shapes {
    pub(super) items: Vec<Row<Shape>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shape {
    pub(super) name: String,
    pub(super) hidden: Option<bool>,
    pub(super) status: Option<String>,
    pub(super) allow_preemptible: Option<bool>,
    pub(super) bundle_memory_qty: Option<RawNumber>,
    pub(super) gpu_qty: Option<RawNumber>,
    pub(super) gpu_memory_qty: Option<RawNumber>,
    pub(super) products: Vec<ShapeProduct>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShapeProduct {
    #[serde(rename = "type")]
    pub(super) kind: Named,
    pub(super) part_number: String,
    pub(super) qty: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) value: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Products {
    pub(super) items: Vec<Row<Product>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Product {
    pub(super) part_number: String,
    pub(super) billing_model: Option<String>,
    #[serde(rename = "pricetype")]
    pub(super) price_type: Option<String>,
    #[serde(default)]
    pub(super) currency_code_localizations: Vec<Localization>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Localization {
    pub(super) currency_code: String,
    pub(super) prices: Vec<ProductPrice>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProductPrice {
    pub(super) model: String,
    pub(super) value: Option<RawNumber>,
}

/// `GET /shapes`: names are what is needed of it.
pub(super) type RegionShapes = Vec<Row<RegionShape>>;

#[derive(Debug, Deserialize)]
pub(super) struct RegionShape {
    pub(super) shape: String,
}
