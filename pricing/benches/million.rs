//! A million offers: building, keeping, loading, and asking them; an import; questions while a source
//! is read again. Prints medians; `RUNWHERE_BENCH_ROWS` sets another number of offers.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use runwhere_model::{
    BillingModel, Currency, GpuCount, GpuModel, HourlyPrice, Marks, Offer, OfferKey, OfferSheet,
    Price, PriceKind, PriceState, ProviderId, Stock,
};
use runwhere_pricing::{
    Audience, Catalogue, CodeBook, ImportOptions, ListRequest, Parts, PriceOptions, PriceService,
    Query, Shard, import,
};
use runwhere_providers::{Clock, SystemClock};
use rust_decimal::Decimal;

fn main() {
    let rows: usize =
        std::env::var("RUNWHERE_BENCH_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        println!("load {}", load.trim());
    }
    let now = SystemClock.now();
    let folder = std::env::temp_dir().join(format!("runwhere-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let catalogue = build(rows, now);
    let files = keep(&catalogue, &folder);
    drop(catalogue);
    let loaded = load(&files, &folder);
    ask(&loaded, now);
    drop(loaded);
    skypilot();
    refresh(now);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Providers of a tenth, so that no question meets all rows.
const PROVIDERS: usize = 30;
const REGIONS: usize = 60;

fn offer(provider: &ProviderId, n: usize) -> Offer {
    let models = GpuModel::all();
    let model = &models[n % models.len()];
    let spot = n.is_multiple_of(3);
    let region = (n / 7) % REGIONS;
    let mantissa = i64::try_from(100 + (n * 7919) % 100_000).unwrap_or(1);
    Offer {
        key: OfferKey {
            provider: provider.clone(),
            region: Some(format!("region-{region}")),
            zone: spot.then(|| format!("region-{region}-{}", n % 3)),
            billing_model: if spot { BillingModel::Spot } else { BillingModel::OnDemand },
            instance_type: format!("type.{n}"),
        },
        gpu: Some(model.id),
        gpu_raw: model.name.to_owned(),
        gpu_count: GpuCount::whole([1, 2, 4, 8][(n / 3) % 4]).expect("a count"),
        gpu_memory_mib: Some(u64::from(model.memory_gib) * 1024),
        vcpus: Some(8),
        memory_mib: Some(65_536),
        price: Price {
            state: PriceState::Known {
                price: HourlyPrice { amount: Decimal::new(mantissa, 4), currency: Currency::USD },
            },
            kind: PriceKind::List,
            source: "bench".to_owned(),
            observed_at: None,
            effective_at: None,
        },
        stock: Stock::Unstated,
        launchable: false,
        pretended: false,
        marks: Marks::NONE,
        details: None,
    }
}

fn build(rows: usize, now: Timestamp) -> Catalogue {
    let start = Instant::now();
    let mut catalogue: Option<(Parts, CodeBook)> = None;
    let mut sheets = BTreeMap::new();
    for at in 0..PROVIDERS {
        let id = ProviderId::new(format!("cloud{at:02}")).expect("an id");
        let offers = (0..rows / PROVIDERS).map(|n| offer(&id, n * PROVIDERS + at)).collect();
        sheets.insert(id, OfferSheet::complete(offers, Vec::new(), now));
    }
    let parts = Parts { sheets, bundled: false, ..Parts::default() };
    let (parts, codes) = catalogue.get_or_insert((parts, CodeBook::new()));
    let built = Catalogue::build(parts, codes);
    println!("build {} offers: {:?}", built.len(), start.elapsed());
    built
}

fn keep(catalogue: &Catalogue, folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let start = Instant::now();
    let mut bytes = 0;
    let mut paths = Vec::new();
    for shard in catalogue.shards() {
        let path = folder.join(format!("{}.rwp", shard.provider()));
        let encoded = shard.encode();
        bytes += encoded.len();
        std::fs::write(&path, encoded).expect("written");
        paths.push(path);
    }
    println!("write {} MB: {:?}", bytes / 1_000_000, start.elapsed());
    // The same rows as CSV, for a parser that knows nothing of prices.
    let mut writer = csv::Writer::from_path(folder.join("rows.csv")).expect("a file");
    for entry in catalogue.entries() {
        let offer = &entry.offer;
        let price = offer.price.state.known().expect("known");
        writer
            .write_record([
                offer.key.to_string(),
                entry.code.to_string(),
                offer.gpu_raw.clone(),
                offer.gpu_count.to_string(),
                offer.vcpus.unwrap_or(0).to_string(),
                offer.memory_mib.unwrap_or(0).to_string(),
                price.amount.to_string(),
                price.currency.to_string(),
                offer.price.source.clone(),
            ])
            .expect("a row");
    }
    writer.flush().expect("flushed");
    paths
}

fn load(paths: &[std::path::PathBuf], folder: &std::path::Path) -> Vec<Arc<Shard>> {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut shards = Vec::new();
    for _ in 0..5 {
        shards.clear();
        let start = Instant::now();
        for path in paths {
            let bytes = std::fs::read(path).expect("bytes");
            shards.push(Arc::new(Shard::decode(&bytes).expect("a shard")));
        }
        ours.push(start.elapsed());
        let start = Instant::now();
        for path in paths {
            let status = std::process::Command::new("cat")
                .arg(path)
                .stdout(std::process::Stdio::null())
                .status();
            assert!(status.is_ok_and(|status| status.success()));
        }
        let mut reader = csv::Reader::from_path(folder.join("rows.csv")).expect("a file");
        let mut record = csv::ByteRecord::new();
        let mut count = 0;
        while reader.read_byte_record(&mut record).expect("a row") {
            count += record.len();
        }
        black_box(count);
        theirs.push(start.elapsed());
    }
    println!("load from our files: {:?}", median(&mut ours));
    println!("cat of them and csv crate over the same rows: {:?}", median(&mut theirs));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"))
    {
        println!("{line}");
    }
    shards
}

fn ask(shards: &[Arc<Shard>], now: Timestamp) {
    let catalogue = Catalogue::of_shards(shards.to_vec());
    let models = GpuModel::all();
    let mut times = Vec::with_capacity(200_000);
    let start = Instant::now();
    for n in 0..200_000usize {
        let mut query = Query::new(Some(models[n % models.len()].id), [1, 2, 4, 8][n % 4]);
        query.region = Some(format!("region-{}", n % REGIONS));
        query.max_hourly_price = Some(Decimal::new(40, 0));
        let begun = Instant::now();
        black_box(catalogue.quote(&query, now).recommendations.len());
        times.push(begun.elapsed());
    }
    let total = start.elapsed();
    times.sort_unstable();
    let per_second = 200_000u128 * 1_000_000_000 / total.as_nanos().max(1);
    println!(
        "quote: median {:?}, p99 {:?}, {per_second} quotes/s on one core",
        times[100_000], times[198_000]
    );
    let request = ListRequest {
        gpu_model: Some("h100-80g".to_owned()),
        gpu_count: GpuCount::whole(8),
        ..ListRequest::default()
    };
    let mut times: Vec<Duration> = (0..50)
        .map(|_| {
            let begun = Instant::now();
            black_box(catalogue.find(&request, Audience::Public, now).len());
            begun.elapsed()
        })
        .collect();
    println!("list one model and count: {:?}", median(&mut times));
}

fn skypilot() {
    let mut csv = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n".to_owned();
    for n in 0..33_000 {
        csv.push_str(&format!(
            "p4d.{n},A100,8.0,96.0,1152.0,\"{{'Gpus': [{{'Name': 'A100', 'Count': 8, 'MemoryInfo': {{'SizeInMiB': 40960}}}}], 'TotalGpuMemoryInMiB': 327680}}\",21.957642,1.413400,us-east-1,use1-az{},x86_64\n",
            n % 6
        ));
    }
    let options =
        ImportOptions { provider: ProviderId::new("aws").ok(), ..ImportOptions::default() };
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let begun = Instant::now();
            black_box(import(csv.as_bytes(), &options).expect("a table").offers.len());
            begun.elapsed()
        })
        .collect();
    println!("import of a 33,000-row vms.csv: {:?}", median(&mut times));
}

fn refresh(now: Timestamp) {
    let options = PriceOptions { bundled: false, ..PriceOptions::default() };
    let service = Arc::new(PriceService::new(Arc::new(SystemClock), options));
    let id = ProviderId::new("cloud00").expect("an id");
    let sheet = |round: usize| {
        let offers = (0..50_000)
            .map(|n| {
                let mut offer = offer(&id, n);
                if let PriceState::Known { price } = &mut offer.price.state {
                    price.amount += Decimal::new(i64::try_from(round).unwrap_or(0), 4);
                }
                offer
            })
            .collect();
        OfferSheet::complete(offers, Vec::new(), now)
    };
    service.replace_sheet(id.clone(), sheet(0));
    let done = Arc::new(AtomicBool::new(false));
    let asking = {
        let (service, done) = (Arc::clone(&service), Arc::clone(&done));
        std::thread::spawn(move || {
            let gpu = GpuModel::resolve("h100-80g").map(|model| model.id);
            let mut times = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                black_box(service.quote(&Query::new(gpu, 8)).matching);
                times.push(begun.elapsed());
            }
            times.sort_unstable();
            (times.len(), times[times.len() * 99 / 100])
        })
    };
    let mut times: Vec<Duration> = (1..=10)
        .map(|round| {
            let sheet = sheet(round);
            let begun = Instant::now();
            service.replace_sheet(id.clone(), sheet);
            begun.elapsed()
        })
        .collect();
    done.store(true, Ordering::Relaxed);
    let (quotes, p99) = asking.join().expect("joined");
    println!(
        "refresh of 50,000 rows: {:?}; meanwhile {quotes} quotes, p99 {p99:?}",
        median(&mut times)
    );
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
