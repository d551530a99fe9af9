//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::config::Settings;
use super::map;
use super::wire::Types;
use crate::http::{Http, Policy, Refusal, Request};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url, wanted};

const API: &str = "https://cloud.lambda.ai/api/v1";

/// Lambda Cloud.
#[derive(Debug)]
pub struct Lambda {
    http: Http,
    base: String,
    key: SecretString,
    regions: Vec<String>,
}

impl Lambda {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let key = SecretSetting::need(
            settings.api_key.as_ref(),
            "api_key",
            &["LAMBDA_API_KEY"],
            context.env,
        )?;
        Ok(Self {
            // One call a second is allowed.
            http: context
                .http(id)
                .with_policy(Policy::every(Duration::from_millis(1100)))
                .with_refusal(refusal)
                .with_secrets([key.clone()]),
            base: base_url(settings.endpoint.as_deref(), API)?,
            key,
            regions: settings.regions.clone(),
        })
    }
}

fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    struct Answer {
        error: Said,
    }
    #[derive(Deserialize)]
    struct Said {
        code: String,
        #[serde(default)]
        message: String,
    }
    if status < 400 {
        return None;
    }
    let Said { code, message } = serde_json::from_slice::<Answer>(body).ok()?.error;
    let kind = match code.rsplit('/').next()? {
        "invalid-api-key" | "account-inactive" => Some(ErrorKind::Auth),
        "quota-exceeded" => Some(ErrorKind::Quota),
        "insufficient-capacity" => Some(ErrorKind::Capacity),
        _ => None,
    };
    Some(Refusal { code, message, kind })
}

#[async_trait]
impl OfferSource for Lambda {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let observed_at = self.http.now();
        let url = format!("{}/instance-types", self.base);
        let types: Types = session
            .json("instance types", |_| Request::get(&url)?.bearer(self.key.expose_secret()))
            .await?;
        let regions = wanted(scope, &self.regions);
        let mut sheet = SheetBuilder::new(self.id().clone(), "Lambda Cloud API", observed_at);
        for (name, row) in types.data {
            if let Some(entry) = sheet.read(row) {
                map::entry(&name, entry, regions, &mut sheet);
            }
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(300),
            min_rows: if self.regions.is_empty() { 5 } else { 0 },
            readings_per_hour: 60,
            ..SourceTerms::default()
        }
    }
}
