//! Calls.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderName};
use runwhere_model::{Currency, ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};
use serde::Deserialize;
use serde_json::json;

use super::config::{Settings, Site};
use super::map::{self, Accelerated};
use super::sign::{Call, authorization, query};
use super::wire::{Flavors, Rating, Ratings};
use crate::http::{Http, InvalidRequest, Policy, Refusal, Request, Session};
use crate::provider::{OfferSource, Result};
use crate::sources::{
    AccessKeys, KeyPart, RegionsRead, SettingError, SheetBuilder, SourceContext, base_url,
};

const JSON: &str = "application/json";
/// Products of one price call.
const BATCH: usize = 50;

/// Huawei Cloud: one account.
#[derive(Debug)]
pub struct Huawei {
    http: Http,
    base: Option<String>,
    site: Site,
    keys: AccessKeys,
    projects: BTreeMap<String, String>,
}

impl Huawei {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        let keys = AccessKeys::need(
            KeyPart::new(&settings.access_key, "access_key", "HUAWEICLOUD_SDK_AK"),
            KeyPart::new(&settings.secret_key, "secret_key", "HUAWEICLOUD_SDK_SK"),
            None,
            context.env,
        )?;
        if settings.projects.is_empty() {
            return Err(SettingError::new(
                "projects",
                "is empty: name the project id of each region, { \"cn-north-4\" = \"…\" }",
            ));
        }
        let plain = |text: &String| {
            !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        if settings.projects.iter().any(|(region, project)| !plain(region) || !plain(project)) {
            return Err(SettingError::new("projects", "holds no names of regions and projects"));
        }
        Ok(Self {
            http: context
                .http(id)
                .with_policy(Policy::every(Duration::from_millis(200)))
                .with_refusal(refusal)
                .with_secrets(keys.secrets()),
            base: settings.endpoint.as_deref().map(|url| base_url(Some(url), "")).transpose()?,
            site: settings.site,
            keys,
            projects: settings.projects.clone(),
        })
    }

    fn signed(
        &self,
        base: &str,
        path: &str,
        pairs: &[(&str, &str)],
        body: Option<&str>,
        now: Timestamp,
    ) -> std::result::Result<Request, InvalidRequest> {
        let join = if pairs.is_empty() { String::new() } else { format!("?{}", query(pairs)) };
        let url = format!("{base}{path}{join}");
        let (request, method) = match body {
            Some(body) => (Request::post(&url, JSON, body.to_owned())?, "POST"),
            None => (Request::get(&url)?, "GET"),
        };
        let date = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let host = request.host();
        let call = Call {
            method,
            host: &host,
            path,
            query: pairs,
            date: &date,
            content_type: body.map(|_| JSON),
            body: body.unwrap_or_default().as_bytes(),
        };
        let authorization = authorization(self.keys.id(), self.keys.secret(), &call);
        request
            .header(AUTHORIZATION, &authorization)?
            .header(HeaderName::from_static("x-sdk-date"), &date)
    }

    async fn region(
        &self,
        session: &Session<'_>,
        region: &str,
        project: &str,
        sheet: &mut SheetBuilder,
    ) -> Result<()> {
        let ecs =
            self.base.clone().unwrap_or_else(|| format!("https://ecs.{region}.myhuaweicloud.com"));
        let path = format!("/v1/{project}/cloudservers/flavors");
        let answer: Flavors =
            session.json("flavors", |now| self.signed(&ecs, &path, &[], None, now)).await?;
        let mut flavors: Vec<Accelerated> = Vec::new();
        for row in answer.flavors {
            let Some(row) = sheet.read(row) else { continue };
            match map::flavor(&row, region) {
                Ok(Some(flavor)) => flavors.push(flavor),
                Ok(None) => {}
                Err(reason) => sheet.reject(format!("{region} {}", row.id), reason),
            }
        }
        for some in flavors.chunks(BATCH) {
            let (ratings, currency) =
                match self.ratings(session, region, project, some, sheet).await {
                    Ok(read) => read,
                    Err(error) => {
                        // Listed all the same, their price unknown.
                        sheet.failed(format!("some prices in {region}"), &error);
                        (BTreeMap::new(), Currency::CNY)
                    }
                };
            for flavor in some {
                let rating = ratings.get(&flavor.id);
                map::offers(flavor.clone(), rating, currency, sheet);
            }
        }
        Ok(())
    }

    async fn ratings(
        &self,
        session: &Session<'_>,
        region: &str,
        project: &str,
        flavors: &[Accelerated],
        sheet: &mut SheetBuilder,
    ) -> Result<(BTreeMap<String, Rating>, Currency)> {
        const CALL: &str = "on-demand ratings";
        let products: Vec<_> = flavors
            .iter()
            .map(|flavor| {
                json!({
                    "id": flavor.id,
                    "cloud_service_type": "hws.service.type.ec2",
                    "resource_type": "hws.resource.type.vm",
                    "resource_spec": format!("{}.linux", flavor.id),
                    "region": region,
                    "usage_factor": "Duration",
                    "usage_value": 1,
                    // Hours.
                    "usage_measure_id": 4,
                    "subscription_num": 1,
                })
            })
            .collect();
        // Ten digits instead of six.
        let body = json!({
            "project_id": project,
            "inquiry_precision": 1,
            "product_infos": products,
        })
        .to_string();
        let base = self.base.as_deref().unwrap_or(self.site.billing());
        let path = "/v2/bills/ratings/on-demand-resources";
        let answer: Ratings =
            session.json(CALL, |now| self.signed(base, path, &[], Some(&body), now)).await?;
        let currency = match answer.currency.as_deref() {
            None if self.site == Site::Cn => Currency::CNY,
            None => return Err(session.malformed(CALL, "the answer states no currency")),
            Some(text) => {
                text.parse().map_err(|error| session.malformed(CALL, format!("{error}")))?
            }
        };
        if self.site == Site::Cn && currency != Currency::CNY {
            let what = format!("in {currency}; this site's prices are in CNY");
            return Err(session.malformed(CALL, what));
        }
        let mut ratings = BTreeMap::new();
        for row in answer.product_rating_results {
            if let Some(rating) = sheet.read(row) {
                ratings.insert(rating.id.clone(), rating);
            }
        }
        Ok((ratings, currency))
    }
}

fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(alias = "error_code")]
        code: Option<String>,
        #[serde(alias = "error_msg")]
        message: Option<String>,
        error: Option<Said>,
    }
    #[derive(Deserialize)]
    struct Said {
        code: String,
        #[serde(default)]
        message: String,
    }
    let answer: Answer = (status >= 400).then(|| serde_json::from_slice(body).ok())??;
    let (code, message) = match answer.error {
        Some(said) => (said.code, said.message),
        None => (answer.code?, answer.message.unwrap_or_default()),
    };
    let kind = code.starts_with("APIGW.03").then_some(ErrorKind::Auth);
    Some(Refusal { code, message, kind })
}

#[async_trait]
impl OfferSource for Huawei {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let mut sheet =
            SheetBuilder::new(self.id().clone(), "Huawei Cloud ECS and BSS", self.http.now());
        let mut regions = RegionsRead::default();
        for (region, project) in &self.projects {
            if !scope.regions.is_empty() && !scope.regions.contains(region) {
                continue;
            }
            let read = self.region(&session, region, project, &mut sheet).await;
            regions.note(region, read, &mut sheet);
        }
        regions.finish(sheet)
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms {
            refresh: Duration::from_secs(1800),
            readings_per_hour: 12,
            ..SourceTerms::default()
        }
    }
}
