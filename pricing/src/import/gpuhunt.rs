//! gpuhunt's `catalog.csv`: one provider per file, US dollars.

use std::collections::HashMap;

use runwhere_model::offer::RejectedRow;
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, GpuModelId, Mark, Marks, Offer, OfferDetails,
    OfferKey, ProviderId,
};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::skypilot::{decimal, filled, mebibytes, price};
use super::table::{Row, Table};
use super::{ImportError, ImportOptions, Imported, Layout};

type Models = HashMap<(String, Option<u64>), Option<GpuModelId>>;

pub(super) fn read(
    table: Table<'_>,
    provider: ProviderId,
    options: &ImportOptions,
) -> Result<Imported, ImportError> {
    let mut imported = Imported {
        layout: Layout::Gpuhunt,
        offers: Vec::new(),
        rejected: Vec::new(),
        without_gpu: 0,
        rows: 0,
    };
    let mut models = Models::new();
    imported.rows = table.each(|row| match row {
        Ok(row) => match offer(&row, &provider, options, &mut models) {
            Ok(Some(offer)) => imported.offers.push(offer),
            Ok(None) => imported.without_gpu += 1,
            Err(reason) => imported.rejected.push(RejectedRow { row: row.text(), reason }),
        },
        Err(reason) => imported.rejected.push(RejectedRow { row: String::new(), reason }),
    });
    Ok(imported)
}

fn offer(
    row: &Row<'_>,
    provider: &ProviderId,
    options: &ImportOptions,
    models: &mut Models,
) -> Result<Option<Offer>, String> {
    let number = decimal(row.get("gpu_count"), "gpu_count")?.unwrap_or_default();
    if number.is_zero() {
        return Ok(None);
    }
    let instance_type = row.get("instance_name");
    if instance_type.is_empty() {
        return Err("no instance_name".to_owned());
    }
    let location = row.get("location");
    if location.is_empty() || matches!(location, "null" | "None") {
        return Err("no location".to_owned());
    }
    let name = row.get("gpu_name");
    let stated = mebibytes(row.get("gpu_memory"), "gpu_memory")?;
    let whole = GpuCount::whole(number.to_u32().filter(|_| number.fract().is_zero()).unwrap_or(0));
    let mut gpu_count = whole.ok_or_else(|| format!("gpu_count {number} is no count"))?;
    let mut marks = Marks::NONE;
    let mut details = OfferDetails::default();
    let mut find = |memory: Option<u64>| {
        *models
            .entry((name.to_owned(), memory))
            .or_insert_with(|| GpuModel::named(name, memory).map(|model| model.id))
    };
    let mut gpu = find(stated).or_else(|| find(None));
    // A share of a GPU is written as one GPU with a share of its memory.
    if let (Some(stated), Some(1)) = (stated, gpu_count.as_whole())
        && !gpu.is_some_and(|gpu| gpu.model().memory_fits(stated))
    {
        let share = [2, 3, 4, 6, 8].into_iter().find_map(|parts: u32| {
            let all = stated.checked_mul(u64::from(parts))?;
            let whole = find(Some(all))?;
            let fits = whole.model().memory_fits(all);
            Some((whole, GpuCount::fraction(1, parts)?)).filter(|_| fits)
        });
        if let Some((model, share)) = share {
            details.stated_gpu_count = Some(gpu_count.to_string());
            (gpu, gpu_count, marks) = (Some(model), share, marks.with(Mark::CountCorrected));
        }
    }
    let currency = options.currency.unwrap_or(Currency::USD);
    let state = price(row.get("price"), currency).map_err(|why| format!("price: {why}"))?;
    let spot = matches!(row.get("spot").to_ascii_lowercase().as_str(), "true" | "1" | "yes");
    if provider.as_str() == "vast" {
        marks = marks.with(Mark::Ephemeral);
    }
    let cpus = decimal(row.get("cpu"), "cpu")?.filter(|cpus: &Decimal| cpus.fract().is_zero());
    let key = OfferKey {
        provider: provider.clone(),
        region: filled(location),
        zone: None,
        billing_model: if spot { BillingModel::Spot } else { BillingModel::OnDemand },
        instance_type: instance_type.to_owned(),
    };
    Ok(Some(Offer {
        gpu,
        gpu_memory_mib: stated,
        vcpus: cpus.and_then(|cpus| cpus.to_u32()),
        memory_mib: mebibytes(row.get("memory"), "memory")?,
        marks,
        details: (details != OfferDetails::default()).then(|| Box::new(details)),
        ..Offer::listed(key, name.to_owned(), gpu_count, options.price(state, None, None))
    }))
}
