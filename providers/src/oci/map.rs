//! Shapes and products to offers. A GPU shape's price is its product's price per GPU and hour, times
//! its GPUs; it is the same in every region.

use std::collections::{BTreeMap, BTreeSet};

use runwhere_model::{BillingModel, Currency, GpuCount, GpuModel, Mark, PriceState, RawNumber};
use rust_decimal::Decimal;

use super::wire::{Product, ProductPrice, Shape};
use crate::sources::{Listing, SheetBuilder, gib_to_mib, hourly, one_gpu_mib, whole};

/// Hourly prices by part number; the reason where a product has none.
pub(super) type Prices = BTreeMap<String, Result<PriceState, String>>;

/// Shapes that a region has, by region; empty where no account tells.
pub(super) type Regions = BTreeMap<String, BTreeSet<String>>;

/// Notes a product's price.
pub(super) fn product(product: Product, currency: Currency, prices: &mut Prices) {
    let price = price(&product, currency);
    prices.insert(product.part_number, price);
}

fn price(product: &Product, currency: Currency) -> Result<PriceState, String> {
    if product.billing_model.as_deref() != Some("UCM") {
        return Err("its product is not billed by use".to_owned());
    }
    if product.price_type.as_deref() != Some("HOUR") {
        return Err("its product is not priced per hour".to_owned());
    }
    let localized = product
        .currency_code_localizations
        .iter()
        .find(|localized| localized.currency_code == currency.code())
        .ok_or_else(|| format!("its product has no price in {currency}"))?;
    let text = |price: &ProductPrice| price.value.as_ref().map(RawNumber::text);
    match &localized.prices[..] {
        [one, others @ ..] if one.model == "PAY_AS_YOU_GO" => {
            // The same price twice is one price.
            match others.iter().all(|other| other.model == one.model && text(other) == text(one)) {
                true => hourly(one.value.as_ref(), currency),
                false => Err(format!("its product has {} prices", localized.prices.len())),
            }
        }
        [_, ..] => Err("its product is not pay as you go".to_owned()),
        [] => Ok(PriceState::Unknown),
    }
}

/// Adds a shape, where it has GPUs.
pub(super) fn shape(shape: &Shape, prices: &Prices, regions: &Regions, sheet: &mut SheetBuilder) {
    let gpus = shape.gpu_qty.as_ref().and_then(whole).unwrap_or(0);
    let Some(count) = GpuCount::whole(gpus) else {
        if shape.name.contains(".GPU") {
            sheet.reject(&shape.name, "a GPU shape without a number of GPUs");
        }
        return;
    };
    if shape.hidden == Some(true) || shape.status.as_deref().is_some_and(|s| s != "ACTIVE") {
        return sheet.reject(&shape.name, "no longer sold");
    }
    match listing(shape, count, gpus, prices) {
        Ok(row) => place(row, shape, regions, sheet),
        Err(reason) => sheet.reject(&shape.name, reason),
    }
}

fn place(row: Listing, shape: &Shape, regions: &Regions, sheet: &mut SheetBuilder) {
    let mut rows = vec![row.clone()];
    if shape.allow_preemptible == Some(true) {
        let mut spot = Listing { billing: BillingModel::Spot, ..row };
        if let PriceState::Known { price } = &mut spot.price {
            // Oracle's rule for preemptible capacity: half, everywhere; a rule is no reading.
            price.amount = (price.amount * Decimal::new(5, 1)).normalize();
            spot.marks = spot.marks.with(Mark::Manual);
        }
        rows.push(spot);
    }
    for row in rows {
        if regions.is_empty() {
            sheet.offer(row);
            continue;
        }
        let mut anywhere = false;
        for (region, shapes) in regions {
            if shapes.contains(&row.instance_type) {
                anywhere = true;
                sheet.offer(Listing { region: Some(region.clone()), ..row.clone() });
            }
        }
        if !anywhere {
            sheet.offer(Listing { price: PriceState::NotOffered, ..row });
        }
    }
}

fn listing(shape: &Shape, count: GpuCount, gpus: u32, prices: &Prices) -> Result<Listing, String> {
    // For GPU shapes the product of kind "ocpu" is priced per GPU.
    let part = shape
        .products
        .iter()
        .find(|product| product.kind.value == "ocpu")
        .ok_or("it has no product for its GPUs")?;
    let each = prices
        .get(&part.part_number)
        .ok_or_else(|| format!("its product {} is not in the price list", part.part_number))?
        .clone()?;
    let price = match each {
        PriceState::Known { mut price } => {
            price.amount = price
                .amount
                .checked_mul(Decimal::from(gpus))
                .ok_or("the price of all GPUs is too large")?
                .normalize();
            PriceState::Known { price }
        }
        other => other,
    };
    let name = shape.name.trim_end_matches(" (NVL72)");
    let raw = gpu_name(name).ok_or("its name does not tell its GPUs")?;
    let stated = shape.gpu_memory_qty.as_ref().and_then(gib_to_mib);
    let known = generation(name, &raw);
    // That of one GPU for some shapes, that of all for the others.
    let memory = stated.map(|mib| match known {
        Some(model) if model.memory_fits(mib) => mib,
        Some(_) => mib / u64::from(gpus),
        None => one_gpu_mib(mib, count, &raw),
    });
    let mut row = Listing::new(name, &raw, count, price);
    row.gpu = known.or_else(|| GpuModel::named(&raw, memory)).map(|model| model.id);
    row.gpu_memory_mib = memory;
    // An OCPU of x86 is two vCPUs.
    row.vcpus = part.qty.as_ref().and_then(whole).map(|ocpus| ocpus * 2);
    row.memory_mib = shape.bundle_memory_qty.as_ref().and_then(gib_to_mib);
    Ok(row)
}

/// `BM.GPU.A100-v2.8` is A100, `BM.GPU4.8` a generation.
fn gpu_name(shape: &str) -> Option<String> {
    let mut parts = shape.split('.').skip(1);
    let first = parts.next()?;
    let name = match first.strip_prefix("GPU")? {
        "" => parts.next()?.split('-').next()?.to_owned(),
        generation => format!("GPU{generation}"),
    };
    Some(name)
}

/// Models whose name in a shape is not theirs.
fn generation(shape: &str, raw: &str) -> Option<&'static GpuModel> {
    GpuModel::resolve(match raw {
        "GPU2" => "p100",
        "GPU3" => "v100-16g",
        "GPU4" => "a100-40g",
        "A100" if shape.contains("-v2") => "a100-80g",
        "RTXPRO" => "rtx-pro-6000",
        _ => return None,
    })
}
