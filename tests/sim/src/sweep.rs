//! The crash sweep: each scenario is run once to count its effects (provider calls and commits),
//! then again and again with a process that ends before one, after it before its answer, and after
//! the answer before anything is written; and with two such ends. The replica sweep does the same
//! with three processes on one store, one of which sleeps there for longer than its calls are
//! waited for, and goes on when two others have recovered what it had under way.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_providers::testing::{SimProfile, Verb};
use rust_decimal::Decimal;

use crate::fault::{Class, Faults};
use crate::fleet::{Summary, run_all, run_safely};
use crate::fuse::{CrashPoint, Moment};
use crate::plan::{Act, Plan, PlannedJob, What};
use crate::rng::Rng;

/// Effects of the large scenario at which something happens, about.
const LARGE_EFFECTS: u64 = 100;
/// Pairs of ends for each scenario.
const PAIRS: u64 = 100;
/// How long a process sleeps: beyond its call's time, beyond its sweeper's turn, and for so long
/// that everything about it has ended.
const SLEEPS: [Duration; 3] =
    [Duration::from_secs(150), Duration::from_secs(400), Duration::from_secs(1500)];

/// What the sweep came to.
#[derive(Debug)]
pub struct Sweep {
    /// Each scenario with the number of its effects.
    pub scenarios: Vec<(&'static str, u64)>,
    /// Its runs.
    pub summary: Summary,
}

/// Sweeps over all scenarios.
pub fn sweep(threads: Option<usize>) -> Sweep {
    let mut plans = Vec::new();
    let mut counts = Vec::new();
    let point = |effect, moment| CrashPoint { effect, moment, sleeps: None };
    for (name, plan) in scenarios() {
        let whole = run_safely(&plan);
        let effects = whole.tally.effects;
        counts.push((name, effects));
        plans.push(plan.clone());
        for effect in 0..effects {
            for moment in Moment::ALL {
                plans.push(Plan { crashes: vec![point(effect, moment)], ..plan.clone() });
            }
        }
        plans.extend(pairs(&plan, effects));
    }
    // The last one is large: a user's stop at each of its effects, and an end at some all over it.
    let (name, plan) = many_trials();
    let effects = run_safely(&plan).tally.effects;
    counts.push((name, effects));
    let stride = usize::try_from(effects / LARGE_EFFECTS).unwrap_or(usize::MAX).max(1);
    plans.extend((0..effects).map(|effect| Plan { stop_at: Some(effect), ..plan.clone() }));
    for (effect, moment) in (0..effects).step_by(stride).zip(Moment::ALL.into_iter().cycle()) {
        plans.push(Plan { crashes: vec![point(effect, moment)], ..plan.clone() });
    }
    plans.extend(pairs(&plan, effects));
    let summary = run_all(plans.len(), |place| plans[place].clone(), threads);
    Sweep { scenarios: counts, summary }
}

/// Sweeps over all scenarios with processes that sleep.
pub fn replica_sweep(threads: Option<usize>) -> Sweep {
    let mut plans = Vec::new();
    let mut counts = Vec::new();
    for (name, plan) in scenarios() {
        let plan = Plan { replicas: 3, on_disk: false, slow_store: true, ..plan };
        let effects = run_safely(&plan).tally.effects;
        counts.push((name, effects));
        plans.push(plan.clone());
        let sleeps = SLEEPS.into_iter().cycle();
        for (effect, sleeps) in (0..effects).zip(sleeps) {
            for moment in Moment::ALL {
                let point = CrashPoint { effect, moment, sleeps: Some(sleeps) };
                plans.push(Plan { crashes: vec![point], ..plan.clone() });
            }
        }
        // One sleeps, and another one ends meanwhile.
        plans.extend(pairs(&plan, effects).into_iter().map(|mut plan| {
            plan.crashes[0].sleeps = Some(SLEEPS[plan.crashes[1].effect as usize % SLEEPS.len()]);
            plan
        }));
    }
    let summary = run_all(plans.len(), |place| plans[place].clone(), threads);
    Sweep { scenarios: counts, summary }
}

/// The same plan with two ends of a process. The second one counts on from the first: it can meet
/// the recovery.
fn pairs(plan: &Plan, effects: u64) -> Vec<Plan> {
    let rng = Rng::new(effects, 6);
    let pair = |_| {
        let first = rng.below(effects);
        let second = first + 1 + rng.below(effects);
        let crashes = [first, second]
            .map(|effect| CrashPoint { effect, moment: *rng.one_of(&Moment::ALL), sleeps: None })
            .to_vec();
        Plan { crashes, ..plan.clone() }
    };
    (0..PAIRS).map(pair).collect()
}

/// Sixteen trials on six machines, some of which fail.
fn many_trials() -> (&'static str, Plan) {
    let submit = Act { at: Duration::from_secs(1), what: What::Submit(0) };
    let mut plan = plan(SimProfile::token(), vec![submit], Faults::default());
    plan.jobs[0].trials = 16;
    plan.jobs[0].fails_every = 5;
    plan.stock = Some(6);
    ("sixteen trials on six machines, some fail; crashes and stops", plan)
}

fn scenarios() -> Vec<(&'static str, Plan)> {
    use Class as C;
    let token = SimProfile::token;
    let after = |seconds, what| Act { at: Duration::from_secs(seconds), what };
    let submit = || after(1, What::Submit(0));
    let faults = Faults::named;
    let plain = |profile| plan(profile, vec![submit()], Faults::default());
    let mut all = vec![
        ("a run from its beginning to its end", plain(token())),
        ("nothing but a label tells whose a node is", plain(SimProfile::label_only())),
        (
            "the answer of the launch is lost",
            plan(
                SimProfile::unique_name(),
                vec![submit()],
                faults(&[(Verb::Launch, 0, C::DoneReplyLost)]),
            ),
        ),
        (
            "the launch is lost on its way",
            plan(
                SimProfile::label_only(),
                vec![submit()],
                faults(&[(Verb::Launch, 0, C::NotDoneReplyLost)]),
            ),
        ),
        (
            "an error that brings a node",
            plan(
                SimProfile::error_with_node(),
                vec![submit()],
                faults(&[(Verb::Launch, 0, C::FailedButDone)]),
            ),
        ),
        (
            "more nodes than asked for",
            plan(token(), vec![submit()], faults(&[(Verb::Launch, 0, C::Surplus)])),
        ),
        (
            "capacity that fails after the launch",
            plan(
                SimProfile::unique_name(),
                vec![submit()],
                faults(&[(Verb::Launch, 0, C::CapacityLater)]),
            ),
        ),
        (
            "a stop while the launch is under way",
            plan(
                token(),
                vec![submit(), after(2, What::Stop(0))],
                faults(&[(Verb::Launch, 0, C::Slow)]),
            ),
        ),
        (
            "stopped at work, resumed, deleted",
            plan(
                token(),
                vec![
                    submit(),
                    after(60, What::Stop(0)),
                    after(200, What::Resume(0)),
                    after(300, What::Delete(0, true)),
                ],
                Faults::default(),
            ),
        ),
        (
            "the end is acknowledged, its answers are lost, the node lives on",
            plan(
                token(),
                vec![submit(), after(50, What::Stop(0))],
                faults(&[
                    (Verb::Terminate, 0, C::AckButLives),
                    (Verb::Terminate, 1, C::DoneReplyLost),
                ]),
            ),
        ),
        (
            "a node that fails at work",
            plan(token(), vec![submit(), after(70, What::NodeFails)], Faults::default()),
        ),
        ("three trials within a budget, on disk", plain(token())),
    ];
    if let Some((_, plan)) = all.last_mut() {
        plan.jobs[0].trials = 3;
        plan.budget = Some(Decimal::from(20));
        plan.on_disk = true;
    }
    all
}

fn plan(profile: SimProfile, acts: Vec<Act>, faults: Faults) -> Plan {
    // Shortly before the hour, so that a segment is cut at work.
    let start = 1_767_225_600 + 3600 - 60;
    let job = PlannedJob {
        trials: 1,
        offer: 1,
        runs: Duration::from_secs(90),
        exit_code: 0,
        fails_every: 0,
        limit_seconds: None,
        log_every: 30,
    };
    Plan {
        seed: 0,
        profile,
        start: Timestamp::from_second(start).unwrap_or(Timestamp::UNIX_EPOCH),
        replicas: 1,
        on_disk: false,
        slow_store: false,
        budget: None,
        stock: None,
        jobs: vec![job],
        acts,
        faults,
        crashes: Vec::new(),
        stop_at: None,
        upon: None,
    }
}
