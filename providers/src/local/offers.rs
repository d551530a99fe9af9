//! What the local machine offers: a pure map of its GPUs, its price and what is taken.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, GpuCount, GpuModel, GpuModelId, HourlyPrice, Money, Offer, OfferKey, Price,
    PriceKind, PriceState, ProviderId, Stock,
};
use rust_decimal::Decimal;

use super::gpus::Inventory;

/// Counts in which a pretended model is offered: all that a task may ask for.
const PRETENDED_COUNTS: RangeInclusive<u32> = 1..=16;

/// What can be launched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kind {
    pub(super) model: GpuModelId,
    pub(super) count: u32,
    pub(super) pretended: bool,
}

/// What the machine has to give.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) provider: ProviderId,
    pub(super) inventory: Inventory,
    /// Of one GPU, as the operator states it.
    pub(super) price: Option<Money>,
    /// Of one pretended GPU where the operator states none.
    pub(super) sample_price: Option<Money>,
    pub(super) pretend: bool,
    /// Pretended allocations at a time.
    pub(super) pretended_slots: usize,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_mib: Option<u64>,
}

impl Machine {
    /// Everything that is offered, real GPUs first. What the machine really has is not pretended.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for model in GpuModel::all() {
            let real = u32::try_from(self.inventory.count(model.id)).unwrap_or(u32::MAX);
            kinds.extend((1..=real).map(|count| Kind { model: model.id, count, pretended: false }));
            if self.pretend {
                let counts = PRETENDED_COUNTS.filter(|count| *count > real);
                kinds.extend(counts.map(|count| Kind { model: model.id, count, pretended: true }));
            }
        }
        kinds.sort_by_key(|kind| kind.pretended);
        kinds
    }

    pub(super) fn key(&self, kind: Kind) -> OfferKey {
        OfferKey {
            provider: self.provider.clone(),
            region: None,
            zone: None,
            billing_model: BillingModel::OnDemand,
            instance_type: format!("{}.x{}", kind.model, kind.count),
        }
    }

    /// What a key names here.
    pub(super) fn kind(&self, key: &OfferKey) -> Option<Kind> {
        self.kinds().into_iter().find(|kind| self.key(*kind) == *key)
    }

    /// The price of the whole allocation; `None` = unknown.
    pub(super) fn price(&self, kind: Kind) -> Option<HourlyPrice> {
        let one = self.price.or_else(|| self.sample_price.filter(|_| kind.pretended))?;
        let amount = one.amount.checked_mul(Decimal::from(kind.count))?.normalize();
        Some(HourlyPrice { amount, currency: one.currency })
    }

    /// Free slots of the kind's GPUs, lowest first; `None` where there are not enough.
    pub(super) fn free_slots(&self, kind: Kind, taken: &BTreeSet<u32>) -> Option<Vec<u32>> {
        let slots: Vec<u32> = (0u32..)
            .zip(&self.inventory.gpus)
            .filter(|(slot, gpu)| gpu.model == kind.model && !taken.contains(slot))
            .map(|(slot, _)| slot)
            .take(kind.count as usize)
            .collect();
        (slots.len() == kind.count as usize).then_some(slots)
    }

    pub(super) fn offers(
        &self,
        taken: &BTreeSet<u32>,
        pretended: usize,
        now: Timestamp,
    ) -> Vec<Offer> {
        self.kinds().into_iter().map(|kind| self.offer(kind, taken, pretended, now)).collect()
    }

    fn offer(&self, kind: Kind, taken: &BTreeSet<u32>, pretended: usize, now: Timestamp) -> Offer {
        let price = self.price(kind);
        let free = match kind.pretended {
            true => pretended < self.pretended_slots,
            false => self.free_slots(kind, taken).is_some(),
        };
        let raw = self.inventory.gpus.iter().find(|gpu| gpu.model == kind.model);
        Offer {
            key: self.key(kind),
            gpu: Some(kind.model),
            gpu_raw: raw.map_or_else(|| kind.model.model().name.to_owned(), |gpu| gpu.raw.clone()),
            gpu_count: GpuCount::whole(kind.count).expect("every offered count is above 0"),
            vcpus: self.vcpus,
            memory_mib: self.memory_mib,
            price: Price {
                state: price.map_or(PriceState::Unknown, |price| PriceState::Known { price }),
                kind: PriceKind::Configured,
                source: match self.price.is_none() && kind.pretended {
                    true => "sample price for trying locally".to_owned(),
                    false => "[local] price_per_hour".to_owned(),
                },
                observed_at: Some(now),
                effective_at: None,
            },
            stock: if free { Stock::Available } else { Stock::SoldOut },
            // Nothing is launched at a price that nobody stated.
            launchable: price.is_some(),
            // Trying locally, GPUs that are only configured are as little there as all others.
            pretended: kind.pretended || (self.pretend && self.inventory.stated),
            gpu_memory_mib: None,
            marks: runwhere_model::Marks::NONE,
            details: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(gpus: &str, price: Option<&str>, pretend: bool) -> Machine {
        Machine {
            provider: ProviderId::new("local").unwrap(),
            inventory: if gpus.is_empty() {
                Inventory::default()
            } else {
                Inventory::configured(&gpus.parse().unwrap())
            },
            price: price.map(|text| text.parse().unwrap()),
            sample_price: "36.44 CNY".parse().ok(),
            pretend,
            pretended_slots: 2,
            vcpus: None,
            memory_mib: None,
        }
    }

    #[test]
    fn a_machine_offers_every_count_it_has_and_no_more() {
        let machine = machine("a100-80g:3,t4:1", Some("36.44 CNY"), false);
        let offers = machine.offers(&BTreeSet::from([0]), 0, Timestamp::UNIX_EPOCH);
        let shown: Vec<_> = offers
            .iter()
            .map(|o| (o.key.to_string(), o.price.state.known().unwrap().to_string(), o.stock))
            .collect();
        let row = |kind: &str, price: &str, stock| {
            (format!("local/-/-/on_demand/{kind}"), price.to_owned(), stock)
        };
        assert_eq!(
            shown,
            [
                row("a100-80g.x1", "36.44 CNY/h", Stock::Available),
                row("a100-80g.x2", "72.88 CNY/h", Stock::Available),
                row("a100-80g.x3", "109.32 CNY/h", Stock::SoldOut),
                row("t4.x1", "36.44 CNY/h", Stock::Available),
            ]
        );
        assert!(offers.iter().all(|o| o.launchable && !o.pretended));
    }

    #[test]
    fn an_unknown_price_is_unknown_and_not_launchable() {
        let offers =
            machine("t4:1", None, false).offers(&BTreeSet::new(), 0, Timestamp::UNIX_EPOCH);
        assert_eq!(offers[0].price.state, PriceState::Unknown);
        assert!(!offers[0].launchable);
    }

    #[test]
    fn pretending_adds_what_is_not_there() {
        let machine = machine("a100-80g:2", Some("1 USD"), true);
        let offers = machine.offers(&BTreeSet::new(), 2, Timestamp::UNIX_EPOCH);
        let a100: Vec<_> = offers
            .iter()
            .filter(|o| o.gpu.is_some_and(|g| g.as_str() == "a100-80g"))
            .map(|o| (o.gpu_count.to_string(), o.pretended, o.stock))
            .collect();
        let stock = |count| if count <= 2 { Stock::Available } else { Stock::SoldOut };
        let expected: Vec<_> = (1..=16).map(|n: u32| (n.to_string(), true, stock(n))).collect();
        assert_eq!(a100, expected);
        for offer in &offers {
            let kind = machine.kind(&offer.key).unwrap();
            assert_eq!(machine.key(kind), offer.key);
        }
        let key: OfferKey = "local/-/-/on_demand/a100-80g.x17".parse().unwrap();
        assert_eq!(machine.kind(&key), None);
        assert_eq!(machine.kind(&"aws/-/-/on_demand/t4.x1".parse().unwrap()), None);
    }
}
