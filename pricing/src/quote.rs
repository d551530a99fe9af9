//! Quotes: a deterministic answer to "which offer", with reasons, that can be replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runwhere_model::offer::Stock;
use runwhere_model::{BillingModel, GpuModelId, OfferKey, PriceState};
use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::catalogue::{Assessed, Audience, Catalogue, Entry, SHOWN, SpotStanding, Standing};
use crate::reason::{Reason, Tag};
use crate::snapshot::Note;

/// What the GPUs are for. Prices do not depend on it yet; it is part of the quote's identity.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskType {
    /// Training, also what else runs to an end.
    #[default]
    Training,
    /// Serving a model.
    Inference,
    /// An interactive environment.
    Notebook,
}

/// A question for offers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Query {
    /// Which model; `None` = any: the answer is the best offer of each model.
    pub gpu: Option<GpuModelId>,
    /// How many whole GPUs on one machine, exactly.
    pub gpu_count: u32,
    /// What for.
    pub task_type: TaskType,
    /// Whether spot offers count.
    pub spot_allowed: bool,
    /// The most an hour may cost, in CNY, exact.
    pub max_hourly_price: Option<Decimal>,
    /// How many recommendations at most.
    pub top_n: usize,
    /// Only offers of this provider.
    pub provider: Option<String>,
    /// Only offers of this region.
    pub region: Option<String>,
    /// Who asks.
    pub audience: Audience,
}

impl Query {
    /// A question with nothing but model and count: spot allowed, five answers.
    pub fn new(gpu: Option<GpuModelId>, gpu_count: u32) -> Self {
        Self {
            gpu,
            gpu_count,
            task_type: TaskType::Training,
            spot_allowed: true,
            max_hourly_price: None,
            top_n: 5,
            provider: None,
            region: None,
            audience: Audience::Public,
        }
    }
}

/// Why an offer of the wanted model is no answer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// Another number of GPUs.
    GpuCount,
    /// A share of one GPU.
    Fraction,
    /// Another provider or region than asked for.
    Place,
    /// Spot, and spot was excluded.
    Spot,
    /// Not sold there, says the source.
    NotOffered,
    /// Sold out where no job can wait for it.
    SoldOut,
    /// Above the ceiling.
    AboveMaxPrice,
    /// A ceiling was set and the price is unknown.
    PriceUnknown,
    /// A ceiling was set and the price cannot be converted with a rate that is fit to decide.
    ExchangeRate,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Recommended {
    /// From 1.
    pub rank: usize,
    /// The offer and what holds of it.
    pub assessed: Assessed,
    /// 100 for the lowest price among the answers of its standing, less the
    /// dearer it is; one decimal. `None` without a price.
    pub score: Option<Decimal>,
    /// What it is, in a word.
    pub tag: Tag,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// The answer to a [`Query`].
#[derive(Clone, Debug)]
pub struct Quote {
    /// SHA-256 over the catalogue's state and the question: the same id means the same answer.
    pub id: String,
    /// The catalogue's state.
    pub snapshot_id: String,
    /// The instant for which it holds.
    pub as_of: Timestamp,
    /// The best offers, best first.
    pub recommendations: Vec<Recommended>,
    /// How many offers match in all.
    pub matching: usize,
    /// How many offers of the model (or of all) do not, by class.
    pub rejected: BTreeMap<Rejection, usize>,
}

impl Catalogue {
    /// Answers a question as of an instant. Deterministic: the order in which offers came to the
    /// catalogue plays no part.
    pub fn quote(&self, query: &Query, as_of: Timestamp) -> Quote {
        let mut rejected = BTreeMap::new();
        let (matching, recommendations) = match query.gpu {
            Some(gpu) => {
                let matching = self.matching(gpu, query, as_of, &mut rejected);
                (matching.len(), recommend(&matching, query.top_n))
            }
            None => self.across_models(query, as_of, &mut rejected),
        };
        Quote {
            id: self.quote_id(query, as_of),
            snapshot_id: self.snapshot_id().to_owned(),
            as_of,
            recommendations,
            matching,
            rejected,
        }
    }

    fn across_models(
        &self,
        query: &Query,
        as_of: Timestamp,
        rejected: &mut BTreeMap<Rejection, usize>,
    ) -> (usize, Vec<Recommended>) {
        let mut total = 0;
        let mut best: Vec<Recommended> = Vec::new();
        for gpu in self.gpus() {
            let matching = self.matching(gpu, query, as_of, rejected);
            total += matching.len();
            best.extend(recommend(&matching, 1));
        }
        best.sort_by(|a, b| a.assessed.order(&b.assessed));
        best.truncate(query.top_n);
        for (at, recommended) in best.iter_mut().enumerate() {
            recommended.rank = at + 1;
            if at > 0 && recommended.tag == Tag::Recommended {
                recommended.tag = Tag::Alternative;
            }
        }
        (total, best)
    }

    fn matching(
        &self,
        gpu: GpuModelId,
        query: &Query,
        as_of: Timestamp,
        rejected: &mut BTreeMap<Rejection, usize>,
    ) -> Vec<Assessed> {
        let mut matching = Vec::new();
        for entry in self.of_gpu(gpu).filter(|e| Self::visible(e, query.audience)) {
            match self.judge(entry, query, as_of) {
                Ok(assessed) => matching.push(assessed),
                Err(class) => *rejected.entry(class).or_insert(0) += 1,
            }
        }
        matching.sort_by(Assessed::order);
        matching
    }

    fn judge(
        &self,
        entry: &Arc<Entry>,
        query: &Query,
        as_of: Timestamp,
    ) -> Result<Assessed, Rejection> {
        let offer = &entry.offer;
        match offer.gpu_count.as_whole() {
            None => return Err(Rejection::Fraction),
            Some(count) if count != query.gpu_count => return Err(Rejection::GpuCount),
            Some(_) => {}
        }
        let provider = query.provider.as_deref().is_none_or(|p| p == offer.key.provider.as_str());
        let region = query.region.is_none() || query.region == offer.key.region;
        if !provider || !region {
            return Err(Rejection::Place);
        }
        if offer.key.billing_model == BillingModel::Spot && !query.spot_allowed {
            return Err(Rejection::Spot);
        }
        if offer.price.state == PriceState::NotOffered {
            return Err(Rejection::NotOffered);
        }
        if offer.stock == Stock::SoldOut && !offer.launchable {
            return Err(Rejection::SoldOut);
        }
        let assessed = self.assess(entry, as_of);
        if let Some(ceiling) = query.max_hourly_price {
            let Some(converted) = &assessed.converted else {
                return Err(match assessed.fx_error {
                    Some(_) => Rejection::ExchangeRate,
                    None => Rejection::PriceUnknown,
                });
            };
            // An old rate may order reference prices; it may not let a launch under a ceiling.
            if converted.stale && assessed.standing() != Standing::Reference {
                return Err(Rejection::ExchangeRate);
            }
            if converted.money.amount > ceiling {
                return Err(Rejection::AboveMaxPrice);
            }
        }
        Ok(assessed)
    }

    /// The identity of an answer. Of time only what changes the answer is part of it: which offers
    /// and which rates are too old.
    fn quote_id(&self, query: &Query, as_of: Timestamp) -> String {
        let day = as_of.to_zoned_datetime(TimeZone::UTC).date();
        let stale_rates: Vec<String> = self
            .fx()
            .rates()
            .filter(|rate| {
                let age = rate.date.until(day).map_or(i64::MAX, |span| i64::from(span.get_days()));
                age > i64::from(self.fx().max_age_days())
            })
            .map(|rate| format!("{}-{}", rate.from, rate.to))
            .collect();
        let stale_offers: Vec<String> = self.stale(as_of).map(OfferKey::to_string).collect();
        let canonical = serde_json::json!({
            "gpu": query.gpu,
            "gpu_count": query.gpu_count,
            "task_type": query.task_type,
            "spot_allowed": query.spot_allowed,
            "max_hourly_price": query.max_hourly_price.map(|price| price.normalize().to_string()),
            "top_n": query.top_n,
            "provider": query.provider,
            "region": query.region,
            "audience": query.audience,
            "stale_offers": stale_offers,
            "stale_rates": stale_rates,
        });
        let mut hasher = Sha256::new();
        hasher.update(self.snapshot_id().as_bytes());
        hasher.update([0]);
        hasher.update(canonical.to_string().as_bytes());
        hex::encode(hasher.finalize())
    }
}

fn recommend(matching: &[Assessed], top_n: usize) -> Vec<Recommended> {
    let launchable = matching.iter().filter(|assessed| assessed.launchable()).count();
    let mut lowest: BTreeMap<Standing, Decimal> = BTreeMap::new();
    for assessed in matching {
        if let Some(amount) = assessed.amount() {
            let least = lowest.entry(assessed.standing()).or_insert(amount);
            *least = amount.min(*least);
        }
    }
    matching
        .iter()
        .take(top_n)
        .enumerate()
        .map(|(at, assessed)| {
            let standing = assessed.standing();
            let first = match (at, assessed.amount().is_some(), standing) {
                (0, true, Standing::Now) => Some(Reason::CheapestLaunchable { of: launchable }),
                (0, true, Standing::Reference) => {
                    Some(Reason::CheapestListed { of: matching.len() })
                }
                _ => None,
            };
            Recommended {
                rank: at + 1,
                score: score(lowest.get(&standing).copied(), assessed.amount()),
                tag: match (at, standing) {
                    (0, Standing::Now) => Tag::Recommended,
                    (_, Standing::Now) => Tag::Alternative,
                    (_, Standing::Waits) => Tag::Waits,
                    (_, Standing::Reference) => Tag::Reference,
                },
                reasons: first.into_iter().chain(reasons(assessed)).collect(),
                assessed: assessed.clone(),
            }
        })
        .collect()
}

fn score(lowest: Option<Decimal>, amount: Option<Decimal>) -> Option<Decimal> {
    let ratio = lowest?.checked_mul(Decimal::ONE_HUNDRED)?.checked_div(amount?)?;
    Some(ratio.round_dp_with_strategy(1, RoundingStrategy::MidpointAwayFromZero))
}

/// What is to be said of an offer, wherever it is shown.
pub fn reasons(assessed: &Assessed) -> Vec<Reason> {
    let offer = &assessed.entry.offer;
    let mut reasons = Vec::new();
    match &assessed.not_launchable {
        None => reasons.push(Reason::Launchable { provider: offer.key.provider.to_string() }),
        Some(why) => reasons.push(Reason::NotLaunchable(why.clone())),
    }
    if offer.pretended {
        reasons.push(Reason::Pretended);
    }
    if offer.key.billing_model == BillingModel::Spot {
        reasons.push(match assessed.spot {
            Some(SpotStanding::Saves(percent)) => Reason::SpotSaves { percent },
            Some(SpotStanding::NoSaving) => Reason::SpotNoSaving,
            Some(SpotStanding::Above) => Reason::SpotAboveOnDemand,
            None => Reason::Spot,
        });
    }
    let known = offer.price.state.known();
    match (known, &assessed.converted) {
        (None, _) => reasons.push(Reason::PriceUnknown),
        (Some(price), None) => {
            reasons.push(Reason::NoRate { currency: price.currency.code().to_owned() });
        }
        (Some(price), Some(converted)) => {
            if let (true, Some(rate)) = (converted.stale, &converted.rate) {
                let (date, age_days) = (rate.date.to_string(), converted.age_days);
                reasons.push(Reason::OldRate { date, age_days });
            }
            if assessed.entry.note == Some(Note::CurrencyAssumed) {
                let currency = price.currency.code().to_owned();
                reasons.push(Reason::CurrencyAssumed { currency });
            }
            if assessed.entry.note == Some(Note::FromPrice) {
                reasons.push(Reason::FromPrice);
            }
            if assessed.entry.read_at.is_none() {
                reasons.push(match offer.price.observed_at {
                    None => Reason::AgeUnknown,
                    Some(at) => {
                        let date = at.to_zoned_datetime(TimeZone::UTC).date().to_string();
                        Reason::PriceOf { date }
                    }
                });
            }
        }
    }
    debug_assert!(assessed.converted.as_ref().is_none_or(|c| c.money.currency == SHOWN));
    reasons
}
