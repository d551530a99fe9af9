//! What was read of one region, joined to offers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, Currency, HourlyPrice, PriceKind, PriceState, RawNumber, Stock,
};

use super::types::GpuType;
use super::wire::{AccountPrice, Resources, Sku, SpotPrice, Supported};
use crate::sources::{Listing, SheetBuilder, hourly};

/// Stock of each type in each zone.
pub(super) type ZoneStock = BTreeMap<String, BTreeMap<String, Stock>>;

/// The latest spot price of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSpot {
    pub(super) price: PriceState,
    pub(super) at: Timestamp,
}

/// The account's price of a type with its list price.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) price: PriceState,
    pub(super) list: Option<HourlyPrice>,
}

/// Everything that was read of a region. `None` = it could not be read.
#[derive(Debug, Default)]
pub(super) struct RegionFacts {
    pub(super) list: BTreeMap<String, PriceState>,
    pub(super) own: BTreeMap<String, Own>,
    pub(super) stock: Option<ZoneStock>,
    pub(super) spot_stock: Option<ZoneStock>,
    pub(super) spot: BTreeMap<(String, String), LastSpot>,
}

/// Adds a region's offers. A type with a price and no zone is "not offered" there, which is not the
/// same as unknown.
pub(super) fn region(
    name: &str,
    types: &BTreeMap<String, GpuType>,
    facts: &RegionFacts,
    sheet: &mut SheetBuilder,
) {
    for kind in types.values() {
        let row = Listing { region: Some(name.to_owned()), ..listing(kind, facts) };
        match &facts.stock {
            None if facts.list.contains_key(&kind.id) => sheet.offer(row),
            None => {}
            Some(zones) => {
                let mut anywhere = false;
                for (zone, stock) in in_zones(zones, &kind.id) {
                    anywhere = true;
                    sheet.offer(Listing { zone: Some(zone.clone()), stock, ..row.clone() });
                }
                if !anywhere && facts.list.contains_key(&kind.id) {
                    sheet.offer(Listing { price: PriceState::NotOffered, ..row.clone() });
                }
            }
        }
        for (zone, stock) in facts.spot_stock.iter().flat_map(|zones| in_zones(zones, &kind.id)) {
            let last = facts.spot.get(&(zone.clone(), kind.id.clone()));
            sheet.offer(Listing {
                zone: Some(zone.clone()),
                stock,
                billing: BillingModel::Spot,
                // Without a price of its own a spot offer has none: never the on-demand price.
                price: last.map_or(PriceState::Unknown, |last| last.price),
                kind: PriceKind::Account,
                effective_at: last.map(|last| last.at),
                details: Default::default(),
                ..Listing { region: Some(name.to_owned()), ..listing(kind, facts) }
            });
        }
    }
}

fn in_zones<'a>(
    zones: &'a ZoneStock,
    id: &'a str,
) -> impl Iterator<Item = (&'a String, Stock)> + 'a {
    zones.iter().filter_map(move |(zone, types)| Some((zone, *types.get(id)?)))
}

fn listing(kind: &GpuType, facts: &RegionFacts) -> Listing {
    let list = facts.list.get(&kind.id).copied().unwrap_or(PriceState::Unknown);
    let mut row = Listing::new(&kind.id, &kind.raw, kind.count, list);
    row.gpu = kind.model;
    row.gpu_memory_mib = kind.gpu_memory_mib;
    row.vcpus = kind.vcpus;
    row.memory_mib = kind.memory_mib;
    if let Some(own) = facts.own.get(&kind.id) {
        row.price = own.price;
        row.kind = PriceKind::Account;
        row.details.list_price = own.list.or_else(|| list.known());
    }
    row
}

/// Stock by zone and type, of `DescribeAvailableResource`.
pub(super) fn stock(answer: Resources) -> Result<ZoneStock, &'static str> {
    let mut zones = ZoneStock::new();
    // A list without zones says that nothing is sold; no list says nothing.
    let all = answer.available_zones.ok_or("the answer has no list of zones")?;
    for zone in all.available_zone {
        let here = zones.entry(zone.zone_id).or_default();
        let resources = zone.available_resources.map(|list| list.available_resource);
        for supported in resources
            .into_iter()
            .flatten()
            .flat_map(|resource| resource.supported_resources.supported_resource)
        {
            let stock = one_stock(&supported);
            here.insert(supported.value, stock);
        }
    }
    Ok(zones)
}

fn one_stock(supported: &Supported) -> Stock {
    match supported.status_category.as_deref() {
        Some("WithStock") => Stock::Available,
        // What is left is not filled up again.
        Some("ClosedWithStock") => Stock::Low,
        Some("WithoutStock" | "ClosedWithoutStock") => Stock::SoldOut,
        _ => match supported.status.as_deref() {
            Some("Available") => Stock::Available,
            Some("SoldOut") => Stock::SoldOut,
            _ => Stock::Unstated,
        },
    }
}

/// Old names of regions in the price list.
const ALIASES: [(&str, &str); 3] = [
    ("cn-hangzhou", "cn-hangzhou-dg-a01"),
    ("cn-shanghai", "cn-shanghai-eu13-a01"),
    ("cn-beijing", "cn-beijing-btc-a01"),
];

/// The names that a region has in the price list.
pub(super) fn price_names(region: &str) -> Vec<&str> {
    let old = ALIASES.iter().find(|(new, _)| *new == region).map(|(_, old)| *old);
    std::iter::once(region).chain(old).collect()
}

/// Type and hourly list price of a SKU.
pub(super) fn sku(
    sku: &Sku,
    region: &str,
    currency: Currency,
) -> Result<(String, PriceState), String> {
    let factor = |name: &str| sku.sku_factor_map.get(name).map(String::as_str);
    let id = factor("instance_type").filter(|id| !id.is_empty()).ok_or("it names no type")?;
    let of = factor("vm_region_no").ok_or("it names no region")?;
    if !price_names(region).contains(&of) {
        return Err(format!("of region {of} where {region} was asked for"));
    }
    if factor("vm_os_kind").is_some_and(|os| os != "linux") {
        return Err("not of Linux".to_owned());
    }
    let mut found: Option<PriceState> = None;
    for price in &sku.csku_price_list {
        if price.price_mode.as_deref() != Some("NORMAL_PRICE") {
            continue;
        }
        let unit = price.price_unit.as_deref().unwrap_or_default();
        if !unit.to_lowercase().contains("hour") && !unit.contains("小时") {
            continue;
        }
        let state = in_currency(price.price.as_ref(), price.currency.as_deref(), currency)?;
        found = Some(match (found.and_then(|f| f.known()), state.known()) {
            // Of two the higher one: nobody is promised the lower.
            (Some(first), Some(new)) if first.amount >= new.amount => {
                PriceState::Known { price: first }
            }
            (Some(first), None) => PriceState::Known { price: first },
            _ => state,
        });
    }
    Ok((id.to_owned(), found.ok_or("it has no plain hourly price")?))
}

/// The machine's own part of `DescribePrice`; the total would include a system disk.
pub(super) fn own(price: &AccountPrice, currency: Currency) -> Result<Own, String> {
    let detail = price
        .detail_infos
        .detail_info
        .iter()
        .find(|detail| detail.resource == "instanceType")
        .ok_or("the answer has no part for the type itself")?;
    let stated = price.currency.as_deref();
    Ok(Own {
        price: in_currency(detail.trade_price.as_ref(), stated, currency)?,
        list: in_currency(detail.original_price.as_ref(), stated, currency)?.known(),
    })
}

/// Keeps the latest price of each zone.
pub(super) fn spot(
    row: SpotPrice,
    stated: Option<&str>,
    currency: Currency,
    all: &mut BTreeMap<(String, String), LastSpot>,
) -> Result<(), String> {
    let price = in_currency(row.spot_price.as_ref(), stated, currency)?;
    let new = LastSpot { price, at: row.timestamp };
    let last = all.entry((row.zone_id, row.instance_type)).or_insert(new);
    if new.at >= last.at {
        *last = new;
    }
    Ok(())
}

/// A price in the site's currency: another one would be another site's price.
fn in_currency(
    amount: Option<&RawNumber>,
    stated: Option<&str>,
    expected: Currency,
) -> Result<PriceState, String> {
    let stated: Currency =
        stated.ok_or("it states no currency")?.parse().map_err(|error| format!("{error}"))?;
    if stated != expected {
        return Err(format!("in {stated}; this site's prices are in {expected}"));
    }
    hourly(amount, stated)
}
