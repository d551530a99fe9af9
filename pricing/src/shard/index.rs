//! The rows of a shard in the order of price.

use runwhere_model::GpuModel;

use super::class::Class;
use super::row::Row;

/// The order of all rows: by class, the cheapest of a class first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    pub(super) order: Vec<u32>,
    /// Where each model's rows lie in the order, of list prices and of account prices; at the end those of
    /// models unknown here.
    spans: [Vec<(u32, u32)>; 2],
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

    /// An order that was kept.
    pub(super) fn of_order(rows: &[Row], order: Vec<u32>) -> Self {
        // Few of the rows need be looked at: the order is by model.
        let before = |account: bool, gpu: u16| {
            let place = order.partition_point(|at| {
                let class = Class::of(&rows[*at as usize]);
                (class.account, class.gpu) < (account, gpu)
            });
            u32::try_from(place).unwrap_or(u32::MAX)
        };
        let models = u16::try_from(GpuModel::all().len()).unwrap_or(u16::MAX);
        let spans = [false, true].map(|account| {
            let mut starts: Vec<u32> = (0..models).map(|gpu| before(account, gpu)).collect();
            // A model that this build does not know stands behind all others.
            starts.push(before(account, models));
            let end = match account {
                false => before(true, 0),
                true => u32::try_from(order.len()).unwrap_or(u32::MAX),
            };
            let ends = starts.iter().skip(1).copied().chain([end]);
            starts.iter().copied().zip(ends).collect()
        });
        Self { order, spans }
    }

    /// The rows of a model, or of all unknown ones (`u16::MAX`), in order: list prices (false) or account
    /// prices (true); and the place of the first one in the order.
    pub(crate) fn of_gpu(&self, account: bool, gpu: u16) -> (u32, &[u32]) {
        let spans = &self.spans[usize::from(account)];
        let span = spans.get(usize::from(gpu)).or(spans.last());
        let (start, end) = span.copied().unwrap_or_default();
        (start, &self.order[start as usize..end as usize])
    }

    /// The rows between two places of the order.
    pub(crate) fn rows(&self, start: u32, end: u32) -> &[u32] {
        &self.order[start as usize..end as usize]
    }
}
