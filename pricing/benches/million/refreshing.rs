//! Questions while a source's 50,000 rows are read again and again, through everything that a server does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use runwhere_model::{
    GpuModel, Lang, OfferScope, OfferSheet, PriceState, ProviderError, ProviderId, SourceTerms,
};
use runwhere_pricing::{Outcome, Query, Refresher};
use runwhere_providers::{Clock, OfferSource, SystemClock};
use rust_decimal::Decimal;

use crate::figures::{Processor, below, median, quantile};
use crate::offers::{offer, provider, refresher};

const ROWS: usize = 50_000;
const ROUNDS: usize = 12;

/// Another price of every offer each time.
#[derive(Debug)]
struct Moving {
    id: ProviderId,
    round: AtomicUsize,
}

#[async_trait]
impl OfferSource for Moving {
    fn id(&self) -> &ProviderId {
        &self.id
    }

    async fn offers(&self, _: &OfferScope) -> Result<OfferSheet, ProviderError> {
        let round = self.round.fetch_add(1, Ordering::Relaxed);
        let id = self.id.clone();
        let made = tokio::task::spawn_blocking(move || {
            let offers = (0..ROWS).map(|n| {
                let mut offer = offer(&id, n);
                if let PriceState::Known { price } = &mut offer.price.state {
                    price.amount += Decimal::new(i64::try_from(round).unwrap_or(0), 4);
                }
                offer
            });
            OfferSheet::complete(offers.collect(), Vec::new(), SystemClock.now())
        });
        Ok(made.await.expect("made"))
    }

    fn terms(&self) -> SourceTerms {
        SourceTerms { readings_per_hour: 100_000, ..SourceTerms::default() }
    }
}

pub(crate) fn measure(folder: &Path) {
    let source = Arc::new(Moving { id: provider(0), round: AtomicUsize::new(0) });
    let id = source.id.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let refresher = refresher(&folder.join("refreshed"), vec![source]);
        refresher.refresh(&id).await.expect("a source");
        // The first of all writes its state down; later states are on the disk before they are seen.
        refresher.service().keep_state();
        let done = Arc::new(AtomicBool::new(false));
        let asking = {
            let (refresher, done) = (Arc::clone(&refresher), Arc::clone(&done));
            tokio::task::spawn_blocking(move || ask(&refresher, &done))
        };
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let outcome = refresher.refresh(&id).await.expect("a source");
            assert!(matches!(outcome, Outcome::Taken { changed: ROWS, .. }), "{outcome:?}");
            times.push(begun.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        let (mut quotes, mut alone) = asking.await.expect("asked");
        let count = quotes.len();
        println!("reading {ROWS} rows again, to the disk: {:.2?}", median(&mut times));
        println!("meanwhile {count} quotes: median {:.2?}", median(&mut quotes));
        let most = Duration::from_millis(1);
        below("quote during a refresh, p99", quantile(&mut quotes, 990), most);
        let what = "the same without waiting for a processor, p99";
        below(what, quantile(&mut alone, 990), most);
        // Beyond the last thousandth: what a disk or a lock would show first.
        let [whole, alone] = [quotes, alone].map(|times| times.last().copied().unwrap_or_default());
        println!("the longest {whole:.2?}, without waiting for a processor {alone:.2?}");
    });
}

/// How long each took, and how long without the time in which other threads had the processors.
fn ask(refresher: &Refresher, done: &AtomicBool) -> (Vec<Duration>, Vec<Duration>) {
    let (mut times, mut alone) = (Vec::new(), Vec::new());
    let processor = Processor::of_thread();
    for n in 0usize.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let models = GpuModel::all();
        let name = models[n % models.len()].id;
        let query = Query::new(None, [1, 2, 4, 8][n % 4]);
        let ((_, waited), begun) = (processor.read(), Instant::now());
        // As a route answers: the first of a new state writes it down.
        let reply = refresher.service().quote_named(Some(name.as_str()), query, Lang::En);
        let took = begun.elapsed();
        times.push(took);
        alone.push(took.saturating_sub(processor.read().1 - waited));
        std::hint::black_box(reply.matching);
    }
    (times, alone)
}
