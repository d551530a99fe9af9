//! Offers as rows for people and programs: plain values, the same in process and over HTTP.

use jiff::Timestamp;
use jiff::civil::Date;
use runwhere_model::{
    GpuCount, GpuModelId, Lang, Mark, OfferDetails, OfferKey, PriceKind, PriceState, ProviderId,
    Stock,
};
use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Serialize};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::canonical::expires_at;
use crate::catalogue::{Assessed, NotLaunchable, SpotStanding, Trouble};
use crate::digits::Digits;
use crate::quote::{Quote, Recommended, Rejection};
use crate::reason::{self, Reason, Tag};
use crate::run_cost::RunCost;

/// Few keys are longer.
const USUAL_KEY: usize = 80;

/// A mark on a row.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// A bundled reference price.
    Bundled,
    /// The local machine pretends to have the GPUs.
    Pretended,
    /// Nobody knows how old the price is.
    AgeUnknown,
    /// No price is known.
    PriceUnknown,
    /// Converted with a rate past its age limit.
    OldRate,
    /// No rate: not converted.
    NoRate,
    /// Spot at the on-demand price.
    SpotNoSaving,
    /// Spot dearer than on demand.
    SpotAboveOnDemand,
    /// The source names no currency.
    CurrencyAssumed,
    /// The source's count was corrected.
    CountCorrected,
    /// A "from" price.
    FromPrice,
    /// A share of one GPU.
    Fraction,
    /// The source says it is not sold there.
    NotOffered,
    /// The price is older than prices of its kind may be.
    Stale,
    /// The source states another GPU memory than the model has.
    MemoryCorrected,
    /// The GPU's name is not known here.
    Unmapped,
    /// A median of several offers.
    Statistical,
    /// The least bid.
    Floor,
    /// Another cloud's machine.
    Resold,
    /// The offer ends with its id.
    Ephemeral,
    /// The source had several prices; the highest is shown.
    Duplicated,
    /// The sum of parts.
    Summed,
    /// Typed in from a price page.
    Manual,
}

/// One offer. Texts are those of the offer where they can be shown as they are.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OfferRow<'a> {
    /// Key: what `gpuSkuKey` takes.
    pub offer_key: String,
    /// Code: eight letters.
    pub offer_code: Cow<'a, str>,
    /// Provider.
    pub provider: Cow<'a, str>,
    /// Region; `-` where none applies.
    pub region: Cow<'a, str>,
    /// Zone; absent where none applies.
    pub zone: Option<Cow<'a, str>>,
    /// `on_demand` or `spot`.
    pub billing_model: Cow<'a, str>,
    /// The cloud's own type.
    pub instance_type: Cow<'a, str>,
    /// The model's name (`NVIDIA A100-80GB`), else the provider's own name.
    pub gpu_model: Cow<'a, str>,
    /// The model's id (`a100-80g`); absent for unknown models.
    pub gpu_type: Option<GpuModelId>,
    /// Number of GPUs: `8`, or a share of one such as `1/6`.
    pub gpu_count: Cow<'a, str>,
    /// The provider's own name of the GPU.
    pub gpu_raw: Cow<'a, str>,
    /// Memory of one whole GPU in GiB.
    pub gpu_memory_gb: Option<u32>,
    /// Memory of one GPU in MiB as the source states it; flagged where the model has another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_stated_mib: Option<u64>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Main memory in MiB.
    pub memory_mib: Option<u64>,
    /// CNY per hour of the whole machine, four decimals, half up; absent when unknown.
    pub hourly_price: Option<Digits>,
    /// The same for one GPU.
    pub hourly_price_per_gpu: Option<Digits>,
    /// The original price per hour, every digit; absent when unknown.
    pub price: Option<Digits>,
    /// Currency of `price`.
    pub currency: Option<Cow<'a, str>>,
    /// The rate it was converted with; absent when it is in CNY already.
    pub fx_rate: Option<Digits>,
    /// The day of the rate.
    pub fx_date: Option<Date>,
    /// Who stated the rate.
    pub fx_source: Option<Cow<'a, str>>,
    /// `known`, `unknown` or `not_offered`.
    pub price_state: Cow<'a, str>,
    /// Price of one GPU in the original currency; every digit, else 28.
    pub price_per_gpu: Option<Digits>,
    /// `in_stock`, `low`, `sold_out` or `unstated`.
    pub stock: Stock,
    /// Whose price it is.
    pub price_kind: PriceKind,
    /// Where the price was read.
    pub source: Cow<'a, str>,
    /// When; absent = unknown.
    pub observed_at: Option<Timestamp>,
    /// Since when it holds, by the provider's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Timestamp>,
    /// Age of the price in seconds; absent = unknown.
    pub age: Option<i64>,
    /// The price is older than prices of its kind may be.
    pub stale: bool,
    /// Parts of the price, steps, other prices, disk, origin; absent where there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Cow<'a, OfferDetails>>,
    /// Whether a connected account can launch it now.
    pub launchable: bool,
    /// Why not: code and parameters.
    pub not_launchable: Option<NotLaunchable>,
    /// Why not, as a sentence.
    pub not_launchable_text: Option<String>,
    /// Marks.
    pub flags: Vec<Flag>,
}

/// One recommendation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct RecommendationRow<'a> {
    /// From 1.
    pub rank: usize,
    /// The offer.
    pub offer: OfferRow<'a>,
    /// 100 for the lowest price of its class; one decimal, as text.
    pub score: Option<Digits>,
    /// What it is, in a word.
    pub tag: Cow<'a, str>,
    /// The same as a code.
    pub tag_code: Tag,
    /// Why, as one text.
    pub reason: String,
    /// Why: codes and parameters.
    pub reasons: Cow<'a, [Reason]>,
    /// What the whole run costs in the offer's currency, where that was asked and is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_cost: Option<Cow<'a, RunCost>>,
}

/// The answer to a quote.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct QuoteReply<'a> {
    /// Identity of the answer; absent when the model is unknown.
    pub quote_id: Option<Cow<'a, str>>,
    /// State of the catalogue.
    pub snapshot_id: Cow<'a, str>,
    /// The instant for which it holds.
    pub as_of: Timestamp,
    /// Until when it may be acted on; later, ask again.
    pub expires_at: Timestamp,
    /// Best first.
    pub recommendations: Vec<RecommendationRow<'a>>,
    /// How many offers match in all.
    pub matching: usize,
    /// How many offers of the model do not, by class.
    pub rejected: Cow<'a, BTreeMap<Rejection, usize>>,
    /// What a model name that nothing has may have meant.
    pub suggestions: Vec<GpuModelId>,
}

/// A page of offers.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OfferPage {
    /// The rows of this page.
    pub items: Vec<OfferRow<'static>>,
    /// How many rows there are in all.
    pub total: usize,
    /// Rows per page.
    pub limit: usize,
    /// Rows before this page.
    pub offset: usize,
    /// State of the catalogue: pages of one state fit together.
    pub snapshot_id: String,
    /// What a model name that nothing has may have meant.
    pub suggestions: Vec<GpuModelId>,
}

/// One model of the summary.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SummaryRow {
    /// The model's name, else the provider's own.
    pub gpu_model: String,
    /// The model's id; absent for unknown models.
    pub gpu_type: Option<GpuModelId>,
    /// Memory of one GPU in GiB.
    pub gpu_memory_gb: Option<u32>,
    /// The lowest price of a machine with whole GPUs, CNY per hour, four decimals.
    pub min_hourly_price: Option<Digits>,
    /// The highest.
    pub max_hourly_price: Option<Digits>,
    /// The lowest price per GPU.
    pub min_hourly_price_per_gpu: Option<Digits>,
    /// How many providers.
    pub provider_count: usize,
    /// How many offers.
    pub offer_count: usize,
    /// How many of them can be launched now.
    pub launchable_count: usize,
    /// Whether there are spot offers.
    pub has_spot: bool,
}

/// All models that have offers.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SummaryReply {
    /// One row per model.
    pub items: Vec<SummaryRow>,
    /// The oldest of the sources' dates; absent when nothing is dated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Timestamp>,
    /// Its age. Never null: the published client needs a number or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_seconds: Option<i64>,
    /// State of the catalogue.
    pub snapshot_id: String,
    /// Sources that could not be read (whole), with what is wrong.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub troubles: BTreeMap<ProviderId, Trouble>,
    /// How many offers of sources that are read have prices older than prices of their kind may be: those
    /// that a list of fresh prices leaves out.
    #[serde(default)]
    pub stale: BTreeMap<ProviderId, usize>,
    /// The same of bundled prices.
    #[serde(default)]
    pub stale_bundled: usize,
}

/// An amount on the wire: four decimals, half up.
pub fn four_decimals(amount: Decimal) -> Digits {
    let mut rounded = amount.round_dp_with_strategy(4, RoundingStrategy::MidpointAwayFromZero);
    rounded.rescale(4);
    rounded.into()
}

/// Text of foreign origin for a terminal: no control characters and no square brackets, which a
/// published client takes for markup.
pub fn plain(text: &str) -> Cow<'_, str> {
    // Nearly every text: nothing of the kind.
    if text.bytes().all(|b| b.is_ascii_graphic() && b != b'[' && b != b']' || b == b' ') {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match c {
        '[' => '(',
        ']' => ')',
        c if c.is_control() => ' ',
        c => c,
    });
    Cow::Owned(shown.collect())
}

impl<'a> OfferRow<'a> {
    /// The row of an offer at an instant.
    pub fn new(assessed: &'a Assessed, now: Timestamp, lang: Lang) -> Self {
        let offer = &assessed.entry.offer;
        let key = &offer.key;
        let model = offer.gpu.map(GpuModelId::model);
        let known = offer.price.state.known();
        let rate = assessed.converted.as_ref().and_then(|converted| converted.rate.as_deref());
        Self {
            offer_key: shown_key(key),
            offer_code: Cow::Borrowed(assessed.entry.code.as_str()),
            provider: Cow::Borrowed(key.provider.as_str()),
            region: key.region.as_deref().map_or(Cow::Borrowed("-"), plain),
            zone: key.zone.as_deref().map(plain),
            billing_model: Cow::Borrowed(key.billing_model.as_str()),
            instance_type: plain(&key.instance_type),
            gpu_model: model.map_or_else(|| plain(&offer.gpu_raw), |model| model.name.into()),
            gpu_type: offer.gpu,
            gpu_count: shown_count(offer.gpu_count),
            gpu_raw: plain(&offer.gpu_raw),
            gpu_memory_stated_mib: offer.gpu_memory_mib,
            gpu_memory_gb: model.map(|model| model.memory_gib).filter(|memory| *memory > 0),
            vcpus: offer.vcpus,
            memory_mib: offer.memory_mib,
            hourly_price: assessed.amount().map(four_decimals),
            hourly_price_per_gpu: per_gpu(assessed).map(four_decimals),
            price: known.map(|price| price.amount.into()),
            currency: known.map(|price| price.currency.code().into()),
            fx_rate: rate.map(|rate| rate.rate.into()),
            fx_date: rate.map(|rate| rate.date),
            fx_source: rate.map(|rate| plain(&rate.source)),
            price_state: Cow::Borrowed(match offer.price.state {
                PriceState::Known { .. } => "known",
                PriceState::Unknown => "unknown",
                PriceState::NotOffered => "not_offered",
            }),
            price_per_gpu: known.and_then(|price| {
                let each = each_of(offer.gpu_count, price.amount)?;
                Some(each.normalize().into())
            }),
            stock: offer.stock,
            price_kind: offer.price.kind,
            source: plain(&offer.price.source),
            observed_at: offer.price.observed_at,
            effective_at: offer.price.effective_at,
            stale: assessed.stale,
            details: offer.details.as_deref().map(Cow::Borrowed),
            age: age(offer.price.observed_at, now),
            launchable: assessed.launchable(),
            not_launchable_text: assessed.not_launchable.as_ref().map(|why| why.text(lang)),
            not_launchable: assessed.not_launchable.clone(),
            flags: flags(assessed),
        }
    }

    /// The row with texts of its own.
    pub fn into_owned(self) -> OfferRow<'static> {
        OfferRow {
            offer_key: self.offer_key,
            offer_code: own(self.offer_code),
            provider: own(self.provider),
            region: own(self.region),
            zone: self.zone.map(own),
            billing_model: own(self.billing_model),
            instance_type: own(self.instance_type),
            gpu_model: own(self.gpu_model),
            gpu_type: self.gpu_type,
            gpu_count: own(self.gpu_count),
            gpu_raw: own(self.gpu_raw),
            gpu_memory_gb: self.gpu_memory_gb,
            gpu_memory_stated_mib: self.gpu_memory_stated_mib,
            vcpus: self.vcpus,
            memory_mib: self.memory_mib,
            hourly_price: self.hourly_price,
            hourly_price_per_gpu: self.hourly_price_per_gpu,
            price: self.price,
            currency: self.currency.map(own),
            fx_rate: self.fx_rate,
            fx_date: self.fx_date,
            fx_source: self.fx_source.map(own),
            price_state: own(self.price_state),
            price_per_gpu: self.price_per_gpu,
            stock: self.stock,
            price_kind: self.price_kind,
            source: own(self.source),
            observed_at: self.observed_at,
            effective_at: self.effective_at,
            age: self.age,
            stale: self.stale,
            details: self.details.map(own),
            launchable: self.launchable,
            not_launchable: self.not_launchable,
            not_launchable_text: self.not_launchable_text,
            flags: self.flags,
        }
    }
}

fn own<T: ToOwned + ?Sized + 'static>(value: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(value.into_owned())
}

/// A key as text, in memory that is taken once.
fn shown_key(key: &OfferKey) -> String {
    let mut text = String::with_capacity(USUAL_KEY);
    // Writing to a text does not fail.
    let _ = write!(text, "{key}");
    text
}

/// A count as text; the usual ones stand ready.
fn shown_count(count: GpuCount) -> Cow<'static, str> {
    match count.as_whole() {
        Some(1) => Cow::Borrowed("1"),
        Some(2) => Cow::Borrowed("2"),
        Some(4) => Cow::Borrowed("4"),
        Some(8) => Cow::Borrowed("8"),
        _ => Cow::Owned(count.to_string()),
    }
}

/// An amount for one GPU of so many, where the quotient is exact enough to show.
fn each_of(count: GpuCount, amount: Decimal) -> Option<Decimal> {
    match count.parts() {
        (1, 1) => Some(amount),
        (numerator, denominator) => {
            amount.checked_mul(Decimal::from(denominator))?.checked_div(Decimal::from(numerator))
        }
    }
}

/// The exact price of one GPU of an offer, where the quotient is exact enough to show.
pub(crate) fn per_gpu(assessed: &Assessed) -> Option<Decimal> {
    each_of(assessed.entry.offer.gpu_count, assessed.amount()?)
}

/// The age of a price in seconds.
pub(crate) fn age(observed_at: Option<Timestamp>, now: Timestamp) -> Option<i64> {
    observed_at.map(|at| now.duration_since(at).as_secs().max(0))
}

fn flags(assessed: &Assessed) -> Vec<Flag> {
    let offer = &assessed.entry.offer;
    let stale = assessed.converted.as_ref().is_some_and(|converted| converted.stale);
    let marks = offer.marks;
    let memory = offer.gpu.zip(offer.gpu_memory_mib);
    let corrected = memory.is_some_and(|(gpu, stated)| !gpu.model().memory_fits(stated));
    [
        (offer.price.kind == PriceKind::Bundled, Flag::Bundled),
        (offer.pretended, Flag::Pretended),
        (offer.price.observed_at.is_none(), Flag::AgeUnknown),
        (offer.price.state.known().is_none(), Flag::PriceUnknown),
        (stale, Flag::OldRate),
        (assessed.fx_error.is_some(), Flag::NoRate),
        (assessed.spot == Some(SpotStanding::NoSaving), Flag::SpotNoSaving),
        (assessed.spot == Some(SpotStanding::Above), Flag::SpotAboveOnDemand),
        (marks.has(Mark::CurrencyAssumed), Flag::CurrencyAssumed),
        (marks.has(Mark::CountCorrected), Flag::CountCorrected),
        (marks.has(Mark::FromPrice), Flag::FromPrice),
        (offer.gpu_count.as_whole().is_none(), Flag::Fraction),
        (offer.price.state == PriceState::NotOffered, Flag::NotOffered),
        (assessed.stale, Flag::Stale),
        (corrected || marks.has(Mark::MemoryCorrected), Flag::MemoryCorrected),
        (offer.gpu.is_none() && !offer.gpu_raw.is_empty(), Flag::Unmapped),
        (marks.has(Mark::Statistical), Flag::Statistical),
        (marks.has(Mark::Floor), Flag::Floor),
        (marks.has(Mark::Resold), Flag::Resold),
        (marks.has(Mark::Ephemeral), Flag::Ephemeral),
        (marks.has(Mark::Duplicated), Flag::Duplicated),
        (marks.has(Mark::Summed), Flag::Summed),
        (marks.has(Mark::Manual), Flag::Manual),
    ]
    .into_iter()
    .filter_map(|(holds, flag)| holds.then_some(flag))
    .collect()
}

impl<'a> RecommendationRow<'a> {
    /// The row of a recommendation.
    pub fn new(recommended: &'a Recommended, now: Timestamp, lang: Lang) -> Self {
        Self {
            rank: recommended.rank,
            offer: OfferRow::new(&recommended.assessed, now, lang),
            score: recommended.score.map(Digits::from),
            tag: Cow::Borrowed(recommended.tag.text(lang)),
            tag_code: recommended.tag,
            reason: reason::join(&recommended.reasons, lang),
            reasons: Cow::Borrowed(&recommended.reasons),
            run_cost: recommended.run_cost.as_ref().map(Cow::Borrowed),
        }
    }

    /// The row with texts of its own.
    pub fn into_owned(self) -> RecommendationRow<'static> {
        RecommendationRow {
            rank: self.rank,
            offer: self.offer.into_owned(),
            score: self.score,
            tag: own(self.tag),
            tag_code: self.tag_code,
            reason: self.reason,
            reasons: own(self.reasons),
            run_cost: self.run_cost.map(own),
        }
    }
}

impl<'a> QuoteReply<'a> {
    /// A quote in words.
    pub fn new(quote: &'a Quote, lang: Lang) -> Self {
        let row = |recommended| RecommendationRow::new(recommended, quote.as_of, lang);
        Self {
            quote_id: Some(Cow::Borrowed(&quote.id)),
            snapshot_id: Cow::Borrowed(&quote.snapshot_id),
            as_of: quote.as_of,
            expires_at: expires_at(quote.as_of),
            recommendations: quote.recommendations.iter().map(row).collect(),
            matching: quote.matching,
            rejected: Cow::Borrowed(&quote.rejected),
            suggestions: Vec::new(),
        }
    }

    /// The answer to a name that no model has.
    pub(crate) fn unknown_model(
        snapshot_id: &str,
        as_of: Timestamp,
        suggestions: Vec<GpuModelId>,
    ) -> QuoteReply<'static> {
        QuoteReply {
            quote_id: None,
            snapshot_id: Cow::Owned(snapshot_id.to_owned()),
            as_of,
            expires_at: expires_at(as_of),
            recommendations: Vec::new(),
            matching: 0,
            rejected: Cow::Owned(BTreeMap::new()),
            suggestions,
        }
    }

    /// The answer with texts of its own.
    pub fn into_owned(self) -> QuoteReply<'static> {
        let rows = self.recommendations.into_iter();
        QuoteReply {
            quote_id: self.quote_id.map(own),
            snapshot_id: own(self.snapshot_id),
            recommendations: rows.map(RecommendationRow::into_owned).collect(),
            rejected: own(self.rejected),
            as_of: self.as_of,
            expires_at: self.expires_at,
            matching: self.matching,
            suggestions: self.suggestions,
        }
    }
}
