//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::config::Settings;
use super::map;
use super::wire::Page;
use crate::http::{Http, Pages, Refusal, Request};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url, whole};

const API: &str = "https://api.digitalocean.com";

/// DigitalOcean.
#[derive(Debug)]
pub struct DigitalOcean {
    http: Http,
    base: String,
    token: SecretString,
}

impl DigitalOcean {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let token = SecretSetting::need(
            settings.token.as_ref(),
            "token",
            &["DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN"],
            context.env,
        )?;
        Ok(Self {
            http: context.http(id).with_refusal(refusal).with_secrets([token.clone()]),
            base: base_url(settings.endpoint.as_deref(), API)?,
            token,
        })
    }
}

fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    struct Answer {
        id: String,
        #[serde(default)]
        message: String,
    }
    let said: Answer = (status >= 400).then(|| serde_json::from_slice(body).ok())??;
    Some(Refusal { code: said.id, message: said.message, kind: None })
}

#[async_trait]
impl OfferSource for DigitalOcean {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, _scope: &OfferScope) -> Result<OfferSheet> {
        const CALL: &str = "sizes";
        let session = self.http.session();
        let mut sheet = SheetBuilder::new(self.id().clone(), "DigitalOcean API", self.http.now());
        let mut pages = Pages::at_most(200);
        let mut rows = 0;
        let mut number = 1;
        loop {
            let token = number.to_string();
            if let Err(reason) = pages.turn_to(&token) {
                sheet.gap(format!("page {number}"), reason);
                break;
            }
            let url = format!("{}/v2/sizes?page={number}&per_page=200", self.base);
            let read: Result<Page> = session
                .json(CALL, |_| Request::get(&url)?.bearer(self.token.expose_secret()))
                .await;
            let page = match read {
                Ok(page) => page,
                Err(error) if number == 1 => return Err(error),
                Err(error) => {
                    sheet.failed(format!("page {number} and all after it"), &error);
                    break;
                }
            };
            let empty = page.sizes.is_empty();
            rows += page.sizes.len();
            for row in page.sizes {
                if let Some(row) = sheet.read(row) {
                    map::size(&row, &mut sheet);
                }
            }
            let total = page.meta.and_then(|meta| meta.total).as_ref().and_then(whole);
            let linked = page.links.pages.and_then(|pages| pages.next).is_some();
            let missing = total.is_some_and(|total| rows < total as usize);
            if !linked || empty {
                if missing {
                    sheet.gap("pages", format!("{rows} sizes came of {}", total.unwrap_or(0)));
                }
                break;
            }
            number += 1;
        }
        if rows == 0 {
            return Err(self.http.error(CALL, ErrorKind::Malformed).because("no size at all"));
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms { refresh: Duration::from_secs(1800), min_rows: 3, ..SourceTerms::default() }
    }
}
