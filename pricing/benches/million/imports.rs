//! A catalogue file of another project.

use std::hint::black_box;
use std::time::{Duration, Instant};

use runwhere_model::ProviderId;
use runwhere_pricing::{ImportOptions, import};

use crate::figures::{Processor, below, median};

/// Names, counts and memories of what such a file has.
const MACHINES: [(&str, &str, u32); 6] = [
    ("p4d.24xlarge", "A100", 40_960),
    ("p5.48xlarge", "H100", 81_920),
    ("g5.xlarge", "A10G", 24_576),
    ("g6.xlarge", "L4", 24_576),
    ("p3.2xlarge", "V100", 16_384),
    ("g4dn.xlarge", "T4", 16_384),
];

fn file() -> String {
    let mut csv = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n".to_owned();
    for n in 0..33_000 {
        let (machine, gpu, mib) = MACHINES[n % MACHINES.len()];
        let count = [1, 2, 4, 8][(n / 7) % 4];
        let total = mib * count;
        let (region, zone, cents) = (n % 30, n % 6, 100 + n % 9000);
        csv.push_str(&format!(
            "{machine}-{n},{gpu},{count}.0,96.0,1152.0,\"{{'Gpus': [{{'Name': '{gpu}', 'Manufacturer': 'NVIDIA', 'Count': {count}.0, 'MemoryInfo': {{'SizeInMiB': {mib}}}}}], 'TotalGpuMemoryInMiB': {total}}}\",{cents}.957642,{cents}.413400,us-east-{region},use{region}-az{zone},x86_64\n",
        ));
    }
    csv
}

pub(crate) fn measure() {
    let csv = file();
    let provider = ProviderId::new("aws").ok();
    let options = ImportOptions { provider, ..ImportOptions::default() };
    let mut offers = 0;
    let processor = Processor::of_thread();
    let (mut times, mut works): (Vec<Duration>, Vec<Duration>) = (0..15)
        .map(|_| {
            let (begun, (before, _)) = (Instant::now(), processor.read());
            let imported = import(csv.as_bytes(), &options).expect("a table");
            offers = black_box(imported.offers.len());
            (begun.elapsed(), processor.read().0 - before)
        })
        .unzip();
    let what = format!("import of a vms.csv of 33,000 rows ({offers} offers)");
    println!("{what}: {:.2?} of the time that passed", median(&mut times));
    below(&what, median(&mut works), Duration::from_millis(100));
}
