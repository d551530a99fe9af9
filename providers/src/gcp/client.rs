//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::HeaderName;
use runwhere_model::{Currency, ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::config::Settings;
use super::map::{self, Parts};
use super::wire::Page;
use crate::http::{Http, Pages, Refusal, Request, encode_component};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url, wanted};

const API: &str = "https://cloudbilling.googleapis.com";
/// Compute Engine.
const SERVICE: &str = "6F81-5844-456A";

/// Google Cloud's public price catalogue.
#[derive(Debug)]
pub struct Gcp {
    http: Http,
    base: String,
    key: SecretString,
    currency: Currency,
    regions: Vec<String>,
}

impl Gcp {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let key = SecretSetting::need(
            settings.api_key.as_ref(),
            "api_key",
            &["GOOGLE_API_KEY"],
            context.env,
        )?;
        let currency = match settings.currency.as_deref() {
            None => Currency::USD,
            Some(text) => {
                text.parse().map_err(|error| SettingError::new("currency", format!("{error}")))?
            }
        };
        Ok(Self {
            http: context.http(id).with_refusal(refusal).with_secrets([key.clone()]),
            base: base_url(settings.endpoint.as_deref(), API)?,
            key,
            currency,
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
        #[serde(default)]
        status: String,
        #[serde(default)]
        message: String,
    }
    let said = (status >= 400).then(|| serde_json::from_slice::<Answer>(body).ok())??.error;
    // A key that is not valid is a 400.
    let kind = (said.message.contains("API key")).then_some(ErrorKind::Auth);
    Some(Refusal { code: said.status, message: said.message, kind })
}

#[async_trait]
impl OfferSource for Gcp {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        const CALL: &str = "skus";
        let session = self.http.session();
        let source = "Google Cloud Billing Catalog";
        let mut sheet = SheetBuilder::new(self.id().clone(), source, self.http.now());
        let mut parts = Parts::new();
        let mut pages = Pages::at_most(500);
        let mut token = String::new();
        let mut number = 0;
        loop {
            number += 1;
            if let Err(reason) = pages.turn_to(&token) {
                sheet.gap(format!("page {number}"), reason);
                break;
            }
            let url = format!(
                "{}/v1/services/{SERVICE}/skus?currencyCode={}&pageSize=5000&pageToken={}",
                self.base,
                self.currency.code(),
                encode_component(&token)
            );
            let read: Result<Page> = session
                .json(CALL, |_| {
                    // In a header, not in the address: addresses end up in logs of proxies.
                    Request::get(&url)?
                        .header(HeaderName::from_static("x-goog-api-key"), self.key.expose_secret())
                })
                .await;
            let page = match read {
                Ok(page) => page,
                Err(error) if number == 1 => return Err(error),
                Err(error) => {
                    sheet.failed(format!("page {number} and all after it"), &error);
                    break;
                }
            };
            for row in page.skus {
                if let Some(row) = sheet.read(row) {
                    map::sku(&row, self.currency, &mut parts, &mut sheet);
                }
            }
            match page.next_page_token.filter(|next| !next.is_empty()) {
                Some(next) => token = next,
                None => break,
            }
        }
        let wanted = wanted(scope, &self.regions);
        map::machines(&parts, self.currency, wanted, &mut sheet);
        if sheet.is_empty() {
            return Err(session.malformed(CALL, "no SKU of a machine with GPUs"));
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(12 * 3600),
            spot_max_age: Duration::from_secs(48 * 3600),
            min_rows: if self.regions.is_empty() { 50 } else { 0 },
            ..SourceTerms::default()
        }
    }
}
