//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderName};
use runwhere_model::{ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::config::{Settings, Site};
use super::map::{self, Cards};
use super::sign::{CONTENT_TYPE, authorization};
use super::wire::{Configs, Envelope, Quotas, Regions};
use crate::http::{Http, Policy, Refusal, Request, Session};
use crate::provider::{OfferSource, Result};
use crate::sources::{
    AccessKeys, KeyPart, RegionsRead, SettingError, SheetBuilder, SourceContext, base_url, wanted,
};

const VERSION: &str = "2017-03-12";
/// `DescribeRegions` is answered by any region.
const HOME: &str = "ap-guangzhou";

/// Tencent Cloud: one account of one site.
#[derive(Debug)]
pub struct Tencent {
    http: Http,
    base: String,
    site: Site,
    keys: AccessKeys,
    regions: Vec<String>,
}

impl Tencent {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let keys = AccessKeys::need(
            KeyPart::new(&settings.secret_id, "secret_id", "TENCENTCLOUD_SECRET_ID"),
            KeyPart::new(&settings.secret_key, "secret_key", "TENCENTCLOUD_SECRET_KEY"),
            Some(KeyPart::new(&settings.token, "token", "TENCENTCLOUD_TOKEN")),
            context.env,
        )?;
        Ok(Self {
            // 20 calls a second are allowed, fewer for the price calls.
            http: context
                .http(id)
                .with_policy(Policy::every(Duration::from_millis(200)))
                .with_refusal(refusal)
                .with_secrets(keys.secrets()),
            base: base_url(settings.endpoint.as_deref(), settings.site.api())?,
            site: settings.site,
            keys,
            regions: settings.regions.clone(),
        })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        session: &Session<'_>,
        region: &str,
        action: &'static str,
        parameters: &Value,
    ) -> Result<T> {
        let body = parameters.to_string();
        let answer: Envelope<T> = session
            .json(action, |now| {
                let request = Request::post(&self.base, CONTENT_TYPE, body.clone())?;
                let authorization = authorization(
                    self.keys.id(),
                    self.keys.secret(),
                    "cvm",
                    &request.host(),
                    body.as_bytes(),
                    now,
                );
                let mut request = request.header(AUTHORIZATION, &authorization)?;
                for (name, value) in [
                    ("x-tc-action", action),
                    ("x-tc-version", VERSION),
                    ("x-tc-region", region),
                    ("x-tc-timestamp", &now.as_second().to_string()),
                ] {
                    request = request.header(HeaderName::from_static(name), value)?;
                }
                match self.keys.token() {
                    Some(token) => request.header(HeaderName::from_static("x-tc-token"), token),
                    None => Ok(request),
                }
            })
            .await?;
        Ok(answer.response)
    }

    async fn all_regions(&self, session: &Session<'_>) -> Result<Vec<String>> {
        const CALL: &str = "DescribeRegions";
        let answer: Regions = self.call(session, HOME, CALL, &json!({})).await?;
        let regions: Vec<String> = answer
            .region_set
            .into_iter()
            .filter(|region| region.region_state.as_deref() != Some("UNAVAILABLE"))
            .map(|region| region.region)
            .collect();
        match regions.is_empty() {
            true => Err(session.malformed(CALL, "no region at all")),
            false => Ok(regions),
        }
    }

    async fn region(
        &self,
        session: &Session<'_>,
        region: &str,
        sheet: &mut SheetBuilder,
    ) -> Result<()> {
        let configs: Configs =
            self.call(session, region, "DescribeInstanceTypeConfigs", &json!({})).await?;
        let mut cards = Cards::new();
        for row in configs.instance_type_config_set {
            if let Some(config) = sheet.read(row) {
                map::card(&config, &mut cards);
            }
        }
        for charge in ["POSTPAID_BY_HOUR", "SPOTPAID"] {
            let filter =
                json!({ "Filters": [{ "Name": "instance-charge-type", "Values": [charge] }] });
            let read: Result<Quotas> =
                self.call(session, region, "DescribeZoneInstanceConfigInfos", &filter).await;
            let quotas = match read {
                Ok(quotas) => quotas,
                Err(error) if charge == "SPOTPAID" => {
                    sheet.failed(format!("spot in {region}"), &error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for row in quotas.instance_type_quota_set {
                if let Some(row) = sheet.read(row) {
                    map::quota(&row, region, &cards, self.site.currency(), sheet);
                }
            }
        }
        Ok(())
    }
}

/// Errors come with HTTP 200.
fn refusal(_status: u16, body: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        response: Inner,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Inner {
        error: Option<Said>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Said {
        code: String,
        #[serde(default)]
        message: String,
    }
    let said = serde_json::from_slice::<Answer>(body).ok()?.response.error?;
    let kind = match said.code.split('.').next().unwrap_or_default() {
        "AuthFailure" | "UnauthorizedOperation" => ErrorKind::Auth,
        "RequestLimitExceeded" | "LimitExceeded" => ErrorKind::Throttle,
        "InternalError" | "ResourceUnavailable" => ErrorKind::Transient,
        "ResourceNotFound" => ErrorKind::NotFound,
        "UnsupportedRegion" | "UnsupportedOperation" => ErrorKind::Unsupported,
        _ => ErrorKind::Invalid,
    };
    Some(Refusal { code: said.code, message: said.message, kind: Some(kind) })
}

#[async_trait]
impl OfferSource for Tencent {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let mut sheet =
            SheetBuilder::new(self.id().clone(), "Tencent Cloud CVM interface", self.http.now());
        let mut all = wanted(scope, &self.regions).to_vec();
        if all.is_empty() {
            all = self.all_regions(&session).await?;
        }
        let mut regions = RegionsRead::default();
        for region in &all {
            let read = self.region(&session, region, &mut sheet).await;
            regions.note(region, read, &mut sheet);
        }
        regions.finish(sheet)
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(900),
            min_rows: if self.regions.is_empty() { 20 } else { 0 },
            readings_per_hour: 12,
            ..SourceTerms::default()
        }
    }
}
