//! Many runs on all cores; each run has a thread for itself from its beginning to its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::coverage::Coverage;
use crate::invariant::{Invariant, Violation};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::run::{Report, Tally, run_plan};

/// So many failures say enough.
const ENOUGH: usize = 10;
/// One in so many plans is run twice.
const AGAIN: usize = 50;

/// What many runs came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// What was visited.
    pub coverage: Coverage,
    /// Numbers.
    pub tally: Tally,
    /// The same by kind of cloud, with how many runs each had.
    pub clouds: BTreeMap<&'static str, (u64, Tally)>,
    /// Plans that failed, and how.
    pub(crate) failed: Vec<(Plan, Vec<Violation>)>,
}

impl Summary {
    /// The money, kind of cloud by kind of cloud.
    pub fn bills(&self) -> String {
        let mut text = format!(
            "{:<20}{:>7}{:>8}{:>8}{:>7}{:>9}{:>8}{:>9}{:>8}{:>11}{:>9}\n",
            "cloud",
            "runs",
            "nodes",
            "leaked",
            "twice",
            "stated",
            "us off",
            "settled",
            "us off",
            "estimated",
            "s off"
        );
        for (name, (runs, tally)) in &self.clouds {
            let _ = writeln!(
                text,
                "{name:<20}{runs:>7}{:>8}{:>8}{:>7}{:>9}{:>8}{:>9}{:>8}{:>11}{:>9}",
                tally.nodes,
                tally.leaked,
                tally.twice,
                tally.stated,
                tally.misbilled_micros,
                tally.settled,
                tally.settled_micros,
                tally.estimated,
                tally.estimate_micros / 1_000_000,
            );
        }
        text
    }

    /// How many runs failed.
    pub fn failures(&self) -> usize {
        self.failed.len()
    }
}

/// Runs plans on so many threads (as many as there are cores when `None`).
pub(crate) fn run_all(
    count: usize,
    plan: impl Fn(usize) -> Plan + Sync,
    threads: Option<usize>,
) -> Summary {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let (next, summary) = (AtomicUsize::new(0), Mutex::new(Summary::default()));
    let progress = Progress::of(count);
    let lock = || summary.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(cores) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= count || lock().failed.len() >= ENOUGH {
                        return;
                    }
                    let plan = plan(place);
                    let mut report = run_safely(&plan);
                    if place % AGAIN == 0 && run_safely(&plan).hash != report.hash {
                        let broken = "two runs of one plan were not the same";
                        report.wrong.push(Invariant::Sound.broken(broken));
                    }
                    let mut summary = lock();
                    summary.runs += 1;
                    summary.coverage.add(&report.coverage);
                    summary.tally.add(&report.tally);
                    let cloud = summary.clouds.entry(plan.profile.name).or_default();
                    cloud.0 += 1;
                    cloud.1.add(&report.tally);
                    if !report.wrong.is_empty() {
                        summary.failed.push((plan, report.wrong));
                    }
                    let failed = summary.failed.len();
                    drop(summary);
                    progress.step(failed);
                }
            });
        }
    });
    summary.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A run whose panic is a violation like others.
pub(crate) fn run_safely(plan: &Plan) -> Report {
    catch_unwind(AssertUnwindSafe(|| run_plan(plan.clone(), false))).unwrap_or_else(|cause| {
        let said = cause.downcast_ref::<String>().cloned();
        let said = said.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let broken = Invariant::Sound.broken(said.unwrap_or_default());
        Report { wrong: vec![broken], ..Report::empty(plan.seed) }
    })
}
