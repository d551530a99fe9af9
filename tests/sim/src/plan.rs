//! What a seed makes happen: the kind of cloud, the jobs, the faults and when they come.

use std::time::Duration;

use runwhere_model::ErrorKind;
use runwhere_providers::testing::{Outcome, SimCloud, SimProfile, Verb};

use crate::rng::Rng;

/// Something from outside, at its time after the start.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The job with this number is submitted.
    Submit(usize),
    /// A user stops it.
    Stop(usize),
    /// The broker is gone, and there again at once.
    Crash,
    /// Commits fail in so many of 100 cases.
    StoreFails(u64),
    /// A live node fails, is reclaimed or powered off.
    NodeFails,
    NodeReclaimed,
    NodeHalts,
    /// The agents can, or cannot, reach the broker.
    Partition(bool),
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedJob {
    /// How long the program runs, and how it ends.
    pub(crate) runs: Duration,
    pub(crate) exit_code: i32,
    pub(crate) limit_seconds: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) profile: SimProfile,
    pub(crate) jobs: Vec<PlannedJob>,
    /// In the order of their times.
    pub(crate) acts: Vec<Act>,
}

impl Plan {
    pub(crate) fn of(rng: &Rng) -> Self {
        let mut profiles = SimProfile::all();
        let profile = profiles.swap_remove(pick(rng, profiles.len()));
        let seconds = |below| Duration::from_secs(rng.below(below));
        let mut acts = Vec::new();
        let jobs: Vec<PlannedJob> = (0..=pick(rng, 3))
            .map(|number| {
                let at = seconds(120);
                acts.push(Act { at, what: What::Submit(number) });
                if rng.percent(50) {
                    acts.push(Act { at: at + seconds(4000), what: What::Stop(number) });
                }
                let long = if rng.percent(20) { 12_000 } else { 900 };
                PlannedJob {
                    runs: seconds(long),
                    exit_code: i32::from(rng.percent(30)),
                    limit_seconds: rng.percent(30).then(|| 1 + rng.below(1200)),
                }
            })
            .collect();
        for _ in 0..rng.below(4) {
            let at = seconds(3000);
            match rng.below(6) {
                0 | 1 => acts.push(Act { at, what: What::Crash }),
                2 => {
                    acts.push(Act { at, what: What::StoreFails(20 + rng.below(80)) });
                    acts.push(Act { at: at + seconds(300), what: What::StoreFails(0) });
                }
                3 => acts.push(Act {
                    at,
                    what: match rng.below(3) {
                        0 => What::NodeFails,
                        1 => What::NodeReclaimed,
                        _ => What::NodeHalts,
                    },
                }),
                _ => {
                    acts.push(Act { at, what: What::Partition(true) });
                    acts.push(Act { at: at + seconds(900), what: What::Partition(false) });
                }
            }
        }
        acts.sort_by_key(|act| act.at);
        Self { profile, jobs, acts }
    }

    /// Scripts the cloud's faults.
    pub(crate) fn script(rng: &Rng, cloud: &SimCloud) {
        if rng.percent(20) {
            return;
        }
        for verb in [Verb::Launch, Verb::Find, Verb::Describe, Verb::Terminate] {
            for _ in 0..rng.below(7) {
                cloud.script(verb, outcome(rng, verb));
            }
        }
    }
}

fn outcome(rng: &Rng, verb: Verb) -> Outcome {
    let kinds = [ErrorKind::Transient, ErrorKind::Capacity, ErrorKind::Quota];
    match (rng.below(12), verb) {
        (0, _) => Outcome::DoneReplyLost,
        (1, _) => Outcome::NotDoneReplyLost,
        (2, Verb::Launch) => Outcome::FailedButDone(kinds[pick(rng, kinds.len())]),
        (3, Verb::Launch) => Outcome::FailedNotDone(kinds[pick(rng, kinds.len())]),
        (3, _) => Outcome::FailedNotDone(ErrorKind::Transient),
        (4, _) => Outcome::Throttle(rng.percent(50).then(|| Duration::from_secs(rng.below(60)))),
        (5, _) if rng.percent(30) => Outcome::Auth,
        (6, Verb::Launch) => Outcome::Surplus(1 + u32::from(rng.percent(50))),
        (7, Verb::Launch) => Outcome::CapacityLater,
        (6 | 7, Verb::Terminate) => Outcome::AckButLives,
        (6 | 7, Verb::Find) => Outcome::Incomplete,
        (8, _) => {
            let then = [Outcome::Ok, Outcome::DoneReplyLost, Outcome::NotDoneReplyLost];
            let after = Duration::from_secs(rng.below(200));
            Outcome::Delay(after, Box::new(then[pick(rng, then.len())].clone()))
        }
        (_, _) => Outcome::Ok,
    }
}

/// An index below `len`.
pub(crate) fn pick(rng: &Rng, len: usize) -> usize {
    usize::try_from(rng.below(u64::try_from(len).unwrap_or(1))).unwrap_or(0)
}
