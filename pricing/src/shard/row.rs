//! A row and the shard that holds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use runwhere_model::offer::{Gap, RejectedRow, Stock};
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, GpuModelId, HourlyPrice, Marks, Offer, OfferCode,
    OfferDetails, OfferKey, Price, PriceKind, PriceState, ProviderId,
};
use rust_decimal::Decimal;

use super::build::Limits;
use super::index::Index;
use super::strings::{Strings, Symbol};
use crate::catalogue::{Entry, SpotStanding};

/// Region, zone, billing model and type: the parts of a key below its provider.
pub type KeyParts<'a> = (Option<&'a str>, Option<&'a str>, BillingModel, &'a str);

/// A number that stands for "none".
pub(super) const NONE_32: u32 = u32::MAX;
pub(super) const NONE_64: u64 = u64::MAX;
/// No time is known.
pub(super) const NO_TIME: i64 = i64::MIN;
/// Read when the sheet was read.
pub(super) const AS_SHEET: i64 = i64::MIN + 1;

/// What is known of a price, without the price.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum PriceStateTag {
    Known,
    Unknown,
    NotOffered,
}

/// One offer in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) amount: Decimal,
    pub(crate) memory_mib: u64,
    pub(crate) gpu_memory_mib: u64,
    pub(crate) observed: i64,
    pub(crate) effective: i64,
    pub(crate) code: OfferCode,
    pub(crate) count: GpuCount,
    /// Symbols; 0 = none.
    pub(crate) region: Symbol,
    pub(crate) zone: Symbol,
    pub(crate) instance_type: Symbol,
    pub(crate) gpu_raw: Symbol,
    pub(crate) source: Symbol,
    /// Place in the details; `NONE_32` = none.
    pub(crate) details: u32,
    pub(crate) vcpus: u32,
    /// Place in the table of models.
    pub(crate) gpu: u16,
    pub(crate) marks: u16,
    pub(crate) currency: Currency,
    pub(crate) billing: BillingModel,
    pub(crate) state: PriceStateTag,
    pub(crate) kind: PriceKind,
    pub(crate) stock: Stock,
    pub(crate) launchable: bool,
    pub(crate) pretended: bool,
    pub(crate) bundled: bool,
    pub(crate) spot: SpotByte,
}

/// How a spot price stands, in one byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SpotByte(pub(super) u8);

impl SpotByte {
    pub(super) const NONE: Self = Self(255);

    pub(super) fn of(standing: Option<SpotStanding>) -> Self {
        Self(match standing {
            None => 255,
            Some(SpotStanding::Above) => 254,
            Some(SpotStanding::NoSaving) => 253,
            Some(SpotStanding::Saves(percent)) => u8::try_from(percent.min(100)).unwrap_or(100),
        })
    }

    pub(crate) fn standing(self) -> Option<SpotStanding> {
        match self.0 {
            0..=100 => Some(SpotStanding::Saves(self.0.into())),
            254 => Some(SpotStanding::Above),
            253 => Some(SpotStanding::NoSaving),
            _ => None,
        }
    }
}

impl Row {
    pub(crate) fn gpu(&self) -> Option<GpuModelId> {
        GpuModel::all().get(usize::from(self.gpu)).map(|model| model.id)
    }

    pub(crate) fn known(&self) -> Option<HourlyPrice> {
        (self.state == PriceStateTag::Known)
            .then_some(HourlyPrice { amount: self.amount, currency: self.currency })
    }

    /// Sold out, and its provider lets nobody wait for it.
    pub(crate) fn gone(&self) -> bool {
        self.stock == Stock::SoldOut && !self.launchable
    }
}

/// All offers of one provider.
#[derive(Clone, Debug)]
pub struct Shard {
    pub(super) body: Arc<Body>,
    pub(super) head: Head,
}

/// What does not change when the same prices are read again.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) provider: ProviderId,
    pub(super) strings: Strings,
    /// By key.
    pub(super) rows: Vec<Row>,
    pub(super) details: Vec<OfferDetails>,
    /// The regions of the rows, each once.
    pub(super) regions: Vec<Symbol>,
    pub(super) index: Index,
    /// By code.
    pub(super) codes: Vec<(OfferCode, u32)>,
    pub(super) content: [u8; 32],
    pub(super) reads: [u8; 32],
}

/// What is known of a shard besides its rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    /// When a connected provider was read last; `None` = only bundled prices.
    pub(super) observed_at: Option<Timestamp>,
    /// The last reading saw everything.
    pub(super) complete: bool,
    pub(super) validator: Option<String>,
    pub(super) limits: Limits,
    pub(super) rejected: Arc<Vec<RejectedRow>>,
    pub(super) gaps: Vec<Gap>,
    /// Rows that stood twice, word for word.
    pub(super) doubles: usize,
    /// GPU names that no model is known for, with the number of their rows.
    pub(super) unmapped: BTreeMap<String, usize>,
}

impl Shard {
    /// Whose offers they are.
    pub fn provider(&self) -> &ProviderId {
        &self.body.provider
    }

    /// How many offers.
    pub fn len(&self) -> usize {
        self.body.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.body.rows.is_empty()
    }

    /// When the provider was read last; `None` = bundled prices only.
    pub fn observed_at(&self) -> Option<Timestamp> {
        self.head.observed_at
    }

    /// Whether the last reading saw everything.
    pub fn complete(&self) -> bool {
        self.head.complete
    }

    /// What the source needs to say "unchanged".
    pub fn validator(&self) -> Option<&str> {
        self.head.validator.as_deref()
    }

    /// How long its prices hold.
    pub fn limits(&self) -> Limits {
        self.head.limits
    }

    /// Rows that could not be used.
    pub fn rejected(&self) -> &[RejectedRow] {
        &self.head.rejected
    }

    /// What the last reading missed.
    pub fn gaps(&self) -> &[Gap] {
        &self.head.gaps
    }

    /// Rows that stood twice, word for word.
    pub fn doubles(&self) -> usize {
        self.head.doubles
    }

    /// GPU names that no model is known for, with the number of their rows.
    pub fn unmapped(&self) -> &BTreeMap<String, usize> {
        &self.head.unmapped
    }

    /// SHA-256 of the offers without the times at which they were read.
    pub fn content(&self) -> &[u8; 32] {
        &self.body.content
    }

    /// SHA-256 of the offers with the times at which they were read.
    pub fn reads(&self) -> &[u8; 32] {
        &self.body.reads
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.body.rows
    }

    pub(crate) fn row(&self, at: u32) -> &Row {
        &self.body.rows[at as usize]
    }

    pub(crate) fn text(&self, symbol: Symbol) -> &str {
        self.body.strings.get(symbol)
    }

    /// The regions of the rows, each once.
    pub(crate) fn regions(&self) -> &[Symbol] {
        &self.body.regions
    }

    pub(crate) fn index(&self) -> &Index {
        &self.body.index
    }

    pub(crate) fn detail(&self, row: &Row) -> Option<&OfferDetails> {
        self.body.details.get(row.details as usize)
    }

    /// When a row was read; `None` for bundled ones.
    pub(crate) fn read_at(&self, row: &Row) -> Option<Timestamp> {
        match row.observed {
            _ if row.bundled => None,
            AS_SHEET | NO_TIME => self.head.observed_at,
            micros => Timestamp::from_microsecond(micros).ok(),
        }
    }

    pub(crate) fn observed(&self, row: &Row) -> Option<Timestamp> {
        match row.observed {
            AS_SHEET => self.head.observed_at,
            NO_TIME => None,
            micros => Timestamp::from_microsecond(micros).ok(),
        }
    }

    /// The time that a row's mark of its reading means; for bundled rows that of the source.
    pub(crate) fn time(&self, observed: i64, bundled: bool) -> Option<Timestamp> {
        match observed {
            AS_SHEET => self.head.observed_at,
            NO_TIME if bundled => None,
            NO_TIME => self.head.observed_at,
            micros => Timestamp::from_microsecond(micros).ok(),
        }
    }

    fn optional(&self, symbol: Symbol) -> Option<String> {
        (symbol != 0).then(|| self.text(symbol).to_owned())
    }

    pub(crate) fn key(&self, row: &Row) -> OfferKey {
        self.key_of(row, self.text(row.instance_type))
    }

    fn key_of(&self, row: &Row, instance_type: &str) -> OfferKey {
        OfferKey {
            provider: self.body.provider.clone(),
            region: self.optional(row.region),
            zone: self.optional(row.zone),
            billing_model: row.billing,
            instance_type: instance_type.to_owned(),
        }
    }

    /// The offer as its source stated it.
    pub(crate) fn offer(&self, row: &Row) -> Offer {
        self.offer_of(row, self.text(row.instance_type))
    }

    fn offer_of(&self, row: &Row, instance_type: &str) -> Offer {
        let some_32 = |number: u32| (number != NONE_32).then_some(number);
        let some_64 = |number: u64| (number != NONE_64).then_some(number);
        Offer {
            key: self.key_of(row, instance_type),
            gpu: row.gpu(),
            gpu_raw: self.text(row.gpu_raw).to_owned(),
            gpu_count: row.count,
            gpu_memory_mib: some_64(row.gpu_memory_mib),
            vcpus: some_32(row.vcpus),
            memory_mib: some_64(row.memory_mib),
            price: Price {
                state: match row.state {
                    PriceStateTag::Known => PriceState::Known {
                        price: HourlyPrice { amount: row.amount, currency: row.currency },
                    },
                    PriceStateTag::Unknown => PriceState::Unknown,
                    PriceStateTag::NotOffered => PriceState::NotOffered,
                },
                kind: row.kind,
                source: self.text(row.source).to_owned(),
                observed_at: self.observed(row),
                effective_at: (row.effective != NO_TIME)
                    .then(|| Timestamp::from_microsecond(row.effective).ok())
                    .flatten(),
            },
            stock: row.stock,
            launchable: row.launchable,
            pretended: row.pretended,
            marks: Marks::from_bits(row.marks),
            details: self.detail(row).map(|details| Box::new(details.clone())),
        }
    }

    /// The offer with its code.
    pub(crate) fn entry(&self, at: u32) -> Arc<Entry> {
        let row = self.row(at);
        self.entry_of(row, self.text(row.instance_type))
    }

    /// The same of a row and its type that were read before.
    pub(crate) fn entry_of(&self, row: &Row, instance_type: &str) -> Arc<Entry> {
        Arc::new(Entry {
            offer: Arc::new(self.offer_of(row, instance_type)),
            code: row.code,
            read_at: self.read_at(row),
            spot: row.spot.standing(),
        })
    }

    /// The place of a key.
    pub(crate) fn find(&self, key: &OfferKey) -> Option<u32> {
        if key.provider != self.body.provider {
            return None;
        }
        let wanted = parts_of(key);
        let at = self.body.rows.binary_search_by(|row| self.parts(row).cmp(&wanted)).ok()?;
        u32::try_from(at).ok()
    }

    /// The place of a code.
    pub(crate) fn find_code(&self, code: OfferCode) -> Option<u32> {
        let at = self.body.codes.binary_search_by_key(&code, |(code, _)| *code).ok()?;
        Some(self.body.codes[at].1)
    }

    /// The parts of a row's key.
    pub(crate) fn parts(&self, row: &Row) -> KeyParts<'_> {
        let some = |symbol| (symbol != 0).then(|| self.body.strings.get(symbol));
        (some(row.region), some(row.zone), row.billing, self.body.strings.get(row.instance_type))
    }
}

/// The parts of a key below its provider, in the order in which keys are ordered.
pub(super) fn parts_of(key: &OfferKey) -> KeyParts<'_> {
    (key.region.as_deref(), key.zone.as_deref(), key.billing_model, key.instance_type.as_str())
}
