//! Runs seeds: `runwhere-sim --seeds 1000`, or one of them with its trace: `--seed 7 --trace`; the
//! crash sweep: `--sweep`; and, built with the feature `sabotage`, the check of the checker:
//! `--sabotage`. `docs/simulation.md` explains what it prints.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use runwhere_sim::Summary;

/// From so many seeds on every legal combination must have been visited.
const ALL_VISITED_FROM: u64 = 10_000;

/// What so many seeds visit less often is named: a small change could leave it out.
const RARE: u64 = 5;

/// Simulates the whole broker, seed by seed.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds [default: 100, none beside --sweep or --sabotage].
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this one.
    #[arg(long)]
    seed: Option<u64>,
    /// Each seed has one job of so many trials, some of which fail, on fewer machines than that.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: Option<u32>,
    /// Prints what happened in the one seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Ends a process at every effect of each scenario.
    #[arg(long)]
    sweep: bool,
    /// Runs engines with one defect each until it is caught.
    #[cfg(feature = "sabotage")]
    #[arg(long)]
    sabotage: bool,
    /// Takes the recorded steps of so many seeds again, and says how many it takes in a second.
    #[cfg(feature = "sabotage")]
    #[arg(long)]
    bench: Option<u64>,
    /// How many runs at a time [default: one for each core].
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return one(seed, &arguments);
    }
    let mut good = true;
    #[cfg(feature = "sabotage")]
    let others = arguments.sweep || arguments.sabotage || arguments.bench.is_some();
    #[cfg(not(feature = "sabotage"))]
    let others = arguments.sweep;
    match arguments.seeds {
        Some(seeds) => good &= many(&arguments, seeds),
        None if !others => good &= many(&arguments, 100),
        None => {}
    }
    if arguments.sweep {
        good &= sweep(&arguments);
    }
    #[cfg(feature = "sabotage")]
    if arguments.sabotage {
        good &= sabotage(&arguments);
    }
    #[cfg(feature = "sabotage")]
    if let Some(seeds) = arguments.bench {
        bench(seeds);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    let report = runwhere_sim::run(seed, arguments.trials, arguments.trace);
    report.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}: hash {:016x}", report.hash);
    report.wrong.iter().for_each(|one| println!("  {one}"));
    if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(arguments: &Arguments, seeds: u64) -> bool {
    let begun = Instant::now();
    let range = arguments.first..arguments.first.saturating_add(seeds);
    let summary = runwhere_sim::run_seeds(range, arguments.trials, arguments.threads);
    println!("{}", summary.coverage);
    let good = judge("seeds", &summary, arguments.trials, begun);
    let missing = summary.coverage.missing();
    let all = seeds >= ALL_VISITED_FROM && arguments.trials.is_none();
    if all && !missing.is_empty() {
        println!("legal, and visited by no seed: {}", missing.join(", "));
    }
    let rare = summary.coverage.rare(RARE);
    if all && !rare.is_empty() {
        println!("visited less than {RARE} times: {}", rare.join(", "));
    }
    let unexpected = summary.coverage.unexpected();
    for one in &unexpected {
        println!("visited, and not legal: {one}");
    }
    good && unexpected.is_empty() && (missing.is_empty() || !all)
}

fn sweep(arguments: &Arguments) -> bool {
    let mut good = true;
    let sweeps = [
        ("ends of processes", runwhere_sim::sweep as fn(Option<usize>) -> runwhere_sim::Sweep),
        ("pauses of one of three processes", runwhere_sim::replica_sweep),
    ];
    for (what, of) in sweeps {
        let begun = Instant::now();
        let sweep = of(arguments.threads);
        for (name, effects) in &sweep.scenarios {
            println!("{effects:>5} effects: {name}");
        }
        good &= judge(what, &sweep.summary, None, begun);
    }
    good
}

fn judge(what: &str, summary: &Summary, trials: Option<u32>, begun: Instant) -> bool {
    let seconds = begun.elapsed().as_secs_f64();
    print!("{}{}", summary.tally, summary.bills());
    println!(
        "{} {what} in {seconds:.1} s, {:.0} a second, {} failed\n",
        summary.runs,
        summary.runs as f64 / seconds.max(0.001),
        summary.failures()
    );
    if summary.failures() > 0 {
        println!("{}", runwhere_sim::failures(summary, trials));
    }
    summary.failures() == 0
}

#[cfg(feature = "sabotage")]
fn sabotage(arguments: &Arguments) -> bool {
    let begun = Instant::now();
    let threads = arguments
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    println!("{:<26} {:>6}  broken promise", "defect", "seed");
    let caught = runwhere_sim::sabotage(threads, |one| {
        let defect = format!("{:?}", one.defect);
        match &one.by {
            Some((seed, broken)) => println!("{defect:<26} {seed:>6}  {:?}", broken.invariant),
            None => println!("{defect:<26} {:>6}  NOT CAUGHT", "-"),
        }
    });
    let through = caught.iter().filter(|one| one.by.is_none()).count();
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} defects in {seconds:.1} s, {through} got through\n", caught.len());
    through == 0
}

#[cfg(feature = "sabotage")]
fn bench(seeds: u64) {
    let (all, kinds) = runwhere_sim::bench(seeds);
    println!("{} steps of {seeds} seeds: {} a second", all.steps, all.per_second());
    for (name, pace) in kinds {
        println!("  {:>8} {name}: {} a second", pace.steps, pace.per_second());
    }
}
