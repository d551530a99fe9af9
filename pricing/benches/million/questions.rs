//! Quotes and lists, in process, on one thread.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use runwhere_model::{GpuCount, GpuModel};
use runwhere_pricing::{Audience, Catalogue, ListRequest, Query};
use runwhere_providers::{Clock, SystemClock};
use rust_decimal::Decimal;

use crate::figures::{Processor, below, median, quantile};
use crate::loading::load;
use crate::offers::{COUNTS, REGIONS};

const QUOTES: usize = 300_000;

/// Another question each time: model, count, region, ceiling; the best five.
pub(crate) fn question(n: usize) -> Query {
    let models = GpuModel::all();
    let mut query = Query::new(Some(models[n % models.len()].id), COUNTS[n % 4]);
    query.region = Some(format!("region-{}", (n / 3) % REGIONS));
    // No two of the first million are the same.
    query.max_hourly_price =
        Some(Decimal::new(2000 + i64::try_from(n * 37 % 4999).unwrap_or(0), 2));
    query
}

/// The same of every model, count and region in turn: no offer is asked for again before all others were.
pub(crate) fn wide_question(n: usize) -> Query {
    let models = GpuModel::all();
    let (count, region) = (n / models.len(), n / models.len() / 4);
    Query {
        gpu: Some(models[n % models.len()].id),
        gpu_count: COUNTS[count % 4],
        region: Some(format!("region-{}", region % REGIONS)),
        ..question(n)
    }
}

pub(crate) fn measure(folder: &Path) {
    let now = SystemClock.now();
    let catalogue = Catalogue::of_shards(load(folder));
    let mut times = Vec::with_capacity(QUOTES);
    let (mut answers, mut spent) = (0usize, Duration::ZERO);
    let processor = Processor::of_thread();
    let (before, _) = processor.read();
    for n in 0..QUOTES {
        let query = question(n);
        let begun = Instant::now();
        let quote = black_box(catalogue.quote(&query, now));
        let took = begun.elapsed();
        answers += quote.recommendations.len();
        spent += took;
        times.push(took);
    }
    let (after, _) = processor.read();
    let middle = quantile(&mut times, 500);
    println!("quote: median {middle:.2?}, {} answers each", answers / QUOTES);
    below("quote, p99", quantile(&mut times, 990), Duration::from_micros(100));
    let per_second = |spent: Duration| QUOTES as u128 * 1_000_000_000 / spent.as_nanos().max(1);
    println!("quotes on one thread: {}/s of the time that passed", per_second(spent));
    let whole = per_second(after - before);
    let missed = if whole < 100_000 { "  MISSED" } else { "" };
    println!("quotes on one processor: {whole}/s of its time (at least 100000){missed}");

    let mut times = Vec::new();
    for n in 0..2000 {
        let query = Query { region: None, ..question(n) };
        let begun = Instant::now();
        black_box(catalogue.quote(&query, now).matching);
        times.push(begun.elapsed());
    }
    println!("quote of all regions: median {:.2?}", median(&mut times));
    let request = ListRequest {
        gpu_model: Some("h100-80g".to_owned()),
        gpu_count: GpuCount::whole(8),
        ..ListRequest::default()
    };
    let mut found = 0;
    let mut times: Vec<Duration> = (0..50)
        .map(|_| {
            let begun = Instant::now();
            found = black_box(catalogue.find(&request, Audience::Public, now).len());
            begun.elapsed()
        })
        .collect();
    println!("list of one model and count, {found} rows: {:.2?}", median(&mut times));
}
