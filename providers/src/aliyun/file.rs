//! The public price file: no account, list prices of all regions.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;
use runwhere_model::Currency;

use super::types;
use super::wire::{Period, PriceFile};
use crate::http::Row;
use crate::sources::{Listing, SheetBuilder, hourly, whole};

/// A file this old is a gap: its version in the settings may be an old one, which stays frozen.
const OLD_DAYS: i64 = 45;

/// Adds the file's Linux rows of GPU types.
pub(super) fn offers(
    file: PriceFile,
    currency: Currency,
    regions: &[String],
    sheet: &mut SheetBuilder,
) -> Result<(), String> {
    let stated: Currency = file.currency.parse().map_err(|error| format!("{error}"))?;
    if stated != currency {
        return Err(format!("the file is in {stated}; this site's prices are in {currency}"));
    }
    let published = file.publication_date.as_deref().and_then(date);
    match published {
        None => sheet.gap("age", "the price file states no date"),
        Some(date) => {
            let age = sheet.observed_at().as_second() - date.as_second();
            if age > OLD_DAYS * 86_400 {
                let reason = format!(
                    "the price file was published {} days ago; price_file may name an old version",
                    age / 86_400
                );
                sheet.gap("age", reason);
            }
        }
    }
    for (key, row) in file.pricing_info {
        let parts: Vec<&str> = key.split("::").collect();
        let [region, id, network, os, optimized] = parts[..] else {
            sheet.reject(key, "its key has not five parts");
            continue;
        };
        if network != "vpc" || os != "linux" || optimized != "optimized" {
            // The same type for Windows and for networks that are no longer sold.
            continue;
        }
        if !regions.is_empty() && !regions.iter().any(|wanted| wanted == region) {
            continue;
        }
        let kind = match types::named(id) {
            Ok(Some(kind)) => kind,
            Ok(None) => continue,
            Err(reason) => {
                sheet.reject(key, reason);
                continue;
            }
        };
        let Row::Read(periods) = row else {
            sheet.read(row);
            continue;
        };
        match hour(&periods.hours, stated) {
            Ok(price) => {
                let mut row = Listing::new(&kind.id, &kind.raw, kind.count, price);
                row.region = Some(region.to_owned());
                row.gpu = kind.model;
                row.gpu_memory_mib = kind.gpu_memory_mib;
                row.vcpus = kind.vcpus;
                row.effective_at = published;
                sheet.offer(row);
            }
            Err(reason) => sheet.reject(key, reason),
        }
    }
    Ok(())
}

fn hour(hours: &[Period], currency: Currency) -> Result<runwhere_model::PriceState, String> {
    let one = hours.iter().find(|period| whole(&period.period) == Some(1));
    hourly(one.map(|period| &period.price), currency)
}

/// `2026-11-20`, `2026-11-20T08:00:00Z` and `2026-11-20 08:00:00` occur.
fn date(text: &str) -> Option<Timestamp> {
    if let Ok(timestamp) = text.parse() {
        return Some(timestamp);
    }
    let midnight = text.parse::<Date>().ok().map(|day| day.at(0, 0, 0, 0));
    let time = text.parse::<DateTime>().ok().or(midnight)?;
    Offset::UTC.to_timestamp(time).ok()
}
