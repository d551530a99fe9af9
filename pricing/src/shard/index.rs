//! The rows of a shard in the order of price, cut where a question may cut.

use runwhere_model::offer::Stock;
use runwhere_model::{BillingModel, Currency, GpuModel, PriceKind};

use rust_decimal::Decimal;

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
    /// What decides about the first row, so that most rows need not be looked at.
    pub(crate) head: Sizes,
}

/// What decides about a row besides its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) amount: Decimal,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u64,
}

impl Sizes {
    pub(crate) fn of(row: &Row) -> Self {
        Self { amount: row.amount, vcpus: row.vcpus, memory_mib: row.memory_mib }
    }
}

/// The order of all rows and its buckets.
///
/// A question meets thousands of buckets and wants few of them, so what it is cut by stands beside them in
/// small tables that fit into few lines of a cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(super) order: Vec<u32>,
    pub(super) buckets: Vec<Bucket>,
    /// The region of each bucket.
    regions: Vec<Symbol>,
    /// The buckets of one model, form and count.
    counts: Vec<Count>,
    /// What a model has, of list prices and of account prices.
    by_gpu: [Vec<OfGpu>; 2],
}

/// Adjoining buckets of one model, form and count of GPUs.
#[derive(Clone, Copy, Debug)]
struct Count {
    form: bool,
    /// Whole GPUs; 0 = a share of one.
    gpus: u32,
    buckets: (u32, u32),
    rows: u32,
}

/// Where a model's buckets and counts lie.
#[derive(Clone, Copy, Debug, Default)]
struct OfGpu {
    buckets: (u32, u32),
    counts: (u32, u32),
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
                    head: Sizes::of(row),
                }),
            }
        }
        let regions = buckets.iter().map(|bucket| bucket.class.region).collect();
        let counts = counts(&buckets);
        let mut by_gpu = [Vec::new(), Vec::new()];
        let models = GpuModel::all().len();
        for (account, places) in by_gpu.iter_mut().enumerate() {
            places.resize(models, OfGpu::default());
            for (gpu, place) in places.iter_mut().enumerate() {
                let of = |bucket: &Bucket| {
                    (usize::from(bucket.class.account), usize::from(bucket.class.gpu))
                };
                let number = |at: usize| u32::try_from(at).unwrap_or(0);
                let start = number(buckets.partition_point(|bucket| of(bucket) < (account, gpu)));
                let end = number(buckets.partition_point(|bucket| of(bucket) <= (account, gpu)));
                let first = counts.partition_point(|count: &Count| count.buckets.0 < start);
                let last = counts.partition_point(|count: &Count| count.buckets.0 < end);
                *place = OfGpu { buckets: (start, end), counts: (number(first), number(last)) };
            }
        }
        Self { order, buckets, regions, counts, by_gpu }
    }

    /// All buckets, in order.
    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    fn place(&self, account: bool, gpu: u16) -> OfGpu {
        let places = &self.by_gpu[usize::from(account)];
        places.get(usize::from(gpu)).copied().unwrap_or_default()
    }

    /// The buckets of a model: list prices (false) or account prices (true).
    pub(crate) fn of_gpu(&self, account: bool, gpu: u16) -> &[Bucket] {
        let (start, end) = self.place(account, gpu).buckets;
        &self.buckets[start as usize..end as usize]
    }

    /// A model's buckets of a count, and how many rows all others hold.
    pub(crate) fn of_count(&self, account: bool, gpu: u16, count: u32) -> OfCount<'_> {
        let (first, last) = self.place(account, gpu).counts;
        let mut found =
            OfCount { index: self, span: (0, 0), rows: 0, fractions: 0, other_counts: 0, forms: 0 };
        for one in &self.counts[first as usize..last as usize] {
            let rows = one.rows as usize;
            match one {
                Count { form: true, .. } => found.forms += rows,
                Count { gpus: 0, .. } => found.fractions += rows,
                Count { gpus, buckets, .. } if *gpus == count => {
                    (found.span, found.rows) = (*buckets, rows);
                }
                _ => found.other_counts += rows,
            }
        }
        found
    }

    /// The rows of a bucket, cheapest first.
    pub(crate) fn rows(&self, bucket: &Bucket) -> &[u32] {
        &self.order[bucket.start as usize..bucket.end as usize]
    }
}

/// Buckets of one model, form and count, one after another.
fn counts(buckets: &[Bucket]) -> Vec<Count> {
    let of = |class: &Class| (class.account, class.gpu, class.form, class.count);
    let mut counts: Vec<Count> = Vec::new();
    let mut last = None;
    for (at, bucket) in buckets.iter().enumerate() {
        let (class, rows) = (of(&bucket.class), bucket.end - bucket.start);
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        match counts.last_mut().filter(|_| last == Some(class)) {
            Some(count) => {
                count.buckets.1 = at + 1;
                count.rows += rows;
            }
            None => counts.push(Count {
                form: bucket.class.form,
                gpus: bucket.class.count,
                buckets: (at, at + 1),
                rows,
            }),
        }
        last = Some(class);
    }
    counts
}

/// A model's buckets of one whole count, and how many rows all others hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfCount<'a> {
    index: &'a Index,
    span: (u32, u32),
    /// Rows of the count.
    pub(crate) rows: usize,
    pub(crate) fractions: usize,
    pub(crate) other_counts: usize,
    pub(crate) forms: usize,
}

impl<'a> OfCount<'a> {
    /// The buckets.
    pub(crate) fn buckets(&self) -> &'a [Bucket] {
        &self.index.buckets[self.span.0 as usize..self.span.1 as usize]
    }

    /// The buckets of a region.
    pub(crate) fn of_region(&self, region: Symbol) -> &'a [Bucket] {
        let (start, end) = (self.span.0 as usize, self.span.1 as usize);
        let regions = &self.index.regions[start..end];
        let first = regions.partition_point(|at| *at < region);
        let last = first + regions[first..].partition_point(|at| *at <= region);
        &self.index.buckets[start + first..start + last]
    }
}

/// How many rows lie in adjoining buckets.
pub(crate) fn span(buckets: &[Bucket]) -> usize {
    match (buckets.first(), buckets.last()) {
        (Some(first), Some(last)) => (last.end - first.start) as usize,
        _ => 0,
    }
}
