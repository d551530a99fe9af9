//! SKUs to prices of parts, and parts to machines. A machine's price is the exact sum of its parts;
//! where one is missing the price is unknown and the others are still shown.

use std::collections::{BTreeMap, BTreeSet};

use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, HourlyPrice, Mark, Marks, PricePart, PriceState,
    RawNumber,
};
use rust_decimal::Decimal;

use super::machines::{MACHINES, Machine};
use super::names::{Component, named};
use super::wire::{Sku, UnitPrice};
use crate::sources::{Listing, SheetBuilder};

/// Hours of a month in Google's prices.
const MONTH: i64 = 730;

/// Price of a part by part, region and whether it is spot.
pub(super) type Parts = BTreeMap<(Component, String, bool), Decimal>;

/// Notes a SKU, where it is a part of a machine with GPUs.
pub(super) fn sku(sku: &Sku, asked: Currency, parts: &mut Parts, sheet: &mut SheetBuilder) {
    let found = named(&sku.description, &sku.category.usage_type).and_then(|named| {
        named.map(|named| Ok((named, price(sku, named.component, asked, sheet)?))).transpose()
    });
    let (named, price) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(reason) => return sheet.reject(&sku.description, reason),
    };
    if sku.service_regions.is_empty() {
        return sheet.reject(&sku.description, "it names no region");
    }
    for region in &sku.service_regions {
        let key = (named.component, region.clone(), named.spot);
        match parts.get(&key) {
            // Nobody is promised the lower of two.
            Some(there) if *there != price => {
                let reason = format!("a second price in {region}; the higher one stands");
                sheet.reject(&sku.description, reason);
                parts.insert(key, price.max(*there));
            }
            _ => {
                parts.insert(key, price);
            }
        }
    }
}

fn price(
    sku: &Sku,
    component: Component,
    asked: Currency,
    sheet: &SheetBuilder,
) -> Result<Decimal, String> {
    let info = sku
        .pricing_info
        .iter()
        .rfind(|info| info.effective_time.is_none_or(|time| time <= sheet.observed_at()))
        .ok_or("it has no price in force")?;
    let expression = &info.pricing_expression;
    let unit = match component {
        Component::Memory(_) => "GiBy.h",
        Component::LocalSsd => "GiBy.mo",
        Component::Core(_) | Component::Gpu(_) | Component::Slice(_) => "h",
    };
    if expression.usage_unit != unit {
        return Err(format!("its unit is {}, not {unit}", expression.usage_unit));
    }
    let mut amounts = expression.tiered_rates.iter().map(|rate| amount(&rate.unit_price, asked));
    let first = amounts.next().ok_or("it has no rate")??;
    // A price by quantity is no price of one.
    match amounts.all(|other| other == Ok(first)) {
        true => Ok(first),
        false => Err(format!("it has {} rates", expression.tiered_rates.len())),
    }
}

/// Units and billionths, exactly.
fn amount(price: &UnitPrice, asked: Currency) -> Result<Decimal, String> {
    let stated: Currency = price.currency_code.parse().map_err(|error| format!("{error}"))?;
    if stated != asked {
        return Err(format!("answered in {stated} where {asked} was asked for"));
    }
    // Both are always sent, also as 0: without one the price would be another.
    let whole = |number: &Option<RawNumber>| match number {
        None => Err("a price without units or nanos".to_owned()),
        Some(number) => number.decimal().map_err(|error| format!("{}: {error}", number.text())),
    };
    let (units, nanos) = (whole(&price.units)?, whole(&price.nanos)?);
    if !units.fract().is_zero() || !nanos.fract().is_zero() {
        return Err("units and nanos are whole numbers".to_owned());
    }
    let nanos = nanos.checked_mul(Decimal::new(1, 9)).ok_or("the price is too large")?;
    let amount = units.checked_add(nanos).ok_or("the price is too large")?.normalize();
    match amount {
        amount if amount > Decimal::ZERO => Ok(amount),
        amount => Err(format!("a price of {amount}")),
    }
}

/// Adds every machine in every region that has a price of its GPU, or of something else that only
/// such machines have: there the price of the GPU is what is missing.
pub(super) fn machines(
    parts: &Parts,
    currency: Currency,
    wanted: &[String],
    sheet: &mut SheetBuilder,
) {
    let regions: BTreeSet<(Component, &String, bool)> = parts
        .keys()
        .filter_map(|(component, region, spot)| Some((gpu_of(*component)?, region, *spot)))
        .filter(|(_, region, _)| wanted.is_empty() || wanted.contains(region))
        .collect();
    for machine in MACHINES {
        for (_, region, spot) in regions.iter().filter(|(gpu, ..)| *gpu == machine.gpu) {
            if *spot || machine.on_demand {
                offer(machine, region, *spot, parts, currency, sheet);
            }
        }
    }
}

/// The GPU that a part belongs to; `None` where machines with different GPUs have it.
fn gpu_of(component: Component) -> Option<Component> {
    let family = match component {
        Component::Gpu(_) | Component::Slice(_) => return Some(component),
        Component::Core(family) | Component::Memory(family) => family,
        Component::LocalSsd => return None,
    };
    let mut gpus = MACHINES.iter().filter(|machine| machine.family == family).map(|m| m.gpu);
    let first = gpus.next()?;
    gpus.all(|gpu| gpu == first).then_some(first)
}

fn offer(
    machine: &Machine,
    region: &str,
    spot: bool,
    parts: &Parts,
    currency: Currency,
    sheet: &mut SheetBuilder,
) {
    let Some(count) = GpuCount::whole(machine.count) else { return };
    let each = |component| parts.get(&(component, region.to_owned(), spot)).copied();
    let times = |price: Option<Decimal>, number: u32| price?.checked_mul(Decimal::from(number));
    let mut list = vec![("gpu", times(each(machine.gpu), machine.count))];
    if matches!(machine.gpu, Component::Gpu(_)) {
        list.push(("cpu", times(each(Component::Core(machine.family)), machine.vcpus)));
        list.push(("memory", times(each(Component::Memory(machine.family)), machine.gib)));
    }
    if machine.ssd_gib > 0 {
        // A month's price is no whole number of hours': twelve decimals, as all money here.
        let hour = times(each(Component::LocalSsd), machine.ssd_gib)
            .and_then(|month| month.checked_div(Decimal::from(MONTH)))
            .map(|hour| hour.round_dp(12));
        list.push(("local_ssd", hour));
    }
    let sum = list.iter().try_fold(Decimal::ZERO, |sum, (_, amount)| sum.checked_add((*amount)?));
    let price = sum.map_or(PriceState::Unknown, |amount| PriceState::Known {
        price: HourlyPrice { amount: amount.normalize(), currency },
    });
    let mut row = Listing::new(machine.name, machine.model, count, price);
    row.gpu = GpuModel::resolve(machine.model).map(|model| model.id);
    row.region = Some(region.to_owned());
    row.billing = if spot { BillingModel::Spot } else { BillingModel::OnDemand };
    row.vcpus = Some(machine.vcpus);
    row.memory_mib = Some(u64::from(machine.gib) * 1024);
    row.marks = Marks::of(Mark::Summed);
    row.details.parts = list
        .into_iter()
        .map(|(part, amount)| PricePart {
            part: part.to_owned(),
            amount: amount.map(|amount| amount.normalize()),
        })
        .collect();
    sheet.offer(row);
}
