//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};

use super::config::Settings;
use super::map;
use super::wire::Answer;
use crate::http::{Http, Request};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url};

const API: &str = "https://api.runpod.io";

/// RunPod.
#[derive(Debug)]
pub struct RunPod {
    http: Http,
    base: String,
    key: Option<SecretString>,
    query: String,
}

impl RunPod {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let key = SecretSetting::find(
            settings.api_key.as_ref(),
            "api_key",
            &["RUNPOD_API_KEY"],
            context.env,
        )?;
        Ok(Self {
            http: context.http(id).with_secrets(key.clone()),
            base: base_url(settings.endpoint.as_deref(), API)?,
            key,
            query: serde_json::json!({ "query": map::query() }).to_string(),
        })
    }
}

#[async_trait]
impl OfferSource for RunPod {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, _scope: &OfferScope) -> Result<OfferSheet> {
        const CALL: &str = "gpuTypes";
        let session = self.http.session();
        let mut sheet = SheetBuilder::new(self.id().clone(), "RunPod GraphQL API", self.http.now());
        let url = format!("{}/graphql", self.base);
        let answer: Answer = session
            .json(CALL, |_| {
                let request = Request::post(&url, "application/json", self.query.clone())?;
                match &self.key {
                    Some(key) => request.bearer(key.expose_secret()),
                    None => Ok(request),
                }
            })
            .await?;
        let said = answer.errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>();
        let rows = answer.data.and_then(|data| data.gpu_types);
        let Some(rows) = rows else {
            let what = if said.is_empty() { "no gpuTypes".to_owned() } else { said.join("; ") };
            return Err(session.malformed(CALL, what));
        };
        // GraphQL answers what it can and lists what it could not.
        for error in said {
            sheet.gap("some fields", error.chars().take(200).collect::<String>());
        }
        if rows.is_empty() {
            return Err(self.http.error(CALL, ErrorKind::Malformed).because("no GPU type at all"));
        }
        for row in rows {
            if let Some(row) = sheet.read(row) {
                map::gpu_type(&row, &mut sheet);
            }
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(300),
            max_age: Duration::from_secs(3600),
            spot_max_age: Duration::from_secs(1800),
            min_rows: 20,
            readings_per_hour: 60,
            ..SourceTerms::default()
        }
    }
}
