//! What rows have in common that a question asks about.

use runwhere_model::offer::Stock;
use runwhere_model::{BillingModel, Currency, PriceKind};
use rust_decimal::Decimal;

use super::row::{PriceStateTag, Row, Shard};
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
    pub(super) fn of(row: &Row) -> Self {
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

/// Rows of one class, side by side in their shard's order, cheapest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) class: Class,
    /// Places in the order.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// When the oldest and the newest of them were read, in microseconds, relative to nothing;
    /// the sheet's own time is `AS_SHEET`.
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
}

impl Bucket {
    /// How many rows.
    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// A row with what decides about it besides its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// The row's place in its shard.
    pub(crate) at: u32,
    pub(crate) amount: Decimal,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u64,
}

impl Candidate {
    fn of(at: u32, row: &Row) -> Self {
        Self { at, amount: row.amount, vcpus: row.vcpus, memory_mib: row.memory_mib }
    }
}

impl Shard {
    /// The classes of a model's rows, in order, and the rows with what decides about each.
    pub(crate) fn buckets(&self, account: bool, gpu: u16) -> (Vec<Bucket>, Vec<Candidate>) {
        let (start, rows) = self.index().of_gpu(account, gpu);
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut candidates = Vec::with_capacity(rows.len());
        for (place, at) in (start..).zip(rows) {
            let row = self.row(*at);
            let class = Class::of(row);
            candidates.push(Candidate::of(*at, row));
            match buckets.last_mut().filter(|bucket| bucket.class == class) {
                Some(bucket) => {
                    bucket.end = place + 1;
                    bucket.oldest = bucket.oldest.min(row.observed);
                    bucket.newest = bucket.newest.max(row.observed);
                }
                None => buckets.push(Bucket {
                    class,
                    start: place,
                    end: place + 1,
                    oldest: row.observed,
                    newest: row.observed,
                }),
            }
        }
        (buckets, candidates)
    }
}
