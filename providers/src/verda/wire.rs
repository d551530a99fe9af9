//! Answers, as sent.

use runwhere_model::RawNumber;
use secrecy::SecretString;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
pub(super) struct Token {
    pub(super) access_token: SecretString,
}

pub(super) type Types = Vec<Row<InstanceType>>;

#[derive(Debug, Deserialize)]
pub(super) struct InstanceType {
    pub(super) instance_type: String,
    pub(super) price_per_hour: Option<RawNumber>,
    #[serde(alias = "spot_price_per_hour")]
    pub(super) spot_price: Option<RawNumber>,
    pub(super) currency: Option<String>,
    pub(super) gpu: Option<Gpu>,
    pub(super) gpu_memory: Option<Size>,
    pub(super) memory: Option<Size>,
    pub(super) cpu: Option<Cpu>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Gpu {
    pub(super) description: Option<String>,
    pub(super) number_of_gpus: RawNumber,
}

#[derive(Debug, Deserialize)]
pub(super) struct Size {
    pub(super) size_in_gigabytes: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Cpu {
    pub(super) number_of_cores: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Place {
    pub(super) location_code: String,
    pub(super) availabilities: Vec<String>,
}
