//! Made-up offers of many clouds, each model and region in many types.

use std::sync::Arc;

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, HourlyPrice, Offer, OfferKey, OfferSheet, Price,
    PriceKind, PriceState, ProviderId,
};
use runwhere_pricing::{PriceFolder, PriceOptions, PriceService, Refresher};
use runwhere_providers::{OfferSource, SystemClock};
use rust_decimal::Decimal;

pub(crate) const PROVIDERS: usize = 30;
pub(crate) const REGIONS: usize = 60;
pub(crate) const COUNTS: [u32; 4] = [1, 2, 4, 8];

pub(crate) fn provider(at: usize) -> ProviderId {
    ProviderId::new(format!("cloud{at:02}")).expect("an id")
}

pub(crate) fn offer(provider: &ProviderId, n: usize) -> Offer {
    let models = GpuModel::all();
    let model = &models[n % models.len()];
    let spot = n.is_multiple_of(3);
    let region = (n / 7) % REGIONS;
    let mantissa = i64::try_from(100 + (n * 7919) % 100_000).unwrap_or(1);
    let key = OfferKey {
        provider: provider.clone(),
        region: Some(format!("region-{region}")),
        zone: spot.then(|| format!("region-{region}-{}", n % 3)),
        billing_model: if spot { BillingModel::Spot } else { BillingModel::OnDemand },
        instance_type: format!("type.{n}"),
    };
    let amount = Decimal::new(mantissa, 4);
    let price = Price {
        state: PriceState::Known { price: HourlyPrice { amount, currency: Currency::USD } },
        kind: PriceKind::List,
        source: "bench".to_owned(),
        observed_at: None,
        effective_at: None,
    };
    let count = GpuCount::whole(COUNTS[(n / 3) % 4]).expect("a count");
    Offer {
        gpu: Some(model.id),
        gpu_memory_mib: Some(u64::from(model.memory_gib) * 1024),
        vcpus: Some(8),
        memory_mib: Some(65_536),
        ..Offer::listed(key, model.name.to_owned(), count, price)
    }
}

/// A provider's share of so many offers.
pub(crate) fn sheet(at: usize, rows: usize, now: Timestamp) -> (ProviderId, OfferSheet) {
    let id = provider(at);
    let offers = (0..rows / PROVIDERS).map(|n| offer(&id, n * PROVIDERS + at)).collect();
    (id, OfferSheet::complete(offers, Vec::new(), now))
}

/// A service that keeps its prices in a folder, as a server does.
pub(crate) fn refresher(
    folder: &std::path::Path,
    sources: Vec<Arc<dyn OfferSource>>,
) -> Arc<Refresher> {
    let folder = PriceFolder::open(folder).expect("a folder");
    let options = PriceOptions { bundled: false, folder: Some(folder), ..PriceOptions::default() };
    let service = Arc::new(PriceService::new(Arc::new(SystemClock), options));
    Arc::new(Refresher::new(service, sources))
}
