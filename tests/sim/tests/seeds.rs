//! Some seeds, and that a seed says everything.

#[test]
fn seeds_keep_every_invariant() {
    for seed in 0..40 {
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
