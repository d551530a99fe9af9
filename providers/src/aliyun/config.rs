//! Settings.

use runwhere_model::Currency;
use serde::Deserialize;

use crate::sources::SecretSetting;

/// Two clouds under one name: their accounts, keys, currencies and prices are different.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Site {
    /// aliyun.com, CNY.
    #[default]
    Cn,
    /// alibabacloud.com, USD.
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

    pub(super) fn commodity(self) -> &'static str {
        match self {
            Self::Cn => "ecs",
            Self::Intl => "ecs_intl",
        }
    }

    pub(super) fn billing_host(self) -> &'static str {
        match self {
            Self::Cn => "business.aliyuncs.com",
            Self::Intl => "business.ap-southeast-1.aliyuncs.com",
        }
    }

    /// A region in which calls about all regions can be made.
    pub(super) fn home(self) -> &'static str {
        match self {
            Self::Cn => "cn-hangzhou",
            Self::Intl => "ap-southeast-1",
        }
    }
}

/// `[providers.<id>]` with `kind = "aliyun"`. With a key: types, zones, stock, list and spot prices from
/// the account's interfaces. Without one: the public price file, whose version must be named.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `cn` (default) or `intl`.
    pub site: Site,
    /// AccessKey id; else the variable `ALIBABA_CLOUD_ACCESS_KEY_ID`.
    pub access_key_id: Option<SecretSetting>,
    /// AccessKey secret; else the variable `ALIBABA_CLOUD_ACCESS_KEY_SECRET`.
    pub access_key_secret: Option<SecretSetting>,
    /// Token of temporary keys; else the variable `ALIBABA_CLOUD_SECURITY_TOKEN`.
    pub security_token: Option<SecretSetting>,
    /// Regions; empty = all that the account sees.
    pub regions: Vec<String>,
    /// Read spot stock and prices, one call for each type and region that has any. Default yes.
    pub spot: bool,
    /// Read the account's own on-demand prices, one call for each type and region.
    pub account_prices: bool,
    /// Version of the public price file (`2.0.421`). It is part of the file's address and grows; an old one
    /// stays as it was, so there is no default.
    pub price_file: Option<String>,
    /// Another address for all calls (tests, proxies).
    pub endpoint: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            site: Site::Cn,
            access_key_id: None,
            access_key_secret: None,
            security_token: None,
            regions: Vec::new(),
            spot: true,
            account_prices: false,
            price_file: None,
            endpoint: None,
        }
    }
}
