//! Sizes to offers, one for each region.

use runwhere_model::{Currency, GpuCount, Stock};

use super::wire::{GpuInfo, Size};
use crate::sources::{Listing, SheetBuilder, gib_to_mib, hourly, one_gpu_mib, whole};

/// Adds a size, where it has GPUs.
pub(super) fn size(size: &Size, sheet: &mut SheetBuilder) {
    let Some(info) = &size.gpu_info else {
        if size.slug.starts_with("gpu-") {
            sheet.reject(&size.slug, "a GPU size without gpu_info");
        }
        return;
    };
    let row = match listing(size, info) {
        Ok(row) => row,
        Err(reason) => return sheet.reject(&size.slug, reason),
    };
    let places = size.regions.as_deref().unwrap_or_default();
    let stock = match size.available {
        Some(true) => Stock::Available,
        Some(false) => Stock::SoldOut,
        None => Stock::Unstated,
    };
    if places.is_empty() {
        // Listed, and nowhere to be had.
        let stock = if size.regions.is_some() { Stock::SoldOut } else { Stock::Unstated };
        return sheet.offer(Listing { stock, ..row });
    }
    for place in places {
        sheet.offer(Listing { region: Some(place.clone()), stock, ..row.clone() });
    }
}

fn listing(size: &Size, info: &GpuInfo) -> Result<Listing, String> {
    let count = whole(&info.count)
        .and_then(GpuCount::whole)
        .ok_or_else(|| format!("{} is no number of GPUs", info.count.text()))?;
    let raw = info.model.as_deref().filter(|model| !model.is_empty()).unwrap_or(&size.slug);
    let price = hourly(size.price_hourly.as_ref(), Currency::USD)?;
    let mut row = Listing::new(&size.slug, raw, count, price);
    row.vcpus = size.vcpus.as_ref().and_then(whole);
    row.memory_mib = size.memory.as_ref().and_then(whole).map(u64::from);
    let vram = info.vram.as_ref().filter(|vram| {
        vram.unit
            .as_deref()
            .is_none_or(|unit| unit.eq_ignore_ascii_case("gib") || unit.eq_ignore_ascii_case("gb"))
    });
    // One GPU's memory for some sizes, that of all for others.
    row.gpu_memory_mib = vram
        .and_then(|vram| vram.amount.as_ref())
        .and_then(gib_to_mib)
        .map(|mib| one_gpu_mib(mib, count, raw));
    Ok(row)
}
