//! What a seed makes happen: the kind of cloud, the jobs, the users, the faults and when they come.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_engine::TrialState;
use runwhere_providers::testing::{SimProfile, Verb};
use rust_decimal::Decimal;

use crate::coverage::UserAction;
use crate::fault::{Class, Faults};
use crate::fuse::{CrashPoint, Moment};
use crate::rng::Rng;

/// Something from outside, at its time after the start.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The job with this number is submitted; again = with the key of the first time.
    Submit(usize),
    /// A user stops it, deletes it, or goes on with it.
    Stop(usize),
    Delete(usize, bool),
    Resume(usize),
    /// A broker process is killed, and started again after a while.
    Crash(Duration),
    /// Commits fail in so many of 100 cases.
    StoreFails(u64),
    /// A live node fails, is reclaimed or powered off.
    NodeFails,
    NodeReclaimed,
    NodeHalts,
    /// A node that had ended runs again, by the cloud's doing.
    NodeReturns,
    /// An agent is killed and starts again.
    AgentFails,
    /// A second agent with the token of a live node, as on a copied disk.
    Twin,
    /// The agents can, or cannot, reach the broker.
    Partition(bool),
    /// An offer's price becomes so many of 100 parts; the catalogue hears of it or does not.
    Price {
        offer: usize,
        percent: u32,
        heard: bool,
    },
    /// The account's rights are taken away, or given back.
    Revoked(bool),
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedJob {
    pub(crate) trials: u32,
    /// Which of the cloud's offers.
    pub(crate) offer: usize,
    /// How long the program runs, and how it ends.
    pub(crate) runs: Duration,
    pub(crate) exit_code: i32,
    /// Every so many trials one fails, whatever the others do; 0 = none.
    pub(crate) fails_every: u32,
    pub(crate) limit_seconds: Option<u64>,
    /// Seconds between two lines of its log.
    pub(crate) log_every: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) profile: SimProfile,
    pub(crate) start: Timestamp,
    /// Broker processes on one store.
    pub(crate) replicas: usize,
    /// The store is a SQLite file and logs are files; else both are kept in memory.
    pub(crate) on_disk: bool,
    /// Store calls take time, so that others come between.
    pub(crate) slow_store: bool,
    pub(crate) budget: Option<Decimal>,
    /// How many nodes of an offer there are, where it is not the usual number: trials share them.
    pub(crate) stock: Option<u32>,
    pub(crate) jobs: Vec<PlannedJob>,
    /// In the order of their times.
    pub(crate) acts: Vec<Act>,
    pub(crate) faults: Faults,
    pub(crate) crashes: Vec<CrashPoint>,
    /// The first job is stopped at this effect.
    pub(crate) stop_at: Option<u64>,
    /// What a user does to the first job at the instant at which its first trial is so.
    pub(crate) upon: Option<(TrialState, UserAction)>,
}

impl PlannedJob {
    /// How the program of one trial ends.
    pub(crate) fn exit_code_of(&self, index: u32) -> i32 {
        let fails = self.fails_every > 0 && (index + 1).is_multiple_of(self.fails_every);
        if fails { 1 } else { self.exit_code }
    }
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let rng = &Rng::new(seed, 1);
        let profile = rng.one_of(&SimProfile::all()).clone();
        let on_disk = rng.percent(10);
        let replicas = match rng.below(100) {
            _ if on_disk => 1,
            0..70 => 1,
            70..90 => 2,
            _ => 3,
        };
        let jobs: Vec<PlannedJob> = (0..=rng.below(3)).map(|_| job(rng)).collect();
        let mut acts = Vec::new();
        for number in 0..jobs.len() {
            users(rng, number, &mut acts);
        }
        for _ in 0..rng.below(5) {
            trouble(rng, &mut acts);
        }
        acts.sort_by_key(|act| act.at);
        let crashes = (0..rng.below(8).saturating_sub(4))
            .map(|_| CrashPoint {
                effect: rng.below(120),
                moment: *rng.one_of(&Moment::ALL),
                sleeps: None,
            })
            .collect();
        // Somewhere in an hour, so that short runs pass into the next one too.
        let start = 1_767_225_600 + i64::try_from(rng.below(3600)).unwrap_or(0);
        let plan = Self {
            seed,
            profile,
            start: Timestamp::from_second(start).unwrap_or(Timestamp::UNIX_EPOCH),
            replicas,
            on_disk,
            slow_store: rng.percent(if replicas > 1 { 70 } else { 15 }),
            budget: rng.percent(20).then(|| Decimal::from(rng.below(30))),
            stock: rng.percent(15).then(|| u32::try_from(1 + rng.below(4)).unwrap_or(1)),
            jobs,
            acts,
            faults: Faults::of(rng),
            crashes,
            stop_at: None,
            upon: None,
        };
        // What chance alone brings about too rarely.
        let rng = &Rng::new(seed, 8);
        match Rng::new(seed, 7).below(100) {
            0..6 => plan.with_late_surplus(rng),
            6..10 => plan.with_unheard_agent(rng),
            10..35 => plan.with_user_upon(rng),
            35..50 if plan.replicas > 1 => plan.with_start_beside_launch(rng),
            _ => plan,
        }
    }

    /// The same with one job of so many trials, some of which fail, on fewer machines than that.
    pub(crate) fn with_trials(mut self, trials: u32) -> Self {
        let rng = &Rng::new(self.seed, 9);
        self.jobs.truncate(1);
        let job = &mut self.jobs[0];
        job.trials = trials;
        job.offer = 1;
        job.runs = rng.seconds(300);
        job.fails_every = u32::try_from(rng.below(5)).unwrap_or(0);
        self.stock = Some(1 + u32::try_from(rng.below(u64::from(trials))).unwrap_or(0));
        self.acts.retain(|act| match act.what {
            What::Submit(number) | What::Stop(number) | What::Resume(number) => number == 0,
            What::Delete(number, _) => number == 0,
            _ => true,
        });
        self
    }

    /// The same, but nobody hears the agent of its first job while its nodes are looked for.
    fn with_unheard_agent(mut self, rng: &Rng) -> Self {
        let looks = Class::of(Verb::Find);
        self.faults.launch_unanswered(looks[rng.index(looks.len())]);
        self.jobs.truncate(1);
        self.jobs[0].trials = 1;
        self.acts = vec![
            Act { at: Duration::ZERO, what: What::Partition(true) },
            Act { at: Duration::from_secs(1), what: What::Submit(0) },
            Act { at: Duration::from_secs(550), what: What::Partition(false) },
        ];
        self
    }

    /// The same, but a process starts while another one's launch is on its way.
    fn with_start_beside_launch(mut self, rng: &Rng) -> Self {
        self.faults.launch_slow();
        self.jobs.truncate(1);
        self.acts.retain(|act| match act.what {
            What::Submit(number) | What::Stop(number) | What::Resume(number) => number == 0,
            What::Delete(number, _) => number == 0,
            What::Crash(_) => false,
            _ => true,
        });
        self.acts.iter_mut().filter(|act| matches!(act.what, What::Submit(0))).for_each(|act| {
            act.at = Duration::from_secs(1);
        });
        for _ in 1..self.replicas {
            let at = Duration::from_secs(2) + rng.seconds(6);
            self.acts.push(Act { at, what: What::Crash(rng.seconds(4)) });
        }
        self.crashes.clear();
        self.acts.sort_by_key(|act| act.at);
        self
    }

    /// The same, but a user does something to the first job as soon as it is in some state.
    fn with_user_upon(mut self, rng: &Rng) -> Self {
        let state = *rng.one_of(&TrialState::ALL);
        self.upon = Some((state, *rng.one_of(&UserAction::ALL)));
        self.jobs[0].trials = 1;
        match state {
            TrialState::Lost => {
                self.jobs[0].runs = Duration::from_secs(900);
                let at = Duration::from_secs(240) + rng.seconds(200);
                self.acts.push(Act { at, what: What::NodeFails });
            }
            TrialState::TimedOut => {
                self.jobs[0].runs = Duration::from_secs(900);
                self.jobs[0].limit_seconds = Some(20 + rng.below(60));
            }
            _ => {}
        }
        // Nobody comes first.
        self.acts.retain(|act| {
            !matches!(act.what, What::Stop(0) | What::Delete(0, _) | What::Resume(0))
        });
        self.acts.sort_by_key(|act| act.at);
        self
    }

    /// The same, but its first job works for long while nodes come up that nobody asked for: what
    /// becomes of calls for them matters most at work.
    fn with_late_surplus(mut self, rng: &Rng) -> Self {
        let ends = Class::of(Verb::Terminate);
        self.faults.surplus_later(ends[rng.index(ends.len())]);
        self.jobs.truncate(1);
        self.jobs[0].trials = 1;
        self.jobs[0].runs = Duration::from_secs(1200) + rng.seconds(600);
        self.jobs[0].limit_seconds = None;
        self.budget = None;
        let early = |act: &Act| act.at < Duration::from_secs(1000);
        self.acts.retain(|act| match act.what {
            What::Submit(number) => number == 0,
            What::Stop(number) | What::Resume(number) => number == 0 && !early(act),
            What::Delete(number, _) => number == 0 && !early(act),
            What::Revoked(_) | What::Price { .. } => false,
            _ => true,
        });
        self
    }
}

fn job(rng: &Rng) -> PlannedJob {
    let trials = match rng.below(100) {
        0..65 => 1,
        65..85 => 2,
        85..97 => 3 + rng.below(2),
        _ => 5 + rng.below(12),
    };
    let long = if trials == 1 && rng.percent(8) { 9_000 } else { 600 };
    PlannedJob {
        trials: u32::try_from(trials).unwrap_or(1),
        offer: if trials == 1 && rng.percent(10) { 0 } else { 1 + rng.index(2) },
        runs: rng.seconds(long),
        exit_code: i32::from(rng.percent(30)),
        fails_every: if trials > 1 && rng.percent(40) {
            2 + u32::try_from(rng.below(3)).unwrap_or(0)
        } else {
            0
        },
        limit_seconds: rng.percent(30).then(|| 1 + rng.below(900)),
        log_every: 1 + rng.below(200),
    }
}

/// What users do with a job.
fn users(rng: &Rng, number: usize, acts: &mut Vec<Act>) {
    let mut add = |at, what| acts.push(Act { at, what });
    let begun = rng.seconds(120);
    add(begun, What::Submit(number));
    if rng.percent(20) {
        let again = begun + rng.seconds(if rng.percent(50) { 1 } else { 600 });
        add(again, What::Submit(number));
    }
    let later = |rng: &Rng| begun + rng.seconds(*rng.one_of(&[2, 30, 120, 400, 1500]));
    if rng.percent(45) {
        let at = later(rng);
        add(at, What::Stop(number));
        if rng.percent(20) {
            add(at, What::Stop(number));
        }
    }
    if rng.percent(25) {
        add(later(rng), What::Delete(number, rng.percent(60)));
    }
    if rng.percent(30) {
        add(later(rng), What::Resume(number));
    }
}

/// What goes wrong around it.
fn trouble(rng: &Rng, acts: &mut Vec<Act>) {
    let at = rng.seconds(*rng.one_of(&[60, 300, 1200]));
    let mut add = |at, what| acts.push(Act { at, what });
    match rng.below(15) {
        0..3 => add(at, What::Crash(rng.seconds(*rng.one_of(&[1, 30, 1200])))),
        3 => {
            add(at, What::StoreFails(20 + rng.below(80)));
            add(at + rng.seconds(300), What::StoreFails(0));
        }
        4 => add(at, What::NodeFails),
        5 => add(at, What::NodeReclaimed),
        6 => add(at, What::NodeHalts),
        14 => add(at + rng.seconds(600), What::NodeReturns),
        7 => add(at, What::AgentFails),
        12 | 13 => add(at, What::Twin),
        8 | 9 => {
            add(at, What::Partition(true));
            add(at + rng.seconds(*rng.one_of(&[20, 500, 900])), What::Partition(false));
        }
        10 => add(
            at,
            What::Price {
                offer: 1 + rng.index(2),
                percent: u32::try_from(50 + rng.below(100)).unwrap_or(100),
                heard: rng.percent(70),
            },
        ),
        _ => {
            add(at, What::Revoked(true));
            add(at + rng.seconds(1200), What::Revoked(false));
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = if self.on_disk { "disk" } else { "memory" };
        writeln!(
            f,
            "cloud {}, {} broker(s), {store}{}, budget {:?}, stock {:?}, from {}",
            self.profile.name,
            self.replicas,
            if self.slow_store { ", slow store" } else { "" },
            self.budget,
            self.stock,
            self.start
        )?;
        for (number, job) in self.jobs.iter().enumerate() {
            writeln!(f, "job {number}: {job:?}")?;
        }
        for act in &self.acts {
            writeln!(f, "after {:?}: {:?}", act.at, act.what)?;
        }
        for point in &self.crashes {
            writeln!(f, "crash: {point:?}")?;
        }
        if let Some((state, action)) = self.upon {
            writeln!(f, "as soon as it is {}: {action:?}", state.as_str())?;
        }
        if let Some(effect) = self.stop_at {
            writeln!(f, "stop at effect {effect}")?;
        }
        Ok(())
    }
}
