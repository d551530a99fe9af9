//! One unit on virtual time with a small cloud of hidden truth, and the invariants of every step.

#![expect(unreachable_pub, reason = "shared by several test programs")]
#![allow(dead_code, clippy::allow_attributes, reason = "each of them uses only a part")]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_engine::{
    AgentEvent, Budget, BudgetContext, Call, CallRef, Context, Evidence, FreshLease, Job, JobKind,
    JobSpec, Lease, LeaseState, LedgerEntry, Outcome, Policy, PriceSnapshot, Step, StepError,
    Trial, Unit, UsageSegment,
};
use runwhere_model::{
    Bootstrapping, Capabilities, Currency, Deadman, ErrorKind, Found, GpuCount, HourlyPrice,
    Identity, JobId, Launched, LeaseId, Metering, Money, NodeId, NodePhase, NodeState, PrincipalId,
    ProjectId, ProviderError, ProviderId, StopEffect, Terminated, TrialId, WorkspaceId, cost_total,
};
use rust_decimal::Decimal;

pub const SETTLE: Duration = Duration::from_secs(30);
pub const HOUR: Duration = Duration::from_secs(3600);

/// A node as it really is.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub lease: LeaseId,
    pub created: Timestamp,
    pub stopped: Option<Timestamp>,
    pub gone: Option<Timestamp>,
}

/// What becomes of one call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    None,
    Done,
    NotDone,
    Refused(ErrorKind),
    DoneWithIds(ErrorKind),
    Surplus,
    AckButLives,
    Incomplete,
}

/// A call that was really made and whose answer is still to come.
#[derive(Debug)]
pub struct Pending {
    pub made: CallRef,
    pub call: Call,
    pub outcome: Outcome,
}

pub struct World {
    pub unit: Unit,
    pub now: Timestamp,
    pub started_at: Timestamp,
    pub owner: String,
    pub policy: Policy,
    pub capabilities: Capabilities,
    pub price: Option<HourlyPrice>,
    pub budget: Option<Budget>,
    pub alone: bool,
    pub agent_seen: Option<Timestamp>,
    pub connected: bool,
    pub nodes: Vec<Node>,
    pub pending: Vec<Pending>,
    pub segments: Vec<UsageSegment>,
    pub leases: BTreeMap<LeaseId, Lease>,
    pub launches: BTreeMap<LeaseId, u32>,
    pub events: Vec<String>,
    pub lag: Duration,
    pub shown_after_end: Duration,
    pub held: bool,
    made: u32,
}

pub fn price(cents: i64) -> HourlyPrice {
    HourlyPrice { amount: Decimal::new(cents, 2), currency: Currency::USD }
}

pub fn capabilities() -> Capabilities {
    Capabilities {
        identity: Identity::LabelOnly,
        settle: SETTLE,
        absent_reads: 3,
        tags: true,
        spot: false,
        reclaim_notice: None,
        states_stock: false,
        states_times: true,
        states_usage: false,
        stop: StopEffect::None,
        minimum_reservation: None,
        deadman: Deadman::None,
        bootstrapping: Bootstrapping::UserData,
        needs_public_url: false,
        metering: Metering::PER_SECOND,
        boot_timeout: Duration::from_secs(600),
    }
}

fn job() -> Job {
    let id = JobId::new("job-00000001").unwrap();
    let trial = TrialId::new("job-00000001.0").unwrap();
    Job {
        id: id.clone(),
        version: 1,
        workspace: WorkspaceId::new("w").unwrap(),
        project: ProjectId::new("p").unwrap(),
        principal: PrincipalId::new("me").unwrap(),
        name: "train".into(),
        kind: JobKind::Training,
        trial_specs: Vec::new(),
        spec: JobSpec {
            yaml: String::new(),
            description: None,
            image: None,
            argv: vec!["true".into()],
            env: BTreeMap::new(),
            gpu_count: GpuCount::whole(1).unwrap(),
            gpu_model: None,
            gpu_pretended: false,
            offer: "sim/r/z/on_demand/t".parse().unwrap(),
            ceiling: price(400),
            max_duration_seconds: None,
            sync: None,
            checkpoint: None,
            from_step: None,
            max_price: None,
            decided: None,
        },
        trials: vec![trial],
        created_at: Timestamp::from_second(1_767_225_600).unwrap(),
        resumed: None,
        lineage: id,
        active: true,
        deleted_at: None,
        idempotency_key: None,
        request_sha256: String::new(),
    }
}

impl World {
    pub fn new() -> Self {
        let job = job();
        let trial = Trial::queued(job.trials[0].clone(), &job, 0);
        let now = job.created_at;
        let budget = Budget::unlimited(job.workspace.clone(), job.project.clone(), Currency::USD);
        Self {
            unit: Unit { job, trial, lease: None },
            now,
            started_at: now,
            owner: "broker-1".into(),
            policy: Policy::default(),
            capabilities: capabilities(),
            price: Some(price(360)),
            budget: Some(Budget { limit: Some(Decimal::from(1_000_000)), ..budget }),
            alone: true,
            agent_seen: None,
            connected: false,
            nodes: Vec::new(),
            pending: Vec::new(),
            segments: Vec::new(),
            leases: BTreeMap::new(),
            launches: BTreeMap::new(),
            events: Vec::new(),
            lag: Duration::ZERO,
            shown_after_end: HOUR,
            held: false,
            made: 0,
        }
    }

    pub fn lease(&self) -> &Lease {
        self.unit.lease.as_ref().expect("there is a lease")
    }

    pub fn lease_state(&self) -> LeaseState {
        self.lease().state
    }

    pub fn advance(&mut self, span: Duration) {
        self.now = self.now.checked_add(span).unwrap();
    }

    fn step(
        &mut self,
        recovering: bool,
        decide: impl FnOnce(Unit, &Context<'_>) -> Result<Step, StepError>,
    ) -> Result<(), StepError> {
        let before = self.unit.clone();
        let fresh = LeaseId::new(format!("lease-{:03}", self.leases.len() + 1)).unwrap();
        let (policy, capabilities, owner) =
            (self.policy.clone(), self.capabilities.clone(), self.owner.clone());
        let context = Context {
            now: self.now,
            policy: &policy,
            owner: &owner,
            started_at: self.started_at,
            recovering,
            alone: self.alone,
            price: self.price.map(|price| PriceSnapshot {
                price,
                source: "test".into(),
                observed_at: Some(self.now),
                snapshot: "s".into(),
            }),
            capabilities: Some(&capabilities),
            blocked: None,
            budget: self.budget.clone().map(|budget| BudgetContext { budget, rate: None }),
            fresh: Some(FreshLease { id: fresh, lease_token_sha256: "00".into() }),
            agent_seen: if self.connected { Some(self.now) } else { self.agent_seen },
            siblings_ended: true,
            held: self.held,
        };
        let step = decide(before.clone(), &context)?;
        self.check(&before, &step);
        if let Some(budget) = step.budget {
            self.budget = Some(budget);
        }
        self.segments.extend(step.segments);
        self.events.extend(step.events.iter().map(|event| event.kind.clone()));
        self.unit = step.unit;
        if let Some(lease) = &self.unit.lease {
            self.leases.insert(lease.id.clone(), lease.clone());
        }
        if let Some(call) = step.call {
            let made = self.unit.call_ref(self.now).unwrap();
            if let Call::Launch(lease) = &call {
                *self.launches.entry(lease.clone()).or_default() += 1;
            }
            let outcome = Outcome::Find(Ok(Found { nodes: Vec::new(), complete: false }));
            self.pending.push(Pending { made, call, outcome });
        }
        self.check_money();
        Ok(())
    }

    /// Wakes with the given fate for the call that comes of it, if any.
    pub fn wake(&mut self, fault: Fault) {
        let had = self.pending.len();
        self.step(false, |unit, context| unit.wake(context)).unwrap();
        self.play(had, fault);
    }

    /// The process is gone, with everything under way, and another one takes over.
    pub fn crash(&mut self, fault: Fault) {
        for node in &mut self.nodes {
            node.created = node.created.min(self.now);
        }
        self.pending.clear();
        self.connected = false;
        self.agent_seen = None;
        self.owner.push('+');
        self.started_at = self.now;
        self.step(true, |unit, context| unit.wake(context)).unwrap();
        self.play(0, fault);
    }

    pub fn stop(&mut self) {
        self.step(false, |unit, context| unit.stop(context)).unwrap();
    }

    /// A list shows these nodes, by their places.
    pub fn sight(&mut self, places: &[usize]) {
        let lease = self.lease().id.clone();
        let nodes = places.iter().filter_map(|place| self.view(&self.nodes[*place]));
        let nodes: Vec<_> = nodes.map(|state| (state, None)).collect();
        assert_eq!(nodes.len(), places.len(), "they are there to be seen");
        let now = self.now;
        self.step(false, |unit, context| unit.sighted(&lease, &nodes, now, context)).unwrap();
    }

    pub fn agent(&mut self, event: &AgentEvent) -> Result<(), StepError> {
        let Some(lease) = self.unit.lease.as_ref().map(|lease| lease.id.clone()) else {
            return Err(StepError::Fenced);
        };
        let seq = self.unit.trial.agent_seq + 1;
        self.agent_as(&lease, seq, event)
    }

    pub fn agent_as(
        &mut self,
        lease: &LeaseId,
        seq: u64,
        event: &AgentEvent,
    ) -> Result<(), StepError> {
        self.agent_seen = Some(self.now);
        self.step(false, |unit, context| unit.agent(lease, seq, event, context))
    }

    /// Brings the answer to the `index`th call that is under way.
    pub fn answer(&mut self, index: usize) {
        let pending = self.pending.remove(index);
        if let Call::Launch(lease) = &pending.call {
            // What a launch does is done by the time its call is over.
            for node in self.nodes.iter_mut().filter(|node| node.lease == *lease) {
                node.created = node.created.min(self.now);
            }
        }
        let had = self.pending.len();
        self.step(false, |unit, context| unit.apply(&pending.made, &pending.outcome, context))
            .unwrap();
        self.play(had, Fault::None);
    }

    /// Wakes and answers, all calls working, until `done`; at most for the given time.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now.checked_add(limit).unwrap();
        let mut steps_at_once = 0;
        while !done(self) {
            if !self.pending.is_empty() {
                self.answer(0);
                continue;
            }
            let due = [self.unit.trial.next_at, self.unit.lease.as_ref().and_then(|l| l.next_at)];
            let next = due.into_iter().flatten().min();
            let Some(next) = next else { panic!("sleeps for ever: {:#?}", self.unit) };
            if next > self.now {
                self.now = next;
                steps_at_once = 0;
            }
            steps_at_once += 1;
            assert!(steps_at_once < 50, "time stands still: {:#?}", self.unit);
            assert!(self.now <= end, "not within {limit:?}: {:#?}", self.unit);
            self.wake(Fault::None);
        }
    }

    /// As far as a running program.
    pub fn run_to_ready(&mut self) {
        self.run_until(HOUR, |w| {
            w.unit.lease.as_ref().is_some_and(|l| l.state == LeaseState::Booting)
        });
        self.agent(&AgentEvent::Booted).unwrap();
        self.agent(&AgentEvent::GpusReady).unwrap();
        self.agent(&AgentEvent::Started).unwrap();
    }

    pub fn settled(&self) -> bool {
        self.unit.trial.state.is_terminal() && self.unit.trial.cleanup_confirmed
    }

    pub fn live(&self) -> Vec<&Node> {
        self.nodes.iter().filter(|node| node.gone.is_none_or(|gone| gone > self.now)).collect()
    }

    fn error(&self, kind: ErrorKind) -> ProviderError {
        ProviderError::new(ProviderId::new("sim").unwrap(), "call", kind)
    }

    fn view(&self, node: &Node) -> Option<NodeState> {
        let seen = self.now.checked_sub(self.lag).unwrap();
        if node.created > seen {
            return None;
        }
        let stopped = node.stopped.filter(|stopped| *stopped <= seen);
        let gone = node.gone.filter(|gone| *gone <= seen);
        if gone.is_some_and(|gone| gone.checked_add(self.shown_after_end).unwrap() <= seen) {
            return None;
        }
        Some(NodeState {
            node: node.id.clone(),
            phase: match (gone, stopped) {
                (Some(_), _) => NodePhase::Gone,
                (None, Some(_)) => NodePhase::Stopped,
                (None, None) => NodePhase::Running,
            },
            started_at: Some(node.created).filter(|_| self.capabilities.states_times),
            stopped_at: stopped.or(gone).filter(|_| self.capabilities.states_times),
            reason: None,
            cause: None,
            billed_price: None,
            region: None,
            zone: None,
        })
    }

    fn make(&mut self, lease: &LeaseId, late: bool) -> NodeId {
        self.made += 1;
        let id = NodeId::new(format!("node-{}", self.made)).unwrap();
        let late = if late { self.policy.call_timeout * 8 / 10 } else { Duration::ZERO };
        let created = self.now.checked_add(late).unwrap();
        self.nodes.push(Node {
            id: id.clone(),
            lease: lease.clone(),
            created,
            stopped: None,
            gone: None,
        });
        id
    }

    /// Plays the calls from `from` on: what they do happens now, the answer is kept.
    fn play(&mut self, from: usize, fault: Fault) {
        for index in from..self.pending.len() {
            let call = self.pending[index].call.clone();
            let outcome = match call {
                Call::Launch(lease) => Outcome::Launch(self.do_launch(&lease, fault)),
                Call::Find(lease) => Outcome::Find(match fault {
                    Fault::Done | Fault::NotDone => Err(self.error(ErrorKind::Transient)),
                    Fault::Refused(kind) => Err(self.error(kind)),
                    _ => {
                        let of = self.nodes.iter().filter(|node| node.lease == lease);
                        let mut nodes: Vec<_> = of.filter_map(|node| self.view(node)).collect();
                        if fault == Fault::Incomplete {
                            nodes.pop();
                        }
                        Ok(Found { nodes, complete: fault != Fault::Incomplete })
                    }
                }),
                Call::Describe(node) => {
                    let answer = match fault {
                        Fault::Done | Fault::NotDone => Err(self.error(ErrorKind::Transient)),
                        Fault::Refused(kind) if kind != ErrorKind::NotFound => {
                            Err(self.error(kind))
                        }
                        _ => {
                            let known = self.nodes.iter().find(|one| one.id == node);
                            known
                                .and_then(|node| self.view(node))
                                .ok_or_else(|| self.error(ErrorKind::NotFound))
                        }
                    };
                    Outcome::Describe(node, answer)
                }
                Call::Terminate(node) => {
                    let answer = self.do_terminate(&node, fault);
                    Outcome::Terminate(node, answer)
                }
            };
            self.pending[index].outcome = outcome;
        }
    }

    fn do_launch(&mut self, lease: &LeaseId, fault: Fault) -> Result<Launched, ProviderError> {
        match fault {
            Fault::Refused(kind) => return Err(self.error(kind)),
            Fault::NotDone => return Err(self.error(ErrorKind::Transient).possible()),
            _ => {}
        }
        let node = self.make(lease, fault == Fault::Done);
        match fault {
            Fault::Done => Err(self.error(ErrorKind::Transient).possible()),
            Fault::DoneWithIds(kind) => {
                let mut error = self.error(kind).possible();
                error.nodes = vec![node];
                Err(error)
            }
            Fault::Surplus => {
                let surplus = vec![self.make(lease, false), self.make(lease, false)];
                Ok(Launched { node, surplus, started_at: None, billed_price: None })
            }
            _ => Ok(Launched { node, surplus: vec![], started_at: None, billed_price: None }),
        }
    }

    fn do_terminate(&mut self, node: &NodeId, fault: Fault) -> Result<Terminated, ProviderError> {
        match fault {
            Fault::Refused(kind) if kind != ErrorKind::NotFound => return Err(self.error(kind)),
            Fault::NotDone => return Err(self.error(ErrorKind::Transient).possible()),
            Fault::AckButLives => return Ok(Terminated::Requested),
            _ => {}
        }
        let now = self.now;
        let Some(index) = self.nodes.iter().position(|one| one.id == *node) else {
            return Err(self.error(ErrorKind::NotFound));
        };
        let Some(view) = self.view(&self.nodes[index]) else {
            return Err(self.error(ErrorKind::NotFound));
        };
        let known_gone = view.phase == NodePhase::Gone;
        self.nodes[index].gone.get_or_insert(now.checked_add(Duration::from_secs(7)).unwrap());
        match (fault, known_gone) {
            (Fault::Done, _) => Err(self.error(ErrorKind::Transient).possible()),
            (_, true) => Ok(Terminated::Gone { stopped_at: view.stopped_at }),
            (_, false) => Ok(Terminated::Requested),
        }
    }

    fn check(&self, before: &Unit, step: &Step) {
        let after = &step.unit;
        if before.trial.state.is_terminal() {
            assert_eq!(before.trial.state, after.trial.state, "a terminal trial changed");
            assert_eq!(before.trial.end_reason, after.trial.end_reason);
            assert_eq!(before.trial.ended_at, after.trial.ended_at);
        }
        assert!(after.trial.cleanup_confirmed || !before.trial.cleanup_confirmed, "reverted");
        if let Some(old) = &before.lease {
            let new = after.lease.as_ref().expect("a lease never vanishes");
            if old.state.is_terminal() && new.id == old.id {
                assert_eq!(old, new, "an ended lease changed");
            }
            assert!(old.state.is_terminal() || old.id == new.id, "two leases at once");
        }
        if let Some(lease) = &after.lease {
            let ended = lease.state.is_terminal();
            assert!(!ended || lease.evidence.is_some(), "ended without evidence");
            assert!(!ended || lease.surplus.is_empty(), "ended with surplus nodes");
            assert!(ended || lease.next_at.is_some(), "sleeps for ever");
            assert!(lease.in_flight.is_none() || lease.next_at.is_some());
            if ended {
                let live = self.live();
                let live: Vec<_> = live.iter().filter(|n| n.lease == lease.id).collect();
                assert!(live.is_empty(), "{:?} but alive: {live:?}", lease.evidence);
            }
        }
        if after.trial.cleanup_confirmed {
            assert!(after.trial.state.is_terminal());
            assert!(after.lease.as_ref().is_none_or(|lease| lease.state.is_terminal()));
            assert!(!after.trial.evidence.is_empty());
            let nothing = |e: &Evidence| matches!(e, Evidence::NothingLaunched { .. });
            assert!(after.lease.is_some() || after.trial.evidence.iter().all(nothing));
        }
        if !after.trial.state.is_terminal() {
            let lease = after.lease.as_ref().and_then(|lease| lease.next_at);
            assert!(after.trial.next_at.or(lease).is_some(), "sleeps for ever: {after:#?}");
        }
        if let Some(Call::Launch(id)) = &step.call {
            assert_eq!(self.launches.get(id), None, "one lease, one launch");
            let lease = after.lease.as_ref().unwrap();
            assert_eq!(lease.id, *id);
            assert!(lease.in_flight.is_some());
            let others = self.leases.values().filter(|other| other.id != *id);
            assert!(others.into_iter().all(|other| other.state.is_terminal()), "unresolved launch");
        }
    }

    /// Segments, ledger and budget against the meter.
    fn check_money(&self) {
        // Each meter, by the first part of its segments' ids: a lease's own, and those of nodes
        // beyond the one wanted.
        let mut sums: BTreeMap<&str, (u64, Decimal, Option<Timestamp>)> = BTreeMap::new();
        for segment in &self.segments {
            let (meter, _) = segment.id.rsplit_once('.').expect("a meter and a number");
            let (micros, sum, end) = sums.entry(meter).or_default();
            assert_eq!(segment.billed_from_micros, *micros, "a gap or an overlap");
            assert!(end.is_none_or(|end| end <= segment.start), "periods overlap");
            assert!(segment.start <= segment.end);
            let hour = |at: Timestamp| at.as_microsecond().div_euclid(3_600_000_000);
            let last = Timestamp::from_microsecond(segment.end.as_microsecond() - 1).unwrap();
            assert!(segment.start == segment.end || hour(segment.start) == hour(last));
            assert!(LedgerEntry::of_segment(segment, segment.end).is_balanced());
            assert!(segment.amount.amount >= Decimal::ZERO);
            (*micros, *end) = (segment.billed_to_micros, Some(segment.end));
            *sum += segment.amount.amount;
        }
        for lease in self.leases.values() {
            let (micros, sum, _) = sums.get(lease.id.as_str()).copied().unwrap_or_default();
            assert_eq!(micros, lease.meter.charged_micros);
            let total: Money = cost_total(lease.price.price, micros).unwrap();
            assert_eq!(sum, total.amount, "the pieces are not the whole");
            if lease.state.is_terminal() {
                let billed = lease.meter.billed_micros(&lease.capabilities.metering, self.now);
                assert_eq!(micros, billed, "an ended lease is charged whole");
            }
            if let Some(budget) = &self.budget {
                let bound = budget.reserved.get(&lease.id);
                assert_eq!(bound.is_some(), !lease.state.is_terminal(), "reservation");
            }
        }
        if let Some(budget) = &self.budget {
            let ended = self.leases.values().filter(|lease| lease.state.is_terminal());
            let spent: Decimal =
                ended.map(|lease| lease.meter.cost(lease, self.now).unwrap().amount).sum();
            let others = sums.iter().filter(|(meter, _)| meter.contains('+'));
            let others: Decimal = others.map(|(_, (_, sum, _))| *sum).sum();
            assert_eq!(budget.spent, spent + others);
            assert!(budget.reserved.values().all(|bound| *bound >= Decimal::ZERO));
        }
    }
}
