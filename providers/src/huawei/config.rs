//! Settings.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::sources::SecretSetting;

/// Whose prices.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Site {
    /// huaweicloud.com, China.
    #[default]
    Cn,
    /// huaweicloud.com/intl.
    Intl,
}

impl Site {
    pub(super) fn billing(self) -> &'static str {
        match self {
            Self::Cn => "https://bss.myhuaweicloud.com",
            Self::Intl => "https://bss-intl.myhuaweicloud.com",
        }
    }
}

/// `[providers.<id>]` with `kind = "huawei"`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `cn` (default) or `intl`.
    pub site: Site,
    /// Access key; else the variable `HUAWEICLOUD_SDK_AK`.
    pub access_key: Option<SecretSetting>,
    /// Secret key; else the variable `HUAWEICLOUD_SDK_SK`.
    pub secret_key: Option<SecretSetting>,
    /// Project id of each region to read: `{ "cn-north-4" = "0123…" }`.
    pub projects: BTreeMap<String, String>,
    /// Another address for all calls (tests, proxies).
    pub endpoint: Option<String>,
}
