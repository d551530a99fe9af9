//! The price service: the current catalogue, swapped as a whole, and the questions it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::SignedDuration;
use runwhere_model::offer::Stock;
use runwhere_model::{
    BillingModel, GpuModel, GpuModelId, Lang, OfferCode, OfferKey, OfferSheet, PriceState,
    ProviderId,
};
use runwhere_providers::Clock;

use crate::catalogue::{Assessed, Audience, Catalogue, DEFAULT_SHEET_MAX_AGE, Entry, Parts};
use crate::codes::CodeBook;
use crate::fx::FxTable;
use crate::quote::{Query, Quote};
use crate::request::{ListRequest, MAX_LIMIT, Problem, RequestError};
use crate::resolve::ResolveError;
use crate::rows::{
    OfferPage, OfferRow, QuoteReply, RecommendationRow, SummaryReply, SummaryRow, four_decimals,
    per_gpu, plain,
};
use crate::suggest::suggest;

/// How a price service is set up.
#[derive(Clone, Debug)]
pub struct PriceOptions {
    /// Exchange rates.
    pub fx: FxTable,
    /// How old a sheet may be before its offers launch nothing.
    pub sheet_max_age: SignedDuration,
    /// Whether the bundled prices are shown.
    pub bundled: bool,
    /// Codes assigned before, to be kept.
    pub codes: CodeBook,
}

impl Default for PriceOptions {
    fn default() -> Self {
        Self {
            fx: FxTable::bundled(),
            sheet_max_age: DEFAULT_SHEET_MAX_AGE,
            bundled: true,
            codes: CodeBook::new(),
        }
    }
}

#[derive(Debug)]
struct Making {
    parts: Parts,
    codes: CodeBook,
}

/// Answers price questions from an immutable catalogue. A new sheet makes a new catalogue; who
/// holds the old one keeps it.
#[derive(Debug)]
pub struct PriceService {
    clock: Arc<dyn Clock>,
    making: Mutex<Making>,
    current: RwLock<Arc<Catalogue>>,
}

impl PriceService {
    /// A service without connected providers.
    pub fn new(clock: Arc<dyn Clock>, options: PriceOptions) -> Self {
        let parts = Parts {
            sheets: BTreeMap::new(),
            fx: options.fx,
            sheet_max_age: options.sheet_max_age,
            bundled: options.bundled,
        };
        let mut codes = options.codes;
        let catalogue = Arc::new(Catalogue::build(&parts, &mut codes));
        Self { clock, making: Mutex::new(Making { parts, codes }), current: RwLock::new(catalogue) }
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The catalogue of now. Several questions to one catalogue give answers that fit together.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a provider's new sheet. A complete one replaces the last; of an incomplete one only
    /// the offers it has are replaced, so that a page that failed takes nothing away.
    pub fn replace_sheet(&self, provider: ProviderId, mut sheet: OfferSheet) {
        self.change(|parts| {
            if let (false, Some(old)) = (sheet.complete, parts.sheets.get(&provider)) {
                let seen: BTreeSet<OfferKey> =
                    sheet.offers.iter().map(|offer| offer.key.clone()).collect();
                for unseen in old.offers.iter().filter(|offer| !seen.contains(&offer.key)) {
                    let mut unseen = unseen.clone();
                    // What was not seen again is as old as it was.
                    unseen.price.observed_at.get_or_insert(old.observed_at);
                    sheet.offers.push(unseen);
                }
            }
            parts.sheets.insert(provider, sheet);
        });
    }

    /// Forgets a provider that is no longer connected. Its codes stay taken.
    pub fn remove_sheet(&self, provider: &ProviderId) {
        self.change(|parts| {
            parts.sheets.remove(provider);
        });
    }

    /// Takes new exchange rates.
    pub fn replace_fx(&self, fx: FxTable) {
        self.change(|parts| parts.fx = fx);
    }

    /// All codes ever assigned, for keeping.
    pub fn codes(&self) -> Vec<(OfferKey, OfferCode)> {
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        making.codes.entries().map(|(key, code)| (key.clone(), code)).collect()
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let Making { parts, codes } = &mut *making;
        change(parts);
        let catalogue = Arc::new(Catalogue::build(parts, codes));
        for (provider, row) in catalogue.rejected() {
            tracing::debug!(%provider, row = row.row, reason = row.reason, "offer row not usable");
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = catalogue;
    }

    /// The offer that a key or code names, with what holds of it now.
    pub fn resolve(&self, text: &str) -> Result<Assessed, ResolveError> {
        let catalogue = self.catalogue();
        let entry = catalogue.resolve(text)?;
        Ok(catalogue.assess(entry, self.now()))
    }

    /// What is said of an offer, as a row.
    pub fn row(&self, entry: &Arc<Entry>, lang: Lang) -> OfferRow {
        let now = self.now();
        OfferRow::new(&self.catalogue().assess(entry, now), now, lang)
    }

    /// Answers a question.
    pub fn quote(&self, query: &Query) -> Quote {
        self.catalogue().quote(query, self.now())
    }

    /// Answers a question in words. A model's name that nothing has gives no recommendations but
    /// suggestions.
    pub fn quote_named(&self, gpu_model: Option<&str>, query: Query, lang: Lang) -> QuoteReply {
        let gpu = match gpu_model.map(|name| (name, GpuModel::resolve(name))) {
            None => None,
            Some((_, Some(model))) => Some(model.id),
            Some((name, None)) => {
                return QuoteReply {
                    quote_id: None,
                    snapshot_id: self.catalogue().snapshot_id().to_owned(),
                    as_of: self.now(),
                    recommendations: Vec::new(),
                    matching: 0,
                    rejected: BTreeMap::new(),
                    suggestions: suggest(name),
                };
            }
        };
        QuoteReply::new(&self.quote(&Query { gpu, ..query }), lang)
    }

    /// The best offer of each model, best first.
    pub fn recommend_across(&self, query: Query, lang: Lang) -> Vec<RecommendationRow> {
        self.quote_named(None, query, lang).recommendations
    }

    /// One page of offers, in the order of quotes: launchable first, then by price.
    pub fn list(
        &self,
        request: &ListRequest,
        audience: Audience,
        lang: Lang,
    ) -> Result<OfferPage, RequestError> {
        if request.limit == 0 || request.limit > MAX_LIMIT {
            let max = MAX_LIMIT as u64;
            return Err(RequestError::new("limit", Problem::Whole { min: 1, max }));
        }
        let (catalogue, now) = (self.catalogue(), self.now());
        let wanted = request.gpu_model.as_deref().map(Wanted::of);
        let mut found: Vec<Assessed> = catalogue
            .entries()
            .iter()
            .filter(|entry| Catalogue::visible(entry, audience))
            .filter(|entry| wanted.as_ref().is_none_or(|wanted| wanted.is(entry)))
            .filter(|entry| matches(entry, request))
            .map(|entry| catalogue.assess(entry, now))
            .filter(|assessed| !request.launchable_only || assessed.launchable())
            .collect();
        found.sort_by(Assessed::order);
        let unknown = found.is_empty() && matches!(wanted, Some(Wanted::Raw(_)));
        let page = found.iter().skip(request.offset).take(request.limit);
        Ok(OfferPage {
            items: page.map(|assessed| OfferRow::new(assessed, now, lang)).collect(),
            total: found.len(),
            limit: request.limit,
            offset: request.offset,
            snapshot_id: catalogue.snapshot_id().to_owned(),
            suggestions: match (&request.gpu_model, unknown) {
                (Some(name), true) => suggest(name),
                _ => Vec::new(),
            },
        })
    }

    /// All models that have offers, with the range of their prices.
    pub fn summary(&self, audience: Audience) -> SummaryReply {
        let (catalogue, now) = (self.catalogue(), self.now());
        let mut groups: BTreeMap<(usize, String), Vec<Assessed>> = BTreeMap::new();
        let place = |gpu: GpuModelId| GpuModel::all().iter().position(|model| model.id == gpu);
        let places: BTreeMap<GpuModelId, usize> =
            catalogue.gpus().filter_map(|gpu| Some((gpu, place(gpu)?))).collect();
        for entry in catalogue.entries().iter().filter(|e| Catalogue::visible(e, audience)) {
            if entry.offer.price.state == PriceState::NotOffered {
                continue;
            }
            let group = match entry.offer.gpu {
                Some(gpu) => (places.get(&gpu).copied().unwrap_or(usize::MAX), String::new()),
                None => (usize::MAX, entry.offer.gpu_raw.clone()),
            };
            groups.entry(group).or_default().push(catalogue.assess(entry, now));
        }
        let oldest =
            catalogue.connected().values().copied().chain(catalogue.newest_bundled()).min();
        SummaryReply {
            items: groups.values().map(|group| summary_row(group)).collect(),
            last_updated: oldest,
            staleness_seconds: oldest.map(|at| now.duration_since(at).as_secs().max(0)),
            snapshot_id: catalogue.snapshot_id().to_owned(),
        }
    }
}

enum Wanted {
    Model(GpuModelId),
    Raw(String),
}

impl Wanted {
    fn of(name: &str) -> Self {
        match GpuModel::resolve(name) {
            Some(model) => Self::Model(model.id),
            None => Self::Raw(name.trim().to_lowercase()),
        }
    }

    fn is(&self, entry: &Entry) -> bool {
        match self {
            Self::Model(gpu) => entry.offer.gpu == Some(*gpu),
            // A name that nothing here knows may still be what a provider calls its GPUs.
            Self::Raw(name) => {
                entry.offer.gpu.is_none() && entry.offer.gpu_raw.to_lowercase() == *name
            }
        }
    }
}

fn matches(entry: &Entry, request: &ListRequest) -> bool {
    let (offer, key) = (&entry.offer, &entry.offer.key);
    // What a job can wait for can be had.
    let gone = offer.stock == Stock::SoldOut && !offer.launchable;
    let active = !gone && offer.price.state != PriceState::NotOffered;
    active == request.active
        && request.provider.as_deref().is_none_or(|provider| provider == key.provider.as_str())
        && request.billing_model.is_none_or(|billing_model| billing_model == key.billing_model)
        && (request.region.is_none() || request.region == key.region)
}

fn summary_row(group: &[Assessed]) -> SummaryRow {
    let gpu = group.first().and_then(|assessed| assessed.entry.offer.gpu);
    let raw = group.first().map(|assessed| plain(&assessed.entry.offer.gpu_raw));
    let offers = || group.iter().map(|assessed| &assessed.entry.offer);
    // A sixth of a GPU at a sixth of the price is not the cheapest GPU.
    let whole = || group.iter().filter(|a| a.entry.offer.gpu_count.as_whole().is_some());
    let providers: BTreeSet<_> = offers().map(|offer| &offer.key.provider).collect();
    let model = gpu.map(GpuModelId::model);
    SummaryRow {
        gpu_model: model.map_or_else(|| raw.unwrap_or_default(), |model| model.name.to_owned()),
        gpu_type: gpu,
        gpu_memory_gb: model.map(|model| model.memory_gib).filter(|memory| *memory > 0),
        min_hourly_price: whole().filter_map(Assessed::amount).min().map(four_decimals),
        max_hourly_price: whole().filter_map(Assessed::amount).max().map(four_decimals),
        min_hourly_price_per_gpu: whole().filter_map(per_gpu).min().map(four_decimals),
        provider_count: providers.len(),
        offer_count: group.len(),
        launchable_count: group.iter().filter(|assessed| assessed.launchable()).count(),
        has_spot: offers().any(|offer| offer.key.billing_model == BillingModel::Spot),
    }
}
