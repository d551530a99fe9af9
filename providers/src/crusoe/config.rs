//! Settings.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "crusoe"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Access key; else the variable `CRUSOE_ACCESS_KEY_ID`.
    pub access_key: Option<SecretSetting>,
    /// Secret key; else the variable `CRUSOE_SECRET_KEY`.
    pub secret_key: Option<SecretSetting>,
    /// Id of the project.
    pub project: String,
    /// US dollars of one GPU and hour by Crusoe's name of the GPU (`"H100-SXM-80GB" = "3.90"`): there is
    /// no interface that states prices. They go before the table that comes with the program.
    pub prices: BTreeMap<String, String>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
