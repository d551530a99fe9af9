//! All models at a glance, from classes of offers instead of offers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use runwhere_model::{Currency, GpuModel, GpuModelId, Money, ProviderId};
use rust_decimal::Decimal;

use crate::catalogue::{Audience, Catalogue, SHOWN};
use crate::rows::{SummaryReply, SummaryRow, four_decimals, plain};
use crate::select::row_stale;
use crate::shard::{Bucket, PriceStateTag, Shard};

#[derive(Default)]
struct Group<'a> {
    gpu: Option<GpuModelId>,
    raw: String,
    providers: BTreeSet<&'a ProviderId>,
    offers: usize,
    launchable: usize,
    spot: bool,
    /// Lowest, highest, lowest per GPU: of fresh prices, of stale ones, and of pretended offers.
    range: [Option<(Decimal, Decimal, Decimal)>; 3],
}

impl Group<'_> {
    fn price(&mut self, rank: usize, amount: Decimal, count: u32) {
        let Some(each) = amount.checked_div(Decimal::from(count.max(1))) else { return };
        let range = &mut self.range[rank];
        *range = Some(match *range {
            None => (amount, amount, each),
            Some((low, high, least)) => (low.min(amount), high.max(amount), least.min(each)),
        });
    }
}

pub(crate) fn summary(catalogue: &Catalogue, audience: Audience, now: Timestamp) -> SummaryReply {
    let mut rates: BTreeMap<Currency, Option<Decimal>> = BTreeMap::new();
    let mut groups: BTreeMap<(u16, String), Group<'_>> = BTreeMap::new();
    let mut stale: BTreeMap<ProviderId, usize> = BTreeMap::new();
    let mut stale_bundled = 0;
    let models = (0..GpuModel::all().len()).filter_map(|at| u16::try_from(at).ok());
    let audiences: &[bool] = if audience == Audience::Member { &[false, true] } else { &[false] };
    for (gpu, account) in
        models.chain([u16::MAX]).flat_map(|gpu| audiences.iter().map(move |a| (gpu, *a)))
    {
        for placed in catalogue.of_model(account, gpu).all() {
            let (bucket, shard) = (&placed.bucket, &catalogue.shards()[placed.shard]);
            let class = &bucket.class;
            if class.form || class.state == PriceStateTag::NotOffered {
                continue;
            }
            let rate = *rates.entry(class.currency).or_insert_with(|| {
                let one = Money::new(Decimal::ONE, class.currency);
                catalogue.fx().convert(one, SHOWN, now).ok().map(|c| c.money.amount)
            });
            let rate = rate.filter(|_| class.state == PriceStateTag::Known);
            let rows = shard.index().rows(bucket.start, bucket.end);
            match stale_rows(shard, bucket, rows, now) {
                0 => {}
                old if class.bundled => stale_bundled += old,
                old => *stale.entry(shard.provider().clone()).or_default() += old,
            }
            if usize::from(class.gpu) < GpuModel::all().len() {
                let group = groups.entry((class.gpu, String::new())).or_default();
                add(group, shard, bucket, rows, rate, now);
            } else {
                for at in rows.chunks(1) {
                    let raw = shard.text(shard.row(at[0]).gpu_raw);
                    let group = groups.entry((class.gpu, raw.to_owned())).or_default();
                    add(group, shard, bucket, at, rate, now);
                }
            }
        }
    }
    let oldest = catalogue.connected().into_values().chain(catalogue.newest_bundled()).min();
    SummaryReply {
        items: groups.into_values().map(row).collect(),
        last_updated: oldest,
        staleness_seconds: oldest.map(|at| now.duration_since(at).as_secs().max(0)),
        snapshot_id: catalogue.snapshot_id().to_owned(),
        troubles: catalogue.troubles().clone(),
        stale,
        stale_bundled,
    }
}

/// How many rows of a class have prices older than prices of their kind may be.
fn stale_rows(shard: &Shard, bucket: &Bucket, rows: &[u32], now: Timestamp) -> usize {
    let stale = |at: &u32| row_stale(shard, shard.row(*at), now);
    match uniform(bucket) {
        true => rows.first().filter(|at| stale(at)).map_or(0, |_| rows.len()),
        false => rows.iter().filter(|at| stale(at)).count(),
    }
}

/// Whether all rows of a class are of one age, or age plays no part.
fn uniform(bucket: &Bucket) -> bool {
    bucket.oldest == bucket.newest || bucket.class.configured
}

/// Adds rows of one class, cheapest first.
fn add<'a>(
    group: &mut Group<'a>,
    shard: &'a Shard,
    bucket: &Bucket,
    rows: &[u32],
    rate: Option<Decimal>,
    now: Timestamp,
) {
    let class = &bucket.class;
    let Some(first) = rows.first() else { return };
    if group.offers == 0 {
        let row = shard.row(*first);
        (group.gpu, group.raw) = (row.gpu(), shard.text(row.gpu_raw).to_owned());
    }
    group.providers.insert(shard.provider());
    group.offers += rows.len();
    group.spot |= class.billing == runwhere_model::BillingModel::Spot;
    let can = class.launchable && !class.bundled && !class.sold_out;
    if can {
        let fresh = |at: &&u32| !row_stale(shard, shard.row(**at), now);
        group.launchable += rows.iter().filter(fresh).count();
    }
    // A sixth of a GPU at a sixth of the price is not the cheapest GPU.
    let (Some(rate), true) = (rate, class.count > 0) else { return };
    let ends = [rows.first(), rows.last()];
    // A pretended end may hide real prices behind it.
    let real_ends = ends.iter().flatten().all(|at| !shard.row(**at).pretended);
    let judged: Vec<u32> = match uniform(bucket) && real_ends {
        true => ends.into_iter().flatten().copied().collect(),
        false => rows.to_vec(),
    };
    for at in judged {
        let row = shard.row(at);
        if let Some(amount) = row.amount.checked_mul(rate) {
            let rank = match row.pretended {
                true => 2,
                false => usize::from(row_stale(shard, row, now)),
            };
            group.price(rank, amount, class.count);
        }
    }
}

fn row(group: Group<'_>) -> SummaryRow {
    let model = group.gpu.map(GpuModelId::model);
    // Stale prices say nothing of what it costs now, unless there is nothing else; pretended ones nothing at all.
    let range = group.range.into_iter().flatten().next();
    SummaryRow {
        gpu_model: model
            .map_or_else(|| plain(&group.raw).into_owned(), |model| model.name.to_owned()),
        gpu_type: group.gpu,
        gpu_memory_gb: model.map(|model| model.memory_gib).filter(|memory| *memory > 0),
        min_hourly_price: range.map(|(low, ..)| four_decimals(low)),
        max_hourly_price: range.map(|(_, high, _)| four_decimals(high)),
        min_hourly_price_per_gpu: range.map(|(.., each)| four_decimals(each)),
        provider_count: group.providers.len(),
        offer_count: group.offers,
        launchable_count: group.launchable,
        has_spot: group.spot,
    }
}
