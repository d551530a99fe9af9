//! The catalogue: bundled and live offers under one index.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use runwhere_model::offer::{RejectedRow, Stock};
use runwhere_model::{
    BillingModel, Currency, GpuModel, GpuModelId, Offer, OfferCode, OfferKey, OfferSheet,
    PriceKind, ProviderId,
};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::codes::CodeBook;
use crate::fx::{Converted, FxError, FxTable};
use crate::snapshot::{Bundled, Note};

/// The currency in which prices are compared and shown.
pub const SHOWN: Currency = Currency::CNY;

/// Who asks: prices of connected accounts are for those who have a credential.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
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
    /// A remark of the bundled source.
    pub note: Option<Note>,
    /// When a connected provider stated it last; `None` for bundled offers.
    pub read_at: Option<Timestamp>,
}

/// Why an offer cannot be launched now.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", content = "params", rename_all = "snake_case")]
pub enum NotLaunchable {
    /// A bundled price: no account of that provider is connected.
    ConnectAccount {
        /// Whose account is needed.
        provider: String,
    },
    /// A bundled price of a connected provider that does not state this offer itself.
    NotInAccount {
        /// The connected provider.
        provider: String,
    },
    /// The provider's sheet is too old.
    StalePrice {
        /// Whose sheet.
        provider: String,
        /// Its age.
        age_seconds: i64,
    },
    /// A connected account has it, but all are taken now: a job waits for its turn.
    SoldOut,
    /// The connected account cannot launch it at present.
    NotNow {
        /// The connected provider.
        provider: String,
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

    /// The order of every list and quote: launchable first, then what a job can wait for, then
    /// reference prices; whole GPUs before shares of one, known prices before unknown ones, then the converted price; on demand before spot at one price,
    /// the larger machine first, at last the key. Total: no two offers are equal.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |a: &Self| {
            let offer = &a.entry.offer;
            (
                a.standing(),
                offer.gpu_count.as_whole().is_none(),
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

/// An immutable state of all offers.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<Arc<Entry>>,
    by_code: HashMap<OfferCode, usize>,
    by_gpu: BTreeMap<GpuModelId, Vec<usize>>,
    connected: BTreeMap<ProviderId, Timestamp>,
    rejected: Vec<(ProviderId, RejectedRow)>,
    gone: BTreeMap<OfferCode, OfferKey>,
    fx: FxTable,
    sheet_max_age: SignedDuration,
    newest_bundled: Option<Timestamp>,
    id: OnceLock<String>,
    content: Vec<u8>,
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
    /// Builds the index; assigns codes to keys that have none.
    pub fn build(parts: &Parts, codes: &mut CodeBook) -> Self {
        let mut rejected = Vec::new();
        let mut live: BTreeMap<OfferKey, (Arc<Offer>, Timestamp)> = BTreeMap::new();
        for (provider, sheet) in &parts.sheets {
            rejected.extend(sheet.rejected.iter().map(|row| (provider.clone(), row.clone())));
            for offer in sorted(&sheet.offers) {
                let row = |reason: &str| RejectedRow {
                    row: offer.key.to_string(),
                    reason: reason.to_owned(),
                };
                if offer.key.provider != *provider {
                    rejected.push((provider.clone(), row("the key names another provider")));
                } else if live.contains_key(&offer.key) {
                    rejected.push((provider.clone(), row("the key stands twice in the sheet")));
                } else {
                    let read_at = offer.price.observed_at.unwrap_or(sheet.observed_at);
                    live.insert(offer.key.clone(), (Arc::new(offer.clone()), read_at));
                }
            }
        }
        let content = content(parts, &live);
        let mut entries: Vec<Arc<Entry>> = Vec::with_capacity(live.len() + 1500);
        if parts.bundled {
            let kept = Bundled::get().offers.iter().filter(|b| !live.contains_key(&b.offer.key));
            entries.extend(kept.map(|bundled| {
                Arc::new(Entry {
                    offer: bundled.offer.clone(),
                    code: codes.assign(&bundled.offer.key),
                    note: bundled.note,
                    read_at: None,
                })
            }));
        }
        entries.extend(live.into_values().map(|(offer, read_at)| {
            let code = codes.assign(&offer.key);
            Arc::new(Entry { offer, code, note: None, read_at: Some(read_at) })
        }));
        entries.sort_by(|a, b| a.offer.key.cmp(&b.offer.key));
        let mut by_gpu: BTreeMap<GpuModelId, Vec<usize>> = BTreeMap::new();
        let mut by_code = HashMap::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            by_code.insert(entry.code, at);
            if let Some(gpu) = entry.offer.gpu {
                by_gpu.entry(gpu).or_default().push(at);
            }
        }
        let gone = codes
            .entries()
            .filter(|(_, code)| !by_code.contains_key(code))
            .map(|(key, code)| (code, key.clone()))
            .collect();
        Self {
            entries,
            by_code,
            by_gpu,
            connected: parts.sheets.iter().map(|(id, s)| (id.clone(), s.observed_at)).collect(),
            rejected,
            gone,
            fx: parts.fx.clone(),
            sheet_max_age: parts.sheet_max_age,
            newest_bundled: if parts.bundled { Bundled::get().newest } else { None },
            id: OnceLock::new(),
            content,
        }
    }

    /// Names this state: SHA-256 over offers and rates, in hexadecimal. Independent of the order in
    /// which anything came, and of when it was read: the same prices read again are the same state.
    pub fn snapshot_id(&self) -> &str {
        self.id.get_or_init(|| {
            let mut hasher = Sha256::new();
            hasher.update(b"runwhere catalogue 1\0");
            hasher.update(if self.newest_bundled.is_some() {
                Bundled::get().digest()
            } else {
                [0; 32]
            });
            hasher.update(&self.content);
            hex::encode(hasher.finalize())
        })
    }

    /// Every offer, by key.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The offers of one model, by key.
    pub fn of_gpu(&self, gpu: GpuModelId) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_gpu.get(&gpu).into_iter().flatten().map(|at| &self.entries[*at])
    }

    /// The models that have offers, in the order of the table.
    pub fn gpus(&self) -> impl Iterator<Item = GpuModelId> {
        GpuModel::all().iter().map(|m| m.id).filter(|id| self.by_gpu.contains_key(id))
    }

    /// The offer of a key.
    pub fn get(&self, key: &OfferKey) -> Option<&Arc<Entry>> {
        let at = self.entries.binary_search_by(|entry| entry.offer.key.cmp(key)).ok()?;
        Some(&self.entries[at])
    }

    /// The offer of a code.
    pub fn by_code(&self, code: OfferCode) -> Option<&Arc<Entry>> {
        self.by_code.get(&code).map(|at| &self.entries[*at])
    }

    /// The key of a code whose offer is gone.
    pub fn withdrawn(&self, code: OfferCode) -> Option<&OfferKey> {
        self.gone.get(&code)
    }

    /// Rows that sources stated and that could not be used, with their provider.
    pub fn rejected(&self) -> &[(ProviderId, RejectedRow)] {
        &self.rejected
    }

    /// The connected providers and when their sheets were read.
    pub fn connected(&self) -> &BTreeMap<ProviderId, Timestamp> {
        &self.connected
    }

    /// The exchange rates.
    pub fn fx(&self) -> &FxTable {
        &self.fx
    }

    /// The newest date among the bundled figures; `None` when there are none.
    pub fn newest_bundled(&self) -> Option<Timestamp> {
        self.newest_bundled
    }

    /// Live offers that were read too long ago to be launched at an instant.
    pub fn stale(&self, now: Timestamp) -> impl Iterator<Item = &OfferKey> {
        self.entries
            .iter()
            .filter(move |entry| self.stale_for(entry, now).is_some())
            .map(|entry| &entry.offer.key)
    }

    /// How long ago an offer was read, if that is too long. A price that the operator sets does not
    /// age, and neither does one that launches nothing anyway.
    fn stale_for(&self, entry: &Entry, now: Timestamp) -> Option<SignedDuration> {
        let age = now.duration_since(entry.read_at?);
        let ages = entry.offer.price.kind != PriceKind::Configured;
        (ages && age > self.sheet_max_age).then_some(age)
    }

    /// Whether somebody may see an offer.
    pub fn visible(entry: &Entry, audience: Audience) -> bool {
        audience == Audience::Member || entry.offer.price.kind != PriceKind::Account
    }

    /// What holds of an offer at an instant.
    pub fn assess(&self, entry: &Arc<Entry>, now: Timestamp) -> Assessed {
        let known = entry.offer.price.state.known();
        let (converted, fx_error) = match known.map(|p| self.fx.convert(p.per_hour(), SHOWN, now)) {
            Some(Ok(converted)) => (Some(converted), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Assessed {
            converted,
            fx_error,
            not_launchable: self.not_launchable(entry, now),
            spot: self.spot_standing(entry),
            entry: entry.clone(),
        }
    }

    fn not_launchable(&self, entry: &Entry, now: Timestamp) -> Option<NotLaunchable> {
        let offer = &entry.offer;
        let provider = || offer.key.provider.to_string();
        if entry.read_at.is_none() {
            return Some(match self.connected.contains_key(&offer.key.provider) {
                true => NotLaunchable::NotInAccount { provider: provider() },
                false => NotLaunchable::ConnectAccount { provider: provider() },
            });
        }
        if !offer.launchable {
            return Some(NotLaunchable::NotNow { provider: provider() });
        }
        if let Some(age) = self.stale_for(entry, now) {
            let age_seconds = age.as_secs();
            return Some(NotLaunchable::StalePrice { provider: provider(), age_seconds });
        }
        (offer.stock == Stock::SoldOut).then_some(NotLaunchable::SoldOut)
    }

    fn spot_standing(&self, entry: &Entry) -> Option<SpotStanding> {
        let key = &entry.offer.key;
        if key.billing_model != BillingModel::Spot {
            return None;
        }
        let spot = entry.offer.price.state.known()?;
        let zones = if key.zone.is_some() { vec![None, key.zone.clone()] } else { vec![None] };
        let on_demand = zones
            .into_iter()
            .filter_map(|zone| {
                let twin = OfferKey { zone, billing_model: BillingModel::OnDemand, ..key.clone() };
                self.get(&twin)?.offer.price.state.known()
            })
            .filter(|price| price.currency == spot.currency)
            .map(|price| price.amount)
            .min()?;
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
}

/// Sorted by key; among equal keys by content, so that the order of rows decides nothing.
fn sorted(offers: &[Offer]) -> Vec<&Offer> {
    let mut offers: Vec<&Offer> = offers.iter().collect();
    offers.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| text(a).cmp(&text(b))));
    offers
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn content(parts: &Parts, live: &BTreeMap<OfferKey, (Arc<Offer>, Timestamp)>) -> Vec<u8> {
    let mut content = Vec::new();
    let mut line = |text: String| {
        content.extend_from_slice(text.as_bytes());
        content.push(b'\n');
    };
    for provider in parts.sheets.keys() {
        line(format!("sheet {provider}"));
    }
    for (offer, _) in live.values() {
        let mut offer = offer.as_ref().clone();
        offer.price.observed_at = None;
        line(text(&offer));
    }
    for rate in parts.fx.rates() {
        line(text(rate));
    }
    line(format!("limits {} {:?}", parts.fx.max_age_days(), parts.sheet_max_age));
    content
}
