//! Which offers answer a question: walks classes of offers instead of offers.
//!
//! The directory keeps the rows of one model, count, region, form and currency together, cheapest first.
//! So a question costs some steps per class, not per offer: what a class excludes is counted as a
//! whole, a ceiling is one binary search, and the best are merged from the heads of the classes. Only
//! where a class is not uniform in what is asked (age, zone, size, risk) its rows are judged singly.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{BillingModel, Currency, GpuModelId};
use rust_decimal::Decimal;

use crate::catalogue::{Audience, BUNDLED_MAX_AGE, Catalogue, SHOWN, Standing};
use crate::directory::{OfCount, Placed, model_place};
use crate::quote::{Policy, Query, Rejection, reclaim_percent};
use crate::shard::{Bucket, Candidate, PriceStateTag, Row, Shard};

/// What was found.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// The best, in order.
    pub(crate) best: Vec<Picked<'a>>,
    /// How many match in all.
    pub(crate) matching: usize,
    /// How many of them can be launched now.
    pub(crate) launchable: usize,
    /// The lowest price of each standing.
    pub(crate) lowest: [Option<Decimal>; 3],
    /// How many do not match, by class, each class once.
    pub(crate) rejected: Vec<(Rejection, usize)>,
}

/// A row that was chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picked<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) rank: Rank,
    /// Its price in [`SHOWN`], exact; `None` when unknown or not convertible.
    pub(crate) amount: Option<Decimal>,
}

/// The place of a row among all answers; equal for no two rows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Rank {
    pub(crate) standing: Standing,
    pub(crate) stale: bool,
    preference: usize,
    unknown: bool,
    /// What is compared: the price, or the price with its risk.
    amount: Decimal,
    pub(crate) billing: BillingModel,
    vcpus: Reverse<u32>,
    memory: Reverse<u64>,
    /// The shard's place among all.
    pub(crate) shard: usize,
    /// The row's place in the shard: keys are in order there.
    pub(crate) at: u32,
}

/// Rows of one class and one staleness, cheapest first.
#[derive(Clone, Copy)]
struct Group<'a> {
    rows: &'a [Candidate],
    stale: bool,
}

/// The rows of a class that match, the cheapest at the head.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    rank: Rank,
    shard: &'a Shard,
    rows: &'a [Candidate],
    rate: Option<Decimal>,
    /// A price other than the converted one decides.
    weighed: bool,
}

/// A rate of the question's instant.
#[derive(Clone, Copy, Debug)]
struct RateNow {
    from: Currency,
    /// `None`: there is none.
    rate: Option<Decimal>,
    stale: bool,
    /// Where there is one, and a rate.
    ceiling: Option<Ceiling>,
}

/// A ceiling for amounts of one currency.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    most: Decimal,
    factor: Decimal,
    /// The highest amount in [`STEP`]s, rounded down. Whole numbers compare many times faster than decimals, and
    /// exactly. `None`: too large a number for that.
    steps: Option<u128>,
}

/// Decimals of a step; nearly all amounts are whole numbers of them.
const STEP: u32 = 12;

/// How many steps the last digit of an amount is, by its number of decimals.
const STEPS: [u64; STEP as usize + 1] = {
    let mut steps = [1; STEP as usize + 1];
    let mut decimals = STEP as usize;
    while decimals > 0 {
        steps[decimals - 1] = steps[decimals] * 10;
        decimals -= 1;
    }
    steps
};

impl Ceiling {
    /// For amounts that times `factor` may be `most`.
    fn new(most: Decimal, factor: Decimal) -> Self {
        let steps = || {
            let power = 10u128.checked_pow((STEP + factor.scale()).checked_sub(most.scale())?)?;
            let digits = u128::try_from(most.mantissa()).ok()?.checked_mul(power)?;
            digits.checked_div(u128::try_from(factor.mantissa()).ok()?)
        };
        Self { most, factor, steps: steps() }
    }

    fn holds(&self, amount: Decimal) -> bool {
        let steps = || {
            let each = *STEPS.get(amount.scale() as usize)?;
            Some(u128::from(u64::try_from(amount.mantissa()).ok()?) * u128::from(each))
        };
        match self.steps.zip(steps()) {
            Some((most, steps)) => steps <= most,
            None => amount.checked_mul(self.factor).is_some_and(|amount| amount <= self.most),
        }
    }
}

struct Search<'a, 'q> {
    query: &'q Query,
    as_of: Timestamp,
    rates: Vec<RateNow>,
    single: bool,
    /// The classes with the best heads, the best at the end: as many as answers are wanted, since each head of
    /// a better class comes before all rows of this one.
    runs: Vec<Run<'a>>,
    matching: usize,
    launchable: usize,
    lowest: [Option<Decimal>; 3],
    /// Few, and counted for every class.
    rejected: Vec<(Rejection, usize)>,
}

impl Catalogue {
    /// The best offers of a model for a question.
    pub(crate) fn select<'a>(
        &'a self,
        gpu: GpuModelId,
        query: &Query,
        as_of: Timestamp,
    ) -> Found<'a> {
        let single = query.zone.is_some()
            || query.country.is_some()
            || query.min_memory_mib.is_some()
            || query.min_vcpus.is_some();
        let mut search = Search {
            query,
            as_of,
            rates: Vec::with_capacity(4),
            single,
            runs: Vec::with_capacity(query.top_n.min(15) + 1),
            matching: 0,
            launchable: 0,
            lowest: [None; 3],
            rejected: Vec::with_capacity(8),
        };
        let audiences: &[bool] =
            if query.audience == Audience::Member { &[false, true] } else { &[false] };
        // Where a provider is named, its shard; a place that there is not where it has none.
        let wanted = query.provider.as_deref().map(|id| {
            let at = self.shards().iter().position(|shard| shard.provider().as_str() == id);
            at.unwrap_or(usize::MAX)
        });
        for account in audiences {
            let of_model = self.of_model(*account, model_place(gpu));
            search.model(self, &of_model.of_count(query.gpu_count), wanted);
        }
        search.finish()
    }
}

impl<'a> Search<'a, '_> {
    fn reject(&mut self, class: Rejection, rows: usize) {
        if rows == 0 {
            return;
        }
        match self.rejected.iter_mut().find(|(known, _)| *known == class) {
            Some((_, sum)) => *sum += rows,
            None => self.rejected.push((class, rows)),
        }
    }

    fn model(&mut self, catalogue: &'a Catalogue, parts: &OfCount<'a>, wanted: Option<usize>) {
        self.reject(Rejection::Fraction, parts.fractions);
        self.reject(Rejection::GpuCount, parts.other_counts);
        self.reject(Rejection::Form, parts.forms);
        let there = match &self.query.region {
            None => parts.all(),
            Some(region) => {
                let known = catalogue.region(region).map(|region| parts.of_region(region));
                known.unwrap_or_default()
            }
        };
        there.fetch();
        let mut looked_at = 0;
        for placed in there.placed {
            if wanted.is_none_or(|wanted| wanted == placed.shard) {
                looked_at += placed.bucket.len();
                self.bucket(catalogue, placed, parts.rows_of(placed));
            }
        }
        self.reject(Rejection::Place, parts.rows - looked_at);
    }

    fn rate(&mut self, catalogue: &Catalogue, from: Currency) -> RateNow {
        if let Some(known) = self.rates.iter().find(|rate| rate.from == from) {
            return *known;
        }
        let one = runwhere_model::Money::new(Decimal::ONE, from);
        let converted = catalogue.fx().convert(one, SHOWN, self.as_of).ok();
        let factor = converted.as_ref().map(|converted| converted.money.amount);
        let ceiling = factor.zip(self.query.max_hourly_price);
        let rate = RateNow {
            from,
            rate: factor,
            stale: converted.is_some_and(|converted| converted.stale),
            ceiling: ceiling.map(|(factor, most)| Ceiling::new(most, factor)),
        };
        self.rates.push(rate);
        rate
    }

    fn bucket(&mut self, catalogue: &'a Catalogue, placed: &Placed, rows: &'a [Candidate]) {
        let bucket = &placed.bucket;
        let class = &bucket.class;
        if class.billing == BillingModel::Spot && !self.query.spot_allowed {
            return self.reject(Rejection::Spot, bucket.len());
        }
        if class.state == PriceStateTag::NotOffered {
            return self.reject(Rejection::NotOffered, bucket.len());
        }
        if class.sold_out && !class.launchable {
            return self.reject(Rejection::SoldOut, bucket.len());
        }
        let shard: &'a Shard = &catalogue.shards()[placed.shard];
        let weighed = self.query.policy == Policy::Reclaim && class.billing == BillingModel::Spot;
        let uniform = (!self.single && !weighed)
            .then(|| uniform_staleness(shard, bucket, self.as_of))
            .flatten();
        match uniform {
            Some(stale) => self.run(catalogue, placed, shard, &Group { rows, stale }),
            None => {
                for one in rows.chunks(1) {
                    let row = shard.row(one[0].at);
                    if let Some(class) = self.unfit(shard, row) {
                        self.reject(class, 1);
                        continue;
                    }
                    let stale = row_stale(shard, row, self.as_of);
                    self.run(catalogue, placed, shard, &Group { rows: one, stale });
                }
            }
        }
    }

    /// Why a row does not fit what only rows can tell.
    fn unfit(&self, shard: &Shard, row: &Row) -> Option<Rejection> {
        let query = self.query;
        let zone = query.zone.as_deref().is_none_or(|zone| shard.text(row.zone) == zone);
        let country = query.country.as_deref().is_none_or(|country| {
            let stated = shard.detail(row).and_then(|details| details.country.as_deref());
            stated.is_some_and(|stated| stated.eq_ignore_ascii_case(country))
        });
        if !zone || !country {
            return Some(Rejection::Place);
        }
        let known = |number: u64, least: u64| number != u64::MAX && number >= least;
        let vcpus = if row.vcpus == u32::MAX { u64::MAX } else { row.vcpus.into() };
        let memory = query.min_memory_mib.is_none_or(|least| known(row.memory_mib, least));
        let cpus = query.min_vcpus.is_none_or(|least| known(vcpus, least.into()));
        (!memory || !cpus).then_some(Rejection::Size)
    }

    /// Takes rows of one class and one staleness, cheapest first.
    fn run(&mut self, catalogue: &Catalogue, placed: &Placed, shard: &'a Shard, group: &Group<'a>) {
        let Group { rows, stale } = *group;
        let Some(head) = rows.first().copied() else { return };
        let class = &placed.bucket.class;
        if stale && self.query.fresh_only {
            return self.reject(Rejection::Stale, rows.len());
        }
        let standing = match (class.bundled || !class.launchable || stale, class.sold_out) {
            (true, _) => Standing::Reference,
            (false, true) => Standing::Waits,
            (false, false) => Standing::Now,
        };
        let known = class.state == PriceStateTag::Known;
        let rate = if known { Some(self.rate(catalogue, class.currency)) } else { None };
        let factor = rate.and_then(|rate| rate.rate);
        let mut matching = rows;
        if self.query.max_hourly_price.is_some() {
            let Some(rate) = rate else {
                return self.reject(Rejection::PriceUnknown, rows.len());
            };
            // An old rate may order reference prices; it may not let a launch under a ceiling.
            let usable = rate.ceiling.filter(|_| !rate.stale || standing == Standing::Reference);
            let Some(ceiling) = usable else {
                return self.reject(Rejection::ExchangeRate, rows.len());
            };
            let end = rows.partition_point(|row| ceiling.holds(row.amount));
            self.reject(Rejection::AboveMaxPrice, rows.len() - end);
            matching = &rows[..end];
        }
        if matching.is_empty() {
            return;
        }
        self.matching += matching.len();
        if standing == Standing::Now {
            self.launchable += matching.len();
        }
        let weighed = self.query.policy == Policy::Reclaim && class.billing == BillingModel::Spot;
        let preference = self.preference(shard, class.region);
        let run = Run {
            rank: Rank {
                standing,
                stale,
                preference,
                unknown: factor.is_none(),
                amount: Decimal::ZERO,
                billing: class.billing,
                vcpus: Reverse(0),
                memory: Reverse(0),
                shard: placed.shard,
                at: head.at,
            },
            shard,
            rows: matching,
            rate: factor,
            weighed,
        };
        let converted = factor.and_then(|factor| head.amount.checked_mul(factor));
        if let Some(amount) = converted {
            let least = self.lowest[standing as usize].get_or_insert(amount);
            *least = amount.min(*least);
        }
        self.put(run.headed(head, converted));
    }

    /// Puts a class among the best.
    fn put(&mut self, run: Run<'a>) {
        let full = self.runs.len() >= self.query.top_n;
        if full && self.runs.first().is_none_or(|last| last.rank <= run.rank) {
            return;
        }
        let place = self.runs.partition_point(|other| other.rank > run.rank);
        if full {
            self.runs.copy_within(1..place, 0);
            self.runs[place - 1] = run;
        } else {
            self.runs.insert(place, run);
        }
    }

    fn preference(&self, shard: &Shard, region: u32) -> usize {
        let preferred = &self.query.prefer_regions;
        if preferred.is_empty() {
            return 0;
        }
        let name = shard.text(region);
        preferred.iter().position(|region| region == name).unwrap_or(preferred.len())
    }

    fn finish(mut self) -> Found<'a> {
        let wanted = self.query.top_n.min(self.matching);
        let mut best = Vec::with_capacity(wanted);
        while best.len() < wanted {
            let Some(run) = self.runs.pop() else { break };
            best.push(run.picked());
            let rows = &run.rows[1..];
            if !rows.is_empty() {
                self.put(Run { rows, ..run }.at_head());
            }
        }
        Found {
            best,
            matching: self.matching,
            launchable: self.launchable,
            lowest: self.lowest,
            rejected: self.rejected,
        }
    }
}

impl<'a> Run<'a> {
    fn picked(&self) -> Picked<'a> {
        let head = self.rows.first();
        let amount = head.zip(self.rate).and_then(|(head, rate)| head.amount.checked_mul(rate));
        Picked { shard: self.shard, rank: self.rank, amount }
    }

    /// The rank of the first row.
    fn at_head(self) -> Self {
        match self.rows.first().copied() {
            Some(head) => {
                self.headed(head, self.rate.and_then(|rate| head.amount.checked_mul(rate)))
            }
            None => self,
        }
    }

    /// The same, where it is known what decides about the first row.
    fn headed(mut self, head: Candidate, converted: Option<Decimal>) -> Self {
        let amount = match (converted, self.weighed) {
            (Some(amount), true) => {
                let percent = reclaim_percent(self.shard.detail(self.shard.row(head.at)));
                let factor = Decimal::ONE_HUNDRED.checked_add(percent);
                factor
                    .and_then(|factor| {
                        amount.checked_mul(factor)?.checked_div(Decimal::ONE_HUNDRED)
                    })
                    .unwrap_or(Decimal::MAX)
            }
            (Some(amount), false) => amount,
            (None, _) => Decimal::ZERO,
        };
        self.rank = Rank {
            unknown: converted.is_none(),
            amount,
            vcpus: Reverse(head.vcpus.wrapping_add(1)),
            memory: Reverse(head.memory_mib.wrapping_add(1)),
            at: head.at,
            ..self.rank
        };
        self
    }
}

/// Whether the prices of a class are all stale or all fresh; `None` where they differ.
fn uniform_staleness(shard: &Shard, bucket: &Bucket, as_of: Timestamp) -> Option<bool> {
    let class = &bucket.class;
    if class.configured {
        return Some(false);
    }
    let stale = |micros| stale_at(shard, micros, class.billing, class.bundled, as_of);
    if bucket.oldest == bucket.newest {
        return Some(stale(bucket.oldest));
    }
    // The marks "as the sheet" and "unknown" are no times.
    Timestamp::from_microsecond(bucket.oldest).ok()?;
    let (oldest, newest) = (stale(bucket.oldest), stale(bucket.newest));
    (oldest == newest).then_some(oldest)
}

fn limit_of(shard: &Shard, billing: BillingModel, bundled: bool) -> SignedDuration {
    if bundled { BUNDLED_MAX_AGE } else { shard.limits().of_billing(billing) }
}

/// Whether a row's price is older than prices of its kind may be.
pub(crate) fn row_stale(shard: &Shard, row: &Row, as_of: Timestamp) -> bool {
    row.kind != runwhere_model::PriceKind::Configured
        && stale_at(shard, row.observed, row.billing, row.bundled, as_of)
}

fn stale_at(
    shard: &Shard,
    observed: i64,
    billing: BillingModel,
    bundled: bool,
    as_of: Timestamp,
) -> bool {
    let at = shard.time(observed, bundled);
    at.is_some_and(|at| as_of.duration_since(at) > limit_of(shard, billing, bundled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ceiling_holds_exactly_what_converts_to_no_more(
            amount in 0i64..1_000_000_000_000, of_amount in 0u32..=14,
            factor in 1i64..10_000_000, of_factor in 0u32..=6,
            above in -2i64..=2, other in prop::option::of((0i64..1_000_000_000, 0u32..=20)),
        ) {
            let amount = Decimal::new(amount, of_amount);
            let factor = Decimal::new(factor, of_factor);
            let converted = amount.checked_mul(factor).expect("few digits");
            // Mostly right at the ceiling: a last digit below, at and above it.
            let near = converted + Decimal::new(above, converted.scale());
            let most = other.map_or(near, |(digits, scale)| Decimal::new(digits, scale));
            prop_assert_eq!(Ceiling::new(most, factor).holds(amount), converted <= most);
        }
    }
}
