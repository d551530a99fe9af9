//! Answers of ECS and BSS, as sent.

use std::collections::BTreeMap;

use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Flavors {
    pub(super) flavors: Vec<Row<Flavor>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Flavor {
    pub(super) id: String,
    /// A number as text.
    pub(super) vcpus: Option<RawNumber>,
    /// MiB.
    pub(super) ram: Option<RawNumber>,
    pub(super) os_extra_specs: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ratings {
    /// Absent on the Chinese site.
    pub(super) currency: Option<String>,
    pub(super) product_rating_results: Vec<Row<Rating>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Rating {
    pub(super) id: String,
    pub(super) amount: Option<RawNumber>,
    pub(super) official_website_amount: Option<RawNumber>,
}
