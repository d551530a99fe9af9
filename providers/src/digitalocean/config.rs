//! Settings.

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "digitalocean"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// API token; else `DIGITALOCEAN_ACCESS_TOKEN` or `DIGITALOCEAN_TOKEN`.
    pub token: Option<SecretSetting>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
