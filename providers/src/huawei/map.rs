//! Flavors and their ratings to offers.

use std::collections::BTreeMap;

use runwhere_model::{Currency, GpuCount, GpuModel, PriceKind, PriceState, Stock};

use super::wire::{Flavor, Rating};
use crate::sources::{Listing, SheetBuilder, hourly, whole};

/// A flavor with accelerators, before its price is known.
#[derive(Clone, Debug)]
pub(super) struct Accelerated {
    pub(super) id: String,
    row: Listing,
    zones: BTreeMap<String, Stock>,
    sold: bool,
}

/// Reads a flavor; `None` where it has no accelerator.
pub(super) fn flavor(flavor: &Flavor, region: &str) -> Result<Option<Accelerated>, String> {
    if flavor.id.is_empty() {
        return Err("the row names no type".to_owned());
    }
    let spec = |name: &str| flavor.os_extra_specs.get(name).map(String::as_str);
    let accelerated = matches!(spec("ecs:performancetype"), Some("gpu" | "ascend"));
    let words = spec("info:gpu:name").or_else(|| spec("info:asic_accelerators"));
    let alias = spec("pci_passthrough:alias");
    let cards = words.and_then(cards).or_else(|| alias.and_then(passed_through));
    let Some((raw, count)) = cards else {
        return match accelerated {
            true => Err("it does not tell its accelerators".to_owned()),
            false => Ok(None),
        };
    };
    let count = GpuCount::whole(count).ok_or("it states no number of accelerators")?;
    let mut row = Listing::new(&flavor.id, &raw, count, PriceState::Unknown);
    row.region = Some(region.to_owned());
    row.gpu = GpuModel::named(&raw, None).map(|model| model.id);
    row.vcpus = flavor.vcpus.as_ref().and_then(whole);
    row.memory_mib = flavor.ram.as_ref().and_then(whole).map(u64::from);
    let everywhere = spec("cond:operation:status").unwrap_or("normal");
    Ok(Some(Accelerated {
        id: flavor.id.clone(),
        row,
        zones: zones(spec("cond:operation:az").unwrap_or_default()),
        sold: state(everywhere).is_some(),
    }))
}

/// `2 * NVIDIA Tesla T4 / 2 * 16G`.
fn cards(text: &str) -> Option<(String, u32)> {
    let (count, rest) = text.split_once('*')?;
    let count = count.trim().parse().ok()?;
    let mut parts = rest.split('/');
    let name = parts.next()?.trim();
    let memory = parts.next().and_then(|memory| memory.rsplit('*').next()).map(str::trim);
    Some((memory.map_or_else(|| name.to_owned(), |memory| format!("{name} {memory}")), count))
}

/// `nvidia-p100:1`.
fn passed_through(text: &str) -> Option<(String, u32)> {
    let (name, count) = text.split(',').next()?.rsplit_once(':')?;
    Some((name.trim().to_owned(), count.trim().parse().ok()?))
}

/// `cn-north-4a(normal), cn-north-4b(sellout)`: zones where it is not sold are left out.
fn zones(text: &str) -> BTreeMap<String, Stock> {
    text.split(',')
        .filter_map(|part| {
            let (zone, word) = part.trim().strip_suffix(')')?.split_once('(')?;
            Some((zone.trim().to_owned(), state(word.trim())?))
        })
        .collect()
}

/// `None` = not sold there (any more).
fn state(word: &str) -> Option<Stock> {
    match word {
        "normal" | "promotion" | "obt" | "obt_promotion" => Some(Stock::Available),
        "sellout" | "obt_sellout" => Some(Stock::SoldOut),
        "abandon" => None,
        _ => Some(Stock::Unstated),
    }
}

/// Adds a flavor with its price, in each of its zones.
pub(super) fn offers(
    flavor: Accelerated,
    rating: Option<&Rating>,
    currency: Currency,
    sheet: &mut SheetBuilder,
) {
    let mut row = flavor.row;
    if let Some(rating) = rating {
        match priced(rating, currency) {
            Ok((own, list)) => {
                row.price = own;
                row.kind = PriceKind::Account;
                row.details.list_price = list.known().filter(|list| Some(*list) != own.known());
            }
            Err(reason) => return sheet.reject(flavor.id, reason),
        }
    }
    if flavor.zones.is_empty() {
        if !flavor.sold {
            row.price = PriceState::NotOffered;
        }
        return sheet.offer(row);
    }
    for (zone, stock) in flavor.zones {
        sheet.offer(Listing { zone: Some(zone), stock, ..row.clone() });
    }
}

fn priced(rating: &Rating, currency: Currency) -> Result<(PriceState, PriceState), String> {
    let list = hourly(rating.official_website_amount.as_ref(), currency)?;
    let own = hourly(rating.amount.as_ref(), currency)?;
    Ok((own, list))
}
