//! Calls.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{ErrorKind, OfferScope, OfferSheet, ProviderId, SourceTerms};

use super::config::Settings;
use super::map::{self, Available, Sold};
use super::wire::{Availability, Page};
use crate::http::{Http, Pages, Policy, Request, Session, encode_component};
use crate::provider::{OfferSource, Result};
use crate::sources::{SettingError, SheetBuilder, SourceContext, base_url};

const API: &str = "https://api.vultr.com/v2";
const LISTS: [(&str, &str, bool); 2] =
    [("cloud GPU plans", "/plans?type=vcg", false), ("bare metal plans", "/plans-metal?", true)];

/// Vultr.
#[derive(Debug)]
pub struct Vultr {
    http: Http,
    base: String,
}

impl Vultr {
    /// The source of the settings.
    pub fn new(
        id: &ProviderId,
        settings: &Settings,
        context: &SourceContext<'_>,
    ) -> std::result::Result<Self, SettingError> {
        Ok(Self {
            // 30 calls a second are allowed for one address.
            http: context.http(id).with_policy(Policy::every(Duration::from_millis(50))),
            base: base_url(settings.endpoint.as_deref(), API)?,
        })
    }

    async fn plans(
        &self,
        session: &Session<'_>,
        path: &str,
        metal: bool,
        plans: &mut Vec<Sold>,
        sheet: &mut SheetBuilder,
    ) -> Result<()> {
        let mut pages = Pages::at_most(200);
        let mut cursor = String::new();
        loop {
            pages.turn_to(&cursor).map_err(|reason| session.malformed("plans", reason))?;
            let join = if path.ends_with('?') { "" } else { "&" };
            let url = format!(
                "{}{path}{join}per_page=500&cursor={}",
                self.base,
                encode_component(&cursor)
            );
            let page: Page = session.json("plans", |_| Request::get(&url)).await?;
            for row in page.plans {
                let Some(row) = sheet.read(row) else { continue };
                let id = row.id.clone();
                match map::plan(row, metal) {
                    Ok(Some(sold)) => plans.push(sold),
                    Ok(None) => {}
                    Err(reason) => sheet.reject(id, reason),
                }
            }
            let next = page.meta.and_then(|meta| meta.links).and_then(|links| links.next);
            match next.filter(|next| !next.is_empty()) {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    }
}

#[async_trait]
impl OfferSource for Vultr {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        let session = self.http.session();
        let mut sheet = SheetBuilder::new(self.id().clone(), "Vultr API", self.http.now());
        let mut plans = Vec::new();
        let mut failure = None;
        for (name, path, metal) in LISTS {
            if let Err(error) = self.plans(&session, path, metal, &mut plans, &mut sheet).await {
                sheet.failed(name, &error);
                failure = Some(error);
            }
        }
        if plans.is_empty() && sheet.is_empty() {
            return Err(failure.unwrap_or_else(|| {
                self.http.error("plans", ErrorKind::Malformed).because("no GPU plan at all")
            }));
        }
        let places: BTreeSet<String> = plans
            .iter()
            .flat_map(Sold::places)
            .filter(|place| scope.regions.is_empty() || scope.regions.contains(place))
            .cloned()
            .collect();
        let mut available = Available::new();
        for place in places {
            let url = format!("{}/regions/{}/availability", self.base, encode_component(&place));
            let read: Result<Availability> =
                session.json("availability", |_| Request::get(&url)).await;
            match read {
                Ok(answer) => {
                    available.insert(place, answer.available_plans.into_iter().collect());
                }
                Err(error) => sheet.failed(format!("stock in {place}"), &error),
            }
        }
        for sold in plans {
            map::offers(sold, &available, &mut sheet);
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms { refresh: Duration::from_secs(1800), min_rows: 5, ..SourceTerms::default() }
    }
}
