//! The price service: the current catalogue, swapped as a whole, and the questions it answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use jiff::SignedDuration;
use runwhere_model::{GpuModel, GpuModelId, Lang, OfferCode, OfferKey, OfferSheet, ProviderId};
use runwhere_providers::Clock;

use crate::canonical::QuoteRef;
use crate::catalogue::{
    Assessed, Audience, Catalogue, DEFAULT_SHEET_MAX_AGE, Entry, Trouble, bundled_of,
};
use crate::codes::CodeBook;
use crate::fx::FxTable;
use crate::history::Change;
use crate::keep::{CURRENT, Kept, PriceFolder};
use crate::listing::Wanted;
use crate::quote::{Query, Quote};
use crate::refresh::{SourceState, Waiting};
use crate::request::{ListRequest, MAX_LIMIT, Problem, RequestError};
use crate::resolve::ResolveError;
use crate::rows::{OfferPage, OfferRow, QuoteReply, RecommendationRow, SummaryReply};
use crate::shard::{Limits, Shard, ShardParts};
use crate::suggest::suggest;

/// How a price service is set up.
#[derive(Debug)]
pub struct PriceOptions {
    /// Exchange rates.
    pub fx: FxTable,
    /// How old a sheet may be before its offers launch nothing.
    pub sheet_max_age: SignedDuration,
    /// Whether the bundled prices are shown.
    pub bundled: bool,
    /// Codes assigned before, to be kept.
    pub codes: CodeBook,
    /// Where prices are kept; without, nothing outlives the process.
    pub folder: Option<PriceFolder>,
}

impl Default for PriceOptions {
    fn default() -> Self {
        Self {
            fx: FxTable::bundled(),
            sheet_max_age: DEFAULT_SHEET_MAX_AGE,
            bundled: true,
            codes: CodeBook::new(),
            folder: None,
        }
    }
}

/// What changes when sheets and rates come; one at a time.
#[derive(Debug)]
struct Making {
    codes: CodeBook,
    bundled: bool,
    limits: Limits,
}

/// Answers price questions from an immutable catalogue. A new sheet makes a new catalogue; who
/// holds the old one keeps it.
#[derive(Debug)]
pub struct PriceService {
    clock: Arc<dyn Clock>,
    making: Mutex<Making>,
    /// Read for each question: by all threads at once, without a count or a lock that they would pass around.
    current: ArcSwap<Catalogue>,
    folder: Option<PriceFolder>,
    kept_sources: BTreeMap<ProviderId, SourceState>,
    damaged: Vec<String>,
    /// The last states, newest first, for quotes that are answered again.
    recent: Mutex<VecDeque<Arc<Catalogue>>>,
    /// The states that were kept for quotes last.
    kept_states: ArcSwap<[String; 2]>,
    /// Somebody was quoted from the present state, or one like it.
    quoted: AtomicBool,
    /// One keeps a state at a time.
    keeping: Mutex<()>,
}

/// States that are held in memory for quotes.
const RECENT: usize = 4;

impl PriceService {
    /// A service without connected providers; what the folder keeps is served at once.
    pub fn new(clock: Arc<dyn Clock>, options: PriceOptions) -> Self {
        let mut codes = options.codes;
        let kept = options.folder.as_ref().map_or_else(Kept::default, |folder| {
            folder.load().unwrap_or_else(|error| {
                tracing::warn!(%error, "The kept prices cannot be read; they are read again from their sources");
                Kept { damaged: vec![format!("{CURRENT} ({error})")], ..Kept::default() }
            })
        });
        for (key, code) in kept.codes.entries() {
            codes.keep(key.clone(), code);
        }
        let mut catalogue = Catalogue::empty(options.fx, options.bundled, &mut codes);
        for shard in kept.shards {
            catalogue.put(shard);
        }
        for (provider, trouble) in kept.troubles {
            catalogue.set_trouble(&provider, Some(trouble));
        }
        catalogue.set_book(codes.clone());
        let limits = Limits::of(options.sheet_max_age);
        let making = Making { codes, bundled: options.bundled, limits };
        Self {
            clock,
            making: Mutex::new(making),
            current: ArcSwap::from_pointee(catalogue),
            folder: options.folder,
            kept_sources: kept.sources,
            damaged: kept.damaged,
            recent: Mutex::default(),
            kept_states: ArcSwap::default(),
            quoted: AtomicBool::new(false),
            keeping: Mutex::default(),
        }
    }

    /// What the folder held at the start and could not be read: providers, or what was wrong with it all.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Prices that waited for a decision when the folder was read.
    pub fn kept_waiting(&self) -> Vec<Waiting> {
        Waiting::all(&self.kept_sources)
    }

    pub(crate) fn kept_sources(&self) -> BTreeMap<ProviderId, SourceState> {
        self.kept_sources.clone()
    }

    /// Keeps the present state on disk, where there is a folder, together with what other processes put there.
    pub(crate) fn save(
        &self,
        sources: &Mutex<BTreeMap<ProviderId, SourceState>>,
    ) -> std::io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let _alone = folder.alone()?;
        self.take_news(folder, sources)?;
        let sources = sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        folder.save(&self.catalogue(), &sources, self.codes())
    }

    /// Takes over what other processes put into the folder (imports, decisions, readings), where they did.
    pub(crate) fn look(&self, sources: &Mutex<BTreeMap<ProviderId, SourceState>>) {
        let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_new()) else { return };
        if let Err(error) = self.take_news(folder, sources) {
            tracing::warn!(%error, "The prices of other processes cannot be read");
        }
    }

    fn take_news(
        &self,
        folder: &PriceFolder,
        sources: &Mutex<BTreeMap<ProviderId, SourceState>>,
    ) -> std::io::Result<()> {
        let Some(mut news) = folder.news()? else { return Ok(()) };
        {
            let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
            for (provider, theirs, seen) in std::mem::take(&mut news.sources) {
                if let Some(state) = sources.get_mut(&provider) {
                    state.take_over(theirs, &seen);
                }
            }
            // What an account or an own machine offers is not offered without it.
            news.shards.retain(|shard| !shard.is_own() || sources.contains_key(shard.provider()));
        }
        self.change(|catalogue, making| {
            for (key, code) in news.codes.entries() {
                making.codes.keep(key.clone(), code);
            }
            for shard in news.shards {
                let ours = catalogue.shard(shard.provider()).and_then(|ours| ours.observed_at());
                if ours < shard.observed_at() {
                    let trouble = news.troubles.remove(shard.provider());
                    catalogue.set_trouble(&shard.provider().clone(), trouble);
                    catalogue.put(shard);
                }
            }
        });
        Ok(())
    }

    pub(crate) fn note_changes(&self, provider: &ProviderId, changes: &[Change]) {
        let Some(folder) = &self.folder else { return };
        if let Err(error) = folder.note_changes(provider, changes) {
            tracing::warn!(%provider, %error, "Price changes could not be kept on disk");
        }
    }

    /// The changes of a provider's prices, oldest first; none without a folder.
    pub fn changes(&self, provider: &ProviderId) -> std::io::Result<Vec<Change>> {
        self.folder.as_ref().map_or_else(|| Ok(Vec::new()), |folder| folder.changes(provider))
    }

    /// Ids of states that are kept, newest first, with the times at which they were kept.
    pub fn states(&self) -> std::io::Result<Vec<(String, jiff::Timestamp)>> {
        self.folder.as_ref().map_or_else(|| Ok(Vec::new()), PriceFolder::states)
    }

    /// A state by its id: the present one, one of the last, or one that is kept on disk.
    pub fn state(&self, id: &str) -> Option<Arc<Catalogue>> {
        let current = self.catalogue();
        if current.state_id() == id {
            return Some(current);
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = recent.iter().find(|catalogue| catalogue.state_id() == id) {
            return Some(Arc::clone(found));
        }
        drop(recent);
        let found = self.folder.as_ref()?.state(id);
        let found = found.unwrap_or_else(|error| {
            tracing::warn!(%error, "A kept state of prices cannot be read");
            None
        });
        let found = Arc::new(found?);
        self.remember(Arc::clone(&found));
        Some(found)
    }

    fn remember(&self, catalogue: Arc<Catalogue>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_front(catalogue);
        // Many offers take a while to forget: not while others wait.
        let held = recent.len().min(RECENT);
        let forgotten = recent.split_off(held);
        drop(recent);
        drop(forgotten);
    }

    /// Keeps a state that a quote is given for, so that the quote can be answered again after a
    /// restart. Once per state; works the disk where [`Self::is_kept`] says no.
    pub(crate) fn keep_for_quotes(&self, catalogue: &Catalogue) {
        if !self.quoted.load(Ordering::Relaxed) {
            self.quoted.store(true, Ordering::Relaxed);
        }
        self.keep(catalogue);
    }

    fn keep(&self, catalogue: &Catalogue) {
        if self.is_kept(catalogue) {
            return;
        }
        let Some(folder) = &self.folder else { return };
        let one = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_kept(catalogue) {
            return;
        }
        match folder.save_state(catalogue) {
            Ok(()) => {
                let [last, _] = self.kept_states.load().as_ref().clone();
                self.kept_states.store(Arc::new([catalogue.state_id().to_owned(), last]));
            }
            Err(error) => {
                tracing::warn!(%error, "A quote cannot be answered again after a restart")
            }
        }
        drop(one);
    }

    /// Whether quotes of a state can be answered without a disk.
    pub(crate) fn is_kept(&self, catalogue: &Catalogue) -> bool {
        self.folder.is_none() || self.kept_states.load().iter().any(|id| id == catalogue.state_id())
    }

    /// Keeps the present state on disk, so that later prices can be compared with it.
    pub fn keep_state(&self) {
        self.keep_for_quotes(&self.catalogue());
    }

    /// Answers a quote again, as it was answered; `None` when its state is no longer kept.
    pub fn replay(&self, quote: &QuoteRef) -> Option<Quote> {
        Some(self.state(&quote.state_id)?.quote(&quote.query, quote.as_of))
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The catalogue of now. Several questions to one catalogue give answers that fit together.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }

    /// The current catalogue, for one question.
    pub(crate) fn present(&self) -> Guard<Arc<Catalogue>> {
        self.current.load()
    }

    /// Takes a provider's new sheet. A complete one replaces the last; of an incomplete one only
    /// the offers it has are replaced, so that a page that failed takes nothing away. "Unchanged"
    /// confirms the last.
    pub fn replace_sheet(&self, provider: ProviderId, sheet: OfferSheet) {
        self.take_sheet(&provider, sheet, None, None);
    }

    /// As [`Self::replace_sheet`], with how long its prices hold and what is wrong with the source.
    pub(crate) fn take_sheet(
        &self,
        provider: &ProviderId,
        mut sheet: OfferSheet,
        limits: Option<Limits>,
        trouble: Option<Trouble>,
    ) {
        self.change(|catalogue, making| {
            let old = catalogue.shard(provider).filter(|shard| shard.is_live()).cloned();
            let shard = match old {
                Some(old) if sheet.unchanged => old.confirmed(sheet.observed_at, sheet.validator),
                old => {
                    if let (false, Some(old)) = (sheet.complete, &old) {
                        keep_unseen(&mut sheet, old);
                    }
                    let limits = limits.unwrap_or(making.limits);
                    let bundled = making.bundled;
                    let shard = catalogue.shard_of_sheet(
                        provider,
                        sheet,
                        limits,
                        bundled,
                        &mut making.codes,
                    );
                    if let Some(old) = &old {
                        retire(old, &shard, &mut making.codes);
                    }
                    shard
                }
            };
            // On disk before anybody is quoted from it: the first quote then has little to write.
            if let Some(Err(error)) = self.folder.as_ref().map(|folder| folder.hold_shard(&shard)) {
                tracing::warn!(%provider, %error, "Prices could not be kept on disk");
            }
            catalogue.put(Arc::new(shard));
            catalogue.set_trouble(provider, trouble);
        });
        if let Some(shard) = self.catalogue().shard(provider) {
            for row in shard.rejected() {
                tracing::debug!(%provider, row = row.row, reason = row.reason, "offer row not usable");
            }
        }
    }

    /// Says what is wrong with a source, or that nothing is.
    pub(crate) fn set_trouble(&self, provider: &ProviderId, trouble: Option<Trouble>) {
        if self.catalogue().troubles().get(provider) != trouble.as_ref() {
            self.change(|catalogue, _| catalogue.set_trouble(provider, trouble));
        }
    }

    /// Forgets a provider that is no longer connected. Its codes stay taken.
    pub fn remove_sheet(&self, provider: &ProviderId) {
        self.change(|catalogue, making| {
            if let Some(old) = catalogue.shard(provider).cloned() {
                let mut parts = ShardParts::new(provider.clone());
                if making.bundled {
                    parts.bundled = bundled_of(provider);
                }
                let shard = Shard::build(parts, &mut making.codes, &|code, of, parts| {
                    catalogue.taken(code, of, parts)
                });
                retire(&old, &shard, &mut making.codes);
                catalogue.remove(provider);
                if !shard.is_empty() {
                    catalogue.put(Arc::new(shard));
                }
            }
        });
    }

    /// Takes new exchange rates.
    pub fn replace_fx(&self, fx: FxTable) {
        self.change(|catalogue, _| catalogue.set_fx(fx));
    }

    /// All codes that must be kept although no offer shows them, for keeping.
    pub fn codes(&self) -> Vec<(OfferKey, OfferCode)> {
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        making.codes.entries().map(|(key, code)| (key.clone(), code)).collect()
    }

    fn change(&self, change: impl FnOnce(&mut Catalogue, &mut Making)) {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Shares every shard with the present one; questions go on with that.
        let mut catalogue = self.catalogue().as_ref().clone();
        let before = making.codes.len();
        change(&mut catalogue, &mut making);
        if making.codes.len() != before {
            catalogue.set_book(making.codes.clone());
        }
        let new = Arc::new(catalogue);
        // Where the present state is quoted from, the next one will be: on the disk before anybody sees it, so
        // that no quote waits for a disk.
        if self.quoted.swap(false, Ordering::Relaxed) {
            self.keep(&new);
        }
        let old = self.current.swap(new);
        self.remember(old);
    }

    /// The offer that a key or code names, with what holds of it now.
    pub fn resolve(&self, text: &str) -> Result<Assessed, ResolveError> {
        let catalogue = self.catalogue();
        let entry = catalogue.resolve(text)?;
        Ok(catalogue.assess(&entry, self.now()))
    }

    /// What is said of an offer, as a row.
    pub fn row(&self, entry: &Arc<Entry>, lang: Lang) -> OfferRow<'static> {
        let now = self.now();
        OfferRow::new(&self.catalogue().assess(entry, now), now, lang).into_owned()
    }

    /// Answers a question.
    pub fn quote(&self, query: &Query) -> Quote {
        self.catalogue().quote(query, self.now())
    }

    /// Answers a question in words. A model's name that nothing has gives no recommendations but
    /// suggestions.
    pub fn quote_named(
        &self,
        gpu_model: Option<&str>,
        query: Query,
        lang: Lang,
    ) -> QuoteReply<'static> {
        let catalogue = self.catalogue();
        self.keep_for_quotes(&catalogue);
        let now = self.quote_instant();
        match model_named(gpu_model) {
            Ok(gpu) => {
                let quote = catalogue.quote(&Query { gpu, ..query }, now);
                QuoteReply::new(&quote, lang).into_owned()
            }
            Err(meant) => QuoteReply::unknown_model(catalogue.snapshot_id(), now, meant),
        }
    }

    /// The instant of quotes given now: the whole second.
    pub(crate) fn quote_instant(&self) -> jiff::Timestamp {
        let now = self.now();
        jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    /// The best offer of each model, best first.
    pub fn recommend_across(&self, query: Query, lang: Lang) -> Vec<RecommendationRow<'static>> {
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
        let found = catalogue.find(request, audience, now);
        let page = found.iter().skip(request.offset).take(request.limit).map(|listed| {
            let (shard, at) = listed.place();
            OfferRow::new(&catalogue.assess(&shard.entry(at), now), now, lang).into_owned()
        });
        let raw = matches!(Wanted::of(request.gpu_model.as_deref()), Wanted::Raw(_));
        Ok(OfferPage {
            items: page.collect(),
            total: found.len(),
            limit: request.limit,
            offset: request.offset,
            snapshot_id: catalogue.snapshot_id().to_owned(),
            suggestions: match (&request.gpu_model, found.is_empty() && raw) {
                (Some(name), true) => suggest(name),
                _ => Vec::new(),
            },
        })
    }

    /// All models that have offers, with the range of their prices.
    pub fn summary(&self, audience: Audience) -> SummaryReply {
        crate::summary::summary(&self.catalogue(), audience, self.now())
    }
}

/// The model that a question names; what the name may have meant, where no model has it.
pub(crate) fn model_named(name: Option<&str>) -> Result<Option<GpuModelId>, Vec<GpuModelId>> {
    let Some(name) = name else { return Ok(None) };
    GpuModel::resolve(name).map(|model| Some(model.id)).ok_or_else(|| suggest(name))
}

/// Of an incomplete sheet: what was not seen again stays, as old as it was.
fn keep_unseen(sheet: &mut OfferSheet, old: &Shard) {
    let seen: BTreeSet<OfferKey> = sheet.offers.iter().map(|offer| offer.key.clone()).collect();
    sheet.offers.extend(old.stated().filter(|offer| !seen.contains(&offer.key)));
}

/// Keeps the codes of offers that are gone: an old code must not launch something else.
fn retire(old: &Shard, new: &Shard, codes: &mut CodeBook) {
    for row in old.rows() {
        if new.find_code(row.code).is_none() {
            codes.keep(old.key(row), row.code);
        }
    }
}
