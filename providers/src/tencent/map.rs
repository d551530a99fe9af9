//! Rows of a zone to offers: price and stock come together, one row for each zone and charge type.

use std::collections::BTreeMap;

use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, PriceKind, PriceState, PriceTier, RawNumber, Stock,
};
use rust_decimal::Decimal;

use super::wire::{Config, ItemPrice, Quota};
use crate::sources::{Listing, SheetBuilder, count, gib_to_mib, hourly, whole};

/// What a type's GPUs are called.
#[derive(Clone, Debug)]
pub(super) struct Card {
    raw: String,
    memory_mib: Option<u64>,
    count: Option<GpuCount>,
}

/// Types with GPUs.
pub(super) type Cards = BTreeMap<String, Card>;

/// Notes a type that has a GPU.
pub(super) fn card(config: &Config, cards: &mut Cards) {
    let Some(raw) = config.gpu_type.clone().filter(|raw| !raw.is_empty()) else { return };
    let card = Card {
        raw,
        memory_mib: config.gpu_memory.as_ref().and_then(gib_to_mib),
        count: config.gpu_count.as_ref().and_then(gpus),
    };
    cards.insert(config.instance_type.clone(), card);
}

fn gpus(number: &RawNumber) -> Option<GpuCount> {
    count(number.decimal().ok()?)
}

/// Adds a row, where it has a GPU.
pub(super) fn quota(
    row: &Quota,
    region: &str,
    cards: &Cards,
    currency: Currency,
    sheet: &mut SheetBuilder,
) {
    let card = cards.get(&row.instance_type);
    let stated = |number: &Option<RawNumber>| {
        number.as_ref().and_then(|n| n.decimal().ok()).is_some_and(|n| n > Decimal::ZERO)
    };
    if card.is_none() && !stated(&row.gpu) && !stated(&row.gpu_count) {
        return;
    }
    match listing(row, card, region, currency) {
        Ok(listing) => sheet.offer(listing),
        Err(reason) => sheet.reject(format!("{} {}", row.zone, row.instance_type), reason),
    }
}

fn listing(
    row: &Quota,
    card: Option<&Card>,
    region: &str,
    currency: Currency,
) -> Result<Listing, String> {
    // The exact count (a quarter of a card) goes before the whole number, which is 1 or 0 then.
    let count = row
        .gpu_count
        .as_ref()
        .and_then(gpus)
        .or_else(|| card.and_then(|card| card.count))
        .or_else(|| row.gpu.as_ref().and_then(whole).and_then(GpuCount::whole))
        .ok_or("it states no number of GPUs")?;
    if !row.zone.starts_with(region) {
        return Err(format!("its zone is not in {region}"));
    }
    let billing = match row.instance_charge_type.as_str() {
        "POSTPAID_BY_HOUR" => BillingModel::OnDemand,
        "SPOTPAID" => BillingModel::Spot,
        "CDHPAID" => BillingModel::DedicatedHost,
        other => return Err(format!("charged as {other}")),
    };
    let raw = card.map_or_else(|| row.instance_type.clone(), |card| card.raw.clone());
    let mut listing = Listing::new(&row.instance_type, raw, count, PriceState::Unknown);
    if card.is_none() {
        // Without the interface's name for it the type's own name is no name of a GPU.
        listing.gpu = None;
    }
    listing.billing = billing;
    listing.region = Some(region.to_owned());
    listing.zone = Some(row.zone.clone());
    listing.gpu_memory_mib = card.and_then(|card| card.memory_mib);
    listing.vcpus = row.cpu.as_ref().and_then(whole);
    listing.memory_mib = row.memory.as_ref().and_then(gib_to_mib);
    listing.stock = stock(row);
    if let Some(price) = &row.price {
        priced(&mut listing, price, currency)?;
    }
    if let Some(model) = GpuModel::named(&listing.gpu_raw, listing.gpu_memory_mib) {
        listing.gpu = Some(model.id);
    }
    Ok(listing)
}

fn priced(listing: &mut Listing, price: &ItemPrice, currency: Currency) -> Result<(), String> {
    match price.charge_unit.as_deref() {
        Some("HOUR") => {}
        Some(other) => return Err(format!("charged per {other}")),
        None => return Err("it states no unit of its price".to_owned()),
    }
    let list = hourly(price.unit_price.as_ref(), currency)?;
    let own = hourly(price.unit_price_discount.as_ref(), currency)?;
    match (own, listing.billing) {
        (PriceState::Known { .. }, _) => {
            listing.price = own;
            listing.kind = PriceKind::Account;
            listing.details.list_price = list.known().filter(|list| Some(*list) != own.known());
        }
        // The plain figure of a spot row is the on-demand price: no price of spot.
        (_, BillingModel::Spot) => {}
        _ => listing.price = list,
    }
    for (after_hours, step) in
        [(96, &price.unit_price_discount_second_step), (360, &price.unit_price_discount_third_step)]
    {
        if let Some(price) = hourly(step.as_ref(), currency)?.known() {
            listing.details.tiers.push(PriceTier { after_hours, amount: price.amount });
        }
    }
    Ok(())
}

fn stock(row: &Quota) -> Stock {
    match row.status_category.as_deref() {
        Some("EnoughStock" | "NormalStock") => Stock::Available,
        Some("UnderStock") => Stock::Low,
        Some("WithoutStock") => Stock::SoldOut,
        _ => match row.status.as_deref() {
            Some("SELL") => Stock::Available,
            Some("SOLD_OUT") => Stock::SoldOut,
            _ => Stock::Unstated,
        },
    }
}
