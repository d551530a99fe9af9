//! The check of the checker: engines with one defect each, every one of which must be caught.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use runwhere_engine::Sabotage;

use crate::fleet::run_safely;
use crate::invariant::Violation;
use crate::plan::Plan;

/// Within so many seeds a defect must be caught.
pub const SABOTAGE_SEEDS: u64 = 2_000;

/// A defect, and the seed and violation that caught it.
#[derive(Clone, Debug)]
pub struct Caught {
    /// What was wrong with the engine.
    pub defect: Sabotage,
    /// The first seed that shows it, and what was seen; `None` = it got through.
    pub by: Option<(u64, Violation)>,
}

/// Runs every sabotaged engine until it is caught.
pub fn sabotage(threads: usize, tell: impl Fn(&Caught) + Sync) -> Vec<Caught> {
    let (next, caught) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(defect) =
                    Sabotage::ALL.get(next.fetch_add(1, Ordering::Relaxed)).copied()
                {
                    // The choice is this thread's, and a run does not leave its thread.
                    Sabotage::choose(Some(defect));
                    let by = (0..SABOTAGE_SEEDS).find_map(|seed| {
                        let wrong = run_safely(&Plan::of(seed)).wrong;
                        Some((seed, wrong.into_iter().next()?))
                    });
                    Sabotage::choose(None);
                    let found = Caught { defect, by };
                    tell(&found);
                    caught.lock().unwrap_or_else(PoisonError::into_inner).push(found);
                }
            });
        }
    });
    let mut caught = caught.into_inner().unwrap_or_else(PoisonError::into_inner);
    caught.sort_by_key(|one| one.defect);
    caught
}
