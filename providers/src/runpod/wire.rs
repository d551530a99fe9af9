//! The GraphQL answer, as sent.

use std::collections::BTreeMap;

use runwhere_model::RawNumber;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::Row;

/// Whole answer.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) data: Option<Data>,
    #[serde(default)]
    pub(super) errors: Vec<GraphqlError>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GraphqlError {
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Data {
    pub(super) gpu_types: Option<Vec<Row<GpuType>>>,
}

/// A GPU type as its fields' texts: the fields `s1`, `c8` and so on are named by the query.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct GpuType(pub(super) BTreeMap<String, Box<RawValue>>);

impl GpuType {
    /// A field; `None` where it is absent or null, the reason where it has another form.
    pub(super) fn field<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(raw) => {
                serde_json::from_str(raw.get()).map_err(|error| format!("{name}: {error}"))
            }
        }
    }
}

/// `lowestPrice` for one count and cloud.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lowest {
    pub(super) stock_status: Option<String>,
    pub(super) min_vcpu: Option<RawNumber>,
    pub(super) min_memory: Option<RawNumber>,
}
