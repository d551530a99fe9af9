//! Types to offers. A type's price is the same in all regions; where it can be had is stated only
//! for regions that have it now, so a type that is nowhere is one offer without a region, sold out.

use runwhere_model::{Currency, GpuCount, PriceState, Stock};
use rust_decimal::Decimal;

use super::wire::Entry;
use crate::sources::{Listing, SheetBuilder, gib_to_mib, whole};

/// Adds the type of one entry.
pub(super) fn entry(name: &str, entry: Entry, regions: &[String], sheet: &mut SheetBuilder) {
    let row = match listing(&entry) {
        Ok(Some(row)) => row,
        Ok(None) => return,
        Err(reason) => return sheet.reject(name, reason),
    };
    let Some(places) = entry.regions_with_capacity_available else {
        // Not "nowhere": the answer does not say.
        return sheet.offer(row);
    };
    if places.is_empty() {
        return sheet.offer(Listing { stock: Stock::SoldOut, ..row });
    }
    let wanted = |name: &str| regions.is_empty() || regions.iter().any(|region| region == name);
    for place in places.into_iter().filter(|place| wanted(&place.name)) {
        sheet.offer(Listing { region: Some(place.name), stock: Stock::Available, ..row.clone() });
    }
}

fn listing(entry: &Entry) -> Result<Option<Listing>, String> {
    let kind = &entry.instance_type;
    let stated = kind.specs.gpus.as_ref().ok_or("it states no number of GPUs")?;
    let gpus = whole(stated).ok_or_else(|| format!("{} is no number of GPUs", stated.text()))?;
    let Some(count) = GpuCount::whole(gpus) else { return Ok(None) };
    let price = match &kind.price_cents_per_hour {
        None => PriceState::Unknown,
        Some(cents) => {
            let cents = cents.decimal().map_err(|error| format!("price: {error}"))?;
            let dollars = cents.checked_mul(Decimal::new(1, 2)).ok_or("the price is too large")?;
            crate::sources::amount_state(dollars.normalize(), Currency::USD)?
        }
    };
    let raw = kind.gpu_description.as_deref().or(kind.description.as_deref()).unwrap_or(&kind.name);
    let mut row = Listing::new(&kind.name, raw, count, price);
    row.vcpus = kind.specs.vcpus.as_ref().and_then(whole);
    row.memory_mib = kind.specs.memory_gib.as_ref().and_then(gib_to_mib);
    Ok(Some(row))
}
