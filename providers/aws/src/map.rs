//! Prices of the file and facts of the account, joined to offers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, HourlyPrice, PriceKind, PriceState, Stock,
    parse_decimal,
};
use runwhere_providers::sources::{Listing, SheetBuilder};

use crate::families;
use crate::file::Priced;

/// A type's accelerators, as EC2 describes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeFacts {
    pub(crate) raw: String,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) count: Option<GpuCount>,
    pub(crate) vcpus: Option<u32>,
    pub(crate) host_mib: Option<u64>,
}

/// A spot price of a zone.
#[derive(Clone, Debug)]
pub(crate) struct SpotPrice {
    pub(crate) zone: String,
    pub(crate) instance_type: String,
    pub(crate) price: String,
    pub(crate) at: Option<Timestamp>,
}

/// What an account tells of a region.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionFacts {
    pub(crate) types: BTreeMap<String, TypeFacts>,
    /// Types that some zone offers. Offered is not "in stock".
    pub(crate) offered: BTreeSet<String>,
    pub(crate) spot: Vec<SpotPrice>,
    /// Rows of the history that are no prices, with the reason.
    pub(crate) odd: Vec<(String, &'static str)>,
}

/// Adds a region's offers.
pub(crate) fn region(
    region: &str,
    currency: Currency,
    priced: Vec<Priced>,
    facts: Option<&RegionFacts>,
    sheet: &mut SheetBuilder,
) {
    let mut with_price = BTreeSet::new();
    for row in priced {
        let known = facts.and_then(|facts| facts.types.get(&row.instance_type));
        let name = format!("{region} {}", row.instance_type);
        let Some(mut listing) = listing(&row.instance_type, known, row.count, row.price) else {
            sheet.reject(name, "neither file nor table tell its accelerators");
            continue;
        };
        listing.region = Some(region.to_owned());
        listing.billing = row.billing;
        listing.vcpus = row.vcpus.or(listing.vcpus);
        listing.memory_mib = row.memory_mib.or(listing.memory_mib);
        listing.effective_at = row.effective_at;
        if row.billing == BillingModel::OnDemand {
            with_price.insert(row.instance_type.clone());
            if facts.is_some_and(|facts| !facts.offered.contains(&row.instance_type)) {
                listing.price = PriceState::NotOffered;
            }
        }
        sheet.offer(listing);
    }
    let Some(facts) = facts else { return };
    // New types are offered some days before they have a price.
    for (id, known) in facts
        .types
        .iter()
        .filter(|(id, _)| facts.offered.contains(*id) && !with_price.contains(*id))
    {
        match listing(id, Some(known), None, PriceState::Unknown) {
            Some(row) => sheet.offer(Listing { region: Some(region.to_owned()), ..row }),
            None => sheet.reject(format!("{region} {id}"), "its accelerators are not told"),
        }
    }
    for (row, reason) in &facts.odd {
        sheet.reject(row, *reason);
    }
    for spot in latest(&facts.spot) {
        // The history holds types of all kinds.
        let Some(known) = facts.types.get(&spot.instance_type) else { continue };
        let name = format!("{} {} (spot)", spot.zone, spot.instance_type);
        let price = match amount(&spot.price, currency) {
            Ok(price) => price,
            Err(reason) => {
                sheet.reject(name, reason);
                continue;
            }
        };
        match listing(&spot.instance_type, Some(known), None, price) {
            Some(row) => sheet.offer(Listing {
                region: Some(region.to_owned()),
                zone: Some(spot.zone.clone()),
                billing: BillingModel::Spot,
                effective_at: spot.at,
                ..row
            }),
            None => sheet.reject(name, "its accelerators are not told"),
        }
    }
}

/// The latest price of each zone and type: a later page never hides an earlier zone.
fn latest(all: &[SpotPrice]) -> impl Iterator<Item = &SpotPrice> {
    let mut last: BTreeMap<(&str, &str), &SpotPrice> = BTreeMap::new();
    for spot in all {
        let kept = last.entry((&spot.zone, &spot.instance_type)).or_insert(spot);
        if spot.at > kept.at {
            *kept = spot;
        }
    }
    last.into_values()
}

fn amount(text: &str, currency: Currency) -> Result<PriceState, String> {
    let amount = parse_decimal(text).map_err(|error| format!("price {text}: {error}"))?;
    match amount {
        amount if amount.is_zero() => Ok(PriceState::Unknown),
        amount if amount.is_sign_negative() => Err(format!("the price {amount} is negative")),
        amount => Ok(PriceState::Known { price: HourlyPrice { amount, currency } }),
    }
}

fn listing(
    id: &str,
    facts: Option<&TypeFacts>,
    stated: Option<GpuCount>,
    price: PriceState,
) -> Option<Listing> {
    let family = families::family(id);
    // EC2 calls some of the newest GPUs only "NVIDIA"; its word counts where it names a model.
    let named = facts.and_then(|facts| GpuModel::named(&facts.raw, facts.memory_mib));
    let raw = match (facts, family) {
        (Some(facts), _) if named.is_some() || family.is_none() => facts.raw.clone(),
        (_, Some((_, raw))) => raw.to_owned(),
        (_, None) => String::new(),
    };
    let count = families::count(id).or(facts.and_then(|facts| facts.count)).or(stated)?;
    if raw.is_empty() {
        return None;
    }
    let mut row = Listing::new(id, raw, count, price);
    row.gpu = named.map(|model| model.id).or(family.map(|(model, _)| model));
    row.gpu_memory_mib = facts.and_then(|facts| facts.memory_mib);
    row.vcpus = facts.and_then(|facts| facts.vcpus);
    row.memory_mib = facts.and_then(|facts| facts.host_mib);
    row.kind = PriceKind::List;
    row.stock = Stock::Unstated;
    Some(row)
}
