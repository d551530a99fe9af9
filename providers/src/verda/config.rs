//! Settings.

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "verda"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Client id; else the variable `VERDA_CLIENT_ID` or `DATACRUNCH_CLIENT_ID`.
    pub client_id: Option<SecretSetting>,
    /// Client secret; else the variable `VERDA_CLIENT_SECRET` or `DATACRUNCH_CLIENT_SECRET`.
    pub client_secret: Option<SecretSetting>,
    /// `usd` (default) or `eur`.
    pub currency: Option<String>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
