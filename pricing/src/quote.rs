//! Quotes: a deterministic answer to "which offer", with reasons, that can be replayed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runwhere_model::{BillingModel, GpuModelId, Mark, Offer, OfferDetails};
use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Serialize};

use crate::catalogue::{Assessed, Audience, Catalogue, SHOWN, SpotStanding, Standing};
use crate::reason::{Reason, Tag};
use crate::run_cost::{RunCost, RunPlan, billing_rule, run_cost};
use crate::select::{Found, Picked};

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

/// What decides between offers that all can be launched.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The price.
    #[default]
    Price,
    /// The price, spot prices raised by the share of machines that are taken back.
    Reclaim,
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
    /// Only offers of this zone.
    pub zone: Option<String>,
    /// Only offers whose source states this two-letter country.
    pub country: Option<String>,
    /// At least this much main memory, in MiB.
    pub min_memory_mib: Option<u64>,
    /// At least this many virtual CPUs.
    pub min_vcpus: Option<u32>,
    /// Only prices that are not older than prices of their kind may be.
    pub fresh_only: bool,
    /// What decides.
    pub policy: Policy,
    /// Regions that come before all others, the first before the second.
    pub prefer_regions: Vec<String>,
    /// How many hours it runs, exact: each answer says what the whole run costs.
    pub hours: Option<Decimal>,
    /// With how much disk, in GiB.
    pub disk_gib: Option<u32>,
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
            zone: None,
            country: None,
            min_memory_mib: None,
            min_vcpus: None,
            fresh_only: false,
            policy: Policy::Price,
            prefer_regions: Vec::new(),
            hours: None,
            disk_gib: None,
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
    /// Sold in another form than on demand or spot: a block in the future, a host, with Windows.
    Form,
    /// Another provider, region, zone or country than asked for.
    Place,
    /// A smaller machine than asked for.
    Size,
    /// The price is too old.
    Stale,
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
    /// What the whole run costs, where that was asked and is known.
    pub run_cost: Option<RunCost>,
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

/// An offer that was chosen, and what is said of it before anybody looks at the offer itself.
#[derive(Clone, Debug)]
pub(crate) struct Chosen<'a> {
    pub(crate) picked: Picked<'a>,
    /// From 1.
    pub(crate) rank: usize,
    pub(crate) score: Option<Decimal>,
    pub(crate) tag: Tag,
    /// What holds of it in this answer; what holds of the offer wherever it is shown comes after it.
    pub(crate) claims: Vec<Reason>,
}

/// What was decided.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    /// Best first.
    pub(crate) chosen: Vec<Chosen<'a>>,
    pub(crate) matching: usize,
    /// By class, in their order.
    pub(crate) rejected: Vec<(Rejection, usize)>,
}

impl Catalogue {
    /// Answers a question as of an instant. Deterministic: the order in which offers came to the
    /// catalogue plays no part.
    pub fn quote(&self, query: &Query, as_of: Timestamp) -> Quote {
        let answer = self.answer(query, as_of);
        // Rows and names lie scattered over the memory. Read in one go, the waits for it are one wait.
        let read = answer.chosen.iter().map(|chosen| {
            let Picked { shard, rank, .. } = chosen.picked;
            let row = shard.row(rank.at);
            (row, shard.text(row.instance_type))
        });
        let read: Vec<_> = read.collect();
        let recommended = answer.chosen.into_iter().zip(read).map(|(chosen, (row, name))| {
            let Picked { shard, rank, .. } = chosen.picked;
            let assessed = self.assess_of(Some(shard), shard.entry_of(row, name), as_of);
            debug_assert_eq!(
                (assessed.standing(), assessed.stale, assessed.amount()),
                (rank.standing, rank.stale, chosen.picked.amount),
            );
            let mut said = chosen.claims;
            said.extend(reasons(&assessed));
            Recommended {
                rank: chosen.rank,
                run_cost: run_of(query, &assessed.entry.offer),
                score: chosen.score,
                tag: chosen.tag,
                reasons: said,
                assessed,
            }
        });
        Quote {
            recommendations: recommended.collect(),
            id: crate::canonical::quote_id(self, query, as_of),
            snapshot_id: self.snapshot_id().to_owned(),
            as_of,
            matching: answer.matching,
            rejected: answer.rejected.into_iter().collect(),
        }
    }

    /// Decides a question as of an instant.
    pub(crate) fn answer(&self, query: &Query, as_of: Timestamp) -> Answer<'_> {
        let Some(gpu) = query.gpu else { return self.across_models(query, as_of) };
        let mut found = self.select(gpu, query, as_of);
        found.rejected.sort_unstable();
        Answer {
            chosen: self.choose(&found, query),
            matching: found.matching,
            rejected: found.rejected,
        }
    }

    fn across_models(&self, query: &Query, as_of: Timestamp) -> Answer<'_> {
        let (mut matching, mut rejected) = (0, BTreeMap::new());
        let mut best: Vec<Chosen<'_>> = Vec::new();
        let one = Query { top_n: 1, ..query.clone() };
        for gpu in self.gpus() {
            let found = self.select(gpu, &one, as_of);
            matching += found.matching;
            for (class, rows) in &found.rejected {
                *rejected.entry(*class).or_insert(0) += rows;
            }
            best.extend(self.choose(&found, &one));
        }
        best.sort_by_key(|chosen| chosen.picked.rank);
        best.truncate(query.top_n);
        for (at, chosen) in best.iter_mut().enumerate() {
            chosen.rank = at + 1;
            if at > 0 && chosen.tag == Tag::Recommended {
                chosen.tag = Tag::Alternative;
            }
        }
        Answer { chosen: best, matching, rejected: rejected.into_iter().collect() }
    }

    fn choose<'a>(&self, found: &Found<'a>, query: &Query) -> Vec<Chosen<'a>> {
        let chosen = found.best.iter().enumerate().map(|(at, picked)| {
            let Picked { shard, rank, amount } = *picked;
            let mut claims = Vec::new();
            if at == 0 && amount.is_some() {
                claims.extend(self.claim(found, query, picked));
            }
            if query.policy == Policy::Reclaim && rank.billing == BillingModel::Spot {
                let percent = reclaim_percent(shard.detail(shard.row(rank.at)));
                claims.push(Reason::ReclaimRisk { percent: percent.to_string() });
            }
            Chosen {
                picked: *picked,
                rank: at + 1,
                score: score(found.lowest[rank.standing as usize], amount),
                tag: match (at, rank.standing) {
                    (0, Standing::Now) => Tag::Recommended,
                    (_, Standing::Now) => Tag::Alternative,
                    (_, Standing::Waits) => Tag::Waits,
                    (_, Standing::Reference) => Tag::Reference,
                },
                claims,
            }
        });
        chosen.collect()
    }

    /// What may be said of the first: "the cheapest" only where its price is fresh and its source
    /// was read whole; and what could not be compared.
    fn claim(&self, found: &Found<'_>, query: &Query, first: &Picked<'_>) -> Vec<Reason> {
        let sound = !first.rank.stale && !self.troubles().contains_key(first.shard.provider());
        let mut said = Vec::new();
        if sound && query.policy == Policy::Price && query.prefer_regions.is_empty() {
            match first.rank.standing {
                Standing::Now => said.push(Reason::CheapestLaunchable { of: found.launchable }),
                Standing::Reference => said.push(Reason::CheapestListed { of: found.matching }),
                Standing::Waits => {}
            }
        }
        let missing: Vec<String> =
            self.troubles().keys().take(5).map(ToString::to_string).collect();
        if !missing.is_empty() {
            said.push(Reason::SourcesIncomplete { providers: missing.join(", ") });
        }
        said
    }
}

/// What the run of a question costs on an offer.
pub(crate) fn run_of(query: &Query, offer: &Offer) -> Option<RunCost> {
    let micros = query.hours?.checked_mul(Decimal::from(3_600_000_000u64))?.ceil().to_u64()?;
    let plan = RunPlan {
        running_micros: micros,
        starts: 1,
        disk_gib: query.disk_gib.unwrap_or(0),
        stopped_micros: 0,
    };
    run_cost(offer, &billing_rule(offer.key.provider.as_str()), &plan)?.ok()
}

/// Percent by which a spot price is raised for comparison where its provider states none.
pub const ASSUMED_RECLAIM_PERCENT: Decimal = Decimal::from_parts(20, 0, 0, false, 0);

/// Percent of like machines that are taken back: the provider's word, else an assumption.
pub(crate) fn reclaim_percent(details: Option<&OfferDetails>) -> Decimal {
    details.and_then(|details| details.reclaim_percent).unwrap_or(ASSUMED_RECLAIM_PERCENT)
}

fn score(lowest: Option<Decimal>, amount: Option<Decimal>) -> Option<Decimal> {
    let (lowest, amount) = (lowest?, amount?);
    if lowest == amount {
        return Some(Decimal::ONE_HUNDRED);
    }
    let tenths = tenths(lowest, amount).or_else(|| {
        let ratio = lowest.checked_mul(Decimal::ONE_THOUSAND)?.checked_div(amount)?;
        ratio.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero).to_i64()
    })?;
    Some(Decimal::new(tenths, 1))
}

/// A thousand times the ratio of two prices, rounded half up. Whole numbers divide many times faster than decimals;
/// `None` where they are too large for that.
fn tenths(lowest: Decimal, amount: Decimal) -> Option<i64> {
    let scale = lowest.scale().max(amount.scale());
    let whole = |price: Decimal| {
        let digits = u128::try_from(price.mantissa()).ok()?;
        digits.checked_mul(10u128.checked_pow(scale - price.scale())?)
    };
    let (lowest, amount) = (whole(lowest)?, whole(amount)?);
    let doubled = lowest.checked_mul(2000)?.checked_add(amount)?;
    i64::try_from(doubled.checked_div(amount.checked_mul(2)?)?).ok()
}

/// What is to be said of an offer, wherever it is shown.
pub fn reasons(assessed: &Assessed) -> Vec<Reason> {
    let offer = &assessed.entry.offer;
    let mut reasons = Vec::new();
    match &assessed.not_launchable {
        None => reasons.push(Reason::Launchable { provider: offer.key.provider.clone() }),
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
            if offer.marks.has(Mark::CurrencyAssumed) {
                let currency = price.currency.code().to_owned();
                reasons.push(Reason::CurrencyAssumed { currency });
            }
            if offer.marks.has(Mark::FromPrice) {
                reasons.push(Reason::FromPrice);
            }
            if offer.marks.has(Mark::Statistical) {
                reasons.push(Reason::Statistical);
            }
            if offer.marks.has(Mark::Floor) {
                reasons.push(Reason::Floor);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_score_is_the_ratio_to_half_a_tenth(
            lowest in 1i64..1_000_000_000_000, of_lowest in 0u32..=12,
            amount in 1i64..1_000_000_000_000, of_amount in 0u32..=12,
        ) {
            let lowest = Decimal::new(lowest, of_lowest);
            let amount = lowest + Decimal::new(amount, of_amount);
            let found = score(Some(lowest), Some(amount)).expect("a score");
            prop_assert_eq!(found.scale(), 1);
            // All of it has few enough digits to be exact.
            let off = (found * amount - lowest * Decimal::ONE_HUNDRED).abs();
            prop_assert!(off * Decimal::TWO <= amount * Decimal::new(1, 1), "{found}");
        }
    }

    #[test]
    fn prices_of_the_most_digits_have_scores() {
        let of = |lowest: &str, amount: &str| {
            let price = |text: &str| text.parse::<Decimal>().expect("a price");
            score(Some(price(lowest)), Some(price(amount))).map(|score| score.to_string())
        };
        let (least, most) = ("0.0000000000000000000000000001", "79228162514264337593543950335");
        assert_eq!(of(least, "0.0000000000000000000000000003").as_deref(), Some("33.3"));
        assert_eq!(of(least, most).as_deref(), Some("0.0"));
        assert_eq!(of("39614081257132168796771975168", most).as_deref(), Some("50.0"));
        assert_eq!(of("1.9995", "2").as_deref(), Some("100.0"), "rounded, not the lowest");
        assert_eq!(score(None, Some(Decimal::ONE)), None);
    }
}
