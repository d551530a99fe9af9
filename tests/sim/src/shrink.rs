//! From a plan that fails to a smaller one that fails in the same way.

use crate::fleet::run_safely;
use crate::invariant::{Invariant, Violation};
use crate::plan::Plan;

/// Runs that a search may take.
const MOST_RUNS: u32 = 400;

/// Takes away what the violation does not need: acts, faults, crashes, processes, trials.
pub(crate) fn shrink(plan: &Plan, wrong: &[Violation]) -> (Plan, Vec<Violation>) {
    let Some(first) = wrong.first() else { return (plan.clone(), wrong.to_vec()) };
    let mut search =
        Search { wanted: first.invariant, best: plan.clone(), wrong: wrong.to_vec(), runs: 0 };
    while search.round() && search.runs < MOST_RUNS {}
    (search.best, search.wrong)
}

struct Search {
    wanted: Invariant,
    best: Plan,
    wrong: Vec<Violation>,
    runs: u32,
}

impl Search {
    /// Tries every step once; true when one helped.
    fn round(&mut self) -> bool {
        let mut helped = false;
        for change in [
            |plan: &mut Plan| plan.replicas = 1,
            |plan: &mut Plan| plan.slow_store = false,
            |plan: &mut Plan| plan.on_disk = false,
            |plan: &mut Plan| plan.budget = None,
            |plan: &mut Plan| plan.crashes.clear(),
            |plan: &mut Plan| plan.stock = None,
            |plan: &mut Plan| plan.upon = None,
        ] {
            helped |= self.take(change);
        }
        for place in (0..self.best.acts.len()).rev() {
            helped |= self.take(|plan| {
                plan.acts.remove(place);
            });
        }
        for place in (0..self.best.crashes.len()).rev() {
            helped |= self.take(|plan| {
                plan.crashes.remove(place);
            });
        }
        for place in 0..self.best.jobs.len() {
            helped |= self.take(|plan| plan.jobs[place].trials = 1);
        }
        let fired: Vec<_> = run_safely(&self.best).faults.iter().map(|(call, _)| *call).collect();
        let all = fired.clone();
        helped |= self.take(|plan| plan.faults.spared.extend(all));
        for call in fired.into_iter().rev() {
            helped |= self.take(|plan| {
                plan.faults.spared.insert(call);
            });
        }
        helped
    }

    fn take(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut smaller = self.best.clone();
        change(&mut smaller);
        if smaller.size() >= self.best.size() || self.runs >= MOST_RUNS {
            return false;
        }
        self.runs += 1;
        let report = run_safely(&smaller);
        let same = report.wrong.iter().any(|one| one.invariant == self.wanted);
        if same {
            (self.best, self.wrong) = (smaller, report.wrong);
        }
        same
    }
}

impl Plan {
    /// Smaller plans are easier to read. Faults that are spared count as taken away.
    fn size(&self) -> i64 {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let trials: i64 = self.jobs.iter().map(|job| i64::from(job.trials)).sum();
        count(self.acts.len() + self.crashes.len() + self.replicas)
            + trials
            + i64::from(self.slow_store)
            + i64::from(self.on_disk)
            + i64::from(self.budget.is_some())
            + i64::from(self.stock.is_some())
            + i64::from(self.upon.is_some())
            - count(self.faults.spared.len())
    }
}
