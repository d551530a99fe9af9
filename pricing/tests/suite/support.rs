//! A fixed clock and offers of made-up providers.

use std::sync::Arc;

use jiff::Timestamp;
use runwhere_model::offer::Stock;
use runwhere_model::{
    GpuCount, GpuModel, Offer, OfferKey, OfferSheet, Price, PriceKind, PriceState, ProviderId,
};
use runwhere_pricing::{PriceOptions, PriceService};
use runwhere_providers::Clock;

#[derive(Debug)]
pub(crate) struct Fixed(pub(crate) Timestamp);

#[async_trait::async_trait]
impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        self.0
    }
    async fn sleep_until(&self, _: Timestamp) {}
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// A day on which the bundled rates are young enough to decide.
pub(crate) fn young() -> Timestamp {
    at("2026-11-20T12:00:00Z")
}

pub(crate) fn service(now: Timestamp, bundled: bool) -> PriceService {
    PriceService::new(Arc::new(Fixed(now)), PriceOptions { bundled, ..PriceOptions::default() })
}

/// `price` such as `36.44 CNY`; `-` = unknown.
pub(crate) fn offer(key: &str, gpu: &str, count: &str, price: &str) -> Offer {
    let key: OfferKey = key.parse().expect("a key");
    Offer {
        gpu: GpuModel::resolve(gpu).map(|model| model.id),
        gpu_raw: gpu.to_owned(),
        gpu_count: count.parse::<GpuCount>().expect("a count"),
        vcpus: Some(8),
        memory_mib: Some(32 * 1024),
        price: Price {
            state: match price {
                "-" => PriceState::Unknown,
                price => PriceState::Known {
                    price: price.parse::<runwhere_model::Money>().expect("a price").into(),
                },
            },
            kind: PriceKind::Account,
            source: "made by hand".to_owned(),
            observed_at: Some(young()),
            effective_at: None,
        },
        stock: Stock::Available,
        launchable: true,
        pretended: false,
        gpu_memory_mib: None,
        marks: runwhere_model::Marks::NONE,
        details: None,
        key,
    }
}

/// The local machine's sheet, as a new user has it.
pub(crate) fn local_sheet(now: Timestamp) -> (ProviderId, OfferSheet) {
    let mut local = offer("local/-/-/on_demand/a100-80g.x1", "a100-80g", "1", "36.44 CNY");
    local.price.kind = PriceKind::Configured;
    local.pretended = true;
    (provider("local"), sheet(vec![local], now))
}

pub(crate) fn provider(id: &str) -> ProviderId {
    ProviderId::new(id).expect("an id")
}

pub(crate) fn sheet(offers: Vec<Offer>, observed_at: Timestamp) -> OfferSheet {
    OfferSheet::complete(offers, Vec::new(), observed_at)
}
