//! Calls.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{Currency, ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::config::Settings;
use super::map::{self, Places};
use super::wire::{Place, Token, Types};
use crate::http::{Http, Refusal, Request, Row, Session};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url};

const API: &str = "https://api.verda.com/v1";

/// Verda.
#[derive(Debug)]
pub struct Verda {
    http: Http,
    base: String,
    client_id: SecretString,
    client_secret: SecretString,
    currency: Currency,
}

impl Verda {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let client_id = SecretSetting::need(
            settings.client_id.as_ref(),
            "client_id",
            &["VERDA_CLIENT_ID", "DATACRUNCH_CLIENT_ID"],
            context.env,
        )?;
        let client_secret = SecretSetting::need(
            settings.client_secret.as_ref(),
            "client_secret",
            &["VERDA_CLIENT_SECRET", "DATACRUNCH_CLIENT_SECRET"],
            context.env,
        )?;
        let currency = match settings.currency.as_deref() {
            None => Currency::USD,
            Some(text) => match text.parse() {
                Ok(currency) if [Currency::USD, Currency::EUR].contains(&currency) => currency,
                _ => return Err(SettingError::new("currency", "is usd or eur")),
            },
        };
        Ok(Self {
            http: context
                .http(id)
                .with_refusal(refusal)
                .with_secrets([client_id.clone(), client_secret.clone()]),
            base: base_url(settings.endpoint.as_deref(), API)?,
            client_id,
            client_secret,
            currency,
        })
    }

    async fn places(
        &self,
        session: &Session<'_>,
        token: &SecretString,
        spot: bool,
        sheet: &mut SheetBuilder,
    ) -> Places {
        // The official client sends `isSpot`, others `is_spot`.
        let url = format!("{}/instance-availability?is_spot={spot}&isSpot={spot}", self.base);
        let read: Result<Vec<Row<Place>>> = session
            .json("availability", |_| Request::get(&url)?.bearer(token.expose_secret()))
            .await;
        match read {
            Ok(rows) => {
                let mut places = BTreeMap::new();
                for place in rows.into_iter().filter_map(|row| sheet.read(row)) {
                    places.insert(place.location_code, place.availabilities.into_iter().collect());
                }
                Some(places)
            }
            Err(error) => {
                let what = if spot { "spot stock" } else { "stock" };
                sheet.failed(what, &error);
                None
            }
        }
    }
}

fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    struct Answer {
        code: String,
        #[serde(default)]
        message: String,
    }
    let said: Answer = (status >= 400).then(|| serde_json::from_slice(body).ok())??;
    Some(Refusal { code: said.code, message: said.message, kind: None })
}

#[async_trait]
impl OfferSource for Verda {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, _scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let mut sheet = SheetBuilder::new(self.id().clone(), "Verda API", self.http.now());
        let url = format!("{}/oauth2/token", self.base);
        let body = json!({
            "grant_type": "client_credentials",
            "client_id": self.client_id.expose_secret(),
            "client_secret": self.client_secret.expose_secret(),
        })
        .to_string();
        let Token { access_token } = session
            .json("token", |_| Request::post(&url, "application/json", body.clone()))
            .await?;
        let currency = self.currency.code().to_lowercase();
        let url = format!("{}/instance-types?currency={currency}", self.base);
        let types: Types = session
            .json("instance types", |_| Request::get(&url)?.bearer(access_token.expose_secret()))
            .await?;
        if types.is_empty() {
            return Err(self
                .http
                .error("instance types", ErrorKind::Malformed)
                .because("no type at all"));
        }
        let places = self.places(&session, &access_token, false, &mut sheet).await;
        let spot_places = self.places(&session, &access_token, true, &mut sheet).await;
        for row in types {
            if let Some(row) = sheet.read(row) {
                map::instance_type(&row, self.currency, &places, &spot_places, &mut sheet);
            }
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms { refresh: Duration::from_secs(600), min_rows: 5, ..SourceTerms::default() }
    }
}
