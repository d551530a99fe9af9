//! Settings.

use serde::Deserialize;

/// `[providers.<id>]` with `kind = "vultr"`. Prices need no account.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
