//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::config::Settings;
use super::map;
use super::wire::Answer;
use crate::http::{Http, Policy, Request};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url};

const API: &str = "https://console.vast.ai/api/v0";
/// The search has no pages, only a limit (and a small one by default, which hides asks): it is cut
/// into classes of GPU counts, and a full answer is a gap.
const MOST: usize = 5_000;
const CLASSES: [(&str, u32, u32); 5] = [
    ("machines with 1 GPU", 1, 1),
    ("machines with 2 GPUs", 2, 2),
    ("machines with 3 or 4 GPUs", 3, 4),
    ("machines with 5 to 8 GPUs", 5, 8),
    ("machines with more than 8 GPUs", 9, 1024),
];

/// Vast.ai.
#[derive(Debug)]
pub struct Vast {
    http: Http,
    base: String,
    key: Option<SecretString>,
    unverified: bool,
}

impl Vast {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let key = SecretSetting::find(
            settings.api_key.as_ref(),
            "api_key",
            &["VAST_API_KEY"],
            context.env,
        )?;
        Ok(Self {
            http: context
                .http(id)
                .with_policy(Policy::every(Duration::from_millis(500)))
                .with_secrets(key.clone()),
            base: base_url(settings.endpoint.as_deref(), API)?,
            key,
            unverified: settings.unverified,
        })
    }

    fn search(&self, least: u32, most: u32) -> String {
        let mut query = json!({
            "limit": MOST,
            "type": "on-demand",
            "rentable": { "eq": true },
            "rented": { "eq": false },
            "num_gpus": { "gte": least, "lte": most },
            "order": [["dph_base", "asc"]],
        });
        if !self.unverified {
            query["verified"] = json!({ "eq": true });
        }
        query.to_string()
    }
}

#[async_trait]
impl OfferSource for Vast {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, _scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let mut sheet = SheetBuilder::new(self.id().clone(), "Vast.ai search", self.http.now());
        let url = format!("{}/bundles/", self.base);
        let mut failure = None;
        let mut answered = false;
        for (name, least, most) in CLASSES {
            let body = self.search(least, most);
            let read: Result<Answer> = session
                .json("search", |_| {
                    let request = Request::post(&url, "application/json", body.clone())?;
                    match &self.key {
                        Some(key) => request.bearer(key.expose_secret()),
                        None => Ok(request),
                    }
                })
                .await;
            let answer = match read {
                Ok(answer) => answer,
                Err(error) => {
                    sheet.failed(name, &error);
                    failure = Some(error);
                    continue;
                }
            };
            answered = true;
            if answer.offers.len() >= MOST {
                sheet.gap(name, format!("more than {MOST} asks; the dearest are missing"));
            }
            for row in answer.offers {
                if let Some(row) = sheet.read(row) {
                    map::ask(&row, &mut sheet);
                }
            }
        }
        match failure {
            Some(error) if !answered => Err(error),
            _ => Ok(sheet.finish()),
        }
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(120),
            max_age: Duration::from_secs(900),
            spot_max_age: Duration::from_secs(900),
            min_rows: 20,
            ..SourceTerms::default()
        }
    }
}
