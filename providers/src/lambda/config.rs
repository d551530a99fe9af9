//! Settings.

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "lambda"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// API key; else the variable `LAMBDA_API_KEY`.
    pub api_key: Option<SecretSetting>,
    /// Regions; empty = all.
    pub regions: Vec<String>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
