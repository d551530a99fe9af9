//! What a launch needs to know: offers as they can be launched now, and rates fit to decide with.

use runwhere_model::{Currency, GpuCount, GpuModelId, Offer, OfferCode, OfferKey};

use crate::catalogue::{Assessed, Audience};
use crate::fx::FxRate;
use crate::quote::Query;
use crate::service::PriceService;

impl PriceService {
    /// An offer by its key. `launchable` is what holds now: an offer whose sheet is too old, or
    /// that is only a bundled price, is not.
    pub fn offer(&self, key: &OfferKey) -> Option<Offer> {
        let catalogue = self.catalogue();
        Some(as_of_now(&catalogue.assess(catalogue.get(key)?, self.now())))
    }

    /// The key a code stands for; `None` when unknown or when its offer is gone.
    pub fn by_code(&self, code: OfferCode) -> Option<OfferKey> {
        Some(self.catalogue().by_code(code)?.offer.key.clone())
    }

    /// The best offers for exactly so many whole GPUs of a model, best first, at most 100.
    pub fn best(&self, gpu: GpuModelId, count: GpuCount) -> Vec<Offer> {
        let Some(count) = count.as_whole() else { return Vec::new() };
        let mut query = Query::new(Some(gpu), count);
        query.audience = Audience::Member;
        query.top_n = crate::request::MAX_TOP_N;
        let quote = self.quote(&query);
        quote.recommendations.iter().map(|best| as_of_now(&best.assessed)).collect()
    }

    /// The rate to decide with (a ceiling, a budget); `None` when there is none or it is too old.
    pub fn rate_to_decide(&self, from: Currency, to: Currency) -> Option<FxRate> {
        let one = runwhere_model::Money::new(rust_decimal::Decimal::ONE, from);
        self.catalogue().fx().decide(one, to, self.now()).ok()?.rate
    }

    /// Names the catalogue as it is now.
    pub fn snapshot_id(&self) -> String {
        self.catalogue().snapshot_id().to_owned()
    }
}

fn as_of_now(assessed: &Assessed) -> Offer {
    Offer { launchable: assessed.launchable(), ..assessed.entry.offer.as_ref().clone() }
}
