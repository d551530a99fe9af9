//! Settings.

use serde::Deserialize;

use crate::sources::SecretSetting;

/// `[providers.<id>]` with `kind = "oci"`. List prices need no account; with one, which region has which
/// shape is read too.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Currency of the list prices. Default USD.
    pub currency: Option<String>,
    /// Regions to ask for their shapes (`eu-frankfurt-1`).
    pub regions: Vec<String>,
    /// Tenancy's id.
    pub tenancy: Option<String>,
    /// User's id.
    pub user: Option<String>,
    /// Fingerprint of the user's API key.
    pub fingerprint: Option<String>,
    /// The API key itself, PEM without a passphrase: usually `{ file = "…/oci_api_key.pem" }`.
    pub private_key: Option<SecretSetting>,
    /// Compartment to ask about; else the tenancy.
    pub compartment: Option<String>,
    /// Another address for all calls (tests, proxies).
    pub endpoint: Option<String>,
}
