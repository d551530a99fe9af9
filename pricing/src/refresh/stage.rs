//! Holding a reading against the last one and the source's terms. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, Gap, HourlyPrice, Mark, Marks, Offer, OfferSheet, PriceKind, SourceTerms,
};
use rust_decimal::Decimal;

use super::state::{Quarantined, SourceState};
use crate::shard::{Row, Shard};

/// A price that moves by more than this factor is not believed at once.
pub const JUMP: Decimal = Decimal::from_parts(5, 0, 0, false, 0);
/// Fewer rows than this say nothing about a fall.
const FEW: usize = 20;

/// What becomes of a reading.
#[derive(Debug)]
pub enum Staged {
    /// It is swapped in, quarantined prices replaced by the last good ones.
    Take(OfferSheet),
    /// It is not believable as a whole.
    Refuse(String),
}

/// Judges a reading. Decisions of operators are in `state`, where quarantined prices are noted.
pub fn stage(
    old: Option<&Shard>,
    mut sheet: OfferSheet,
    terms: &SourceTerms,
    state: &mut SourceState,
    now: Timestamp,
) -> Staged {
    state.notices.clear();
    if sheet.unchanged {
        return match old {
            Some(_) => Staged::Take(sheet),
            None => Staged::Refuse("the source says unchanged, but nothing is kept".to_owned()),
        };
    }
    let old = old.filter(|shard| shard.is_live());
    if !state.accept_next
        && let Some(reason) = unbelievable(old, &sheet, terms)
    {
        return Staged::Refuse(reason);
    }
    if !state.accept_next {
        without_prices(&mut sheet);
    }
    let Some(old) = old else {
        state.quarantine.clear();
        return Staged::Take(sheet);
    };
    if sheet.complete && sheet.offers.len() > old.len().max(FEW) * 3 {
        let notice = format!("{} rows where there were {}", sheet.offers.len(), old.len());
        state.notices.push(notice);
    }
    match jumps(old, &sheet) {
        Ok(jumped) => {
            let mut quarantine = std::collections::BTreeMap::new();
            for (at, last) in jumped {
                let offer = &mut sheet.offers[at];
                let Some(new) = offer.price.state.known() else { continue };
                let verdict = state.verdicts.get(&offer.key).filter(|verdict| verdict.price == new);
                if state.accept_next || verdict.is_some_and(|verdict| verdict.accepted) {
                    continue;
                }
                // A price that was turned down is not served, and nobody is asked again.
                if verdict.is_none() {
                    let before = state.quarantine.get(&offer.key).filter(|q| q.new == new);
                    quarantine.insert(
                        offer.key.clone(),
                        Quarantined {
                            last: last.0,
                            new,
                            since: before.map_or(now, |q| q.since),
                            readings: before.map_or(1, |q| q.readings.saturating_add(1)),
                        },
                    );
                }
                let served = last.1;
                offer.price = served.price;
            }
            if sheet.complete {
                state.quarantine = quarantine;
            } else {
                state.quarantine.extend(quarantine);
            }
        }
        Err(reason) => return Staged::Refuse(reason),
    }
    if !state.accept_next {
        broken_rows(old, &mut sheet);
    }
    if !sheet.complete {
        keep_known(old, &mut sheet);
    }
    Staged::Take(sheet)
}

/// A source of prices that states none is not whole, whatever else it states.
fn without_prices(sheet: &mut OfferSheet) {
    let stated = |offer: &Offer| offer.price.kind != PriceKind::Configured;
    let known = |offer: &Offer| offer.price.state.known().is_some();
    if sheet.complete && sheet.offers.iter().any(stated) && !sheet.offers.iter().any(known) {
        let reason = match sheet.rejected.is_empty() {
            true => "no row has a price".to_owned(),
            false => format!("no row has a price; rejected: {}", first_reason(sheet)),
        };
        sheet.gaps.push(Gap { part: "prices".to_owned(), reason });
        sheet.complete = false;
    }
}

/// The gap that rows leave which no longer fit.
const ROWS: &str = "rows";

/// Rows that no longer fit where offers are gone: these may be the same. The reading is a part of
/// what there is then, as if a page had failed, until the rows fit again or an operator takes it as
/// it is. Asks that end when they are rented come and go anyway.
fn broken_rows(old: &Shard, sheet: &mut OfferSheet) {
    let before = old.rejected().iter().filter(|row| !Shard::rejects_itself(row)).count();
    let more = sheet.rejected.len() > before;
    let still = !sheet.rejected.is_empty() && old.gaps().iter().any(|gap| gap.part == ROWS);
    if !sheet.complete || !(more || still) {
        return;
    }
    let there: BTreeSet<_> = sheet.offers.iter().map(|offer| &offer.key).collect();
    let lasting = |row: &&Row| {
        let passes = Marks::from_bits(row.marks).has(Mark::Ephemeral);
        !row.bundled && row.kind != PriceKind::Configured && !passes
    };
    let gone = old.rows().iter().filter(lasting).filter(|row| !there.contains(&old.key(row)));
    match gone.count() {
        0 => {}
        gone => {
            let (all, first) = (sheet.rejected.len(), first_reason(sheet));
            let reason = format!("{gone} offers are gone while {all} rows do not fit: {first}");
            sheet.gaps.push(Gap { part: ROWS.to_owned(), reason });
            sheet.complete = false;
        }
    }
}

fn first_reason(sheet: &OfferSheet) -> &str {
    sheet.rejected.first().map_or("", |row| &row.reason)
}

/// Why a reading as a whole is not believable.
fn unbelievable(old: Option<&Shard>, sheet: &OfferSheet, terms: &SourceTerms) -> Option<String> {
    let known = |offer: &&Offer| {
        let price = offer.price.state.known();
        price.is_some_and(|p| p.amount > Decimal::ZERO || offer.price.kind == PriceKind::Configured)
    };
    if !sheet.complete {
        // Too few rows are what incomplete means; none at all is no reading.
        let nothing = sheet.offers.is_empty() && !sheet.gaps.is_empty();
        return nothing.then(|| {
            let gap = &sheet.gaps[0];
            format!("nothing could be read: {}: {}", gap.part, gap.reason)
        });
    }
    let rows = sheet.offers.len();
    if rows < terms.min_rows {
        return Some(format!("{rows} rows, at least {} are expected", terms.min_rows));
    }
    let models: BTreeSet<_> = sheet.offers.iter().filter_map(|offer| offer.gpu).collect();
    let missing: Vec<&str> =
        terms.required.iter().filter(|id| !models.contains(id)).map(|id| id.as_str()).collect();
    if !missing.is_empty() {
        return Some(format!("models that are always there are missing: {}", missing.join(", ")));
    }
    if rows == 0 && !sheet.rejected.is_empty() {
        let all = sheet.rejected.len();
        return Some(format!("none of {all} rows fits: {}", first_reason(sheet)));
    }
    let old = old?;
    // An own machine is what it says it is.
    let stated: Vec<_> =
        old.rows().iter().filter(|row| !row.bundled && row.kind != PriceKind::Configured).collect();
    let spot = |billing: BillingModel| billing == BillingModel::Spot;
    for (what, before, after) in [
        ("rows", stated.len(), rows),
        (
            "spot rows",
            stated.iter().filter(|row| spot(row.billing)).count(),
            sheet.offers.iter().filter(|offer| spot(offer.key.billing_model)).count(),
        ),
        (
            "known prices",
            stated.iter().filter(|row| row.known().is_some()).count(),
            sheet.offers.iter().filter(known).count(),
        ),
    ] {
        // Of few one half comes and goes; all of them do not.
        let all = after == 0 && before > 0 && what != "spot rows";
        if all || (before >= FEW && after * 2 < before) {
            return Some(format!("{what} fell from {before} to {after}"));
        }
    }
    None
}

/// The places of prices that jumped, with what was served; an error where so many did that the
/// reading as a whole is in doubt (another unit, another currency).
#[expect(clippy::type_complexity, reason = "a private helper's pairs, taken apart at once")]
fn jumps(
    old: &Shard,
    sheet: &OfferSheet,
) -> Result<Vec<(usize, (HourlyPrice, Box<Offer>))>, String> {
    let mut jumped = Vec::new();
    let mut compared = 0usize;
    for (at, offer) in sheet.offers.iter().enumerate() {
        let Some(new) = offer.price.state.known().filter(|price| price.amount > Decimal::ZERO)
        else {
            continue;
        };
        if offer.price.kind == PriceKind::Configured {
            continue;
        }
        let Some(row) = old.find(&offer.key).map(|at| old.row(at)).filter(|row| !row.bundled)
        else {
            continue;
        };
        let Some(last) = row.known() else { continue };
        compared += 1;
        let beyond =
            |low: Decimal, high: Decimal| low.checked_mul(JUMP).is_some_and(|bound| bound < high);
        let jump = last.currency != new.currency
            || beyond(last.amount, new.amount)
            || beyond(new.amount, last.amount);
        if jump {
            let mut served = old.offer(row);
            served.price.observed_at = old.read_at(row);
            jumped.push((at, (last, Box::new(served))));
        }
    }
    if jumped.len() > FEW && jumped.len() * 5 > compared {
        return Err(format!(
            "{} of {compared} prices moved more than {JUMP}-fold or changed their currency",
            jumped.len()
        ));
    }
    Ok(jumped)
}

/// A reading that broke off does not make a known price unknown.
fn keep_known(old: &Shard, sheet: &mut OfferSheet) {
    for offer in sheet.offers.iter_mut().filter(|offer| offer.price.state.known().is_none()) {
        let row = old.find(&offer.key).map(|at| old.row(at));
        if let Some(row) = row.filter(|row| !row.bundled && row.known().is_some()) {
            let mut last = old.offer(row).price;
            last.observed_at = old.read_at(row);
            offer.price = last;
        }
    }
}
