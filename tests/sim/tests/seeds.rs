//! Some seeds, and that a seed says everything.

#[test]
fn seeds_keep_every_invariant() {
    for seed in 0..40 {
        let report = runwhere_sim::run(seed, false);
        assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    }
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..20 {
        let (once, twice) = (runwhere_sim::run(seed, true), runwhere_sim::run(seed, true));
        assert_eq!(once.trace, twice.trace, "seed {seed}");
        assert_eq!(once.hash, twice.hash);
    }
}
