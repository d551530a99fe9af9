//! Our own tables: that of the bundled prices, and what `price list --csv` writes.

use runwhere_model::offer::RejectedRow;
use runwhere_model::{GpuCount, GpuModel, Offer, OfferKey, PriceState, ProviderId};

use super::skypilot::{filled, mebibytes, price};
use super::table::{Row, Table};
use super::{ImportError, ImportOptions, Imported, Layout};
use crate::snapshot::gpu_of;

pub(super) fn read(table: Table<'_>, options: &ImportOptions) -> Result<Imported, ImportError> {
    let mut imported = Imported {
        layout: Layout::Own,
        offers: Vec::new(),
        rejected: Vec::new(),
        without_gpu: 0,
        rows: 0,
    };
    imported.rows = table.each(|row| match row {
        Ok(row) => match offer(&row, options) {
            Ok(offer) => imported.offers.push(offer),
            Err(reason) => imported.rejected.push(RejectedRow { row: row.text(), reason }),
        },
        Err(reason) => imported.rejected.push(RejectedRow { row: String::new(), reason }),
    });
    Ok(imported)
}

fn offer(row: &Row<'_>, options: &ImportOptions) -> Result<Offer, String> {
    let key = key(row, options)?;
    let name = first(row, ["gpu_name", "gpu_model"]).1;
    let (column, memory) = first(row, ["gpu_memory_gib", "gpu_memory_gib_each", "gpu_memory_gb"]);
    let gpu = match memory.parse::<u32>() {
        Ok(gib) => gpu_of(name, gib),
        Err(_) => GpuModel::named(name, None).map(|model| model.id),
    };
    let (price_column, stated) = first(row, ["price_per_hour", "price"]);
    let state = match stated {
        "" if row.get("price_state") == "not_offered" => PriceState::NotOffered,
        "" => PriceState::Unknown,
        text => {
            let currency =
                row.get("currency").parse().map_err(|error| format!("currency: {error}"))?;
            price(text, currency).map_err(|why| format!("{price_column}: {why}"))?
        }
    };
    let observed = match row.get("observed_at") {
        "" => None,
        // An instant first: as a day it would lose its time, and its offset with it.
        text => Some(
            text.parse()
                .ok()
                .or_else(|| crate::snapshot::midnight(text))
                .ok_or("observed_at is no date")?,
        ),
    };
    let source = filled(row.get("source"));
    let count = row.get("gpu_count");
    let gpu_count = count
        .parse::<GpuCount>()
        .ok()
        .or_else(|| runwhere_providers::sources::count(runwhere_model::parse_decimal(count).ok()?));
    let gpu_count = gpu_count.ok_or_else(|| format!("gpu_count {count:?} is no count"))?;
    let price = options.price(state, source, observed);
    Ok(Offer {
        gpu,
        gpu_memory_mib: mebibytes(memory, column)?,
        vcpus: row.get("vcpus").parse().ok(),
        memory_mib: match row.get("memory_mib") {
            "" => mebibytes(row.get("memory_gib"), "memory_gib")?,
            mib => mib.parse().ok(),
        },
        ..Offer::listed(key, name.to_owned(), gpu_count, price)
    })
}

/// The first of some columns that says something, and its cell.
fn first<'r, const N: usize>(row: &Row<'r>, columns: [&'static str; N]) -> (&'static str, &'r str) {
    let filled = columns.into_iter().find(|column| !row.get(column).is_empty());
    let column = filled.unwrap_or(columns[0]);
    (column, row.get(column))
}

/// The key: as it is printed, else from its parts.
fn key(row: &Row<'_>, options: &ImportOptions) -> Result<OfferKey, String> {
    if let Some(key) = filled(row.get("offer_key")) {
        let key: OfferKey = key.parse().map_err(|error| format!("offer_key: {error}"))?;
        let provider = options.provider.clone().unwrap_or_else(|| key.provider.clone());
        return Ok(OfferKey { provider, ..key });
    }
    let provider = match (&options.provider, row.get("provider")) {
        (Some(provider), _) => provider.clone(),
        (None, text) => ProviderId::new(text).map_err(|error| format!("provider: {error}"))?,
    };
    Ok(OfferKey {
        provider,
        region: filled(row.get("region")),
        zone: filled(row.get("zone")),
        billing_model: row
            .get("billing_model")
            .parse()
            .map_err(|error| format!("billing_model: {error}"))?,
        instance_type: filled(row.get("instance_type")).ok_or("no instance_type")?,
    })
}
