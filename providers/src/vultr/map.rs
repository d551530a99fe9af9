//! Plans to offers.

use std::collections::{BTreeMap, BTreeSet};

use runwhere_model::{Currency, GpuCount, GpuModel, GpuModelId, Stock};

use super::wire::Plan;
use crate::sources::{Listing, SheetBuilder, hourly, whole};

/// Plans available now, by region; a region that is not in it could not be asked.
pub(super) type Available = BTreeMap<String, BTreeSet<String>>;

/// A plan read, with the regions in which it is sold.
#[derive(Debug)]
pub(super) struct Sold {
    row: Listing,
    places: Option<Vec<String>>,
}

impl Sold {
    /// The regions in which it is sold.
    pub(super) fn places(&self) -> impl Iterator<Item = &String> {
        self.places.iter().flatten()
    }
}

/// Reads a plan; `None` where it has no GPU.
pub(super) fn plan(plan: Plan, metal: bool) -> Result<Option<Sold>, String> {
    let Some(gpus) = gpus(&plan, metal)? else { return Ok(None) };
    if plan.deploy_ondemand == Some(false) {
        return Err("sold by contract only".to_owned());
    }
    let price = hourly(plan.hourly_cost.as_ref(), Currency::USD)?;
    let mut row = Listing::new(&plan.id, gpus.raw, gpus.count, price);
    row.gpu = gpus.model;
    row.vcpus = plan.vcpu_count.as_ref().and_then(whole);
    row.memory_mib = plan.ram.as_ref().and_then(whole).map(u64::from);
    // An empty name stands among the regions of some plans.
    let places =
        plan.locations.map(|places| places.into_iter().filter(|place| !place.is_empty()).collect());
    Ok(Some(Sold { row, places }))
}

/// Adds a plan in each of its regions.
pub(super) fn offers(sold: Sold, available: &Available, sheet: &mut SheetBuilder) {
    let Some(places) = sold.places else { return sheet.offer(sold.row) };
    if places.is_empty() {
        return sheet.offer(Listing { stock: Stock::SoldOut, ..sold.row });
    }
    for place in places {
        let stock = match available.get(&place) {
            None => Stock::Unstated,
            Some(plans) if plans.contains(&sold.row.instance_type) => Stock::Available,
            Some(_) => Stock::SoldOut,
        };
        sheet.offer(Listing { region: Some(place), stock, ..sold.row.clone() });
    }
}

struct Gpus {
    raw: String,
    model: Option<GpuModelId>,
    count: GpuCount,
}

fn gpus(plan: &Plan, metal: bool) -> Result<Option<Gpus>, String> {
    if metal {
        return metal_gpus(&plan.id);
    }
    let Some(raw) = plan.gpu_type.clone().filter(|raw| !raw.is_empty()) else {
        return match plan.id.starts_with("vcg-") {
            true => Err("a GPU plan without gpu_type".to_owned()),
            false => Ok(None),
        };
    };
    let total = plan.gpu_vram_gb.as_ref().and_then(whole).ok_or("it states no GPU memory")?;
    // Vultr's A100 are all of 80 GB; the memory of a plan is that of its share or of all its GPUs.
    let name = raw.replace('_', " ");
    let model = match name.ends_with("A100") {
        true => GpuModel::resolve("a100-80g"),
        false => GpuModel::named(&name, None),
    };
    let model = model.ok_or_else(|| format!("the memory of one {raw} is not known"))?;
    let one = model.memory_gib;
    let count = GpuCount::fraction(total, one)
        .filter(|count| count.as_whole().is_some() || total < one)
        .ok_or_else(|| format!("{total} GB are no number of {raw} with {one} GB"))?;
    Ok(Some(Gpus { raw, model: Some(model.id), count }))
}

/// Bare metal states its GPUs in the id only: `vbm-112c-2048gb-8-h100-gpu`.
fn metal_gpus(id: &str) -> Result<Option<Gpus>, String> {
    let parts: Vec<&str> = id.split('-').collect();
    if parts.last() != Some(&"gpu") {
        return Ok(None);
    }
    let odd = || "its id does not tell its GPUs".to_owned();
    let ram = parts.iter().position(|part| {
        part.strip_suffix("gb").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    });
    let about = &parts[ram.ok_or_else(odd)? + 1..parts.len() - 1];
    let (count, name) = match about {
        [count, name @ ..] if !name.is_empty() && count.parse::<u32>().is_ok() => {
            (count.parse().map_err(|_| odd())?, name)
        }
        name => (1, name),
    };
    let raw = name.join("-");
    let count = GpuCount::whole(count).filter(|_| !raw.is_empty()).ok_or_else(odd)?;
    Ok(Some(Gpus { model: GpuModel::named(&raw, None).map(|model| model.id), raw, count }))
}
