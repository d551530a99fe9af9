//! Types, capacities and the dated table to offers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::{
    Currency, GpuCount, HourlyPrice, Mark, Marks, PriceKind, PriceState, Stock, parse_decimal,
};
use rust_decimal::Decimal;

use super::prices::{PRICES, TYPED_ON};
use super::wire::{Capacity, VmType};
use crate::sources::{Listing, SettingError, SheetBuilder, gib_to_mib, whole};

/// Machines of a type in each location; `None` where capacities could not be read.
pub(super) type Places = Option<BTreeMap<String, BTreeMap<String, Stock>>>;

/// US dollars of one GPU and hour, by Crusoe's name of it, with when the table was typed in.
pub(super) type GpuPrices = BTreeMap<String, (Decimal, Option<Timestamp>, PriceKind)>;

/// The table that comes with the program, under the prices of the settings.
pub(super) fn gpu_prices(settings: &BTreeMap<String, String>) -> Result<GpuPrices, SettingError> {
    let typed_on = TYPED_ON.parse().ok();
    let mut prices = GpuPrices::new();
    for (name, price) in PRICES {
        if let Ok(price) = parse_decimal(price) {
            prices.insert((*name).to_owned(), (price, typed_on, PriceKind::List));
        }
    }
    for (name, text) in settings {
        let price =
            parse_decimal(text).ok().filter(|price| *price > Decimal::ZERO).ok_or_else(|| {
                SettingError::new("prices", format!("{name}: a decimal above 0 as text"))
            })?;
        prices.insert(name.clone(), (price, None, PriceKind::Configured));
    }
    Ok(prices)
}

/// Notes a capacity. Several rows of one place count once.
pub(super) fn capacity(
    row: &Capacity,
    places: &mut BTreeMap<String, BTreeMap<String, Stock>>,
) -> Result<(), String> {
    let quantity = row.quantity.decimal().map_err(|error| format!("quantity: {error}"))?;
    let stock = if quantity > Decimal::ZERO { Stock::Available } else { Stock::SoldOut };
    let there = places.entry(row.kind.clone()).or_default();
    let kept = there.entry(row.location.clone()).or_insert(stock);
    if stock == Stock::Available {
        *kept = stock;
    }
    Ok(())
}

/// Adds a type, where it has GPUs.
pub(super) fn vm_type(
    kind: &VmType,
    places: &Places,
    prices: &GpuPrices,
    sheet: &mut SheetBuilder,
) {
    let raw = kind.gpu_type.clone().filter(|raw| !raw.is_empty());
    let stated = kind.num_gpu.as_ref().and_then(whole);
    let (gpus, raw) = match (stated, raw) {
        (Some(0), _) | (None, None) => return,
        (Some(gpus), Some(raw)) => (gpus, raw),
        (Some(_), None) => return sheet.reject(&kind.product_name, "it does not name its GPUs"),
        (None, Some(_)) => {
            return sheet.reject(&kind.product_name, "it states no number of GPUs");
        }
    };
    let Some(count) = GpuCount::whole(gpus) else { return };
    let known = prices.get(&raw);
    let total = known.and_then(|(each, ..)| each.checked_mul(Decimal::from(gpus)));
    let price = total.map_or(PriceState::Unknown, |amount| PriceState::Known {
        price: HourlyPrice { amount: amount.normalize(), currency: Currency::USD },
    });
    let mut row = Listing::new(&kind.product_name, &raw, count, price);
    row.vcpus = kind.cpu_cores.as_ref().and_then(whole);
    row.memory_mib = kind.memory_gb.as_ref().and_then(gib_to_mib);
    if let Some((_, typed_on, price_kind)) = known {
        row.kind = *price_kind;
        row.observed_at = *typed_on;
        row.marks = Marks::of(Mark::Manual);
    }
    let Some(places) = places else { return sheet.offer(row) };
    match places.get(&kind.product_name) {
        None => sheet.offer(Listing { stock: Stock::SoldOut, ..row }),
        Some(places) => {
            for (place, stock) in places {
                sheet.offer(Listing { region: Some(place.clone()), stock: *stock, ..row.clone() });
            }
        }
    }
}
