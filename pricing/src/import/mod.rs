//! Reading other catalogues: SkyPilot's `vms.csv` of every layout, gpuhunt's `catalog.csv`, and our own.
//!
//! Columns are read by their names, never by their places. Figures keep their digits. What a file is known
//! to get wrong (see `docs/prices.md`) is corrected by rule and flagged, or rejected with a reason; nothing is
//! dropped without being counted.

mod gcp;
mod gpuhunt;
mod own;
mod skypilot;
mod table;

use jiff::Timestamp;
use runwhere_model::offer::RejectedRow;
use runwhere_model::{Currency, Offer, OfferSheet, Price, PriceKind, PriceState, ProviderId};

/// How a file is laid out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// A `vms.csv` of the SkyPilot catalogue.
    SkyPilot,
    /// A `catalog.csv` of gpuhunt.
    Gpuhunt,
    /// Our own.
    Own,
}

/// What a file does not say itself.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Whose prices; our own layout says it in each row.
    pub provider: Option<ProviderId>,
    /// Currency of the prices; what is usual for the provider where absent, and said so.
    pub currency: Option<Currency>,
    /// Where the file is from, for people.
    pub source: String,
    /// When the prices were read; absent = unknown.
    pub observed_at: Option<Timestamp>,
}

impl ImportOptions {
    /// A price of the file; what its row does not say of source and time is the file's.
    fn price(
        &self,
        state: PriceState,
        source: Option<String>,
        observed_at: Option<Timestamp>,
    ) -> Price {
        Price {
            state,
            kind: PriceKind::List,
            source: source.unwrap_or_else(|| self.source.clone()),
            observed_at: observed_at.or(self.observed_at),
            effective_at: None,
        }
    }
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The layout that was found.
    pub layout: Layout,
    /// Offers, in the order of the file.
    pub offers: Vec<Offer>,
    /// Rows that do not fit, with reasons.
    pub rejected: Vec<RejectedRow>,
    /// Rows without a GPU, which are no offers here.
    pub without_gpu: usize,
    /// Rows of the file.
    pub rows: usize,
}

/// Why a file cannot be read at all.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// The columns are of none of the layouts.
    #[error(
        "not a price table that is known here: the header must have InstanceType and AcceleratorName \
         (SkyPilot), instance_name and price (gpuhunt), provider and price_per_hour, or be that of price list --csv"
    )]
    Layout,
    /// Not CSV.
    #[error("not a CSV file: {0}")]
    Csv(String),
    /// Two columns of one name.
    #[error("the column {0} stands twice: it is not clear which one counts")]
    Twice(String),
    /// Nobody says whose prices these are.
    #[error("the file does not say whose prices these are; name the provider")]
    Provider,
    /// The file holds prices of several providers where one was named.
    #[error("the file is a web page or another document, not a CSV file")]
    Document,
}

/// Reads a file.
pub fn import(bytes: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let start = bytes.trim_ascii_start();
    if start.starts_with(b"<") || start.starts_with(b"{") {
        return Err(ImportError::Document);
    }
    let table = table::Table::read(bytes)?;
    if table.has("InstanceType") && table.has("AcceleratorName") {
        let provider = options.provider.clone().ok_or(ImportError::Provider)?;
        return skypilot::read(table, provider, options);
    }
    if table.has("instance_name") && table.has("price") {
        let provider = options.provider.clone().ok_or(ImportError::Provider)?;
        return gpuhunt::read(table, provider, options);
    }
    if table.has("offer_key") && table.has("price")
        || table.has("provider") && table.has("price_per_hour")
    {
        return own::read(table, options);
    }
    Err(ImportError::Layout)
}

impl Imported {
    /// Turns down rows that say they were read after `now`: such a price would stay fresh for longer than it may.
    #[must_use]
    pub fn read_by(mut self, now: Timestamp) -> Self {
        let later = |offer: &Offer| offer.price.observed_at.is_some_and(|at| at > now);
        let (late, good): (Vec<Offer>, Vec<Offer>) = self.offers.into_iter().partition(later);
        self.offers = good;
        self.rejected.extend(late.into_iter().map(|offer| RejectedRow {
            row: offer.key.to_string(),
            reason: "observed_at is in the future".to_owned(),
        }));
        self
    }

    /// The sheets of what was read, one for each provider. `read_at` is when the file was imported.
    pub fn into_sheets(self, read_at: Timestamp) -> Vec<(ProviderId, OfferSheet)> {
        let mut sheets: std::collections::BTreeMap<ProviderId, OfferSheet> =
            std::collections::BTreeMap::new();
        for offer in self.offers {
            sheets
                .entry(offer.key.provider.clone())
                .or_insert_with(|| OfferSheet::complete(Vec::new(), Vec::new(), read_at))
                .offers
                .push(offer);
        }
        if let Some(sheet) = sheets.values_mut().next() {
            sheet.rejected = self.rejected;
        }
        sheets.into_iter().collect()
    }
}
