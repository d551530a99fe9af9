//! A source that answers what it was told to, and a clock that a test moves.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{
    ErrorKind, Offer, OfferScope, OfferSheet, PriceKind, ProviderError, ProviderId, SourceTerms,
};
use runwhere_pricing::{PriceFolder, PriceOptions, PriceService, Refresher};
use runwhere_providers::{Clock, OfferSource};

use crate::support::{offer, provider, young};

/// A clock that a test moves.
#[derive(Debug)]
pub(crate) struct Hand(AtomicI64);

impl Hand {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(young().as_second())))
    }
    pub(crate) fn pass(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

#[async_trait::async_trait]
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).expect("a time")
    }
    async fn sleep_until(&self, _: Timestamp) {}
}

pub(crate) type Answer = Result<OfferSheet, ProviderError>;

/// A source that answers what it was told to.
#[derive(Debug)]
pub(crate) struct Told {
    id: ProviderId,
    answers: Mutex<Vec<Answer>>,
    asked: AtomicUsize,
    pub(crate) validators: Mutex<Vec<Option<String>>>,
    terms: SourceTerms,
}

impl Told {
    pub(crate) fn new(id: &str, answers: Vec<Answer>) -> Arc<Self> {
        let terms = SourceTerms { refresh: Duration::from_secs(600), ..SourceTerms::default() };
        Self::with(id, terms, answers)
    }
    pub(crate) fn with(id: &str, terms: SourceTerms, answers: Vec<Answer>) -> Arc<Self> {
        Arc::new(Self {
            id: provider(id),
            answers: Mutex::new(answers.into_iter().rev().collect()),
            asked: AtomicUsize::new(0),
            validators: Mutex::default(),
            terms,
        })
    }
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl OfferSource for Told {
    fn id(&self) -> &ProviderId {
        &self.id
    }
    async fn offers(&self, scope: &OfferScope) -> Answer {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.validators.lock().unwrap().push(scope.validator.clone());
        tokio::task::yield_now().await;
        self.answers.lock().unwrap().pop().expect("one more answer")
    }
    fn terms(&self) -> SourceTerms {
        self.terms.clone()
    }
}

pub(crate) fn down(reason: &str) -> ProviderError {
    ProviderError::new(provider("a"), "offers", ErrorKind::Transient)
        .because(std::io::Error::other(reason.to_owned()))
}

pub(crate) fn list(key: &str, price: &str) -> Offer {
    let mut offer = offer(key, "t4", "1", price);
    offer.price.kind = PriceKind::List;
    offer.price.observed_at = None;
    offer
}

pub(crate) fn many(provider: &str, billing: &str, count: usize) -> Vec<Offer> {
    (0..count).map(|at| list(&format!("{provider}/r/-/{billing}/t{at:03}"), "2 USD")).collect()
}

pub(crate) fn service(clock: &Arc<Hand>, folder: Option<&std::path::Path>) -> Arc<PriceService> {
    let folder = folder.map(|path| PriceFolder::open(path).expect("a folder"));
    let options = PriceOptions { bundled: false, folder, ..PriceOptions::default() };
    Arc::new(PriceService::new(clock.clone(), options))
}

pub(crate) fn refresher(
    clock: &Arc<Hand>,
    sources: &[&Arc<Told>],
    folder: Option<&std::path::Path>,
) -> Refresher {
    let sources = sources.iter().map(|source| Arc::clone(source) as Arc<dyn OfferSource>);
    Refresher::new(service(clock, folder), sources)
}

pub(crate) fn price_of(refresher: &Refresher, key: &str) -> String {
    let found = refresher.service().resolve(key).expect("an offer");
    let price = found.entry.offer.price.state.known();
    price.map_or_else(|| "unknown".to_owned(), |price| price.to_string())
}

pub(crate) fn status(refresher: &Refresher, id: &str) -> runwhere_pricing::SourceStatus {
    refresher.status().into_iter().find(|s| s.provider.as_str() == id).expect("a source")
}
