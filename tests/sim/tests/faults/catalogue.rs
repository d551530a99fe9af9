//! What the broker believes that the cloud sells.

use std::sync::{Mutex, MutexGuard, PoisonError};

use runwhere_broker::ports::Prices;
use runwhere_engine::FxRate;
use runwhere_model::{
    Currency, GpuCount, GpuModelId, HourlyPrice, Offer, OfferCode, OfferKey, PriceState,
};

#[derive(Debug)]
pub(crate) struct Catalogue(Mutex<Vec<Offer>>);

impl Catalogue {
    pub(crate) fn new(offers: Vec<Offer>) -> Self {
        Self(Mutex::new(offers))
    }

    fn offers(&self) -> MutexGuard<'_, Vec<Offer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_price(&self, key: &OfferKey, price: HourlyPrice) {
        for offer in self.offers().iter_mut().filter(|offer| offer.key == *key) {
            offer.price.state = PriceState::Known { price };
        }
    }
}

impl Prices for Catalogue {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        self.offers().iter().find(|offer| offer.key == *key).cloned()
    }
    fn by_code(&self, _code: OfferCode) -> Option<OfferKey> {
        None
    }
    fn best(&self, model: GpuModelId, count: GpuCount) -> Vec<Offer> {
        let fits = |offer: &&Offer| offer.gpu == Some(model) && offer.gpu_count == count;
        self.offers().iter().filter(fits).cloned().collect()
    }
    fn suggest(&self, _text: &str) -> Vec<GpuModelId> {
        Vec::new()
    }
    fn rate(&self, _from: Currency, _to: Currency) -> Option<FxRate> {
        None
    }
    fn snapshot(&self) -> String {
        "faults".into()
    }
}
