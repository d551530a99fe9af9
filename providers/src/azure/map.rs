//! Meters to offers.

use runwhere_model::{BillingModel, Currency, GpuCount, GpuModel, Mark};

use super::sizes;
use super::wire::Meter;
use crate::sources::{Listing, SheetBuilder, hourly, whole};

/// Adds a meter to the sheet. `asked` is the currency of the request.
pub(super) fn meter(meter: Meter, asked: Currency, sheet: &mut SheetBuilder) {
    let sku = meter.arm_sku_name.trim().to_owned();
    if sku.is_empty() {
        return sheet.reject(&meter.meter_name, "the meter names no size");
    }
    if !sizes::has_gpu(&sku) {
        return;
    }
    match listing(meter, &sku, asked, sheet) {
        Ok(Some(listing)) => sheet.offer(listing),
        Ok(None) => {}
        Err(reason) => sheet.reject(sku, reason),
    }
}

fn listing(
    meter: Meter,
    sku: &str,
    asked: Currency,
    sheet: &SheetBuilder,
) -> Result<Option<Listing>, String> {
    if meter.price_type != "Consumption" {
        return Err(format!("its price type is {}, not Consumption", meter.price_type));
    }
    if meter.unit_of_measure != "1 Hour" {
        return Err(format!("its unit is {}, not 1 Hour", meter.unit_of_measure));
    }
    if meter.is_primary_meter_region == Some(false) {
        // The same price once more, for another meter region.
        return Ok(None);
    }
    let now = sheet.observed_at();
    if meter.effective_end_date.is_some_and(|end| end <= now) {
        return Ok(None);
    }
    if meter.effective_start_date.is_some_and(|start| start > now) {
        return Err("its price is not in force yet".to_owned());
    }
    if meter.tier_minimum_units.as_ref().and_then(whole).is_some_and(|units| units > 0) {
        return Err("a price for quantities only".to_owned());
    }
    let currency: Currency = meter.currency_code.parse().map_err(|_| "no currency".to_owned())?;
    if currency != asked {
        return Err(format!("answered in {currency} where {asked} was asked for"));
    }
    if meter.product_name.contains("Cloud Services") || meter.product_name.contains("CloudServices")
    {
        return Err("a price of Cloud Services, another product".to_owned());
    }
    let region = meter.arm_region_name.trim().to_lowercase();
    if region.is_empty() {
        return Err("the meter names no region".to_owned());
    }
    let Some((_, model, (parts, of), vcpus, gib)) = sizes::size(sku) else {
        return Err("its GPUs are not in the table of sizes".to_owned());
    };
    let count = GpuCount::fraction(*parts, *of).ok_or("no GPU count")?;
    let price = hourly(meter.retail_price.as_ref(), currency)?;
    let mut row = Listing::new(sku, *model, count, price);
    row.gpu = GpuModel::resolve(model).map(|model| model.id);
    row.billing = billing(&meter)?;
    row.region = Some(region);
    row.vcpus = Some(*vcpus);
    row.memory_mib = Some(u64::from(*gib) * 1024);
    row.effective_at = meter.effective_start_date;
    if currency != Currency::USD {
        // Azure states other currencies for reference.
        row.marks = row.marks.with(Mark::FromPrice);
    }
    Ok(Some(row))
}

fn billing(meter: &Meter) -> Result<BillingModel, String> {
    let says = |word: &str| meter.meter_name.contains(word) || meter.sku_name.contains(word);
    let windows = meter.product_name.contains("Windows");
    if meter.product_name.contains("Dedicated") {
        return Ok(BillingModel::DedicatedHost);
    }
    Ok(match (says("Low Priority"), says("Spot"), windows) {
        (true, _, true) => return Err("low priority with a Windows licence".to_owned()),
        (true, ..) => BillingModel::LowPriority,
        (_, true, true) => BillingModel::WindowsSpot,
        (_, true, false) => BillingModel::Spot,
        (_, _, true) => BillingModel::Windows,
        _ => BillingModel::OnDemand,
    })
}
