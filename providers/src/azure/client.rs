//! Calls.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use runwhere_model::{
    Currency, ErrorKind, GpuModel, OfferScope, OfferSheet, ProviderId, SourceTerms,
};

use super::config::Settings;
use super::map;
use super::wire::Page;
use crate::http::{Http, Pages, Policy, Request, encode_component};
use crate::provider::{OfferSource, Result};
use crate::sources::{SettingError, SheetBuilder, SourceContext, base_url, wanted};

const PRICES: &str = "https://prices.azure.com";
/// A page has 1,000 rows at most; all GPU meters of all regions are some tens of pages.
const MOST_PAGES: usize = 2_000;

/// Azure's public retail prices.
#[derive(Debug)]
pub struct Azure {
    http: Http,
    base: String,
    currency: Currency,
    regions: Vec<String>,
}

impl Azure {
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
        Ok(Self {
            // The API answers 429 where it is read too fast, with a wait.
            http: context.http(id).with_policy(Policy { attempts: 8, ..Policy::default() }),
            base: base_url(settings.endpoint.as_deref(), PRICES)?,
            currency,
            regions: settings.regions.iter().map(|region| region.to_lowercase()).collect(),
        })
    }

    fn first_query(&self, scope: &OfferScope) -> String {
        let wanted = wanted(scope, &self.regions);
        let mut filter = "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' \
                          and contains(armSkuName, 'Standard_N')"
            .to_owned();
        if !wanted.is_empty() {
            let regions: Vec<String> = wanted
                .iter()
                .map(|region| {
                    format!("armRegionName eq '{}'", region.to_lowercase().replace('\'', "''"))
                })
                .collect();
            filter.push_str(&format!(" and ({})", regions.join(" or ")));
        }
        format!(
            "api-version=2023-01-01-preview&currencyCode={}&meterRegion={}&$filter={}",
            encode_component(&format!("'{}'", self.currency.code())),
            encode_component("'primary'"),
            encode_component(&filter),
        )
    }
}

#[async_trait]
impl OfferSource for Azure {
    fn id(&self) -> &ProviderId {
        self.http.provider()
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        const CALL: &str = "retail prices";
        let session = self.http.session();
        let mut sheet = SheetBuilder::new(
            self.id().clone(),
            "Azure retail prices (prices.azure.com)",
            self.http.now(),
        );
        let mut pages = Pages::at_most(MOST_PAGES);
        let mut query = self.first_query(scope);
        let mut number = 0;
        let wanted = wanted(scope, &self.regions);
        let mut seen = BTreeSet::new();
        loop {
            number += 1;
            if let Err(reason) = pages.turn_to(&query) {
                sheet.gap(format!("page {number}"), reason);
                break;
            }
            let url = format!("{}/api/retail/prices?{query}", self.base);
            let page: Page = match session.json(CALL, |_| Request::get(&url)).await {
                Ok(page) => page,
                Err(error) if number == 1 => return Err(error),
                Err(error) => {
                    sheet.failed(format!("page {number} and all after it"), &error);
                    break;
                }
            };
            for row in page.items {
                if let Some(row) = sheet.read(row) {
                    seen.insert(row.arm_region_name.trim().to_lowercase());
                    map::meter(row, self.currency, &mut sheet);
                }
            }
            // Only the link's query is used: where the calls go is not the answer's to say.
            let Some(link) = page.next_page_link.filter(|link| !link.is_empty()) else { break };
            match link.split_once('?') {
                Some((_, next)) => query = next.to_owned(),
                None => {
                    sheet.gap(format!("page {}", number + 1), "its link has no query");
                    break;
                }
            }
        }
        // "No meter" is not "nothing is sold there": the list has neither China nor the government's
        // regions, and a name may be mistyped.
        for region in wanted.iter().filter(|region| !seen.contains(&region.to_lowercase())) {
            sheet.gap(region, "the public list has no GPU meter of such a region");
        }
        if sheet.is_empty() && wanted.is_empty() {
            return Err(self.http.error(CALL, ErrorKind::Malformed).because("no GPU meter at all"));
        }
        Ok(sheet.finish())
    }

    fn terms(&self) -> SourceTerms {
        let required = ["a100-80g", "h100-80g", "t4"];
        let all = self.regions.is_empty();
        SourceTerms {
            refresh: Duration::from_secs(6 * 3600),
            // Spot prices change daily at most.
            spot_max_age: Duration::from_secs(24 * 3600),
            min_rows: if all { 500 } else { 0 },
            required: required
                .iter()
                .filter(|_| all)
                .filter_map(|name| Some(GpuModel::resolve(name)?.id))
                .collect(),
            ..SourceTerms::default()
        }
    }
}
