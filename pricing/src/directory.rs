//! Where a question finds its offers: the classes of all shards by model, count and region.
//!
//! A model's part is made when somebody first asks about the model, and lives as long as the state of the
//! prices. So a question about one region reads a few adjoining lines, however many providers and offers
//! there are, and a state that is swapped in costs nothing for models that nobody asks about.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use runwhere_model::{GpuModel, GpuModelId};

use crate::shard::{Bucket, Candidate, Shard};

/// The number of a place without a region, or whose region is not among those of the shard.
const NOWHERE: u32 = 0;

/// Classes that are read before they are looked at, at most.
const MOST_FETCHED: usize = 128;

/// The place of a model in rows.
pub(crate) fn model_place(gpu: GpuModelId) -> u16 {
    u16::try_from(gpu.place()).unwrap_or(u16::MAX)
}

/// The classes of all shards.
#[derive(Debug)]
pub(crate) struct Directory {
    regions: OnceLock<Regions>,
    /// List prices, then account prices; each by model, unknown ones at the end.
    models: Box<[OnceLock<OfModel>]>,
}

impl Default for Directory {
    fn default() -> Self {
        let parts = 2 * (GpuModel::all().len() + 1);
        Self { regions: OnceLock::new(), models: (0..parts).map(|_| OnceLock::new()).collect() }
    }
}

impl Directory {
    /// What all shards have of a model, or of all unknown ones (`u16::MAX`).
    pub(crate) fn of_model(&self, shards: &[Arc<Shard>], account: bool, gpu: u16) -> &OfModel {
        let models = GpuModel::all().len();
        let place = usize::from(gpu).min(models) + usize::from(account) * (models + 1);
        self.models[place].get_or_init(|| OfModel::new(shards, self.regions(shards), account, gpu))
    }

    /// The number of a region; `None` where no shard has it.
    pub(crate) fn region(&self, shards: &[Arc<Shard>], name: &str) -> Option<u32> {
        self.regions(shards).numbers.get(name).copied()
    }

    fn regions(&self, shards: &[Arc<Shard>]) -> &Regions {
        self.regions.get_or_init(|| Regions::new(shards))
    }
}

/// One number for each region's name, whichever shards have it.
#[derive(Debug)]
struct Regions {
    numbers: HashMap<Box<str>, u32>,
    /// The numbers of each shard's symbols, by symbol.
    of_shard: Vec<Vec<(u32, u32)>>,
}

impl Regions {
    fn new(shards: &[Arc<Shard>]) -> Self {
        let mut numbers = HashMap::new();
        let mut of_shard = Vec::with_capacity(shards.len());
        for shard in shards {
            let mut own: Vec<(u32, u32)> = Vec::new();
            for symbol in shard.regions() {
                let next = u32::try_from(numbers.len() + 1).unwrap_or(NOWHERE);
                let number = *numbers.entry(Box::from(shard.text(*symbol))).or_insert(next);
                own.push((*symbol, number));
            }
            own.sort_unstable();
            of_shard.push(own);
        }
        Self { numbers, of_shard }
    }

    fn number(&self, shard: usize, symbol: u32) -> u32 {
        let own = &self.of_shard[shard];
        let at = own.binary_search_by_key(&symbol, |(symbol, _)| *symbol);
        at.map_or(NOWHERE, |at| own[at].1)
    }
}

/// A class and where it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) bucket: Bucket,
    /// The shard's place among all.
    pub(crate) shard: usize,
    /// Where its rows begin.
    rows: usize,
}

/// The classes of one model: by form, count, region, shard, and the order of the shard.
#[derive(Debug)]
pub(crate) struct OfModel {
    placed: Vec<Placed>,
    /// The rows, in the order of the classes: side by side, where the rows of the shards lie
    /// scattered over the memory.
    rows: Vec<Candidate>,
    counts: Vec<Count>,
}

/// Adjoining classes of one form and count of GPUs.
#[derive(Debug)]
struct Count {
    form: bool,
    /// Whole GPUs; 0 = a share of one.
    gpus: u32,
    rows: usize,
    /// Where each region's classes begin, by its number, and where the last ones end.
    starts: Vec<Start>,
}

/// Where adjoining classes, and their rows, begin.
#[derive(Clone, Copy, Debug)]
struct Start {
    class: u32,
    row: u32,
}

impl Start {
    fn new(class: usize, row: usize) -> Self {
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self { class: place(class), row: place(row) }
    }
}

impl OfModel {
    fn new(shards: &[Arc<Shard>], regions: &Regions, account: bool, gpu: u16) -> Self {
        let (mut found, mut read) = (Vec::new(), Vec::new());
        for (number, shard) in shards.iter().enumerate() {
            let (buckets, mut of_rows) = shard.buckets(account, gpu);
            let mut rows = read.len();
            for bucket in buckets {
                let region = regions.number(number, bucket.class.region);
                found.push((region, Placed { bucket, shard: number, rows }));
                rows += bucket.len();
            }
            read.append(&mut of_rows);
        }
        let key = |(region, placed): &(u32, Placed)| {
            (placed.bucket.class.form, placed.bucket.class.count, *region)
        };
        // Stable: shards, and the order within each, stay as they are.
        found.sort_by_key(key);
        let (mut counts, mut before): (Vec<Count>, _) = (Vec::new(), 0);
        for (at, (region, placed)) in found.iter().enumerate() {
            let class = &placed.bucket.class;
            let (form, gpus) = (class.form, class.count);
            if counts.last().is_none_or(|count| (count.form, count.gpus) != (form, gpus)) {
                counts.push(Count { form, gpus, rows: 0, starts: Vec::new() });
            }
            let Some(count) = counts.last_mut() else { continue };
            count.rows += placed.bucket.len();
            // Regions without a class begin where the next one does.
            while count.starts.len() <= *region as usize {
                count.starts.push(Start::new(at, before));
            }
            before += placed.bucket.len();
        }
        let ends: Vec<Start> = counts.iter().skip(1).map(|count| count.starts[0]).collect();
        let last = Start::new(found.len(), before);
        for (count, end) in counts.iter_mut().zip(ends.into_iter().chain([last])) {
            count.starts.push(end);
        }
        let mut rows = Vec::with_capacity(read.len());
        let placed = found.into_iter().map(|(_, placed)| {
            let from = placed.rows;
            let placed = Placed { rows: rows.len(), ..placed };
            rows.extend_from_slice(&read[from..from + placed.bucket.len()]);
            placed
        });
        Self { placed: placed.collect(), rows, counts }
    }

    /// All classes.
    pub(crate) fn all(&self) -> &[Placed] {
        &self.placed
    }

    /// The classes of a whole count, and how many rows all others hold.
    pub(crate) fn of_count(&self, count: u32) -> OfCount<'_> {
        let mut found =
            OfCount { of: self, count: None, rows: 0, fractions: 0, other_counts: 0, forms: 0 };
        for one in &self.counts {
            match one {
                Count { form: true, rows, .. } => found.forms += rows,
                Count { gpus: 0, rows, .. } => found.fractions += rows,
                Count { gpus, rows, .. } if *gpus == count => {
                    (found.count, found.rows) = (Some(one), *rows);
                }
                Count { rows, .. } => found.other_counts += rows,
            }
        }
        found
    }
}

/// A model's classes of one whole count, and how many rows all others hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfCount<'a> {
    of: &'a OfModel,
    count: Option<&'a Count>,
    /// Rows of the count.
    pub(crate) rows: usize,
    pub(crate) fractions: usize,
    pub(crate) other_counts: usize,
    pub(crate) forms: usize,
}

impl<'a> OfCount<'a> {
    /// The rows of a class with what decides about them, the cheapest first.
    pub(crate) fn rows_of(&self, placed: &Placed) -> &'a [Candidate] {
        &self.of.rows[placed.rows..placed.rows + placed.bucket.len()]
    }

    /// The classes.
    pub(crate) fn all(&self) -> Classes<'a> {
        self.between(0, usize::MAX)
    }

    /// The classes of a region.
    pub(crate) fn of_region(&self, region: u32) -> Classes<'a> {
        self.between(region as usize, region as usize + 1)
    }

    fn between(&self, from: usize, to: usize) -> Classes<'a> {
        let starts = self.count.map_or(&[][..], |count| &count.starts);
        let Some(last) = starts.len().checked_sub(1) else { return Classes::default() };
        let (from, to) = (starts[from.min(last)], starts[to.min(last)]);
        Classes {
            placed: &self.of.placed[from.class as usize..to.class as usize],
            rows: &self.of.rows[from.row as usize..to.row as usize],
        }
    }
}

/// Adjoining classes and their rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Classes<'a> {
    pub(crate) placed: &'a [Placed],
    rows: &'a [Candidate],
}

impl Classes<'_> {
    /// Reads some classes and their first rows in one go: the waits for memory are then one wait. What comes after
    /// as many as a question about one region has, memory that is read in order brings by itself.
    pub(crate) fn fetch(&self) {
        let classes = self.placed.iter().take(MOST_FETCHED).map(|placed| placed.bucket.start);
        let rows = self.rows.iter().take(MOST_FETCHED).step_by(2).map(|row| row.at);
        std::hint::black_box(classes.chain(rows).fold(0, u32::wrapping_add));
    }
}
