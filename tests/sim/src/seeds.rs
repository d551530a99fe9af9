//! Many seeds, and what to say of those that fail.

use std::fmt::Write as _;
use std::ops::Range;

use crate::fleet::{Summary, run_all};
use crate::run::plan;
use crate::shrink::shrink;

/// Runs seeds on so many threads; with one job of so many trials each, if that is wanted.
pub fn run_seeds(seeds: Range<u64>, trials: Option<u32>, threads: Option<usize>) -> Summary {
    let count = usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(usize::MAX);
    run_all(count, |place| plan(seeds.start + place as u64, trials), threads)
}

/// Each failed plan as small as it could be made, with what it broke.
pub fn failures(summary: &Summary, trials: Option<u32>) -> String {
    let mut text = String::new();
    let trials = trials.map(|trials| format!(" --trials {trials}")).unwrap_or_default();
    for (plan, wrong) in &summary.failed {
        let (small, broken) = shrink(plan, wrong);
        let _ =
            writeln!(text, "seed {} (again with --seed {}{trials} --trace):", plan.seed, plan.seed);
        let _ = write!(text, "{small}");
        for one in &broken {
            let _ = writeln!(text, "  {one}");
        }
    }
    text
}
