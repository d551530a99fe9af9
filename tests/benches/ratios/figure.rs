//! Rows of samples, and ratios of their medians.

use std::time::Duration;

/// One of the things compared, measured several times.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    name: String,
    samples: Vec<Sample>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Time that passed.
    pub(crate) wall: Duration,
    /// Processor time of the processes that were started for it, where it was measured.
    pub(crate) cpu: Option<Duration>,
}

impl From<Duration> for Sample {
    fn from(wall: Duration) -> Self {
        Sample { wall, cpu: None }
    }
}

impl Row {
    /// A row without samples.
    pub(crate) fn new(name: &str) -> Self {
        Row { name: name.to_owned(), samples: Vec::new() }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: impl Into<Sample>) {
        self.samples.push(sample.into());
    }

    /// The middle one of the measured times, in milliseconds.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// A quantile of the measured times, in milliseconds.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        quantile(self.samples.iter().map(|sample| sample.wall), part)
    }

    /// The middle one of the processor times, in milliseconds.
    pub(crate) fn processor_median(&self) -> f64 {
        quantile(self.samples.iter().filter_map(|sample| sample.cpu), 0.5)
    }

    /// Shows minimum, median and maximum, and the median of the processor time.
    pub(crate) fn print(&self) {
        let measured = self.samples.iter().any(|sample| sample.cpu.is_some());
        let cpu = if measured {
            format!("   processor {:.0} ms", self.processor_median())
        } else {
            String::new()
        };
        println!(
            "  {:<44} min {:>9.2}  median {:>9.2}  max {:>9.2} ms  of {:>3}{cpu}",
            self.name,
            self.quantile(0.0),
            self.median(),
            self.quantile(1.0),
            self.samples.len(),
        );
    }
}

fn quantile(times: impl Iterator<Item = Duration>, part: f64) -> f64 {
    let mut times: Vec<_> = times.collect();
    times.sort();
    let last = times.len().checked_sub(1).expect("a row has samples");
    let place = (last as f64 * part).round() as usize;
    times[place].as_secs_f64() * 1000.0
}

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
    /// Only written down.
    Recorded,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<String>);

impl Report {
    /// Adds a figure.
    pub(crate) fn add(&mut self, name: &str, value: f64, unit: &str, target: Target) {
        let (good, wanted) = match target {
            Target::AtLeast(limit) => (value >= limit, format!("at least {limit}")),
            Target::AtMost(limit) => (value <= limit, format!("at most {limit}")),
            Target::Recorded => (true, "recorded".to_owned()),
        };
        let mark = if good { "" } else { "   MISSED" };
        let line = format!("  {name:<58} {value:>9.2} {unit:<6} {wanted}{mark}");
        println!("{line}");
        self.0.push(line);
    }

    /// Shows them all again.
    pub(crate) fn print(&self) {
        println!("\n== figures ({})", crate::machine::load());
        for line in &self.0 {
            println!("{line}");
        }
    }
}
