//! Some hundred seeds, and that a seed says everything.

use std::ops::Range;

fn keep_every_invariant(seeds: Range<u64>) {
    let wrong: Vec<_> = seeds
        .map(runwhere_sim::run)
        .filter(|report| !report.wrong.is_empty())
        .map(|report| (report.seed, report.wrong))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// In parts, so that they run beside each other.
#[test]
fn seeds_to_50_keep_every_invariant() {
    keep_every_invariant(0..50);
}

#[test]
fn seeds_to_100_keep_every_invariant() {
    keep_every_invariant(50..100);
}

#[test]
fn seeds_to_150_keep_every_invariant() {
    keep_every_invariant(100..150);
}

#[test]
fn seeds_to_200_keep_every_invariant() {
    keep_every_invariant(150..200);
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..10 {
        let (once, twice) = (runwhere_sim::run(seed), runwhere_sim::run(seed));
        assert_eq!(once.trace, twice.trace, "seed {seed}");
        assert_eq!(once.hash, twice.hash);
    }
}
