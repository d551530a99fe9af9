//! Prices as the broker knows them, which may be older than the cloud's own.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use runwhere_broker::ports::Prices;
use runwhere_engine::FxRate;
use runwhere_model::{
    Currency, GpuCount, GpuModelId, HourlyPrice, Offer, OfferCode, OfferKey, PriceState,
};

#[derive(Debug)]
pub(crate) struct Catalogue(Mutex<BTreeMap<OfferKey, Offer>>);

impl Catalogue {
    pub(crate) fn new(offers: impl IntoIterator<Item = Offer>) -> Self {
        Self(Mutex::new(offers.into_iter().map(|offer| (offer.key.clone(), offer)).collect()))
    }

    pub(crate) fn set(&self, key: &OfferKey, price: HourlyPrice) {
        let mut offers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offer) = offers.get_mut(key) {
            offer.price.state = PriceState::Known { price };
        }
    }
}

impl Prices for Catalogue {
    fn offer(&self, key: &OfferKey) -> Option<Offer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
    fn by_code(&self, _code: OfferCode) -> Option<OfferKey> {
        None
    }
    fn best(&self, model: GpuModelId, count: GpuCount) -> Vec<Offer> {
        let offers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |offer: &&Offer| offer.gpu == Some(model) && offer.gpu_count == count;
        offers.values().filter(fits).cloned().collect()
    }
    fn suggest(&self, _text: &str) -> Vec<GpuModelId> {
        Vec::new()
    }
    fn rate(&self, _from: Currency, _to: Currency) -> Option<FxRate> {
        None
    }
    fn snapshot(&self) -> String {
        "sim".into()
    }
}
