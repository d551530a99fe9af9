//! What a cold process pays for its first answers, and a warm one for the next.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runwhere_model::{GpuModel, Lang};
use runwhere_pricing::{Audience, Bundled, ListRequest, PriceOptions, PriceService, Query};
use runwhere_providers::SystemClock;

fn main() {
    let start = Instant::now();
    black_box(Bundled::get());
    report("read the bundled prices (cold)", start.elapsed());

    let start = Instant::now();
    let service = PriceService::new(Arc::new(SystemClock), PriceOptions::default());
    report("build the catalogue (cold)", start.elapsed());

    let list = || {
        let request =
            ListRequest { gpu_model: Some("a100-80g".to_owned()), ..ListRequest::default() };
        black_box(service.list(&request, Audience::Public, Lang::Zh).map(|page| page.total)).ok();
    };
    let quote = || {
        let gpu = GpuModel::resolve("a100-80g").map(|model| model.id);
        black_box(service.quote(&Query::new(gpu, 1)).matching);
    };
    let summary = || {
        black_box(service.summary(Audience::Public).items.len());
    };
    let answers: [(&str, &dyn Fn()); 3] =
        [("list one model", &list), ("quote", &quote), ("summary", &summary)];
    for (name, answer) in answers {
        let start = Instant::now();
        answer();
        report(&format!("{name} (first)"), start.elapsed());
        let rounds = 200;
        let start = Instant::now();
        for _ in 0..rounds {
            answer();
        }
        report(&format!("{name} (mean of {rounds})"), start.elapsed() / rounds);
    }
}

fn report(what: &str, took: Duration) {
    println!("{:>10} us  {what}", took.as_micros());
}
