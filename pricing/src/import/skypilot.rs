//! SkyPilot's `vms.csv`.

use std::collections::HashMap;

use runwhere_model::offer::RejectedRow;
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, GpuModelId, HourlyPrice, Mark, Marks, Offer,
    OfferDetails, OfferKey, PriceState, ProviderId, parse_decimal,
};
use runwhere_providers::sources::count;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::gcp::{self, Gcp};
use super::table::{Row, Table};
use super::{ImportError, ImportOptions, Imported, Layout};
use crate::resold;

/// What the cells of one row say.
pub(super) struct Cells {
    pub(super) instance_type: String,
    pub(super) gpu: Option<GpuModelId>,
    pub(super) gpu_raw: String,
    pub(super) gpu_count: GpuCount,
    pub(super) gpu_memory_mib: Option<u64>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_mib: Option<u64>,
    pub(super) region: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) marks: Marks,
    pub(super) details: OfferDetails,
    pub(super) windows: bool,
}

/// What holds of the whole file.
pub(super) struct File<'o> {
    pub(super) provider: ProviderId,
    pub(super) currency: Currency,
    pub(super) marks: Marks,
    pub(super) options: &'o ImportOptions,
    /// `MemoryGiB` may be the memory of the GPUs.
    gpu_memory_column: bool,
    models: HashMap<String, Vec<Resolved>>,
}

/// A stated memory in MiB, and the model that it and a name mean.
type Resolved = (Option<u64>, Option<GpuModelId>);

impl File<'_> {
    pub(super) fn model(&mut self, name: &str, memory_mib: Option<u64>) -> Option<GpuModelId> {
        let known = self.models.get(name).and_then(|known| {
            known.iter().find(|(memory, _)| *memory == memory_mib).map(|(_, gpu)| *gpu)
        });
        known.unwrap_or_else(|| {
            let gpu = GpuModel::named(name, memory_mib).map(|model| model.id);
            self.models.entry(name.to_owned()).or_default().push((memory_mib, gpu));
            gpu
        })
    }

    pub(super) fn offer(
        &self,
        cells: &Cells,
        billing_model: BillingModel,
        state: PriceState,
    ) -> Offer {
        let empty = cells.details == OfferDetails::default();
        let key = OfferKey {
            provider: self.provider.clone(),
            region: cells.region.clone(),
            zone: cells.zone.clone(),
            billing_model,
            instance_type: cells.instance_type.clone(),
        };
        let price = self.options.price(state, None, None);
        Offer {
            gpu: cells.gpu,
            gpu_memory_mib: cells.gpu_memory_mib,
            vcpus: cells.vcpus,
            memory_mib: cells.memory_mib,
            marks: cells.marks,
            details: (!empty).then(|| Box::new(cells.details.clone())),
            ..Offer::listed(key, cells.gpu_raw.clone(), cells.gpu_count, price)
        }
    }
}

pub(super) fn read(
    table: Table<'_>,
    provider: ProviderId,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let name = provider.as_str().to_owned();
    // No such file has a currency column: two providers' files hold euros, one is not known for sure.
    let usual = match name.as_str() {
        "seeweb" | "scaleway" => Currency::EUR,
        _ => Currency::USD,
    };
    let assumed =
        options.currency.is_none() && matches!(name.as_str(), "seeweb" | "scaleway" | "ovhcloud");
    let mut marks = Marks::NONE;
    if assumed {
        marks = marks.with(Mark::CurrencyAssumed);
    }
    marks = resold::marks(&name, marks);
    let gpu_memory_column =
        name == "paperspace" || (name == "runpod" && table.before("GpuInfo", "Region"));
    let mut file = File {
        provider,
        currency: options.currency.unwrap_or(usual),
        marks,
        options,
        gpu_memory_column,
        models: HashMap::new(),
    };
    let mut imported = Imported {
        layout: Layout::SkyPilot,
        // On demand and spot.
        offers: Vec::with_capacity(table.room() * 2),
        rejected: Vec::new(),
        without_gpu: 0,
        rows: 0,
    };
    let mut gcp = (name == "gcp").then(Gcp::default);
    imported.rows = table.each(|row| {
        let reason = match row {
            Ok(row) => match take(&row, &mut file, &mut imported, gcp.as_mut()) {
                Ok(()) => return,
                Err(reason) => RejectedRow { row: row.text(), reason },
            },
            Err(error) => RejectedRow { row: String::new(), reason: error },
        };
        imported.rejected.push(reason);
    });
    if let Some(gcp) = gcp {
        gcp::join(gcp, &file, &mut imported);
    }
    Ok(imported)
}

fn take(
    row: &Row<'_>,
    file: &mut File<'_>,
    imported: &mut Imported,
    gcp: Option<&mut Gcp>,
) -> Result<(), String> {
    let accelerator = row.get("AcceleratorName");
    let instance_type = row.get("InstanceType");
    let number = decimal(row.get("AcceleratorCount"), "AcceleratorCount")?;
    let none = number.is_none_or(|number| number.is_zero());
    if let Some(gcp) = gcp {
        let known = gcp.take(row, file)?;
        if known {
            return Ok(());
        }
    }
    if accelerator.is_empty() || none {
        if instance_type.starts_with("Standard_N") && accelerator.is_empty() {
            return Err("a GPU type for which no accelerator is given".to_owned());
        }
        imported.without_gpu += 1;
        return Ok(());
    }
    if instance_type.is_empty() {
        return Err("no instance type".to_owned());
    }
    let cells = cells(row, file, number.unwrap_or_default())?;
    for (billing, column) in [(BillingModel::OnDemand, "Price"), (BillingModel::Spot, "SpotPrice")]
    {
        let cell = row.get(column);
        // Both columns of this provider hold the last auction's price.
        let auction = file.provider.as_str() == "mithril" && billing == BillingModel::OnDemand;
        if cell.is_empty() || auction {
            continue;
        }
        let billing = match (billing, cells.windows) {
            (BillingModel::OnDemand, true) => BillingModel::Windows,
            (_, true) => BillingModel::WindowsSpot,
            (billing, false) => billing,
        };
        let state = price(cell, file.currency).map_err(|why| format!("{column}: {why}"))?;
        let mut offer = file.offer(&cells, billing, state);
        // The on-demand price of this cloud is the region's, repeated for each zone.
        if file.provider.as_str() == "aws" && billing == BillingModel::OnDemand {
            offer.key.zone = None;
        }
        imported.offers.push(offer);
    }
    Ok(())
}

pub(super) fn decimal(cell: &str, column: &str) -> Result<Option<Decimal>, String> {
    if cell.is_empty() {
        return Ok(None);
    }
    parse_decimal(cell).map(Some).map_err(|error| format!("{column} {cell:?}: {error}"))
}

/// The state of a price cell. Zero is a placeholder, not a price.
pub(super) fn price(cell: &str, currency: Currency) -> Result<PriceState, String> {
    let amount = parse_decimal(cell).map_err(|error| format!("{cell:?}: {error}"))?;
    match amount {
        amount if amount.is_zero() => Ok(PriceState::Unknown),
        amount if amount.is_sign_negative() => Err(format!("{cell:?} is negative")),
        amount => Ok(PriceState::Known { price: HourlyPrice { amount, currency } }),
    }
}

pub(super) fn mebibytes(cell: &str, column: &str) -> Result<Option<u64>, String> {
    let Some(gib) = decimal(cell, column)? else { return Ok(None) };
    let mib = gib.checked_mul(Decimal::from(1024)).and_then(|mib| mib.trunc().to_u64());
    Ok(mib.filter(|mib| *mib > 0))
}

fn cells(row: &Row<'_>, file: &mut File<'_>, number: Decimal) -> Result<Cells, String> {
    let owner = file.provider.clone();
    let provider = owner.as_str();
    let instance_type = row.get("InstanceType").to_owned();
    let mut marks = file.marks;
    let mut details = OfferDetails::default();
    let stated_count = row.get("AcceleratorCount");
    let mut gpu_count =
        count(number).ok_or_else(|| format!("AcceleratorCount {stated_count:?} is no count"))?;
    if let Some(share) = azure_share(provider, &instance_type)
        && share != gpu_count
    {
        (gpu_count, marks) = (share, marks.with(Mark::CountCorrected));
        details.stated_gpu_count = Some(stated_count.to_owned());
    }
    let accelerator = row.get("AcceleratorName");
    let gpu_raw = match provider {
        // The accelerator column of this file has lost endings such as Ti; the type has them.
        "vast" => vast_name(&instance_type).unwrap_or(accelerator),
        _ => accelerator,
    };
    let accelerator_or_type = gpu_raw;
    let upstream = row.get("UpstreamCloudId");
    let gpu_raw = meant(provider, gpu_raw, upstream).unwrap_or(gpu_raw);
    let info = row.get("GpuInfo");
    let stated = size_in_mib(info);
    let region = filled(row.get("Region"));
    let (gpu, gpu_memory_mib) = identify(file, gpu_raw, &instance_type, stated, gpu_count);
    let (gpu, marks) = wrong_size(file, gpu, marks, accelerator, region.as_deref());
    let mut memory_mib = mebibytes(row.get("MemoryGiB"), "MemoryGiB")?;
    if file.gpu_memory_column
        && let (Some(memory), Some(gpu), Some(whole)) = (memory_mib, gpu, gpu_count.as_whole())
        && memory == u64::from(gpu.model().memory_gib) * 1024 * u64::from(whole)
    {
        memory_mib = None;
    }
    let vcpus = decimal(row.get("vCPUs"), "vCPUs")?;
    let zone = filled(row.get("AvailabilityZone"));
    details.country = country(provider, region.as_deref(), zone.as_deref());
    if marks.has(Mark::Resold) {
        details.upstream = filled(row.get("Provider"))
            .or_else(|| resold::upstream(provider, &instance_type))
            .or_else(|| filled(row.get("UpstreamCloudId")));
    }
    Ok(Cells {
        gpu,
        gpu_raw: accelerator_or_type.to_owned(),
        gpu_count,
        gpu_memory_mib,
        vcpus: vcpus.filter(|cpus| cpus.fract().is_zero()).and_then(|cpus| cpus.to_u32()),
        memory_mib,
        region,
        zone,
        marks,
        details,
        windows: row.get("OperatingSystem").to_lowercase().contains("windows"),
        instance_type,
    })
}

pub(super) fn filled(cell: &str) -> Option<String> {
    (!cell.is_empty()).then(|| cell.to_owned())
}

/// The model, and the memory of one GPU as the file states it.
///
/// Files write one GPU's memory, that of all, or that of all times their number into one field: the
/// reading that fits the model is taken, and the stated figure kept.
fn identify(
    file: &mut File<'_>,
    name: &str,
    instance_type: &str,
    stated: Option<u64>,
    gpu_count: GpuCount,
) -> (Option<GpuModelId>, Option<u64>) {
    let (numerator, denominator) = gpu_count.parts();
    let (numerator, denominator) = (u64::from(numerator), u64::from(denominator));
    if let Some(stated) = stated {
        let readings = [
            Some(stated),
            stated.checked_mul(denominator),
            stated.checked_div(numerator),
            stated.checked_div(numerator * numerator),
        ];
        for reading in readings.into_iter().flatten() {
            let gpu = file.model(name, Some(reading));
            if gpu.is_some_and(|gpu| gpu.model().memory_fits(reading)) {
                return (gpu, Some(reading));
            }
        }
    }
    let usual = match (file.provider.as_str(), name) {
        ("cudo" | "seeweb", "A100") => Some(80 * 1024),
        (_, "A100") => Some(40 * 1024),
        ("azure", "H100") if instance_type.starts_with("Standard_NC") => Some(94 * 1024),
        (_, "V100") => Some(16 * 1024),
        _ => None,
    };
    // `P100` and the like: the name alone, where it is one model's.
    let gpu = file.model(name, usual).or_else(|| file.model(name, None));
    (gpu, stated.filter(|stated| *stated > 0))
}

/// Sizes that a file is known to get wrong.
fn wrong_size(
    file: &mut File<'_>,
    gpu: Option<GpuModelId>,
    marks: Marks,
    accelerator: &str,
    region: Option<&str>,
) -> (Option<GpuModelId>, Marks) {
    let small = file.provider.as_str() == "spheron"
        && matches!(region, Some("calgary-canada-1" | "newyork-usa-1"))
        && accelerator.starts_with("A100");
    match small {
        true => (file.model("A100", Some(40 * 1024)), marks.with(Mark::MemoryCorrected)),
        false => (gpu, marks),
    }
}

/// Shares of a GPU that Azure's file counts as a whole one.
fn azure_share(provider: &str, instance_type: &str) -> Option<GpuCount> {
    if provider != "azure" {
        return None;
    }
    let (numerator, denominator) = match instance_type {
        "Standard_NV6ads_A10_v5" => (1, 6),
        "Standard_NV12ads_A10_v5" => (1, 3),
        "Standard_NV18ads_A10_v5" => (1, 2),
        "Standard_NV4as_v4" => (1, 8),
        "Standard_NV8as_v4" => (1, 4),
        "Standard_NV16as_v4" => (1, 2),
        _ => return None,
    };
    GpuCount::fraction(numerator, denominator)
}

/// Names that mean another GPU in these files than they say.
fn meant(provider: &str, name: &str, upstream: &str) -> Option<&'static str> {
    Some(match (provider, name) {
        // Fetchers write the card of 2018 so; later cards have longer names.
        (_, "RTX6000") => "Quadro RTX 6000",
        (
            _,
            "RTX PRO Server 6000"
            | "RTX 6000 96GB"
            | "RTXPRO6000S"
            | "RTX_PRO_6000_S"
            | "RTXPRO6000-WK"
            | "RTXPRO6000Blackwell"
            | "RTXPro6000",
        ) => "RTX PRO 6000",
        // Two PCIe cards with a bridge, not the 94 GB card.
        ("spheron", "H100_NVL") => "H100 PCIe",
        ("primeintellect", "L40") if upstream.to_lowercase().contains("l40s") => "L40S",
        ("paperspace", "GPU+") => "Quadro M4000",
        _ => return None,
    })
}

/// The GPU in a type such as `1x-RTX_4070S_Ti-32-65536`.
fn vast_name(instance_type: &str) -> Option<&str> {
    let (count, rest) = instance_type.split_once("x-")?;
    count.parse::<u32>().ok()?;
    let (rest, last) = rest.rsplit_once('-')?;
    let (name, cpus) =
        rest.rsplit_once('-').filter(|(_, cpus)| number(cpus)).unwrap_or((rest, last));
    number(cpus).then_some(name).filter(|name| !name.is_empty())
}

fn number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The first `SizeInMiB` of a `GpuInfo`, whatever it is written in (six syntaxes are seen).
fn size_in_mib(info: &str) -> Option<u64> {
    const FIELD: &str = "SizeInMiB";
    let at = info.find(FIELD).or_else(|| info.to_ascii_lowercase().find("sizeinmib"))?;
    let after = info.get(at + FIELD.len()..)?;
    let digits = after.find(|c: char| c.is_ascii_digit())?;
    // Only quotes, colons, equals signs and blanks may stand between.
    let between = after[..digits].chars().all(|c| matches!(c, '\'' | '"' | ':' | '=' | ' '));
    let number: String = after[digits..].chars().take_while(char::is_ascii_digit).collect();
    number.parse().ok().filter(|mib| between && *mib > 0)
}

/// The two-letter country where the file's places say it.
fn country(provider: &str, region: Option<&str>, zone: Option<&str>) -> Option<String> {
    let two = |text: &str| {
        (text.len() == 2 && text.bytes().all(|b| b.is_ascii_uppercase())).then(|| text.to_owned())
    };
    match provider {
        // `City, CC, Continent`; the city may be empty or the country's name.
        "vast" => region?.rsplit(", ").nth(1).and_then(two),
        // `EU-SE-1`, `EUR-IS-1`, `US-TX-3`: the zone is right where the region is not.
        "runpod" => {
            let mut parts = zone.unwrap_or("").split('-');
            let (first, second) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            match first {
                "EU" | "EUR" | "AP" | "OC" | "SEA" => two(second),
                first => two(first),
            }
            .or_else(|| region.and_then(two))
        }
        "primeintellect" => region.and_then(two),
        // Names of towns: FRA is Frankfurt, not France.
        "ovhcloud" => match region? {
            "GRA" | "PAR" | "RBX" | "SBG" => Some("FR".to_owned()),
            "FRA" => Some("DE".to_owned()),
            "LON" => Some("GB".to_owned()),
            "WAW" => Some("PL".to_owned()),
            "BHS" => Some("CA".to_owned()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_syntaxes_of_gpu_info_state_their_memory() {
        for (info, want) in [
            (
                "{'Gpus': [{'Name': 'RTX5090', 'MemoryInfo': {'SizeInMiB': 32607}}], 'TotalGpuMemoryInMiB': 65214}",
                Some(32_607),
            ),
            (r#"{"Gpus": [{"Name": "H100", "MemoryInfo": {"SizeInMiB": 81920}}]}"#, Some(81_920)),
            ("{'Gpus': [{'Name': null, 'MemoryInfo': {'SizeInMiB': 49152}}]}", Some(49_152)),
            ("{Gpus: [{Name: T4 MemoryInfo: {SizeInMiB: 16384}}]}", Some(16_384)),
            ("A100-80GB", None),
            ("{'gpus': [{'memoryinfo': {'sizeinmib': 81920}}]}", Some(81_920)),
            ("{'MemoryInfo': {'SizeInMiB': 0}}", None),
            ("{'MemoryInfo': {'SizeInMiB': null, 'x': 7}}", None),
        ] {
            assert_eq!(size_in_mib(info), want, "{info}");
        }
    }

    #[test]
    fn types_of_vast_tell_their_gpu() {
        assert_eq!(vast_name("1x-RTX_4070S_Ti-32-65536"), Some("RTX_4070S_Ti"));
        assert_eq!(vast_name("4x-H200-64-524288"), Some("H200"));
        assert_eq!(vast_name("gpu"), None);
    }

    #[test]
    fn p43_p47_countries_come_from_where_they_stand() {
        let of = |provider, region, zone| country(provider, region, zone);
        assert_eq!(of("vast", Some("Bács-Kiskun, HU, EU"), None).as_deref(), Some("HU"));
        assert_eq!(of("vast", Some(", CN, AS"), None).as_deref(), Some("CN"));
        assert_eq!(of("vast", Some("United States, US, NA"), None).as_deref(), Some("US"));
        assert_eq!(of("runpod", Some("NO"), Some("EU-SE-1")).as_deref(), Some("SE"));
        assert_eq!(of("runpod", Some("IS"), Some("EUR-IS-1")).as_deref(), Some("IS"));
        assert_eq!(of("runpod", Some("US"), Some("US-TX-3")).as_deref(), Some("US"));
        assert_eq!(of("aws", Some("US"), None), None);
    }
}
