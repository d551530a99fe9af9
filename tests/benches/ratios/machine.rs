//! The machine that measures, and what the kernel says of processes.

use std::fs;
use std::time::{Duration, SystemTime};

/// Ticks of the times in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Shows what the figures depend on.
pub(crate) fn describe() {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&info, "model name").unwrap_or("unknown processor");
    let flags = field(&info, "flags").unwrap_or_default();
    let sha = if flags.split(' ').any(|flag| flag == "sha_ni") { "with" } else { "without" };
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    println!(
        "{} x {model} ({sha} SHA instructions), memory {}, {}",
        cores(),
        field(&memory, "MemTotal").unwrap_or("unknown"),
        load(),
    );
}

/// The load now.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

/// Processors that may be used.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time of all ended children so far, with their ended children.
pub(crate) fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let (_, fields) = stat.rsplit_once(')').expect("the name stands in parentheses");
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: f64 = ticks.map(|field| field.parse::<f64>().expect("a number")).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

/// Processor time of a process so far; `None` once it has ended.
pub(crate) fn process_cpu(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.map(|field| field.parse::<f64>().ok()).sum::<Option<f64>>()?;
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// A size of a process in megabytes, such as `VmHWM`; `None` once it has ended.
pub(crate) fn megabytes(pid: u32, what: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib: f64 = field(&status, what)?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':'))
    })?;
    line.split_once(':').map(|(_, value)| value.trim())
}

/// The wall clock, which programs on this machine share: time since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "compares with what other programs read from the same clock"
)]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}
