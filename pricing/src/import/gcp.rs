//! SkyPilot's file of GCP: hosts and GPUs are rows of their own and must be added.

use std::collections::BTreeMap;

use runwhere_model::offer::RejectedRow;
use runwhere_model::{
    BillingModel, GpuCount, HourlyPrice, Mark, OfferDetails, PricePart, PriceState,
};
use runwhere_providers::sources::count;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::Imported;
use super::skypilot::{Cells, File, decimal, filled, mebibytes};
use super::table::Row;

/// A GPU's on-demand cell below this share of the dearest region's is the price of a queue, not of
/// on demand: such cells are 42 to 71 % of the list price.
const QUEUED_PERCENT: u32 = 75;

#[derive(Debug)]
struct Host {
    vcpus: Option<u32>,
    memory_mib: Option<u64>,
    prices: [Option<Decimal>; 2],
}

#[derive(Debug)]
struct Gpu {
    prices: [Option<Decimal>; 2],
}

/// What the file holds until it is read to its end.
#[derive(Debug, Default)]
pub(super) struct Gcp {
    /// By type, region, zone.
    hosts: BTreeMap<(String, String, String), Host>,
    /// By accelerator, count, region, zone.
    gpus: BTreeMap<(String, u32, String, String), Gpu>,
}

/// The accelerator that is part of a type.
fn bundled(instance_type: &str) -> Option<(&'static str, u32)> {
    let (family, size) = instance_type.rsplit_once('-')?;
    let number = |suffix: char| size.strip_suffix(suffix)?.parse::<u32>().ok();
    Some(match family {
        "a2-highgpu" | "a2-megagpu" => ("A100", number('g')?),
        "a2-ultragpu" => ("A100-80GB", number('g')?),
        "a3-highgpu" => ("H100", number('g')?),
        "a3-megagpu" => ("H100-MEGA", number('g')?),
        "a3-ultragpu" => ("H200", number('g')?),
        "a4-highgpu" => ("B200", number('g')?),
        "g2-standard" => (
            "L4",
            match size {
                "24" => 2,
                "48" => 4,
                "96" => 8,
                _ => 1,
            },
        ),
        _ => return None,
    })
}

impl Gcp {
    /// Takes a host or GPU row; `false` = the row is of the usual kind.
    pub(super) fn take(&mut self, row: &Row<'_>, file: &mut File<'_>) -> Result<bool, String> {
        let (instance_type, accelerator) = (row.get("InstanceType"), row.get("AcceleratorName"));
        let place = || (row.get("Region").to_owned(), row.get("AvailabilityZone").to_owned());
        let prices = || -> Result<[Option<Decimal>; 2], String> {
            Ok([decimal(row.get("Price"), "Price")?, decimal(row.get("SpotPrice"), "SpotPrice")?])
        };
        if accelerator.is_empty() && bundled(instance_type).is_some() {
            let (region, zone) = place();
            let vcpus = decimal(row.get("vCPUs"), "vCPUs")?;
            let host = Host {
                vcpus: vcpus.and_then(|cpus| cpus.to_u32()),
                memory_mib: mebibytes(row.get("MemoryGiB"), "MemoryGiB")?,
                prices: prices()?,
            };
            self.hosts.insert((instance_type.to_owned(), region, zone), host);
            return Ok(true);
        }
        if instance_type.is_empty() && !accelerator.is_empty() {
            let number = decimal(row.get("AcceleratorCount"), "AcceleratorCount")?;
            let whole = number.and_then(count).and_then(GpuCount::as_whole);
            let whole = whole.ok_or("AcceleratorCount is no whole number")?;
            // Known before the rest, so that a name is looked up once.
            let _ = file.model(accelerator, None);
            let (region, zone) = place();
            let key = (accelerator.to_owned(), whole, region, zone);
            self.gpus.insert(key, Gpu { prices: prices()? });
            return Ok(true);
        }
        Ok(false)
    }
}

/// Adds hosts and GPUs of one zone. A host alone is no GPU offer, and neither is a GPU without one.
pub(super) fn join(gcp: Gcp, file: &File<'_>, imported: &mut Imported) {
    // The dearest on-demand cell of each GPU, which is its list price.
    let mut dearest: BTreeMap<(&str, u32), Decimal> = BTreeMap::new();
    for ((name, number, ..), gpu) in &gcp.gpus {
        if let Some(price) = gpu.prices[0] {
            let most = dearest.entry((name.as_str(), *number)).or_insert(price);
            *most = price.max(*most);
        }
    }
    let mut used: std::collections::BTreeSet<(String, u32, String, String)> =
        std::collections::BTreeSet::new();
    let mut rejected = Vec::new();
    for ((instance_type, region, zone), host) in &gcp.hosts {
        let Some((name, number)) = bundled(instance_type) else { continue };
        let key = (name.to_owned(), number, region.clone(), zone.clone());
        let row = || format!("{instance_type} in {zone}");
        let Some(gpu) = gcp.gpus.get(&key) else {
            let reason = format!(
                "the file has no price of {number} x {name} there: a host alone is no offer"
            );
            rejected.push(RejectedRow { row: row(), reason });
            continue;
        };
        used.insert(key);
        let memory = match name {
            "A100" => Some(40 * 1024),
            "A100-80GB" => Some(80 * 1024),
            _ => None,
        };
        let model = runwhere_model::GpuModel::named(name, memory).map(|model| model.id);
        for (at, billing) in [BillingModel::OnDemand, BillingModel::Spot].into_iter().enumerate() {
            let Some(gpu_price) = gpu.prices[at] else { continue };
            if billing == BillingModel::OnDemand
                && let Some(reason) =
                    queued(instance_type, gpu, gpu_price, dearest.get(&(name, number)))
            {
                rejected.push(RejectedRow { row: row(), reason });
                continue;
            }
            let Some(total) = host.prices[at].and_then(|host| host.checked_add(gpu_price)) else {
                let reason = "the host's price is missing".to_owned();
                rejected.push(RejectedRow { row: row(), reason });
                continue;
            };
            let part = |part: &str, amount| PricePart { part: part.to_owned(), amount };
            let cells = Cells {
                instance_type: instance_type.clone(),
                gpu: model,
                gpu_raw: name.to_owned(),
                gpu_count: GpuCount::whole(number)
                    .unwrap_or_else(|| GpuCount::whole(1).expect("one is a count")),
                gpu_memory_mib: None,
                vcpus: host.vcpus,
                memory_mib: host.memory_mib,
                region: filled(region),
                zone: filled(zone),
                marks: file.marks.with(Mark::Summed),
                details: OfferDetails {
                    parts: vec![part("host", host.prices[at]), part("gpu", Some(gpu_price))],
                    ..OfferDetails::default()
                },
                windows: false,
            };
            let state = match total.is_zero() {
                true => PriceState::Unknown,
                false => PriceState::Known {
                    price: HourlyPrice { amount: total, currency: file.currency },
                },
            };
            imported.offers.push(file.offer(&cells, billing, state));
        }
    }
    for (name, number, region, zone) in gcp.gpus.keys() {
        if !used.contains(&(name.clone(), *number, region.clone(), zone.clone())) {
            let reason =
                "a GPU that is attached to a host of one's choice: no machine, no price".to_owned();
            rejected.push(RejectedRow { row: format!("{number} x {name} in {zone}"), reason });
        }
    }
    imported.rejected.extend(rejected);
}

/// Why an on-demand cell is not the price of on demand.
fn queued(
    instance_type: &str,
    gpu: &Gpu,
    price: Decimal,
    dearest: Option<&Decimal>,
) -> Option<String> {
    if matches!(instance_type, "a3-highgpu-1g" | "a3-highgpu-2g" | "a3-highgpu-4g") {
        return Some(
            "sold as spot or from a queue only: the on-demand cell is another product's".to_owned(),
        );
    }
    if gpu.prices[1].is_some_and(|spot| spot > price) {
        return Some(
            "the GPU's on-demand cell is below its spot cell: the price of a queue".to_owned(),
        );
    }
    let list = dearest?.checked_mul(Decimal::from(QUEUED_PERCENT))?;
    (price.checked_mul(Decimal::ONE_HUNDRED)? < list).then(|| {
        format!("the GPU's on-demand cell {price} is far below that of other regions: the price of a queue")
    })
}
