//! Calls.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, DATE, HeaderName};
use runwhere_model::{Currency, ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::config::Settings;
use super::map::{self, Prices, Regions};
use super::sign::Signer;
use super::wire::{Products, RegionShapes, Shapes};
use crate::http::{Http, InvalidRequest, Pages, Refusal, Request, Session, query_text};
use crate::provider::{OfferSource, Result};
use crate::sources::{SecretSetting, SettingError, SheetBuilder, SourceContext, base_url};

const FILES: &str = "https://www.oracle.com/a/ocom/docs/cloudestimator2/data";

/// Oracle Cloud Infrastructure.
#[derive(Debug)]
pub struct Oci {
    http: Http,
    base: Option<String>,
    currency: Currency,
    regions: Vec<String>,
    account: Option<Account>,
}

#[derive(Debug)]
struct Account {
    signer: Signer,
    compartment: String,
}

impl Oci {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let currency = match settings.currency.as_deref() {
            None => Currency::USD,
            Some(text) => {
                text.parse().map_err(|error| SettingError::new("currency", format!("{error}")))?
            }
        };
        let pem =
            SecretSetting::find(settings.private_key.as_ref(), "private_key", &[], context.env)?;
        let account = match pem {
            None => None,
            Some(pem) => Some(Account::new(settings, &pem)?),
        };
        if account.is_some() && settings.regions.is_empty() {
            return Err(SettingError::new("regions", "is empty: name the regions to ask"));
        }
        Ok(Self {
            http: context.http(id).with_refusal(refusal),
            base: settings.endpoint.as_deref().map(|url| base_url(Some(url), "")).transpose()?,
            currency,
            regions: settings.regions.clone(),
            account,
        })
    }

    async fn file<T: serde::de::DeserializeOwned>(
        &self,
        session: &Session<'_>,
        name: &'static str,
    ) -> Result<T> {
        let url = format!("{}/{name}", self.base.as_deref().unwrap_or(FILES));
        let body = session.cached(name, name, |_| Request::get(&url)).await?;
        session.parse(name, &body)
    }

    async fn shapes_of(
        &self,
        session: &Session<'_>,
        account: &Account,
        region: &str,
        sheet: &mut SheetBuilder,
    ) -> Result<Vec<String>> {
        const CALL: &str = "shapes";
        let base =
            self.base.clone().unwrap_or_else(|| format!("https://iaas.{region}.oraclecloud.com"));
        let mut pages = Pages::at_most(500);
        let mut page = String::new();
        let mut shapes = Vec::new();
        loop {
            pages.turn_to(&page).map_err(|reason| session.malformed(CALL, reason))?;
            let mut pairs = vec![("compartmentId", account.compartment.as_str()), ("limit", "100")];
            if !page.is_empty() {
                pairs.push(("page", &page));
            }
            let target = format!("/20160918/shapes?{}", query_text(pairs));
            let (rows, next): (RegionShapes, _) = session
                .json_with(CALL, &HeaderName::from_static("opc-next-page"), |now| {
                    let request = Request::get(&format!("{base}{target}"))?;
                    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
                    let authorization = account
                        .signer
                        .authorization("GET", &target, &request.host(), &date)
                        .map_err(InvalidRequest::Credential)?;
                    request.header(DATE, &date)?.header(AUTHORIZATION, &authorization)
                })
                .await?;
            shapes.extend(rows.into_iter().filter_map(|row| Some(sheet.read(row)?.shape)));
            match next.filter(|next| !next.is_empty()) {
                Some(next) => page = next,
                None => return Ok(shapes),
            }
        }
    }
}

impl Account {
    fn new(settings: &Settings, pem: &SecretString) -> std::result::Result<Self, SettingError> {
        let need = |value: &Option<String>, field: &'static str| {
            value
                .clone()
                .filter(|text| !text.is_empty())
                .ok_or_else(|| SettingError::new(field, "is missing beside private_key"))
        };
        let tenancy = need(&settings.tenancy, "tenancy")?;
        let user = need(&settings.user, "user")?;
        let fingerprint = need(&settings.fingerprint, "fingerprint")?;
        let signer = Signer::new(format!("{tenancy}/{user}/{fingerprint}"), pem.expose_secret())
            .map_err(|reason| SettingError::new("private_key", reason))?;
        Ok(Self { signer, compartment: settings.compartment.clone().unwrap_or(tenancy) })
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
    // "Not authorized or not found" is a 404.
    let kind = (said.code == "NotAuthorizedOrNotFound").then_some(ErrorKind::Auth);
    Some(Refusal { code: said.code, message: said.message, kind })
}

#[async_trait]
impl OfferSource for Oci {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let mut sheet =
            SheetBuilder::new(self.id().clone(), "Oracle's cost estimator files", self.http.now());
        let products: Products = self.file(&session, "products.json").await?;
        let shapes: Shapes = self.file(&session, "shapes.json").await?;
        let mut prices = Prices::new();
        for row in products.items {
            if let Some(product) = sheet.read(row) {
                map::product(product, self.currency, &mut prices);
            }
        }
        let mut regions = Regions::new();
        if let Some(account) = &self.account {
            for region in &self.regions {
                if !scope.regions.is_empty() && !scope.regions.contains(region) {
                    continue;
                }
                match self.shapes_of(&session, account, region, &mut sheet).await {
                    Ok(shapes) => {
                        regions.insert(region.clone(), shapes.into_iter().collect());
                    }
                    Err(error) => sheet.failed(format!("shapes in {region}"), &error),
                }
            }
        }
        for row in shapes.items {
            if let Some(shape) = sheet.read(row) {
                map::shape(&shape, &prices, &regions, &mut sheet);
            }
        }
        if !sheet.has_offers() {
            return Err(session.malformed("shapes.json", "no GPU shape with a price at all"));
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(12 * 3600),
            min_rows: 5,
            ..SourceTerms::default()
        }
    }
}
