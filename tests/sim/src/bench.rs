//! How many decisions the engine takes in a second: the steps of many seeds are recorded and taken
//! again, one after the other, on one core.

use std::hint::black_box;
use std::time::{Duration, Instant};

use runwhere_engine::tape::{self, Input, Taped};

use crate::fleet::run_safely;
use crate::plan::Plan;

/// Seeds whose steps are taken in one go.
const TOGETHER: usize = 40;

/// Steps that are copied and taken in one go.
const AT_A_TIME: usize = 64;

/// Steps of one kind, and the time that they took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// How many.
    pub steps: u64,
    /// How long.
    pub took: Duration,
}

impl Pace {
    /// Steps in a second.
    pub fn per_second(&self) -> u64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 { (self.steps as f64 / seconds) as u64 } else { 0 }
    }

    fn add(&mut self, steps: usize, took: Duration) {
        self.steps += steps as u64;
        self.took += took;
    }
}

/// Plays the recorded steps of so many seeds: all together, and by what they took in.
pub fn bench(seeds: u64) -> (Pace, [(&'static str, Pace); 4]) {
    let mut kinds = [("wake", Pace::default()); 4];
    for (kind, name) in kinds.iter_mut().zip(["wake", "outcome", "agent", "stop"]) {
        kind.0 = name;
    }
    let mut all = Pace::default();
    for first in (0..seeds).step_by(TOGETHER) {
        tape::begin();
        for seed in first..seeds.min(first + TOGETHER as u64) {
            run_safely(&Plan::of(seed));
        }
        let taped = tape::end();
        all.add(taped.len(), play(&taped.iter().collect::<Vec<_>>()));
        for (place, (_, pace)) in kinds.iter_mut().enumerate() {
            let of_kind: Vec<&Taped> =
                taped.iter().filter(|one| kind(&one.input) == place).collect();
            pace.add(of_kind.len(), play(&of_kind));
        }
    }
    (all, kinds)
}

/// Takes steps again, some at a time, so that it is the steps that are measured and not the memory
/// that so many recorded ones fill.
fn play(steps: &[&Taped]) -> Duration {
    steps.chunks(AT_A_TIME).map(play_some).sum()
}

/// Their units and contexts are copied before the time begins.
fn play_some(steps: &[&Taped]) -> Duration {
    let ready: Vec<_> = steps.iter().map(|one| (one, one.unit.clone(), one.context())).collect();
    let mut done = Vec::with_capacity(ready.len());
    let begun = (Instant::now(), on_processor());
    for (one, unit, context) in ready {
        done.push(one.play(unit, &context));
    }
    let took = match (begun.1, on_processor()) {
        (Some(from), Some(to)) => to.saturating_sub(from),
        _ => begun.0.elapsed(),
    };
    black_box(done);
    took
}

/// How long this thread has had a processor, where the system says so: beside other work the time on
/// the wall tells little.
fn on_processor() -> Option<Duration> {
    // Says it to the last tick only, so a step aside first.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

fn kind(input: &Input) -> usize {
    match input {
        Input::Wake => 0,
        Input::Apply(..) => 1,
        Input::Agent(..) => 2,
        Input::Stop => 3,
    }
}
