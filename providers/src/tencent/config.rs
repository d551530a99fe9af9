//! Settings.

use runwhere_model::Currency;
use serde::Deserialize;

use crate::sources::SecretSetting;

/// Whose prices: answers do not state their currency, the site decides it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Site {
    /// cloud.tencent.com, CNY.
    #[default]
    Cn,
    /// tencentcloud.com, USD.
    Intl,
}

impl Site {
    /// The currency of its prices.
    pub fn currency(self) -> Currency {
        match self {
            Self::Cn => Currency::CNY,
            Self::Intl => Currency::USD,
        }
    }

    pub(super) fn api(self) -> &'static str {
        match self {
            Self::Cn => "https://cvm.tencentcloudapi.com",
            Self::Intl => "https://cvm.intl.tencentcloudapi.com",
        }
    }
}

/// `[providers.<id>]` with `kind = "tencent"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `cn` (default) or `intl`.
    pub site: Site,
    /// SecretId; else the variable `TENCENTCLOUD_SECRET_ID`.
    pub secret_id: Option<SecretSetting>,
    /// SecretKey; else the variable `TENCENTCLOUD_SECRET_KEY`.
    pub secret_key: Option<SecretSetting>,
    /// Token of temporary keys; else the variable `TENCENTCLOUD_TOKEN`.
    pub token: Option<SecretSetting>,
    /// Regions; empty = all that the account sees.
    pub regions: Vec<String>,
    /// Another address (tests, proxies).
    pub endpoint: Option<String>,
}
