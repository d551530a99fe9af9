//! Types to offers. A price holds everywhere; where a type can be had is another call.

use std::collections::{BTreeMap, BTreeSet};

use runwhere_model::{BillingModel, Currency, GpuCount, Stock};

use super::wire::InstanceType;
use crate::sources::{Listing, SheetBuilder, gib_to_mib, hourly, whole};

/// Types available now, by location; `None` where it could not be read.
pub(super) type Places = Option<BTreeMap<String, BTreeSet<String>>>;

/// Adds a type: on demand and spot, in each location where it can be had now, else once, sold out.
pub(super) fn instance_type(
    kind: &InstanceType,
    asked: Currency,
    places: &Places,
    spot_places: &Places,
    sheet: &mut SheetBuilder,
) {
    let row = match listing(kind, asked) {
        Ok(Some(row)) => row,
        Ok(None) => return,
        Err(reason) => return sheet.reject(&kind.instance_type, reason),
    };
    put(row.clone(), places, sheet);
    if let Some(spot) = &kind.spot_price {
        match hourly(Some(spot), asked) {
            Ok(price) => {
                put(Listing { price, billing: BillingModel::Spot, ..row }, spot_places, sheet);
            }
            Err(reason) => sheet.reject(format!("{} (spot)", kind.instance_type), reason),
        }
    }
}

fn put(row: Listing, places: &Places, sheet: &mut SheetBuilder) {
    let Some(places) = places else { return sheet.offer(row) };
    let here: Vec<&String> = places
        .iter()
        .filter(|(_, types)| types.contains(&row.instance_type))
        .map(|(place, _)| place)
        .collect();
    if here.is_empty() {
        return sheet.offer(Listing { stock: Stock::SoldOut, ..row });
    }
    for place in here {
        sheet.offer(Listing {
            region: Some(place.clone()),
            stock: Stock::Available,
            ..row.clone()
        });
    }
}

fn listing(kind: &InstanceType, asked: Currency) -> Result<Option<Listing>, String> {
    let Some(gpu) = &kind.gpu else { return Err("it does not state its GPUs".to_owned()) };
    let gpus = whole(&gpu.number_of_gpus)
        .ok_or_else(|| format!("{} is no number of GPUs", gpu.number_of_gpus.text()))?;
    let Some(count) = GpuCount::whole(gpus) else { return Ok(None) };
    let currency: Currency = kind
        .currency
        .as_deref()
        .ok_or("it states no currency")?
        .parse()
        .map_err(|error| format!("{error}"))?;
    if currency != asked {
        return Err(format!("answered in {currency} where {asked} was asked for"));
    }
    let price = hourly(kind.price_per_hour.as_ref(), currency)?;
    let raw = gpu.description.as_deref().unwrap_or(&kind.instance_type);
    let mut row = Listing::new(&kind.instance_type, raw, count, price);
    // The field is the memory of all GPUs.
    row.gpu_memory_mib = kind
        .gpu_memory
        .as_ref()
        .and_then(|memory| memory.size_in_gigabytes.as_ref())
        .and_then(gib_to_mib)
        .map(|mib| mib / u64::from(gpus));
    row.vcpus = kind.cpu.as_ref().and_then(|cpu| cpu.number_of_cores.as_ref()).and_then(whole);
    row.memory_mib = kind
        .memory
        .as_ref()
        .and_then(|memory| memory.size_in_gigabytes.as_ref())
        .and_then(gib_to_mib);
    Ok(Some(row))
}
