//! Many seeds, and what to say of those that fail.

use std::fmt::Write as _;
use std::ops::Range;

use crate::fleet::{Summary, run_all};
use crate::plan::Plan;
use crate::shrink::shrink;

/// Runs seeds on so many threads.
pub fn run_seeds(seeds: Range<u64>, threads: Option<usize>) -> Summary {
    let count = usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(usize::MAX);
    run_all(count, |place| Plan::of(seeds.start + place as u64), threads)
}

/// Each failed plan as small as it could be made, with what it broke.
pub fn failures(summary: &Summary) -> String {
    let mut text = String::new();
    for (plan, wrong) in &summary.failed {
        let (small, broken) = shrink(plan, wrong);
        let _ = writeln!(text, "seed {} (again with --seed {} --trace):", plan.seed, plan.seed);
        let _ = write!(text, "{small}");
        for one in &broken {
            let _ = writeln!(text, "  {one}");
        }
    }
    text
}
