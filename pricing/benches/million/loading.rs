//! Building, keeping and loading.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use runwhere_pricing::{PriceFolder, Shard};
use runwhere_providers::{Clock, SystemClock};

use crate::figures::{median, ratio, rows};
use crate::offers::{PROVIDERS, refresher, sheet};

/// Rounds of a load.
const ROUNDS: usize = 7;

/// Makes the offers and keeps them as a server does, and as CSV for a parser that knows nothing of prices.
pub(crate) fn prepare(folder: &Path) {
    let now = SystemClock.now();
    let start = Instant::now();
    let prices = refresher(&folder.join("prices"), Vec::new());
    for at in 0..PROVIDERS {
        let (id, sheet) = sheet(at, rows(), now);
        prices.service().replace_sheet(id, sheet);
    }
    prices.keep().expect("a folder that takes it");
    let catalogue = prices.service().catalogue();
    println!("make, order and write {} offers: {:?}", catalogue.len(), start.elapsed());
    let mut writer = csv::Writer::from_path(folder.join("rows.csv")).expect("a file");
    for entry in catalogue.entries() {
        let offer = &entry.offer;
        let price = offer.price.state.known().expect("known");
        let row = [
            offer.key.to_string(),
            entry.code.to_string(),
            offer.gpu_raw.clone(),
            offer.gpu_count.to_string(),
            offer.vcpus.unwrap_or(0).to_string(),
            offer.memory_mib.unwrap_or(0).to_string(),
            price.amount.to_string(),
            price.currency.to_string(),
            offer.price.source.clone(),
        ];
        writer.write_record(row).expect("a row");
    }
    writer.flush().expect("flushed");
}

fn shard_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("prices/shards")).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

/// As a server does at its start.
pub(crate) fn load(folder: &Path) -> Vec<Arc<Shard>> {
    let prices = PriceFolder::open(folder.join("prices")).expect("a folder");
    prices.load().expect("prices").shards
}

/// In a process of its own, which made nothing before: its memory is that of the load.
pub(crate) fn measure(folder: &Path) {
    let program = std::env::current_exe().expect("this program");
    let status = Command::new(program).arg("load-child").arg(folder).status().expect("started");
    assert!(status.success(), "{status}");
}

pub(crate) fn child(folder: &Path) {
    let files = shard_files(folder);
    let bytes: u64 = files.iter().map(|path| path.metadata().expect("a file").len()).sum();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut shards = Vec::new();
    for round in 0..ROUNDS {
        shards.clear();
        let start = Instant::now();
        shards = load(folder);
        ours.push(start.elapsed());
        if round == 0 {
            memory();
        }
        theirs.push(cat_and_parse(&files, &folder.join("rows.csv")));
    }
    let offers: usize = shards.iter().map(|shard| shard.len()).sum();
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    println!("load {offers} offers from {} MB: {ours:.2?}", bytes / 1_000_000);
    println!("cat of these files, and the csv crate over the same rows: {theirs:.2?}");
    ratio("cat and csv / load", ours, theirs, 1.0);
}

fn memory() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (field, target) in [("VmRSS:", " (below 500 MB)"), ("VmHWM:", " (while loading)")] {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let mb = kib.unwrap_or(0) * 1024 / 1_000_000;
        let missed = if field == "VmRSS:" && mb >= 500 { "  MISSED" } else { "" };
        println!("resident {mb} MB{target}{missed}");
    }
}

fn cat_and_parse(files: &[PathBuf], csv: &Path) -> Duration {
    let start = Instant::now();
    let cat = Command::new("cat").args(files).stdout(Stdio::null()).status();
    assert!(cat.is_ok_and(|status| status.success()));
    let mut reader = csv::Reader::from_path(csv).expect("a file");
    let mut record = csv::ByteRecord::new();
    let mut cells = 0;
    while reader.read_byte_record(&mut record).expect("a row") {
        cells += record.len();
    }
    black_box(cells);
    start.elapsed()
}
