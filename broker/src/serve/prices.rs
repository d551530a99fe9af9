//! The price service as the driver's catalogue, and the connected providers as its sources.

use std::sync::Arc;

use runwhere_engine::FxRate;
use runwhere_model::{Currency, GpuCount, GpuModelId, Money, Offer, OfferCode, OfferKey};
use runwhere_pricing::{Assessed, Audience, NotLaunchable, PriceService, Query};
use runwhere_providers::{Clock, OfferSource, Registry};
use rust_decimal::Decimal;

use crate::api::runwhere::{CnyRates, InCny};
use crate::ports::Prices;

/// How many offers of a model are looked at for a submit.
const BEST: usize = 20;

/// The price service behind the driver's port.
#[derive(Debug)]
pub struct Catalogued {
    service: Arc<PriceService>,
    clock: Arc<dyn Clock>,
}

impl Catalogued {
    /// Wraps a price service.
    pub fn new(service: Arc<PriceService>, clock: Arc<dyn Clock>) -> Self {
        Self { service, clock }
    }

    fn money(&self, money: Money, to: Currency) -> Option<runwhere_pricing::Converted> {
        self.service.catalogue().fx().decide(money, to, self.clock.now()).ok()
    }
}

/// The offer as the driver sees it. Sold out is no obstacle: the trial waits for its turn.
fn offer_of(assessed: &Assessed) -> Offer {
    let launchable = match &assessed.not_launchable {
        None | Some(NotLaunchable::SoldOut) => true,
        Some(
            NotLaunchable::ConnectAccount { .. }
            | NotLaunchable::NotInAccount { .. }
            | NotLaunchable::StalePrice { .. }
            | NotLaunchable::NotNow { .. },
        ) => false,
    };
    Offer { launchable, ..(*assessed.entry.offer).clone() }
}

impl Prices for Catalogued {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        let catalogue = self.service.catalogue();
        let entry = catalogue.get(key)?;
        Some(offer_of(&catalogue.assess(&entry, self.clock.now())))
    }

    fn by_code(&self, code: OfferCode) -> Option<OfferKey> {
        let catalogue = self.service.catalogue();
        catalogue.by_code(code).map(|entry| entry.offer.key.clone())
    }

    fn best(&self, model: GpuModelId, count: GpuCount) -> Vec<Offer> {
        let Some(count) = count.as_whole() else { return Vec::new() };
        let catalogue = self.service.catalogue();
        let now = self.clock.now();
        let audience = Audience::Member;
        let query = Query { top_n: BEST, audience, ..Query::new(Some(model), count) };
        let quote = catalogue.quote(&query, now);
        let mut offers: Vec<Offer> =
            quote.recommendations.iter().map(|r| offer_of(&r.assessed)).collect();
        // What a connected account has but is sold out now comes before what nothing can launch.
        offers.sort_by_key(|offer| !offer.launchable);
        offers
    }

    fn suggest(&self, text: &str) -> Vec<GpuModelId> {
        runwhere_pricing::suggest(text)
    }

    fn rate(&self, from: Currency, to: Currency) -> Option<FxRate> {
        let converted = self.money(Money::new(Decimal::ONE, from), to)?;
        Some(match converted.rate {
            Some(rate) => {
                FxRate { rate: rate.rate, date: rate.date.to_string(), source: rate.source.clone() }
            }
            None => FxRate { rate: Decimal::ONE, date: String::new(), source: String::new() },
        })
    }

    fn snapshot(&self) -> String {
        self.service.catalogue().snapshot_id().to_owned()
    }
}

impl CnyRates for Catalogued {
    fn to_cny(&self, money: Money) -> Option<InCny> {
        let catalogue = self.service.catalogue();
        let converted = catalogue.fx().convert(money, Currency::CNY, self.clock.now()).ok()?;
        let amount = converted.money.amount;
        Some(match converted.rate {
            Some(rate) => {
                let (date, source) = (rate.date.to_string(), rate.source.clone());
                InCny { amount, rate: rate.rate, date, source }
            }
            None => {
                InCny { amount, rate: Decimal::ONE, date: String::new(), source: String::new() }
            }
        })
    }
}

/// The connected providers as sources of prices.
pub(super) fn sources(registry: &Registry) -> Vec<Arc<dyn OfferSource>> {
    registry.iter().map(|provider| Arc::clone(provider) as Arc<dyn OfferSource>).collect()
}
