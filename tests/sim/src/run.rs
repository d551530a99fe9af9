//! One run of one plan.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::NodePhase;
use runwhere_providers::testing::Truth;

use crate::check;
use crate::coverage::Coverage;
use crate::fault::{CallNumber, Class};
use crate::invariant::{Invariant, Violation};
use crate::plan::{Plan, What};
use crate::replica::{Replica, Slot};
use crate::user::newest_state;
use crate::world::World;

/// Everything must have settled so long after the last thing from outside.
const PATIENCE: Duration = Duration::from_secs(8 * 3600);
/// More steps than any run takes: it turns in a circle.
const MOST_STEPS: u64 = 200_000;

/// Trials that share a few machines which have to be kept for a while come one after the other.
fn patience(plan: &Plan) -> Duration {
    let kept = plan.profile.capabilities.minimum_reservation.unwrap_or_default();
    let trials = plan.jobs.iter().map(|job| job.trials).sum();
    PATIENCE + if plan.stock.is_some() { kept * trials } else { Duration::ZERO }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Hash of everything that happened; the same for every run of the plan.
    pub hash: u64,
    /// What happened, line by line, if it was kept.
    pub trace: Vec<String>,
    /// What must not have happened.
    pub wrong: Vec<Violation>,
    /// What was visited.
    pub coverage: Coverage,
    /// Numbers.
    pub tally: Tally,
    /// Calls that went wrong by plan.
    pub(crate) faults: Vec<(CallNumber, Class)>,
}

/// Numbers of one or many runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs on the SQLite store.
    pub on_disk: u64,
    /// Provider calls and commits.
    pub effects: u64,
    /// Nodes that the cloud made.
    pub nodes: u64,
    /// Nodes left at the end.
    pub leaked: u64,
    /// Tokens launched more than once.
    pub twice: u64,
    /// Provider calls that went wrong by plan.
    pub faults: u64,
    /// Ends of broker processes.
    pub crashes: u64,
    /// Processes that slept through something.
    pub sleeps: u64,
    /// Leases whose times the cloud stated, and those whose times it did not.
    pub stated: u64,
    /// See [`Tally::stated`].
    pub estimated: u64,
    /// Microseconds by which charges miss the cloud's own meter, over all leases of clouds that
    /// state times.
    pub misbilled_micros: u64,
    /// The same over all leases of clouds that do not.
    pub estimate_micros: u64,
    /// Nodes whose estimate the cloud's bill has settled.
    pub settled: u64,
    /// Microseconds by which what stands in the ledger then misses the cloud's own meter.
    pub settled_micros: u64,
    /// Instants at which the invariants were checked.
    pub steps: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "effects swept       {}", self.effects)?;
        writeln!(f, "instants checked    {}", self.steps)?;
        writeln!(f, "calls gone wrong    {}", self.faults)?;
        writeln!(f, "processes killed    {}", self.crashes)?;
        writeln!(f, "processes paused    {}", self.sleeps)?;
        writeln!(f, "runs on disk        {}", self.on_disk)?;
        writeln!(f, "nodes launched      {}", self.nodes)?;
        writeln!(f, "nodes leaked        {}", self.leaked)?;
        writeln!(f, "launched twice      {}", self.twice)?;
        writeln!(
            f,
            "mis-billed          {} us of {} leases whose times the cloud states",
            self.misbilled_micros, self.stated
        )?;
        writeln!(
            f,
            "mis-billed          {} us of {} nodes that the cloud's bill has settled",
            self.settled_micros, self.settled
        )?;
        writeln!(
            f,
            "estimates miss by   {} s in all, of {} leases, before that",
            self.estimate_micros / 1_000_000,
            self.estimated
        )
    }
}

impl Tally {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.on_disk += other.on_disk;
        self.effects += other.effects;
        self.nodes += other.nodes;
        self.leaked += other.leaked;
        self.twice += other.twice;
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.sleeps += other.sleeps;
        self.stated += other.stated;
        self.estimated += other.estimated;
        self.misbilled_micros += other.misbilled_micros;
        self.estimate_micros += other.estimate_micros;
        self.settled += other.settled;
        self.settled_micros += other.settled_micros;
        self.steps += other.steps;
    }
}

/// Runs the plan of a seed from its first submit until everything has settled; with one job of so
/// many trials, if that is wanted.
pub fn run(seed: u64, trials: Option<u32>, keep_trace: bool) -> Report {
    run_plan(plan(seed, trials), keep_trace)
}

pub(crate) fn plan(seed: u64, trials: Option<u32>) -> Plan {
    let plan = Plan::of(seed);
    match trials {
        Some(trials) => plan.with_trials(trials),
        None => plan,
    }
}

pub(crate) fn run_plan(plan: Plan, keep_trace: bool) -> Report {
    let seed = plan.seed;
    let mut run = Run::new(plan, keep_trace);
    run.world.trace.line(&run.world.plan);
    let wrong = run.finish();
    run.report(seed, wrong)
}

struct Run {
    world: World,
    slots: Vec<Slot>,
    next_act: usize,
    tally: Tally,
}

impl Run {
    fn new(plan: Plan, keep_trace: bool) -> Self {
        let world = World::new(plan, keep_trace);
        let slots = (0..world.plan.replicas).map(|_| Slot::Down(world.plan.start)).collect();
        Self { world, slots, next_act: 0, tally: Tally::default() }
    }

    fn finish(&mut self) -> Vec<Violation> {
        let last = self.world.plan.acts.last().map_or(Duration::ZERO, |act| act.at);
        let deadline = self.world.at(last + patience(&self.world.plan));
        let mut settled_at = None;
        loop {
            self.tally.steps += 1;
            self.start_processes();
            self.work();
            self.act_when_reached();
            let mut truth = self.world.truth();
            let sent = self.world.send_users(&self.slots);
            if self.world.meet_agents(&truth, &mut self.slots) || sent {
                self.work();
                truth = self.world.truth();
            }
            self.bury_processes();
            let wrong = check::always(&self.world, &truth);
            if !wrong.is_empty() {
                return wrong;
            }
            let now = self.world.now();
            let acting = self.act_next(now);
            if acting {
                continue;
            }
            let rest = self.next_act == self.world.plan.acts.len()
                && truth.live().next().is_none()
                && check::settled(&self.world);
            match (rest, settled_at) {
                (true, None) => settled_at = Some(now),
                // A little longer: nothing may come to life again.
                (true, Some(since)) if now > later(since, Duration::from_secs(1800)) => {
                    return check::finally(&self.world, &truth, &mut self.tally);
                }
                (true, Some(_)) => {}
                (false, _) => settled_at = None,
            }
            if now > deadline || self.tally.steps > MOST_STEPS {
                return vec![self.unsettled(&truth)];
            }
            self.world.clock.go_to(self.next_instant(now, &truth, settled_at));
        }
    }

    /// What a user does at the effect, or the state, of the plan.
    fn act_when_reached(&mut self) {
        let reached = |effect: &u64| *effect <= self.world.effects.number();
        if self.world.plan.stop_at.as_ref().is_some_and(reached) {
            self.world.plan.stop_at = None;
            self.world.trace.line("stop");
            self.world.act(&What::Stop(0), &mut self.slots);
        }
        if let Some((state, action)) = self.world.plan.upon
            && newest_state(&self.world.shelf, 0) == Some(state)
        {
            self.world.plan.upon = None;
            let what = action.on(0);
            self.world.trace.line(format_args!("{what:?}"));
            self.world.act(&what, &mut self.slots);
        }
    }

    /// Makes the next act happen if its time has come.
    fn act_next(&mut self, now: Timestamp) -> bool {
        let Some(act) = self.world.plan.acts.get(self.next_act).cloned() else { return false };
        if self.world.at(act.at) > now {
            return false;
        }
        self.next_act += 1;
        self.world.trace.line(format_args!("{:?}", act.what));
        match act.what {
            What::Crash(down) => {
                let place = self.world.rng.index(self.slots.len());
                self.kill(place, down);
            }
            what => self.world.act(&what, &mut self.slots),
        }
        true
    }

    fn start_processes(&mut self) {
        let now = self.world.now();
        for slot in &mut self.slots {
            if matches!(slot, Slot::Down(until) if *until <= now) {
                *slot = Slot::Up(Box::new(Replica::start(&self.world)));
            }
            if let Slot::Up(replica) = slot
                && replica.asleep_until.is_some_and(|until| until <= now)
            {
                self.world.trace.line("a process wakes");
                replica.asleep_until = None;
                replica.fuse.wake();
            }
        }
    }

    /// Lets all processes work until each waits, in an order of its own each time.
    fn work(&mut self) {
        let first = match self.slots.len() {
            1 => 0,
            many => self.world.rng.index(many),
        };
        for place in 0..self.slots.len() {
            if let Slot::Up(replica) = &self.slots[(first + place) % self.slots.len()]
                && replica.asleep_until.is_none()
            {
                replica.work();
            }
        }
    }

    /// Takes away the processes that reached a crash point, and lays down those that sleep.
    fn bury_processes(&mut self) {
        let now = self.world.now();
        for (place, slot) in self.slots.iter_mut().enumerate() {
            let Slot::Up(replica) = slot else { continue };
            if let Some(span) = replica.fuse.falls_asleep() {
                self.world.trace.line(format_args!("process {place} sleeps for {span:?}"));
                self.tally.sleeps += 1;
                replica.asleep_until = Some(later(now, span));
                // Its agents turn to others.
                std::mem::take(&mut replica.serving).into_values().for_each(|task| task.abort());
                self.world.sky.log().unnamed.clear();
            }
        }
        for place in 0..self.slots.len() {
            if matches!(&self.slots[place], Slot::Up(replica) if replica.fuse.is_blown()) {
                let down = self.world.rng.seconds(20);
                self.kill(place, down);
            }
        }
    }

    fn kill(&mut self, place: usize, down: Duration) {
        if matches!(self.slots[place], Slot::Down(_)) {
            return;
        }
        self.world.trace.line(format_args!("process {place} is killed"));
        self.tally.crashes += 1;
        // What it was told and had not written is gone with it.
        self.world.sky.log().unnamed.clear();
        // With its runtime goes everything that was under way.
        self.slots[place] = Slot::Down(later(self.world.now(), down));
        self.world.shelf.reopen();
    }

    /// The next deadline or act, but not beyond a node's next change.
    fn next_instant(
        &self,
        now: Timestamp,
        truth: &Truth,
        settled_at: Option<Timestamp>,
    ) -> Timestamp {
        let act = self.world.plan.acts.get(self.next_act).map(|act| self.world.at(act.at));
        let starts = self.slots.iter().filter_map(|slot| match slot {
            Slot::Down(until) => Some(*until),
            Slot::Up(replica) => replica.asleep_until,
        });
        let boot = self.world.plan.profile.delays.boot;
        let boots = truth.live().filter(|node| node.phase == NodePhase::Pending);
        let boots = boots.map(|node| later(node.created_at, boot)).filter(|at| *at > now);
        let live = truth.live().next().map(|_| later(now, Duration::from_secs(30)));
        let waiting = self.world.users_wait().then(|| later(now, Duration::from_secs(2)));
        let over = settled_at.map(|since| later(since, Duration::from_secs(1801)));
        let next = [act, self.world.clock.next_deadline(), live, waiting, over];
        let next = next.into_iter().flatten().chain(starts).chain(boots).min();
        next.unwrap_or_else(|| later(now, Duration::from_secs(30))).max(now)
    }

    fn unsettled(&self, truth: &Truth) -> Violation {
        let written = self.world.shelf.written();
        let open: Vec<String> = written
            .trials
            .values()
            .filter(|trial| !trial.state.is_terminal() || !trial.cleanup_confirmed)
            .map(|trial| {
                let lease = trial.lease.as_ref().and_then(|id| written.leases.get(id));
                format!("{} is {:?} with {lease:?}", trial.id, trial.state)
            })
            .collect();
        let live = truth.live().count();
        Invariant::Settled.broken(format_args!("{live} live nodes, {}", open.join("; ")))
    }

    fn report(mut self, seed: u64, wrong: Vec<Violation>) -> Report {
        let truth = self.world.truth();
        self.tally.on_disk = u64::from(self.world.plan.on_disk);
        self.tally.effects = self.world.effects.number();
        self.tally.nodes = truth.nodes.len() as u64;
        self.tally.leaked = truth.live().count() as u64;
        self.tally.twice = truth.launches.values().filter(|calls| **calls > 1).count() as u64;
        let (hash, trace) = self.world.trace.take();
        // Processes first: what they still hold is of the world.
        self.slots.clear();
        let mut log = self.world.sky.log();
        let (coverage, faults) =
            (std::mem::take(&mut log.coverage), std::mem::take(&mut log.faults));
        self.tally.faults = faults.len() as u64;
        Report { seed, hash, trace, wrong, coverage, tally: self.tally, faults }
    }
}

impl Report {
    pub(crate) fn empty(seed: u64) -> Self {
        Self {
            seed,
            hash: 0,
            trace: Vec::new(),
            wrong: Vec::new(),
            coverage: Coverage::default(),
            tally: Tally::default(),
            faults: Vec::new(),
        }
    }
}

fn later(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
