//! The catalogue: bundled and live offers under one index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use runwhere_model::offer::{RejectedRow, Stock};
use runwhere_model::{
    Currency, GpuModel, GpuModelId, Offer, OfferCode, OfferKey, OfferSheet, PriceKind, ProviderId,
};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::codes::CodeBook;
use crate::directory::{Directory, OfModel};
use crate::fx::{Converted, FxError, FxTable};
use crate::shard::{KeyParts, Limits, Shard, ShardParts};
use crate::snapshot::Bundled;

/// The currency in which prices are compared and shown.
pub const SHOWN: Currency = Currency::CNY;

/// Who asks: prices of connected accounts are for those who have a credential.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// Anybody: list, bundled and configured prices.
    #[default]
    Public,
    /// A principal of this installation: account prices too.
    Member,
}

/// One offer of the catalogue.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The offer as its source states it.
    pub offer: Arc<Offer>,
    /// Its eight letters.
    pub code: OfferCode,
    /// When a connected provider stated it last; `None` for bundled offers.
    pub read_at: Option<Timestamp>,
    /// For spot offers with a known on-demand counterpart.
    pub spot: Option<SpotStanding>,
}

/// Why an offer cannot be launched now.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "params", rename_all = "snake_case")]
pub enum NotLaunchable {
    /// A bundled price: no account of that provider is connected.
    ConnectAccount {
        /// Whose account is needed.
        provider: ProviderId,
    },
    /// A bundled price of a connected provider that does not state this offer itself.
    NotInAccount {
        /// The connected provider.
        provider: ProviderId,
    },
    /// The provider's sheet is too old.
    StalePrice {
        /// Whose sheet.
        provider: ProviderId,
        /// Its age.
        age_seconds: i64,
    },
    /// A connected account has it, but all are taken now: a job waits for its turn.
    SoldOut,
    /// The connected account cannot launch it at present.
    NotNow {
        /// The connected provider.
        provider: ProviderId,
    },
}

/// How a spot price stands against the on-demand price of the same machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpotStanding {
    /// Cheaper by this many whole percent.
    Saves(u32),
    /// Not cheaper, within the rounding of four digits.
    NoSaving,
    /// Dearer.
    Above,
}

/// What a launch of an offer would come to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It starts now.
    Now,
    /// It waits until some are free.
    Waits,
    /// Nothing: the price is for comparison.
    Reference,
}

/// What holds of an offer at one instant.
#[derive(Clone, Debug)]
pub struct Assessed {
    /// The offer.
    pub entry: Arc<Entry>,
    /// Its price in [`SHOWN`], exact; `None` when unknown or not convertible.
    pub converted: Option<Converted>,
    /// Why a known price could not be converted.
    pub fx_error: Option<FxError>,
    /// Why it cannot be launched; `None` = it can.
    pub not_launchable: Option<NotLaunchable>,
    /// For spot offers with a known on-demand counterpart.
    pub spot: Option<SpotStanding>,
    /// The price is older than prices of its kind may be.
    pub stale: bool,
}

impl Assessed {
    /// Whether a connected account can launch it now.
    pub fn launchable(&self) -> bool {
        self.not_launchable.is_none()
    }

    /// What a launch would come to.
    pub fn standing(&self) -> Standing {
        match self.not_launchable {
            None => Standing::Now,
            Some(NotLaunchable::SoldOut) => Standing::Waits,
            Some(_) => Standing::Reference,
        }
    }

    /// The exact price in the shown currency.
    pub fn amount(&self) -> Option<Decimal> {
        self.converted.as_ref().map(|converted| converted.money.amount)
    }

    /// The order of lists and quotes that prefer nothing: launchable first, then what a job can wait for, then
    /// reference prices; whole GPUs before shares of one, fresh prices before stale ones, known
    /// prices before unknown ones, then the converted price; on demand before spot at one price, the
    /// larger machine first, at last the key. Total: no two offers are equal.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |a: &Self| {
            let offer = &a.entry.offer;
            (
                a.standing(),
                offer.gpu_count.as_whole().is_none(),
                a.stale,
                a.converted.is_none(),
                a.amount(),
                offer.key.billing_model,
                std::cmp::Reverse(offer.vcpus),
                std::cmp::Reverse(offer.memory_mib),
            )
        };
        rank(self).cmp(&rank(other)).then_with(|| self.entry.offer.key.cmp(&other.entry.offer.key))
    }
}

/// How long ago an offer may have been read to be launched.
pub const DEFAULT_SHEET_MAX_AGE: SignedDuration = SignedDuration::from_hours(24);

/// How old a dated bundled price may be before it stands behind the others.
pub const BUNDLED_MAX_AGE: SignedDuration = SignedDuration::from_hours(400 * 24);

/// Why a source's prices are not the whole truth at present.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "params", rename_all = "snake_case")]
pub enum Trouble {
    /// The last reading failed; the last good prices are shown with their age.
    Failing {
        /// What went wrong.
        reason: String,
    },
    /// The last reading was refused as not believable; the last good prices are shown.
    Refused {
        /// What is wrong with it.
        reason: String,
    },
    /// Only a part could be read.
    Partial {
        /// How many parts are missing.
        gaps: usize,
    },
}

/// An immutable state of all offers.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// By provider.
    shards: Vec<Arc<Shard>>,
    troubles: BTreeMap<ProviderId, Trouble>,
    book: Arc<CodeBook>,
    fx: Arc<FxTable>,
    newest_bundled: Option<Timestamp>,
    ids: Arc<OnceLock<(String, String)>>,
    directory: Arc<Directory>,
}

/// What a catalogue is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The latest sheet of each connected provider.
    pub sheets: BTreeMap<ProviderId, OfferSheet>,
    /// Exchange rates.
    pub fx: FxTable,
    /// How old a sheet may be before its offers launch nothing.
    pub sheet_max_age: SignedDuration,
    /// Whether the bundled prices are shown too.
    pub bundled: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            sheets: BTreeMap::new(),
            fx: FxTable::bundled(),
            sheet_max_age: DEFAULT_SHEET_MAX_AGE,
            bundled: true,
        }
    }
}

impl Catalogue {
    /// A catalogue of the bundled prices, or of none.
    pub fn empty(fx: FxTable, bundled: bool, book: &mut CodeBook) -> Self {
        let mut catalogue = Self {
            shards: Vec::new(),
            troubles: BTreeMap::new(),
            book: Arc::new(CodeBook::new()),
            fx: Arc::new(fx),
            newest_bundled: if bundled { Bundled::get().newest } else { None },
            ids: Arc::default(),
            directory: Arc::default(),
        };
        if bundled {
            let providers: BTreeSet<&ProviderId> =
                Bundled::get().offers.iter().map(|offer| &offer.key.provider).collect();
            for provider in providers {
                let parts = ShardParts {
                    bundled: bundled_of(provider),
                    ..ShardParts::new(provider.clone())
                };
                let shard = Shard::build(parts, book, &|code, provider, parts| {
                    catalogue.taken(code, provider, parts)
                });
                catalogue.put(Arc::new(shard));
            }
        }
        catalogue.book = Arc::new(book.clone());
        catalogue
    }

    /// A catalogue of shards that were kept, with the bundled rates.
    pub fn of_shards(shards: Vec<Arc<Shard>>) -> Self {
        let mut catalogue = Self::empty(FxTable::bundled(), false, &mut CodeBook::new());
        for shard in shards {
            catalogue.put(shard);
        }
        catalogue
    }

    /// Builds a catalogue of sheets; assigns codes to keys that have none.
    pub fn build(parts: &Parts, codes: &mut CodeBook) -> Self {
        let mut catalogue = Self::empty(parts.fx.clone(), parts.bundled, codes);
        for (provider, sheet) in &parts.sheets {
            let shard = catalogue.shard_of_sheet(
                provider,
                sheet.clone(),
                Limits::of(parts.sheet_max_age),
                parts.bundled,
                codes,
            );
            catalogue.put(Arc::new(shard));
        }
        catalogue.book = Arc::new(codes.clone());
        catalogue
    }

    /// The shard that a sheet makes, in place of what the provider has here.
    pub(crate) fn shard_of_sheet(
        &self,
        provider: &ProviderId,
        sheet: OfferSheet,
        limits: Limits,
        bundled: bool,
        codes: &mut CodeBook,
    ) -> Shard {
        let parts = ShardParts {
            provider: provider.clone(),
            offers: sheet.offers,
            bundled: if bundled { bundled_of(provider) } else { Vec::new() },
            rejected: sheet.rejected,
            gaps: sheet.gaps,
            observed_at: Some(sheet.observed_at),
            complete: sheet.complete,
            validator: sheet.validator,
            limits,
        };
        Shard::build(parts, codes, &|code, provider, parts| self.taken(code, provider, parts))
    }

    /// Whether a present offer of another key has a code.
    pub(crate) fn taken(
        &self,
        code: OfferCode,
        provider: &ProviderId,
        parts: KeyParts<'_>,
    ) -> bool {
        // Codes are unique: what the provider itself has under it is nobody else's.
        if let Some(own) = self.shard(provider)
            && let Some(at) = own.find_code(code)
        {
            return own.parts(own.row(at)) != parts;
        }
        self.shards.iter().any(|shard| {
            shard.find_code(code).is_some_and(|at| {
                shard.provider() != provider || shard.parts(shard.row(at)) != parts
            })
        })
    }

    /// Puts a shard in, in place of the one of its provider.
    pub(crate) fn put(&mut self, shard: Arc<Shard>) {
        match self.shards.binary_search_by(|other| other.provider().cmp(shard.provider())) {
            Ok(at) => self.shards[at] = shard,
            Err(at) => self.shards.insert(at, shard),
        }
        self.ids = Arc::default();
        self.directory = Arc::default();
    }

    /// Takes a provider's shard out.
    pub(crate) fn remove(&mut self, provider: &ProviderId) {
        self.shards.retain(|shard| shard.provider() != provider);
        self.troubles.remove(provider);
        self.ids = Arc::default();
        self.directory = Arc::default();
    }

    pub(crate) fn set_fx(&mut self, fx: FxTable) {
        self.fx = Arc::new(fx);
        self.ids = Arc::default();
    }

    pub(crate) fn set_book(&mut self, book: CodeBook) {
        self.book = Arc::new(book);
    }

    /// Says, or no longer says, that a source's prices are not the whole truth.
    pub(crate) fn set_trouble(&mut self, provider: &ProviderId, trouble: Option<Trouble>) {
        match trouble {
            Some(trouble) => self.troubles.insert(provider.clone(), trouble),
            None => self.troubles.remove(provider),
        };
        self.ids = Arc::default();
    }

    fn ids(&self) -> &(String, String) {
        self.ids.get_or_init(|| {
            let mut content = Sha256::new();
            content.update(b"runwhere catalogue 2\0");
            for shard in &self.shards {
                content.update(shard.content());
            }
            for rate in self.fx.rates() {
                content.update(text(rate));
            }
            content.update(format!("limit {}", self.fx.max_age_days()));
            let content = content.finalize();
            let mut state = Sha256::new();
            state.update(content);
            for shard in &self.shards {
                state.update(shard.reads());
                let read = shard.observed_at().map_or(0, Timestamp::as_microsecond);
                state.update(read.to_be_bytes());
                state.update([u8::from(shard.complete())]);
            }
            state.update(text(&self.troubles));
            (hex::encode(content), hex::encode(&state.finalize()[..16]))
        })
    }

    /// Names the prices: SHA-256 over offers and rates, in hexadecimal. Independent of the order in
    /// which anything came, and of when it was read: the same prices read again are the same ones.
    pub fn snapshot_id(&self) -> &str {
        &self.ids().0
    }

    /// Names the prices together with the times at which they were read: what an answer with ages
    /// is made from, byte for byte. 32 hexadecimal digits.
    pub fn state_id(&self) -> &str {
        &self.ids().1
    }

    /// The offers by provider.
    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// The classes of a model's offers, or of those of all unknown models (`u16::MAX`).
    pub(crate) fn of_model(&self, account: bool, gpu: u16) -> &OfModel {
        self.directory.of_model(&self.shards, account, gpu)
    }

    /// The number of a region in [`Self::of_model`]; `None` where no offer is there.
    pub(crate) fn region(&self, name: &str) -> Option<u32> {
        self.directory.region(&self.shards, name)
    }

    /// The shard of a provider.
    pub fn shard(&self, provider: &ProviderId) -> Option<&Arc<Shard>> {
        let at = self.shards.binary_search_by(|shard| shard.provider().cmp(provider)).ok()?;
        Some(&self.shards[at])
    }

    /// What is wrong with sources at present.
    pub fn troubles(&self) -> &BTreeMap<ProviderId, Trouble> {
        &self.troubles
    }

    /// How many offers there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every offer, by key.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let of = |shard: &'_ Arc<Shard>| {
            let shard = Arc::clone(shard);
            (0..shard.len()).filter_map(move |at| Some(shard.entry(u32::try_from(at).ok()?)))
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// The models that have offers, in the order of the table.
    pub fn gpus(&self) -> impl Iterator<Item = GpuModelId> {
        GpuModel::all().iter().enumerate().filter_map(|(place, model)| {
            let place = u16::try_from(place).ok()?;
            let has = |shard: &Arc<Shard>| {
                [false, true]
                    .iter()
                    .any(|account| !shard.index().of_gpu(*account, place).1.is_empty())
            };
            self.shards.iter().any(has).then_some(model.id)
        })
    }

    /// The offer of a key.
    pub fn get(&self, key: &OfferKey) -> Option<Arc<Entry>> {
        let shard = self.shard(&key.provider)?;
        Some(shard.entry(shard.find(key)?))
    }

    /// The offer of a code.
    pub fn by_code(&self, code: OfferCode) -> Option<Arc<Entry>> {
        self.shards.iter().find_map(|shard| Some(shard.entry(shard.find_code(code)?)))
    }

    /// The key of a code whose offer is gone.
    pub fn withdrawn(&self, code: OfferCode) -> Option<&OfferKey> {
        self.book.key_of(code)
    }

    /// Rows that sources stated and that could not be used, with their provider.
    pub fn rejected(&self) -> Vec<(ProviderId, RejectedRow)> {
        let of = |shard: &'_ Arc<Shard>| {
            let provider = shard.provider().clone();
            let rows: Vec<_> = shard.rejected().to_vec();
            rows.into_iter().map(move |row| (provider.clone(), row))
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// The connected providers and when their sheets were read.
    pub fn connected(&self) -> BTreeMap<ProviderId, Timestamp> {
        let of = |shard: &Arc<Shard>| Some((shard.provider().clone(), shard.observed_at()?));
        self.shards.iter().filter_map(of).collect()
    }

    /// The exchange rates.
    pub fn fx(&self) -> &FxTable {
        &self.fx
    }

    /// The newest date among the bundled figures; `None` when there are none.
    pub fn newest_bundled(&self) -> Option<Timestamp> {
        self.newest_bundled
    }

    /// Whether somebody may see an offer.
    pub fn visible(entry: &Entry, audience: Audience) -> bool {
        audience == Audience::Member || entry.offer.price.kind != PriceKind::Account
    }

    /// What holds of an offer at an instant.
    pub fn assess(&self, entry: &Arc<Entry>, now: Timestamp) -> Assessed {
        let shard = self.shard(&entry.offer.key.provider);
        self.assess_of(shard.map(Arc::as_ref), entry.clone(), now)
    }

    /// The same where the shard is at hand.
    pub(crate) fn assess_of(
        &self,
        shard: Option<&Shard>,
        entry: Arc<Entry>,
        now: Timestamp,
    ) -> Assessed {
        let offer = &entry.offer;
        let known = offer.price.state.known();
        let (converted, fx_error) = match known.map(|p| self.fx.convert(p.per_hour(), SHOWN, now)) {
            Some(Ok(converted)) => (Some(converted), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let limits = shard.map_or_else(Limits::default, |shard| shard.limits());
        let age = match entry.read_at {
            Some(read) => Some(now.duration_since(read)),
            None => offer.price.observed_at.map(|at| now.duration_since(at)),
        };
        let limit = match entry.read_at {
            Some(_) => limits.of_billing(offer.key.billing_model),
            None => BUNDLED_MAX_AGE,
        };
        // What the operator sets does not age.
        let ages = offer.price.kind != PriceKind::Configured;
        let stale = age.filter(|age| ages && *age > limit);
        Assessed {
            converted,
            fx_error,
            not_launchable: not_launchable(&entry, stale, shard.is_some_and(|s| s.is_live())),
            spot: entry.spot,
            stale: stale.is_some(),
            entry,
        }
    }
}

fn not_launchable(
    entry: &Entry,
    stale: Option<SignedDuration>,
    connected: bool,
) -> Option<NotLaunchable> {
    let offer = &entry.offer;
    let provider = || offer.key.provider.clone();
    if entry.read_at.is_none() {
        return Some(match connected {
            true => NotLaunchable::NotInAccount { provider: provider() },
            false => NotLaunchable::ConnectAccount { provider: provider() },
        });
    }
    if !offer.launchable {
        return Some(match offer.price.kind {
            // Read from a public list: it takes an account to launch it.
            PriceKind::List | PriceKind::Bundled => {
                NotLaunchable::ConnectAccount { provider: provider() }
            }
            PriceKind::Account | PriceKind::Configured => {
                NotLaunchable::NotNow { provider: provider() }
            }
        });
    }
    if let Some(age) = stale {
        let age_seconds = age.as_secs();
        return Some(NotLaunchable::StalePrice { provider: provider(), age_seconds });
    }
    (offer.stock == Stock::SoldOut).then_some(NotLaunchable::SoldOut)
}

pub(crate) fn bundled_of(provider: &ProviderId) -> Vec<Arc<Offer>> {
    let all = &Bundled::get().offers;
    let start = all.partition_point(|offer| offer.key.provider < *provider);
    let end = all.partition_point(|offer| offer.key.provider <= *provider);
    all[start..end].to_vec()
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
