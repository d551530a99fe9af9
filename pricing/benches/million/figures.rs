//! Medians, and what the machine is doing meanwhile.

use std::path::PathBuf;
use std::time::Duration;

pub(crate) fn rows() -> usize {
    let set = std::env::var("RUNWHERE_BENCH_ROWS").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(1_000_000)
}

/// A folder of this process.
pub(crate) fn folder() -> PathBuf {
    let place = std::env::var_os("RUNWHERE_BENCH_DIR");
    let place = place.map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = place.join(format!("runwhere-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

pub(crate) fn machine() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("{cores} processors, load {}", load.trim());
}

/// What the calling thread got of a processor, and how long it waited for one: other programs take their
/// share of the time that passes.
pub(crate) struct Processor(std::fs::File);

impl Processor {
    pub(crate) fn of_thread() -> Self {
        Self(std::fs::File::open("/proc/thread-self/schedstat").expect("Linux"))
    }

    /// Running, waiting.
    pub(crate) fn read(&self) -> (Duration, Duration) {
        use std::os::unix::fs::FileExt;
        let mut text = [0; 64];
        let size = self.0.read_at(&mut text, 0).expect("read");
        let text = std::str::from_utf8(&text[..size]).expect("numbers");
        let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
        let mut next = || Duration::from_nanos(numbers.next().expect("a number"));
        (next(), next())
    }
}

/// The value below which this share (in thousandths) lies.
pub(crate) fn quantile(times: &mut [Duration], thousandths: usize) -> Duration {
    times.sort_unstable();
    let place = times.len() * thousandths / 1000;
    times.get(place.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

pub(crate) fn median(times: &mut [Duration]) -> Duration {
    quantile(times, 500)
}

/// One thing against another, with its target.
pub(crate) fn ratio(what: &str, ours: Duration, theirs: Duration, at_least: f64) {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64().max(1e-12);
    let missed = if ratio < at_least { "  MISSED" } else { "" };
    println!("{what}: {ratio:.2} (at least {at_least}){missed}");
}

pub(crate) fn below(what: &str, time: Duration, most: Duration) {
    let missed = if time >= most { "  MISSED" } else { "" };
    println!("{what}: {time:.2?} (below {most:?}){missed}");
}
