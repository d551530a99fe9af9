//! Settings.

use serde::Deserialize;

/// `[providers.<id>]` with `kind = "azure"`. Needs no account.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Regions (`eastus`); empty = all.
    pub regions: Vec<String>,
    /// Currency of the prices; others than USD are for reference, says Azure. Default USD.
    pub currency: Option<String>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
