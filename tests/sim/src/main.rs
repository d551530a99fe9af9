//! Runs seeds: `runwhere-sim --seeds 1000`, or one of them with its trace: `--seed 7 --trace`.

use std::process::ExitCode;

use clap::Parser;

/// Simulates the whole broker, seed by seed.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints what happened.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => arguments.first..arguments.first.saturating_add(arguments.seeds),
    };
    let mut failed = 0u64;
    for seed in seeds.clone() {
        let report = runwhere_sim::run(seed);
        if arguments.trace {
            report.trace.iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: hash {:016x}", report.hash);
        }
        if !report.wrong.is_empty() {
            failed += 1;
            eprintln!("seed {seed} (again with --seed {seed} --trace):");
            report.wrong.iter().for_each(|line| eprintln!("  {line}"));
        }
    }
    eprintln!("{} seeds, {failed} failed", seeds.end - seeds.start);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
