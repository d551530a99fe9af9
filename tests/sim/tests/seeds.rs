//! Some seeds, and that a seed says everything.

#[test]
fn seeds_keep_every_invariant() {
    for seed in 0..40 {
        let report = runwhere_sim::run(seed, None, false);
        assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    }
}

#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    // What was wrong stands in docs/simulation.md.
    let seeds = [
        2933, 3446, 4383, 5351, 6138, 6829, 9734, 10916, 11761, 12487, 14199, 18279, 19471, 21624,
        27030, 28372, 32109, 34152, 36955, 43675, 81251, 82715, 86176, 90892, 94882, 95935,
    ];
    for seed in seeds {
        let report = runwhere_sim::run(seed, None, false);
        assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    }
}

#[test]
fn seeds_of_jobs_with_many_trials_keep_every_invariant() {
    for seed in 0..10 {
        let report = runwhere_sim::run(seed, Some(16), false);
        assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..20 {
        let (once, twice) =
            (runwhere_sim::run(seed, None, true), runwhere_sim::run(seed, None, true));
        assert_eq!(once.trace, twice.trace, "seed {seed}");
        assert_eq!(once.hash, twice.hash);
    }
}
