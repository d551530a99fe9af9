//! Asks to offers. An ask is one machine that can be rented once: its id is the type, and the offer
//! says that it ends with the ask.

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, Currency, DiskPrice, GpuCount, Mark, Marks, OfferDetails, RawNumber, Stock,
};
use rust_decimal::Decimal;

use super::wire::Ask;
use crate::sources::{Listing, SheetBuilder, hourly, whole};

/// Adds an ask: on demand, and with a bid where it takes one.
pub(super) fn ask(ask: &Ask, sheet: &mut SheetBuilder) {
    let id = match ask.id.decimal() {
        Ok(id) if id.fract().is_zero() && !id.is_sign_negative() => id.to_string(),
        _ => return sheet.reject(ask.id.text(), "its id is no number"),
    };
    match listings(ask, &id) {
        Ok(rows) => rows.into_iter().for_each(|row| sheet.offer(row)),
        Err(reason) => sheet.reject(id, reason),
    }
}

fn listings(ask: &Ask, id: &str) -> Result<Vec<Listing>, String> {
    let gpus = whole(&ask.num_gpus).ok_or("it states no number of GPUs")?;
    let Some(count) = GpuCount::whole(gpus) else { return Ok(Vec::new()) };
    let raw = ask.gpu_name.as_deref().filter(|name| !name.is_empty()).ok_or("it names no GPU")?;
    // The price without disk: disk is priced by what a job asks for, beside it.
    let price = hourly(ask.dph_base.as_ref(), Currency::USD)?;
    let mut row = Listing::new(id, raw, count, price);
    let place = ask.geolocation.as_deref().map(str::trim).filter(|place| !place.is_empty());
    row.region = place.map(str::to_owned);
    row.gpu_memory_mib = ask.gpu_ram.as_ref().and_then(floor);
    row.vcpus = ask
        .cpu_cores_effective
        .as_ref()
        .and_then(floor)
        .and_then(|cores| u32::try_from(cores).ok())
        .filter(|cores| *cores > 0);
    row.memory_mib = memory(ask);
    row.stock = match ask.rentable {
        Some(true) => Stock::Available,
        Some(false) => Stock::SoldOut,
        None => Stock::Unstated,
    };
    row.marks = Marks::of(Mark::Ephemeral);
    row.details = OfferDetails {
        disk: disk(ask)?,
        country: place.and_then(country),
        valid_until: ask
            .end_date
            .as_ref()
            .and_then(floor)
            .and_then(|seconds| i64::try_from(seconds).ok())
            .and_then(|seconds| Timestamp::from_second(seconds).ok()),
        ..OfferDetails::default()
    };
    let mut rows = vec![row.clone()];
    if ask.min_bid.is_some() {
        row.price = hourly(ask.min_bid.as_ref(), Currency::USD)?;
        row.billing = BillingModel::Spot;
        // The least bid that holds now; a higher bid of somebody else ends it.
        row.marks = row.marks.with(Mark::Floor);
        rows.push(row);
    }
    Ok(rows)
}

/// `Bács-Kiskun, HU, EU` and `, US, NA`: the country is the part before the continent.
fn country(place: &str) -> Option<String> {
    let parts: Vec<&str> = place.split(',').map(str::trim).collect();
    let two = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_uppercase());
    let code = match parts[..] {
        [.., country, _continent] if parts.len() >= 3 => Some(country),
        [.., last] => Some(last),
        [] => None,
    };
    code.filter(|code| two(code)).map(str::to_owned)
}

/// A machine's memory is shared like its cores.
fn memory(ask: &Ask) -> Option<u64> {
    let all = ask.cpu_ram.as_ref()?.decimal().ok()?;
    let mine = ask.cpu_cores_effective.as_ref()?.decimal().ok()?;
    let cores = ask.cpu_cores.as_ref()?.decimal().ok()?;
    if cores.is_zero() {
        return None;
    }
    let share = all.checked_mul(mine)?.checked_div(cores)?;
    u64::try_from(share.trunc()).ok().filter(|mib| *mib > 0)
}

fn disk(ask: &Ask) -> Result<Option<DiskPrice>, String> {
    let Some(rate) = &ask.storage_cost else { return Ok(None) };
    let per_gib_month =
        rate.decimal().map_err(|error| format!("storage_cost {}: {error}", rate.text()))?;
    Ok((!per_gib_month.is_sign_negative()).then_some(DiskPrice {
        per_gib_month,
        // 30 days of 24 hours, as Vast computes it.
        month_hours: 720,
        included_gib: 0,
        billed_when_stopped: true,
    }))
}

fn floor(number: &RawNumber) -> Option<u64> {
    let value: Decimal = number.decimal().ok()?;
    u64::try_from(value.trunc()).ok()
}

#[cfg(test)]
mod tests {
    use super::country;

    #[test]
    fn p43_places_as_vast_writes_them() {
        assert_eq!(country("Bács-Kiskun, HU, EU").as_deref(), Some("HU"));
        assert_eq!(country(", US, NA").as_deref(), Some("US"));
        assert_eq!(country("United States, US, NA").as_deref(), Some("US"));
        assert_eq!(country("Sweden, SE").as_deref(), Some("SE"));
        assert_eq!(country("somewhere"), None);
        assert_eq!(country(""), None);
    }
}
