//! Settings.

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "gcp"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// API key for the Cloud Billing Catalog; else the variable `GOOGLE_API_KEY`.
    pub api_key: Option<SecretSetting>,
    /// Regions; empty = all.
    pub regions: Vec<String>,
    /// Currency. Others than USD are converted by Google. Default USD.
    pub currency: Option<String>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
