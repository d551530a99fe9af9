//! Lists of offers: every filter there is, in the order of quotes.

use std::cmp::Reverse;

use jiff::Timestamp;
use runwhere_model::{Currency, GpuModel, GpuModelId, Money, PriceKind};
use rust_decimal::Decimal;

use crate::catalogue::{Audience, Catalogue, SHOWN, Standing};
use crate::directory::model_place;
use crate::request::ListRequest;
use crate::select::row_stale;
use crate::shard::{PriceStateTag, Row, Shard};

/// A row of a list, before it is put into words.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    shard: &'a Shard,
    at: u32,
    /// The exact price in the shown currency.
    pub amount: Option<Decimal>,
    /// What a launch would come to.
    pub standing: Standing,
    /// The price is older than prices of its kind may be.
    pub stale: bool,
}

impl<'a> Listed<'a> {
    /// The row's shard and place.
    pub(crate) fn place(&self) -> (&'a Shard, u32) {
        (self.shard, self.at)
    }

    /// The provider.
    pub fn provider(&self) -> &'a str {
        self.shard.provider().as_str()
    }

    /// The region; empty where none applies.
    pub fn region(&self) -> &'a str {
        self.shard.text(self.row().region)
    }

    /// The cloud's own type.
    pub fn instance_type(&self) -> &'a str {
        self.shard.text(self.row().instance_type)
    }

    /// The original price per hour and its currency.
    pub fn price(&self) -> Option<(Decimal, Currency)> {
        self.row().known().map(|price| (price.amount, price.currency))
    }

    fn row(&self) -> &'a Row {
        self.shard.row(self.at)
    }

    fn rank(&self, number: usize) -> impl Ord + use<> {
        let row = self.row();
        (
            (self.standing, row.count.as_whole().is_none(), self.stale, self.amount.is_none()),
            self.amount,
            (
                row.billing,
                Reverse(row.vcpus.wrapping_add(1)),
                Reverse(row.memory_mib.wrapping_add(1)),
            ),
            (number, self.at),
        )
    }
}

pub(crate) enum Wanted {
    Any,
    Models(Vec<GpuModelId>),
    /// A name that nothing here knows, in lower case.
    Raw(String),
}

impl Wanted {
    pub(crate) fn of(name: Option<&str>) -> Self {
        let Some(name) = name else { return Self::Any };
        let bare = name.trim().to_lowercase();
        // A bare family name means all its members, unless one is pinned by its full name.
        if FAMILIES.contains(&bare.as_str()) {
            let member = |model: &&GpuModel| {
                let rest = model.id.as_str().strip_prefix(&bare);
                rest.is_some_and(|rest| rest.starts_with('-'))
            };
            return Self::Models(GpuModel::all().iter().filter(member).map(|m| m.id).collect());
        }
        match GpuModel::resolve(name) {
            Some(model) => Self::Models(vec![model.id]),
            None => Self::Raw(bare),
        }
    }
}

/// Names that several models share.
const FAMILIES: [&str; 5] = ["h100", "a100", "v100", "gh200", "rtx-4090"];

struct Rates<'a> {
    catalogue: &'a Catalogue,
    now: Timestamp,
    known: Vec<(Currency, Option<Decimal>)>,
}

impl Rates<'_> {
    fn of(&mut self, from: Currency) -> Option<Decimal> {
        if let Some((_, rate)) = self.known.iter().find(|(known, _)| *known == from) {
            return *rate;
        }
        let one = Money::new(Decimal::ONE, from);
        let rate = self.catalogue.fx().convert(one, SHOWN, self.now).ok();
        let rate = rate.map(|converted| converted.money.amount);
        self.known.push((from, rate));
        rate
    }
}

impl Catalogue {
    /// All offers that a request fits, in the order of quotes; its limit and offset play no part.
    pub fn find(
        &self,
        request: &ListRequest,
        audience: Audience,
        now: Timestamp,
    ) -> Vec<Listed<'_>> {
        let wanted = Wanted::of(request.gpu_model.as_deref());
        let mut rates = Rates { catalogue: self, now, known: Vec::new() };
        let mut found: Vec<(usize, Listed<'_>)> = Vec::new();
        for (number, shard) in self.shards().iter().enumerate() {
            if request.provider.as_deref().is_some_and(|id| id != shard.provider().as_str()) {
                continue;
            }
            let mut take = |at: u32| {
                if let Some(listed) = judge(shard, at, request, &wanted, audience, &mut rates) {
                    found.push((number, listed));
                }
            };
            match wanted {
                Wanted::Models(ref gpus) => {
                    for gpu in gpus {
                        let place = model_place(*gpu);
                        for account in [false, true] {
                            let (_, rows) = shard.index().of_gpu(account, place);
                            rows.iter().copied().for_each(&mut take);
                        }
                    }
                }
                Wanted::Any | Wanted::Raw(_) => (0..).take(shard.len()).for_each(&mut take),
            }
        }
        found.sort_by_cached_key(|(number, listed)| listed.rank(*number));
        found.into_iter().map(|(_, listed)| listed).collect()
    }
}

fn judge<'a>(
    shard: &'a Shard,
    at: u32,
    request: &ListRequest,
    wanted: &Wanted,
    audience: Audience,
    rates: &mut Rates<'_>,
) -> Option<Listed<'a>> {
    let row = shard.row(at);
    let visible = audience == Audience::Member || row.kind != PriceKind::Account;
    // A name that nothing here knows may still be what a provider calls its GPUs.
    let named = match wanted {
        // The rows of models are taken from the index.
        Wanted::Any | Wanted::Models(_) => true,
        Wanted::Raw(name) => row.gpu().is_none() && shard.text(row.gpu_raw).to_lowercase() == *name,
    };
    // What a job can wait for can be had.
    let active = !row.gone() && row.state != PriceStateTag::NotOffered;
    let form = match request.billing_model {
        Some(billing) => row.billing == billing,
        None => request.all_forms || row.billing.is_standard(),
    };
    let place = |wanted: &Option<String>, symbol| {
        wanted.as_deref().is_none_or(|wanted| shard.text(symbol) == wanted)
    };
    let fits = visible
        && named
        && form
        && active == request.active
        && place(&request.region, row.region)
        && place(&request.zone, row.zone)
        && request.gpu_count.is_none_or(|count| row.count == count)
        && request.stock.is_none_or(|stock| row.stock == stock)
        && request
            .min_memory_mib
            .is_none_or(|least| row.memory_mib != u64::MAX && row.memory_mib >= least)
        && request.country.as_deref().is_none_or(|country| {
            let stated = shard.detail(row).and_then(|details| details.country.as_deref());
            stated.is_some_and(|stated| stated.eq_ignore_ascii_case(country))
        });
    if !fits {
        return None;
    }
    let rate = row.known().and_then(|price| rates.of(price.currency));
    let amount = rate.and_then(|rate| row.amount.checked_mul(rate));
    if request.max_price.is_some_and(|most| amount.is_none_or(|amount| amount > most)) {
        return None;
    }
    let observed = if row.bundled { shard.observed(row) } else { shard.read_at(row) };
    if let Some(most) = request.max_age_seconds {
        let age = observed.map(|at| rates.now.duration_since(at).as_secs());
        if age.is_none_or(|age| age > most) {
            return None;
        }
    }
    let stale = row_stale(shard, row, rates.now);
    if stale && request.fresh_only {
        return None;
    }
    let standing = if row.bundled || !row.launchable || stale {
        Standing::Reference
    } else if row.stock == runwhere_model::Stock::SoldOut {
        Standing::Waits
    } else {
        Standing::Now
    };
    if request.launchable_only && standing != Standing::Now {
        return None;
    }
    Some(Listed { shard, at, amount, standing, stale })
}
