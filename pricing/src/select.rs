//! Which offers answer a question: walks classes of offers instead of offers.
//!
//! Every shard keeps the rows of one model, count, region, form and currency together, cheapest first.
//! So a question costs some steps per class, not per offer: what a class excludes is counted as a
//! whole, a ceiling is one binary search, and the best are merged from the heads of the classes. Only
//! where a class is not uniform in what is asked (age, zone, size, risk) its rows are judged singly.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{BillingModel, Currency, GpuModel, GpuModelId};
use rust_decimal::Decimal;

use crate::catalogue::{Audience, BUNDLED_MAX_AGE, Catalogue, SHOWN, Standing};
use crate::quote::{Policy, Query, Rejection, reclaim_percent};
use crate::shard::{Bucket, OfCount, PriceStateTag, Row, Shard, Sizes, span};

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
    pub(crate) lowest: BTreeMap<Standing, Decimal>,
}

/// A row that was chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picked<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) at: u32,
}

/// The place of a row among all answers; equal for no two rows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    standing: Standing,
    stale: bool,
    preference: usize,
    unknown: bool,
    amount: Decimal,
    billing: BillingModel,
    vcpus: Reverse<u32>,
    memory: Reverse<u64>,
    shard: usize,
    at: u32,
}

/// Rows of one class and one staleness, cheapest first.
#[derive(Clone, Copy)]
struct Group<'a> {
    rows: &'a [u32],
    /// The sizes of the first.
    head: Sizes,
    stale: bool,
}

/// The rows of a class that match, the cheapest at the head.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    rank: Rank,
    shard: &'a Shard,
    rows: &'a [u32],
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
}

struct Search<'a, 'q> {
    query: &'q Query,
    as_of: Timestamp,
    rates: Vec<RateNow>,
    single: bool,
    runs: Vec<Run<'a>>,
    matching: usize,
    launchable: usize,
    lowest: BTreeMap<Standing, Decimal>,
    rejected: &'q mut BTreeMap<Rejection, usize>,
}

impl Catalogue {
    /// The best offers of a model for a question.
    pub(crate) fn select<'a>(
        &'a self,
        gpu: GpuModelId,
        query: &Query,
        as_of: Timestamp,
        rejected: &mut BTreeMap<Rejection, usize>,
    ) -> Found<'a> {
        let place = GpuModel::all().iter().position(|model| model.id == gpu);
        let place = place.and_then(|place| u16::try_from(place).ok()).unwrap_or(u16::MAX);
        let single = query.zone.is_some()
            || query.country.is_some()
            || query.min_memory_mib.is_some()
            || query.min_vcpus.is_some();
        let mut search = Search {
            query,
            as_of,
            rates: Vec::with_capacity(4),
            single,
            runs: Vec::with_capacity(16),
            matching: 0,
            launchable: 0,
            lowest: BTreeMap::new(),
            rejected,
        };
        let audiences: &[bool] =
            if query.audience == Audience::Member { &[false, true] } else { &[false] };
        for (number, shard) in self.shards().iter().enumerate() {
            let wanted = query.provider.as_deref().is_none_or(|id| id == shard.provider().as_str());
            for account in audiences {
                let parts = shard.index().of_count(*account, place, query.gpu_count);
                search.model(self, number, shard, &parts, wanted);
            }
        }
        search.finish()
    }
}

impl<'a> Search<'a, '_> {
    fn reject(&mut self, class: Rejection, rows: usize) {
        if rows > 0 {
            *self.rejected.entry(class).or_insert(0) += rows;
        }
    }

    fn model(
        &mut self,
        catalogue: &Catalogue,
        number: usize,
        shard: &'a Shard,
        parts: &OfCount<'a>,
        wanted: bool,
    ) {
        self.reject(Rejection::Fraction, parts.fractions);
        self.reject(Rejection::GpuCount, parts.other_counts);
        self.reject(Rejection::Form, parts.forms);
        if parts.rows == 0 {
            return;
        }
        if !wanted {
            return self.reject(Rejection::Place, parts.rows);
        }
        let buckets: &[Bucket] = match &self.query.region {
            None => parts.buckets(),
            Some(region) => {
                let symbol = shard.region_symbol(region);
                let there = symbol.map_or(&[][..], |symbol| parts.of_region(symbol));
                self.reject(Rejection::Place, parts.rows - span(there));
                there
            }
        };
        for bucket in buckets {
            self.bucket(catalogue, number, shard, bucket);
        }
    }

    fn rate(&mut self, catalogue: &Catalogue, from: Currency) -> RateNow {
        if let Some(known) = self.rates.iter().find(|rate| rate.from == from) {
            return *known;
        }
        let one = runwhere_model::Money::new(Decimal::ONE, from);
        let rate = match catalogue.fx().convert(one, SHOWN, self.as_of) {
            Ok(converted) => {
                RateNow { from, rate: Some(converted.money.amount), stale: converted.stale }
            }
            Err(_) => RateNow { from, rate: None, stale: false },
        };
        self.rates.push(rate);
        rate
    }

    fn bucket(&mut self, catalogue: &Catalogue, number: usize, shard: &'a Shard, bucket: &Bucket) {
        let class = &bucket.class;
        let rows = shard.index().rows(bucket);
        if class.billing == BillingModel::Spot && !self.query.spot_allowed {
            return self.reject(Rejection::Spot, rows.len());
        }
        if class.state == PriceStateTag::NotOffered {
            return self.reject(Rejection::NotOffered, rows.len());
        }
        if class.sold_out && !class.launchable {
            return self.reject(Rejection::SoldOut, rows.len());
        }
        let weighed = self.query.policy == Policy::Reclaim && class.billing == BillingModel::Spot;
        let uniform = (!self.single && !weighed)
            .then(|| uniform_staleness(shard, bucket, self.as_of))
            .flatten();
        match uniform {
            Some(stale) => {
                let group = Group { rows, head: bucket.head, stale };
                self.run(catalogue, number, shard, bucket, &group);
            }
            None => {
                for at in rows.chunks(1) {
                    let row = shard.row(at[0]);
                    if let Some(class) = self.unfit(shard, row) {
                        self.reject(class, 1);
                        continue;
                    }
                    let stale = row_stale(shard, row, self.as_of);
                    let group = Group { rows: at, head: Sizes::of(row), stale };
                    self.run(catalogue, number, shard, bucket, &group);
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
    fn run(
        &mut self,
        catalogue: &Catalogue,
        number: usize,
        shard: &'a Shard,
        bucket: &Bucket,
        group: &Group<'a>,
    ) {
        let Group { rows, head, stale } = *group;
        let class = &bucket.class;
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
        if let Some(ceiling) = self.query.max_hourly_price {
            let Some(rate) = rate else {
                return self.reject(Rejection::PriceUnknown, rows.len());
            };
            // An old rate may order reference prices; it may not let a launch under a ceiling.
            let usable = factor.filter(|_| !rate.stale || standing == Standing::Reference);
            let Some(factor) = usable else {
                return self.reject(Rejection::ExchangeRate, rows.len());
            };
            let within = |amount: Decimal| {
                amount.checked_mul(factor).is_some_and(|amount| amount <= ceiling)
            };
            let rest = rows.get(1..).unwrap_or_default();
            let end = match within(head.amount) {
                false => 0,
                true => 1 + rest.partition_point(|at| within(shard.row(*at).amount)),
            };
            self.reject(Rejection::AboveMaxPrice, rows.len() - end);
            matching = &rows[..end];
        }
        let Some(first) = matching.first() else { return };
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
                shard: number,
                at: *first,
            },
            shard,
            rows: matching,
            rate: factor,
            weighed,
        };
        let run = run.headed(head);
        if let Some(factor) = factor
            && let Some(amount) = head.amount.checked_mul(factor)
        {
            let least = self.lowest.entry(standing).or_insert(amount);
            *least = amount.min(*least);
        }
        self.runs.push(run);
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
        if wanted * 4 > self.runs.len() && self.runs.len() > 64 {
            // Many answers from many classes: one sort is cheaper than many searches.
            let mut all: Vec<Run<'a>> = Vec::with_capacity(self.matching);
            for run in &self.runs {
                all.extend(run.rows.chunks(1).map(|rows| Run { rows, ..*run }.at_head()));
            }
            all.sort_unstable_by_key(|run| run.rank);
            best.extend(all.iter().take(wanted).map(|run| run.picked()));
        } else {
            while best.len() < wanted {
                let Some((place, run)) =
                    self.runs.iter().enumerate().min_by(|a, b| a.1.rank.cmp(&b.1.rank))
                else {
                    break;
                };
                best.push(run.picked());
                let rows = &run.rows[1..];
                match rows.is_empty() {
                    true => {
                        self.runs.swap_remove(place);
                    }
                    false => self.runs[place] = Run { rows, ..*run }.at_head(),
                }
            }
        }
        Found { best, matching: self.matching, launchable: self.launchable, lowest: self.lowest }
    }
}

impl<'a> Run<'a> {
    fn picked(&self) -> Picked<'a> {
        Picked { shard: self.shard, at: self.rank.at }
    }

    /// The rank of the first row.
    fn at_head(self) -> Self {
        match self.rows.first() {
            Some(at) => self.headed(Sizes::of(self.shard.row(*at))),
            None => self,
        }
    }

    /// The same, where it is known what decides about the first row.
    fn headed(mut self, head: Sizes) -> Self {
        let Some(at) = self.rows.first() else { return self };
        let converted = self.rate.and_then(|rate| head.amount.checked_mul(rate));
        let amount = match (converted, self.weighed) {
            (Some(amount), true) => {
                let percent = reclaim_percent(self.shard.detail(self.shard.row(*at)));
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
            at: *at,
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
