//! The rows of a shard in the order of price, cut where a question may cut.

use runwhere_model::offer::Stock;
use runwhere_model::{BillingModel, Currency, GpuModel, PriceKind};

use super::row::{PriceStateTag, Row};
use super::strings::Symbol;

/// What all rows of a bucket have in common.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Class {
    pub(crate) account: bool,
    pub(crate) gpu: u16,
    /// Sold in a form that is neither on demand nor spot.
    pub(crate) form: bool,
    /// Whole GPUs; 0 = a share of one.
    pub(crate) count: u32,
    pub(crate) region: Symbol,
    pub(crate) billing: BillingModel,
    pub(crate) state: PriceStateTag,
    pub(crate) currency: Currency,
    pub(crate) launchable: bool,
    pub(crate) sold_out: bool,
    pub(crate) bundled: bool,
    pub(crate) configured: bool,
}

impl Class {
    fn of(row: &Row) -> Self {
        Self {
            account: row.kind == PriceKind::Account,
            gpu: row.gpu,
            form: !row.billing.is_standard(),
            count: row.count.as_whole().unwrap_or(0),
            region: row.region,
            billing: row.billing,
            state: row.state,
            currency: row.currency,
            launchable: row.launchable,
            sold_out: row.stock == Stock::SoldOut,
            bundled: row.bundled,
            configured: row.kind == PriceKind::Configured,
        }
    }
}

/// Rows of one class: `order[start..end]`, cheapest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) class: Class,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// When the oldest and the newest of them were read, in microseconds, relative to nothing;
    /// the sheet's own time is `AS_SHEET`.
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
}

/// The order of all rows and its buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(super) order: Vec<u32>,
    pub(super) buckets: Vec<Bucket>,
    /// Buckets of a model, of list prices and of account prices.
    by_gpu: [Vec<(u32, u32)>; 2],
}

impl Index {
    /// Orders the rows.
    pub(super) fn build(rows: &[Row]) -> Self {
        let mut order: Vec<u32> = (0..rows.len()).filter_map(|at| u32::try_from(at).ok()).collect();
        let rank = |at: u32| {
            let row = &rows[at as usize];
            // Absent sizes are the smallest: `NONE` wraps to 0.
            let vcpus = std::cmp::Reverse(row.vcpus.wrapping_add(1));
            let memory = std::cmp::Reverse(row.memory_mib.wrapping_add(1));
            (Class::of(row), row.amount, vcpus, memory, at)
        };
        order.sort_unstable_by_key(|at| rank(*at));
        Self::of_order(rows, order)
    }

    /// The buckets of an order that was kept.
    pub(super) fn of_order(rows: &[Row], order: Vec<u32>) -> Self {
        let mut buckets: Vec<Bucket> = Vec::new();
        for (at, row) in order.iter().enumerate() {
            let row = &rows[*row as usize];
            let (class, at) = (Class::of(row), u32::try_from(at).unwrap_or(u32::MAX));
            match buckets.last_mut().filter(|bucket| bucket.class == class) {
                Some(bucket) => {
                    bucket.end = at + 1;
                    bucket.oldest = bucket.oldest.min(row.observed);
                    bucket.newest = bucket.newest.max(row.observed);
                }
                None => buckets.push(Bucket {
                    class,
                    start: at,
                    end: at + 1,
                    oldest: row.observed,
                    newest: row.observed,
                }),
            }
        }
        let mut by_gpu = [Vec::new(), Vec::new()];
        let models = GpuModel::all().len();
        for (account, ranges) in by_gpu.iter_mut().enumerate() {
            ranges.resize(models, (0, 0));
            for (gpu, range) in ranges.iter_mut().enumerate() {
                let of = |bucket: &Bucket| {
                    (usize::from(bucket.class.account), usize::from(bucket.class.gpu))
                };
                let start = buckets.partition_point(|bucket| of(bucket) < (account, gpu));
                let end = buckets.partition_point(|bucket| of(bucket) <= (account, gpu));
                *range = (u32::try_from(start).unwrap_or(0), u32::try_from(end).unwrap_or(0));
            }
        }
        Self { order, buckets, by_gpu }
    }

    /// All buckets, in order.
    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The buckets of a model: list prices (false) or account prices (true).
    pub(crate) fn of_gpu(&self, account: bool, gpu: u16) -> &[Bucket] {
        let range = self.by_gpu[usize::from(account)].get(usize::from(gpu));
        let (start, end) = range.copied().unwrap_or((0, 0));
        &self.buckets[start as usize..end as usize]
    }

    /// The rows of a bucket, cheapest first.
    pub(crate) fn rows(&self, bucket: &Bucket) -> &[u32] {
        &self.order[bucket.start as usize..bucket.end as usize]
    }
}

/// The buckets of whole counts: those of this count, and how many rows all others hold.
pub(crate) struct OfCount<'a> {
    pub(crate) buckets: &'a [Bucket],
    pub(crate) fractions: usize,
    pub(crate) other_counts: usize,
    pub(crate) forms: usize,
}

/// Cuts a model's buckets by count.
pub(crate) fn of_count(buckets: &[Bucket], count: u32) -> OfCount<'_> {
    let span = |part: &[Bucket]| match (part.first(), part.last()) {
        (Some(first), Some(last)) => (last.end - first.start) as usize,
        _ => 0,
    };
    let forms_at = buckets.partition_point(|bucket| !bucket.class.form);
    let (standard, forms) = buckets.split_at(forms_at);
    let fractions_end = standard.partition_point(|bucket| bucket.class.count == 0);
    let (fractions, whole) = standard.split_at(fractions_end);
    let start = whole.partition_point(|bucket| bucket.class.count < count);
    let end = whole.partition_point(|bucket| bucket.class.count <= count);
    OfCount {
        buckets: &whole[start..end],
        fractions: span(fractions),
        other_counts: span(&whole[..start]) + span(&whole[end..]),
        forms: span(forms),
    }
}

/// Cuts buckets of one count by region.
pub(crate) fn of_region(buckets: &[Bucket], region: Symbol) -> &[Bucket] {
    let start = buckets.partition_point(|bucket| bucket.class.region < region);
    let end = buckets.partition_point(|bucket| bucket.class.region <= region);
    &buckets[start..end]
}

/// How many rows lie in adjoining buckets.
pub(crate) fn span(buckets: &[Bucket]) -> usize {
    buckets.iter().map(|bucket| (bucket.end - bucket.start) as usize).sum()
}
