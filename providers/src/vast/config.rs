//! Settings.

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "vast"`. Prices need no account.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// API key; else the variable `VAST_API_KEY`; without one prices are read all the same.
    pub api_key: Option<SecretSetting>,
    /// Also hosts that Vast has not verified.
    pub unverified: bool,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
