//! `[providers.<id>]`: which sources are read, and as whom.

use std::net::IpAddr;

use reqwest::Url;
use serde::Deserialize;

use super::secret::SecretSetting;
use crate::{
    aliyun, azure, crusoe, digitalocean, gcp, huawei, lambda, oci, runpod, tencent, vast, verda,
    vultr,
};

/// A setting that cannot be used. Holds no secret.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SettingError {
    /// The key below `[providers.<id>]`, with the table in front once it is known.
    pub field: String,
    /// What is wrong, and what is expected.
    pub reason: String,
}

impl SettingError {
    /// An error of one key.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// The settings of one source; `kind` names the cloud.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SourceSettings {
    /// Alibaba Cloud, Chinese or international site.
    Aliyun(aliyun::Settings),
    /// Amazon Web Services (needs a program built with its SDK).
    Aws(AwsSettings),
    /// Microsoft Azure's public retail prices.
    Azure(azure::Settings),
    /// Crusoe Cloud.
    Crusoe(crusoe::Settings),
    /// DigitalOcean.
    DigitalOcean(digitalocean::Settings),
    /// Google Cloud's public price catalogue.
    Gcp(gcp::Settings),
    /// Huawei Cloud.
    Huawei(huawei::Settings),
    /// Lambda Cloud.
    Lambda(lambda::Settings),
    /// Oracle Cloud Infrastructure.
    Oci(oci::Settings),
    /// RunPod.
    RunPod(runpod::Settings),
    /// Tencent Cloud, Chinese or international site.
    Tencent(tencent::Settings),
    /// Vast.ai.
    Vast(vast::Settings),
    /// Verda (DataCrunch).
    Verda(verda::Settings),
    /// Vultr.
    Vultr(vultr::Settings),
}

/// What the AWS package reads; plain data here, so that a program without it can say what it lacks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsSettings {
    /// Regions, all of one partition (`cn-` regions are their own). None is not "all": each has a price
    /// file of some hundred megabytes.
    pub regions: Vec<String>,
    /// Read types, zones and spot prices with an account too. Where no key stands here, the usual chain
    /// of AWS finds it: variables, shared configuration, the machine's role.
    pub account: bool,
    /// Access key id.
    pub access_key_id: Option<SecretSetting>,
    /// Secret access key.
    pub secret_access_key: Option<SecretSetting>,
    /// Named profile of the shared configuration.
    pub profile: Option<String>,
    /// Another address of the EC2 API (tests, proxies).
    pub endpoint: Option<String>,
    /// Another address of the price files (tests, mirrors).
    pub price_endpoint: Option<String>,
}

/// A base address from the settings: `https`, or `http` on this machine. Without a slash at its
/// end.
pub fn base_url(setting: Option<&str>, default: &str) -> Result<String, SettingError> {
    let Some(text) = setting else { return Ok(default.to_owned()) };
    let url = Url::parse(text)
        .map_err(|_| SettingError::new("endpoint", "is not an address such as https://host"))?;
    let loopback = url.host_str().is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    match (url.scheme(), loopback) {
        ("https", _) | ("http", true) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err(SettingError::new(
            "endpoint",
            "must be https: credentials would cross the network in clear text",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_text_is_for_this_machine_only() {
        assert_eq!(base_url(None, "https://a").unwrap(), "https://a");
        assert_eq!(base_url(Some("http://127.0.0.1:8/"), "").unwrap(), "http://127.0.0.1:8");
        assert_eq!(base_url(Some("http://[::1]:8"), "").unwrap(), "http://[::1]:8");
        assert!(base_url(Some("http://prices.example"), "").is_err());
        assert!(base_url(Some("prices"), "").is_err());
        assert!(base_url(Some("file:///etc/passwd"), "").is_err());
    }

    #[test]
    fn secrets_do_not_show() {
        let settings: SourceSettings = serde_json::from_str(
            r#"{"kind":"lambda","api_key":"secret-value-of-a-key","regions":[]}"#,
        )
        .unwrap();
        assert!(!format!("{settings:?}").contains("secret-value"));
        let odd = serde_json::from_str::<SourceSettings>(r#"{"kind":"lambda","apikey":"x"}"#);
        assert!(odd.is_err(), "an unknown key is refused");
    }
}
