//! Calls.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderName};
use runwhere_model::{OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;

use super::config::Settings;
use super::map::{self, GpuPrices};
use super::sign::authorization;
use super::wire::{Capacities, Types};
use crate::http::{Http, InvalidRequest, Request, Session};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url};

const API: &str = "https://api.crusoecloud.com";
const VERSION: &str = "/v1alpha5";

/// Crusoe Cloud.
#[derive(Debug)]
pub struct Crusoe {
    http: Http,
    base: String,
    access_key: SecretString,
    secret_key: SecretString,
    project: String,
    prices: GpuPrices,
}

impl Crusoe {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let need = |setting: &Option<SecretSetting>, field, variable| {
            SecretSetting::need(setting.as_ref(), field, &[variable], context.env)
        };
        let access_key = need(&settings.access_key, "access_key", "CRUSOE_ACCESS_KEY_ID")?;
        let secret_key = need(&settings.secret_key, "secret_key", "CRUSOE_SECRET_KEY")?;
        let project = settings.project.clone();
        if project.is_empty()
            || !project.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        {
            return Err(SettingError::new("project", "is the id of a project"));
        }
        Ok(Self {
            http: context.http(id).with_secrets([secret_key.clone()]),
            base: base_url(settings.endpoint.as_deref(), API)?,
            access_key,
            secret_key,
            project,
            prices: map::gpu_prices(&settings.prices)?,
        })
    }

    async fn call<T: DeserializeOwned>(
        &self,
        session: &Session<'_>,
        operation: &'static str,
        path: &str,
    ) -> Result<T> {
        let path = format!("{VERSION}{path}");
        let url = format!("{}{path}", self.base);
        session
            .json(operation, |now| {
                let date = now.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string();
                let authorization = authorization(
                    self.access_key.expose_secret(),
                    self.secret_key.expose_secret(),
                    "GET",
                    &path,
                    &[],
                    &date,
                )
                .map_err(InvalidRequest::Credential)?;
                Request::get(&url)?
                    .header(AUTHORIZATION, &authorization)?
                    .header(HeaderName::from_static("x-crusoe-timestamp"), &date)
            })
            .await
    }
}

#[async_trait]
impl OfferSource for Crusoe {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, _scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let source = "Crusoe API; prices from its price page";
        let mut sheet = SheetBuilder::new(self.id().clone(), source, self.http.now());
        let path = format!("/projects/{}/compute/vms/types", self.project);
        let types: Types = self.call(&session, "vm types", &path).await?;
        let read: Result<Capacities> = self.call(&session, "capacities", "/capacities").await;
        let places = match read {
            Ok(capacities) => {
                let mut places = BTreeMap::new();
                for row in capacities.items {
                    let Some(row) = sheet.read(row) else { continue };
                    if let Err(reason) = map::capacity(&row, &mut places) {
                        sheet.reject(format!("{} {}", row.location, row.kind), reason);
                    }
                }
                Some(places)
            }
            Err(error) => {
                sheet.failed("capacities", &error);
                None
            }
        };
        for row in types.items {
            if let Some(kind) = sheet.read(row) {
                map::vm_type(&kind, &places, &self.prices, &mut sheet);
            }
        }
        if sheet.is_empty() {
            return Err(session.malformed("vm types", "no GPU type at all"));
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms { refresh: Duration::from_secs(1800), ..SourceTerms::default() }
    }
}
