//! Our side of `against_gpuhunt.py`: the same rows, the same filters, every returned row read.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use runwhere_model::{BillingModel, Currency, GpuCount, GpuModel, Money, ProviderId};
use runwhere_pricing::{
    Audience, Catalogue, CodeBook, ImportOptions, ListRequest, Parts, Query, import,
};
use runwhere_providers::{Clock, SystemClock};
use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::figures::{Processor, median};

const ROUNDS: u32 = 3000;

/// `FOLDER GPU COUNT MAX_USD`; `-` for no ceiling. Prints one line of JSON.
pub(crate) fn child(words: &[String]) {
    let [folder, gpu, count, max] = words else { panic!("FOLDER GPU COUNT MAX_USD") };
    let now = SystemClock.now();
    let start = Instant::now();
    let (catalogue, rows) = catalogue(Path::new(folder), now);
    let loaded = start.elapsed();
    let count: u32 = count.parse().expect("a count");
    let max = max.parse::<Decimal>().ok().map(|usd| {
        let usd = Money::new(usd, Currency::USD);
        catalogue.fx().convert(usd, Currency::CNY, now).expect("a rate").money.amount
    });
    let request = ListRequest {
        gpu_model: Some(gpu.clone()),
        gpu_count: GpuCount::whole(count),
        billing_model: Some(BillingModel::OnDemand),
        max_price: max,
        ..ListRequest::default()
    };
    let mut listed = Vec::new();
    let (list, list_work) = timed(|| {
        listed = catalogue
            .find(&request, Audience::Public, now)
            .iter()
            .filter_map(|row| {
                black_box((row.provider(), row.instance_type(), row.price()?)).2.into()
            })
            .map(|(amount, _)| amount)
            .collect();
    });
    let mut query = Query::new(GpuModel::resolve(gpu).map(|model| model.id), count);
    (query.spot_allowed, query.max_hourly_price) = (false, max);
    let mut best = Vec::new();
    let (top, top_work) = timed(|| {
        let quote = catalogue.quote(&query, now);
        let prices = quote.recommendations.iter();
        best = prices.filter_map(|r| r.assessed.entry.offer.price.state.known()).collect();
    });
    let best: Vec<Value> = best.iter().map(|price| json!(price.amount.to_string())).collect();
    let answer = json!({
        "rows": rows, "load_us": micros(loaded), "list_us": micros(list), "top_us": micros(top),
        "list_work_us": micros(list_work), "top_work_us": micros(top_work),
        "listed": listed.len(), "best": best,
        "least": listed.iter().min().map(ToString::to_string),
        "most": listed.iter().max().map(ToString::to_string),
    });
    println!("{answer}");
}

fn micros(time: Duration) -> Value {
    json!(format!("{}.{:03}", time.as_micros(), time.as_nanos() % 1000))
}

/// The median of the time that passed, and the mean of the processor's: its clock is too coarse for one round.
fn timed(mut work: impl FnMut()) -> (Duration, Duration) {
    let processor = Processor::of_thread();
    let (before, _) = processor.read();
    let passed = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        work();
        begun.elapsed()
    });
    let mut passed: Vec<Duration> = passed.collect();
    let (after, _) = processor.read();
    (median(&mut passed), (after - before) / ROUNDS)
}

fn catalogue(folder: &Path, now: jiff::Timestamp) -> (Catalogue, usize) {
    let (mut sheets, mut rows) = (BTreeMap::new(), 0);
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|end| end != "csv") {
            continue;
        }
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let provider = ProviderId::new(name).ok();
        let options = ImportOptions { provider, ..ImportOptions::default() };
        let imported = import(&std::fs::read(&path).expect("bytes"), &options).expect("a table");
        assert!(imported.rejected.is_empty(), "{:?}", imported.rejected.first());
        rows += imported.rows;
        sheets.extend(imported.into_sheets(now));
    }
    let parts = Parts { sheets, bundled: false, ..Parts::default() };
    (Catalogue::build(&parts, &mut CodeBook::new()), rows)
}
