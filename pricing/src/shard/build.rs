//! From offers to a shard.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::offer::{Gap, RejectedRow};
use runwhere_model::{
    Alternative, BillingModel, Currency, Mark, Offer, OfferCode, OfferDetails, OfferKey, PriceKind,
    PriceState, ProviderId,
};
use rust_decimal::Decimal;
use sha2::{Digest, Sha256};

use super::index::Index;
use super::row::{
    AS_SHEET, Body, Head, KeyParts, NO_TIME, NONE_32, NONE_64, PriceStateTag, Row, Shard, SpotByte,
};
use super::strings::{Collector, Symbol};

use crate::catalogue::SpotStanding;
use crate::codes::CodeBook;
use crate::directory::model_place;

/// Whether a code belongs to another key than the one with these parts, in any present shard.
pub type Taken<'a> = dyn Fn(OfferCode, &ProviderId, KeyParts<'_>) -> bool + 'a;

/// How long prices hold after they were read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// On demand.
    pub max_age: SignedDuration,
    /// Spot.
    pub spot_max_age: SignedDuration,
}

impl Limits {
    /// One limit for all prices.
    pub fn of(max_age: SignedDuration) -> Self {
        Self { max_age, spot_max_age: max_age }
    }

    /// The limit of a form.
    pub fn of_billing(self, billing: BillingModel) -> SignedDuration {
        match billing {
            BillingModel::Spot | BillingModel::WindowsSpot => self.spot_max_age,
            _ => self.max_age,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(SignedDuration::from_hours(24))
    }
}

/// What a shard is made of.
#[derive(Debug)]
pub struct ShardParts {
    /// Whose offers.
    pub provider: ProviderId,
    /// What the provider stated.
    pub offers: Vec<Offer>,
    /// What comes with the program and the provider did not state.
    pub bundled: Vec<Arc<Offer>>,
    /// Rows that did not fit.
    pub rejected: Vec<RejectedRow>,
    /// What was not read.
    pub gaps: Vec<Gap>,
    /// When the provider was read; `None` = never.
    pub observed_at: Option<Timestamp>,
    /// The reading saw everything.
    pub complete: bool,
    /// What the source needs to say "unchanged".
    pub validator: Option<String>,
    /// How long prices hold.
    pub limits: Limits,
}

impl ShardParts {
    /// No offers yet.
    pub fn new(provider: ProviderId) -> Self {
        Self {
            provider,
            offers: Vec::new(),
            bundled: Vec::new(),
            rejected: Vec::new(),
            gaps: Vec::new(),
            observed_at: None,
            complete: true,
            validator: None,
            limits: Limits::default(),
        }
    }
}

/// Why an offer's price is not taken.
const NO_PRICE: &str = "no_price: the stated price is not positive";
/// Why an offer is not taken.
const FOREIGN: &str = "the key names another provider";

impl Shard {
    /// Whether a row was rejected here, not by its source.
    pub(crate) fn rejects_itself(row: &RejectedRow) -> bool {
        row.reason == NO_PRICE || row.reason == FOREIGN
    }

    /// Builds the shard; codes come from the book, which asks `taken` for those of other shards.
    pub fn build(mut parts: ShardParts, codes: &mut CodeBook, taken: &Taken<'_>) -> Self {
        let mut rejected = std::mem::take(&mut parts.rejected);
        let (mut offers, foreign): (Vec<Offer>, Vec<Offer>) = std::mem::take(&mut parts.offers)
            .into_iter()
            .partition(|offer| offer.key.provider == parts.provider);
        rejected.extend(
            foreign.iter().map(|offer| RejectedRow {
                row: offer.key.to_string(),
                reason: FOREIGN.to_owned(),
            }),
        );
        drop(foreign);
        for offer in &mut offers {
            refuse_zero(offer, &mut rejected);
        }
        offers.sort_by(|a, b| a.key.cmp(&b.key));
        let doubles = join_doubles(&mut offers);
        let stated = |key: &OfferKey| offers.binary_search_by(|offer| offer.key.cmp(key)).is_ok();
        let bundled: Vec<Arc<Offer>> = std::mem::take(&mut parts.bundled)
            .into_iter()
            .filter(|offer| offer.key.provider == parts.provider && !stated(&offer.key))
            .collect();
        rejected.sort_by(|a, b| (&a.row, &a.reason).cmp(&(&b.row, &b.reason)));

        let mut all: Vec<(&Offer, bool)> = offers
            .iter()
            .map(|offer| (offer, false))
            .chain(bundled.iter().map(|offer| (offer.as_ref(), true)))
            .collect();
        all.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        let mut builder = Builder::new(parts.observed_at, all.len());
        for (offer, is_bundled) in &all {
            builder.add(offer, *is_bundled);
        }
        let unmapped = unmapped(&all);
        let mut body = builder.finish(parts.provider);
        body.digest(&all, parts.limits, &rejected);
        drop(all);
        body.stand_spots();
        body.assign_codes(codes, taken);
        body.index = Index::build(&body.rows);
        Self {
            body: Arc::new(body),
            head: Head {
                observed_at: parts.observed_at,
                complete: parts.complete,
                validator: parts.validator,
                limits: parts.limits,
                rejected: Arc::new(rejected),
                gaps: parts.gaps,
                doubles,
                unmapped,
            },
        }
    }

    /// The same offers, confirmed at a later time.
    #[must_use]
    pub fn confirmed(&self, observed_at: Timestamp, validator: Option<String>) -> Self {
        let head = Head {
            observed_at: Some(observed_at),
            validator: validator.or_else(|| self.head.validator.clone()),
            ..self.head.clone()
        };
        Self { body: Arc::clone(&self.body), head }
    }

    /// The same offers as a state holds them.
    #[must_use]
    pub(crate) fn restored(
        &self,
        observed_at: Option<Timestamp>,
        complete: bool,
        validator: Option<String>,
    ) -> Self {
        let head = Head { observed_at, complete, validator, ..self.head.clone() };
        Self { body: Arc::clone(&self.body), head }
    }

    /// The offers that the provider itself stated, with their own reading times.
    pub fn stated(&self) -> impl Iterator<Item = Offer> {
        self.rows().iter().filter(|row| !row.bundled).map(|row| {
            let mut offer = self.offer(row);
            offer.price.observed_at = self.read_at(row);
            offer
        })
    }

    /// Whether the provider itself stated anything.
    pub fn is_live(&self) -> bool {
        self.head.observed_at.is_some()
    }

    /// Whether it has prices of an account or an own machine.
    pub(crate) fn is_own(&self) -> bool {
        let own = |row: &Row| matches!(row.kind, PriceKind::Account | PriceKind::Configured);
        self.rows().iter().any(own)
    }
}

/// Nothing is free: a price of zero or less is no price. (An own machine's may be zero.)
fn refuse_zero(offer: &mut Offer, rejected: &mut Vec<RejectedRow>) {
    let zero = offer.price.state.known().is_some_and(|price| price.amount <= Decimal::ZERO);
    if zero && offer.price.kind != PriceKind::Configured {
        offer.price.state = PriceState::Unknown;
        rejected.push(RejectedRow { row: offer.key.to_string(), reason: NO_PRICE.to_owned() });
    }
}

/// Makes one offer of those with one key; returns how many were word for word the same.
///
/// Of several prices the highest is taken, so that nothing turns out dearer than shown; a known
/// price before an unknown one, the first currency by its code. The others are kept beside it.
fn join_doubles(offers: &mut Vec<Offer>) -> usize {
    let mut doubles = 0;
    let mut joined: Vec<Offer> = Vec::with_capacity(offers.len());
    let mut rest = std::mem::take(offers).into_iter().peekable();
    while let Some(offer) = rest.next() {
        let mut group = vec![offer];
        while let Some(other) = rest.next_if(|other| other.key == group[0].key) {
            group.push(other);
        }
        if group.len() > 1 {
            // Which came first plays no part.
            group.sort_by_cached_key(|offer| {
                let known = offer.price.state.known();
                let price = known.map(|price| (price.currency, std::cmp::Reverse(price.amount)));
                (price.is_none(), price, text(offer))
            });
        }
        let mut group = group.into_iter();
        let Some(mut first) = group.next() else { continue };
        let mut alternatives: Vec<Alternative> = Vec::new();
        for other in group {
            match other.price.state.known() {
                price if price == first.price.state.known() => doubles += 1,
                None => doubles += 1,
                Some(price) => alternatives.push(Alternative { price, of: other.price.source }),
            }
        }
        if !alternatives.is_empty() {
            let details = first.details.get_or_insert_with(Box::default);
            details.alternatives.extend(alternatives);
            details.alternatives.dedup();
            first.marks = first.marks.with(Mark::Duplicated);
        }
        joined.push(first);
    }
    *offers = joined;
    doubles
}

fn text(offer: &Offer) -> String {
    serde_json::to_string(offer).unwrap_or_default()
}

fn unmapped(all: &[(&Offer, bool)]) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for (offer, _) in all.iter().filter(|(offer, _)| offer.gpu.is_none()) {
        if !offer.gpu_raw.is_empty() {
            *names.entry(offer.gpu_raw.clone()).or_insert(0) += 1;
        }
    }
    names
}

struct Builder {
    strings: Collector,
    rows: Vec<Row>,
    details: Vec<OfferDetails>,
    observed_at: Option<Timestamp>,
}

impl Builder {
    fn new(observed_at: Option<Timestamp>, rows: usize) -> Self {
        Self {
            strings: Collector::new(),
            rows: Vec::with_capacity(rows),
            details: Vec::new(),
            observed_at,
        }
    }

    fn optional(&mut self, text: Option<&str>) -> Symbol {
        text.map_or(0, |text| self.strings.add(text))
    }

    fn add(&mut self, offer: &Offer, bundled: bool) {
        let key = &offer.key;
        let known = offer.price.state.known();
        let details = match &offer.details {
            None => NONE_32,
            Some(details) => {
                self.details.push(details.as_ref().clone());
                u32::try_from(self.details.len() - 1).unwrap_or(NONE_32)
            }
        };
        let row = Row {
            amount: known.map_or(Decimal::ZERO, |price| price.amount),
            currency: known.map_or(Currency::CNY, |price| price.currency),
            state: match offer.price.state {
                PriceState::Known { .. } => PriceStateTag::Known,
                PriceState::Unknown => PriceStateTag::Unknown,
                PriceState::NotOffered => PriceStateTag::NotOffered,
            },
            memory_mib: offer.memory_mib.unwrap_or(NONE_64),
            gpu_memory_mib: offer.gpu_memory_mib.unwrap_or(NONE_64),
            observed: match (offer.price.observed_at, bundled) {
                (None, _) => NO_TIME,
                (at, false) if at == self.observed_at => AS_SHEET,
                (Some(at), _) => at.as_microsecond(),
            },
            effective: offer.price.effective_at.map_or(NO_TIME, Timestamp::as_microsecond),
            code: OfferCode::candidate(key, 0),
            count: offer.gpu_count,
            region: self.optional(key.region.as_deref()),
            zone: self.optional(key.zone.as_deref()),
            instance_type: self.strings.add(&key.instance_type),
            gpu_raw: self.strings.add(&offer.gpu_raw),
            source: self.strings.add(&offer.price.source),
            details,
            vcpus: offer.vcpus.unwrap_or(NONE_32),
            gpu: offer.gpu.map_or(u16::MAX, model_place),
            marks: offer.marks.bits(),
            billing: key.billing_model,
            kind: offer.price.kind,
            stock: offer.stock,
            launchable: offer.launchable,
            pretended: offer.pretended,
            bundled,
            spot: SpotByte::NONE,
        };
        self.rows.push(row);
    }

    fn finish(mut self, provider: ProviderId) -> Body {
        self.rows.shrink_to_fit();
        let strings = self.strings.finish();
        // Rows are in the order of their keys, so those of a region adjoin.
        let mut regions: Vec<Symbol> = self.rows.iter().map(|row| row.region).collect();
        regions.dedup();
        regions.retain(|region| *region != 0);
        Body {
            provider,
            strings,
            rows: self.rows,
            details: self.details,
            regions,
            index: Index::default(),
            codes: Vec::new(),
            content: [0; 32],
            reads: [0; 32],
        }
    }
}

impl Body {
    /// Names the content, and the content with its reading times.
    fn digest(&mut self, all: &[(&Offer, bool)], limits: Limits, rejected: &[RejectedRow]) {
        let mut content = Sha256::new();
        content.update(format!("{} {limits:?}\n", self.provider));
        let mut line = Vec::new();
        for (offer, bundled) in all {
            line.clear();
            let mut plain = (*offer).clone();
            plain.price.observed_at = None;
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(&mut line, &plain);
            line.push(if *bundled { b'b' } else { b'\n' });
            content.update(&line);
        }
        self.content = content.finalize().into();
        let mut reads = Sha256::new();
        reads.update(self.content);
        for row in &self.rows {
            reads.update(row.observed.to_be_bytes());
        }
        for row in rejected {
            reads.update(row.row.as_bytes());
            reads.update(row.reason.as_bytes());
        }
        self.reads = reads.finalize().into();
    }

    /// How each spot price stands against the on-demand price of its machine.
    fn stand_spots(&mut self) {
        let standings: Vec<(usize, SpotByte)> = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.billing == BillingModel::Spot)
            .map(|(at, row)| (at, SpotByte::of(self.spot_standing(row))))
            .collect();
        for (at, standing) in standings {
            self.rows[at].spot = standing;
        }
    }

    fn spot_standing(&self, row: &Row) -> Option<SpotStanding> {
        let spot = row.known()?;
        let some = |symbol: Symbol| (symbol != 0).then(|| self.strings.get(symbol));
        let on_demand = |zone: Option<&str>| {
            let wanted = (
                some(row.region),
                zone,
                BillingModel::OnDemand,
                self.strings.get(row.instance_type),
            );
            let at = self
                .rows
                .binary_search_by(|row| {
                    let parts = (
                        some(row.region),
                        some(row.zone),
                        row.billing,
                        self.strings.get(row.instance_type),
                    );
                    parts.cmp(&wanted)
                })
                .ok()?;
            self.rows[at].known().filter(|price| price.currency == spot.currency)
        };
        let regional = on_demand(None);
        let zonal = some(row.zone).and_then(|zone| on_demand(Some(zone)));
        let on_demand = regional.into_iter().chain(zonal).map(|price| price.amount).min()?;
        let saved = on_demand.checked_sub(spot.amount)?;
        // Clouds round spot prices to four digits: up to half a unit of these is no difference.
        let tolerance = Decimal::new(5, 5);
        if saved <= -tolerance {
            return Some(SpotStanding::Above);
        }
        if saved <= tolerance {
            return Some(SpotStanding::NoSaving);
        }
        let percent = saved.checked_mul(Decimal::ONE_HUNDRED)?.checked_div(on_demand)?.trunc();
        Some(SpotStanding::Saves(u32::try_from(percent.mantissa()).unwrap_or(0)))
    }

    /// Settles the codes: the first choice of a key, unless somebody else has or had it.
    fn assign_codes(&mut self, codes: &mut CodeBook, taken: &Taken<'_>) {
        let mut own: HashMap<OfferCode, u32> = HashMap::with_capacity(self.rows.len());
        for at in 0..self.rows.len() {
            let first = self.rows[at].code;
            let row = &self.rows[at];
            let some = |symbol: Symbol| (symbol != 0).then(|| self.strings.get(symbol));
            let parts = (
                some(row.region),
                some(row.zone),
                row.billing,
                self.strings.get(row.instance_type),
            );
            let free =
                |code: OfferCode| !own.contains_key(&code) && !taken(code, &self.provider, parts);
            let code = match codes.quick(first).filter(|code| free(*code)) {
                Some(code) => code,
                None => {
                    let key = self.key_at(at);
                    codes.assign(&key, &free)
                }
            };
            self.rows[at].code = code;
            own.insert(code, u32::try_from(at).unwrap_or(u32::MAX));
        }
        let mut list: Vec<(OfferCode, u32)> = own.into_iter().collect();
        list.sort_unstable();
        self.codes = list;
    }

    fn key_at(&self, at: usize) -> OfferKey {
        let row = &self.rows[at];
        let some = |symbol: Symbol| (symbol != 0).then(|| self.strings.get(symbol).to_owned());
        OfferKey {
            provider: self.provider.clone(),
            region: some(row.region),
            zone: some(row.zone),
            billing_model: row.billing,
            instance_type: self.strings.get(row.instance_type).to_owned(),
        }
    }
}
