//! The sheet a source fills row by row.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};

use jiff::Timestamp;
use runwhere_model::{
    Alternative, BillingModel, Gap, GpuCount, GpuModel, GpuModelId, HourlyPrice, Mark, Marks,
    Offer, OfferDetails, OfferKey, OfferSheet, Price, PriceKind, PriceState, ProviderError,
    ProviderId, RejectedRow, Stock,
};

use crate::http::Row;

/// One row as a cloud states it.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The cloud's region.
    pub region: Option<String>,
    /// The cloud's zone.
    pub zone: Option<String>,
    /// On demand, spot or another form.
    pub billing: BillingModel,
    /// The cloud's own spelling of the type.
    pub instance_type: String,
    /// The cloud's own name of the GPU.
    pub gpu_raw: String,
    /// The model where the cloud's interface tells it in another way than by its name.
    pub gpu: Option<GpuModelId>,
    /// How many.
    pub gpu_count: GpuCount,
    /// Memory of one GPU as stated.
    pub gpu_memory_mib: Option<u64>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Main memory in MiB.
    pub memory_mib: Option<u64>,
    /// The price of the whole machine.
    pub price: PriceState,
    /// Whose price.
    pub kind: PriceKind,
    /// Stock.
    pub stock: Stock,
    /// Since when the price holds.
    pub effective_at: Option<Timestamp>,
    /// When the price was read, where that was not in this reading.
    pub observed_at: Option<Timestamp>,
    /// Remarks.
    pub marks: Marks,
    /// The rarer facts.
    pub details: OfferDetails,
}

impl Listing {
    /// An on-demand list price without a place and with unstated stock; set what is known.
    pub fn new(
        instance_type: impl Into<String>,
        gpu_raw: impl Into<String>,
        gpu_count: GpuCount,
        price: PriceState,
    ) -> Self {
        Self {
            region: None,
            zone: None,
            billing: BillingModel::OnDemand,
            instance_type: instance_type.into(),
            gpu_raw: gpu_raw.into(),
            gpu: None,
            gpu_count,
            gpu_memory_mib: None,
            vcpus: None,
            memory_mib: None,
            price,
            kind: PriceKind::List,
            stock: Stock::Unstated,
            effective_at: None,
            observed_at: None,
            marks: Marks::NONE,
            details: OfferDetails::default(),
        }
    }
}

/// Collects the rows of one reading. Rows about machines without an accelerator are no concern of
/// a sheet; every other row becomes an offer or a rejected row.
#[derive(Debug)]
pub struct SheetBuilder {
    provider: ProviderId,
    source: String,
    observed_at: Timestamp,
    offers: BTreeMap<OfferKey, Offer>,
    rejected: Vec<RejectedRow>,
    gaps: Vec<Gap>,
    validator: Option<String>,
    models: HashMap<(String, Option<u64>), Option<GpuModelId>>,
}

impl SheetBuilder {
    /// An empty sheet; `source` says for people where the prices were read.
    pub fn new(provider: ProviderId, source: impl Into<String>, observed_at: Timestamp) -> Self {
        Self {
            provider,
            source: source.into(),
            observed_at,
            offers: BTreeMap::new(),
            rejected: Vec::new(),
            gaps: Vec::new(),
            validator: None,
            models: HashMap::new(),
        }
    }

    /// When the reading began.
    pub fn observed_at(&self) -> Timestamp {
        self.observed_at
    }

    /// Adds a row. A key that is there already keeps the higher price; the other one is kept as an
    /// alternative.
    pub fn offer(&mut self, listing: Listing) {
        if listing.instance_type.is_empty() {
            self.reject(listing.gpu_raw, "the row names no type");
            return;
        }
        let offer = self.make(listing);
        match self.offers.entry(offer.key.clone()) {
            Entry::Vacant(free) => {
                free.insert(offer);
            }
            Entry::Occupied(mut there) => merge(there.get_mut(), offer),
        }
    }

    fn make(&mut self, row: Listing) -> Offer {
        let named = (row.gpu_raw.clone(), row.gpu_memory_mib);
        let gpu = row.gpu.or_else(|| {
            *self.models.entry(named).or_insert_with_key(|(raw, memory)| {
                GpuModel::named(raw, *memory).map(|model| model.id)
            })
        });
        let details = (row.details != OfferDetails::default()).then(|| Box::new(row.details));
        Offer {
            key: OfferKey {
                provider: self.provider.clone(),
                region: row.region.filter(|region| !region.is_empty()),
                zone: row.zone.filter(|zone| !zone.is_empty()),
                billing_model: row.billing,
                instance_type: row.instance_type,
            },
            gpu,
            gpu_raw: row.gpu_raw,
            gpu_count: row.gpu_count,
            gpu_memory_mib: row.gpu_memory_mib,
            vcpus: row.vcpus,
            memory_mib: row.memory_mib,
            price: Price {
                state: row.price,
                kind: row.kind,
                source: self.source.clone(),
                observed_at: row.observed_at.or(Some(self.observed_at)),
                effective_at: row.effective_at,
            },
            stock: row.stock,
            launchable: false,
            pretended: false,
            marks: row.marks,
            details,
        }
    }

    /// Adds a row that cannot be an offer.
    pub fn reject(&mut self, row: impl Into<String>, reason: impl Into<String>) {
        let short = |text: String| text.chars().take(160).collect::<String>();
        self.rejected.push(RejectedRow { row: short(row.into()), reason: short(reason.into()) });
    }

    /// The row, or `None` after having rejected it.
    pub fn read<T>(&mut self, row: Row<T>) -> Option<T> {
        match row {
            Row::Read(row) => Some(row),
            Row::Odd { row, reason } => {
                self.reject(row, reason);
                None
            }
        }
    }

    /// Notes that a part could not be read: the sheet is not complete.
    pub fn gap(&mut self, part: impl Into<String>, reason: impl Into<String>) {
        self.gaps.push(Gap { part: part.into(), reason: reason.into() });
    }

    /// Notes the failure of a part, or returns it where nothing has been read at all and no other
    /// part can be.
    pub fn failed(&mut self, part: impl Into<String>, error: &ProviderError) {
        self.gap(part, error.to_string());
    }

    /// What tells the source next time what we have.
    pub fn validator(&mut self, validator: Option<String>) {
        self.validator = validator;
    }

    /// Whether any row became an offer so far.
    pub fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Whether nothing was read so far.
    pub fn is_empty(&self) -> bool {
        self.offers.is_empty() && self.rejected.is_empty()
    }

    /// The sheet.
    pub fn finish(self) -> OfferSheet {
        OfferSheet {
            complete: self.gaps.is_empty(),
            validator: self.validator.filter(|_| self.gaps.is_empty()),
            gaps: self.gaps,
            ..OfferSheet::complete(
                self.offers.into_values().collect(),
                self.rejected,
                self.observed_at,
            )
        }
    }
}

/// Joins a second row of one key to the first. The higher price stands: nobody is promised the
/// lower of two that a source has for one thing.
fn merge(there: &mut Offer, second: Offer) {
    let prices = (there.price.state.known(), second.price.state.known());
    let (kept, other): (_, Option<HourlyPrice>) = match prices {
        (Some(first), Some(second)) if first == second => return,
        (Some(first), Some(new)) if new.amount > first.amount => (Some(second.price), Some(first)),
        (Some(_), other) => (None, other),
        (None, Some(_)) => (Some(second.price), None),
        (None, None) => return,
    };
    if let Some(price) = kept {
        there.price = price;
    }
    if let Some(price) = other {
        there.marks = there.marks.with(Mark::Duplicated);
        let details = there.details.get_or_insert_default();
        details.alternatives.push(Alternative { price, of: "a second row".to_owned() });
    }
}
