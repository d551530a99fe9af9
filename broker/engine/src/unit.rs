//! One trial with its job and present lease: the state the engine steps.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use runwhere_model::{
    Capabilities, Currency, Found, LaunchRequest, Launched, LeaseId, MoneyError, NodeId, NodeState,
    ProviderError, Terminated,
};
use rust_decimal::Decimal;

use crate::block::Block;
use crate::budget::Budget;
use crate::event::{EVENT_VERSION, EventRecord, Subject};
use crate::evidence::Evidence;
use crate::job::{EndReason, Job};
use crate::lease::{CallKind, Lease, LeaseState, PriceSnapshot};
use crate::ledger::UsageSegment;
use crate::policy::Policy;
#[cfg(feature = "sabotage")]
use crate::tape::{self, Input};
use crate::trial::{Desired, Output, Trial, TrialState};

mod agent;
mod ending;
mod found;
mod hold;
mod lease;
mod outcome;
mod reclaim;
mod surplus;
mod trial;

pub(crate) use found::absent;

pub use agent::{AgentEvent, AgentOrder};

/// One trial, its job, and its present or last lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unit {
    /// The job.
    pub job: Job,
    /// The trial.
    pub trial: Trial,
    /// The lease `trial.lease` names.
    pub lease: Option<Lease>,
}

/// A dated exchange rate used for a decision.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FxRate {
    /// Units of the budget's currency for one unit of the price's.
    pub rate: Decimal,
    /// Its date.
    pub date: String,
    /// Its source.
    pub source: String,
}

/// The budget a launch is held against.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BudgetContext {
    /// The row.
    pub budget: Budget,
    /// The rate from the price's currency to the budget's; not needed when they are the same.
    pub rate: Option<FxRate>,
}

/// What a new lease is made with: drawn by the caller, since the engine draws nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FreshLease {
    /// Its id.
    pub id: LeaseId,
    /// SHA-256 of the agent's one-time token, lower-case hexadecimal.
    pub lease_token_sha256: String,
}

/// Everything a step may look at besides the unit.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The present instant.
    pub now: Timestamp,
    /// Timings and limits.
    pub policy: &'a Policy,
    /// This process: calls of others are taken for lost when their time is over.
    pub owner: &'a str,
    /// When this process began: while there was none, no agent could be heard, and what was to
    /// happen by then could not.
    pub started_at: Timestamp,
    /// Calls of other owners are taken for lost at once (this process has just started and is the
    /// only one).
    pub recovering: bool,
    /// No other process works on the same rows.
    pub alone: bool,
    /// The offer's present price; `None` when no catalogue lists it now.
    pub price: Option<PriceSnapshot>,
    /// What the offer's provider promises; `None` when it is not connected.
    pub capabilities: Option<&'a Capabilities>,
    /// A refusal of the same thing that still holds.
    pub blocked: Option<&'a Block>,
    /// The project's budget.
    pub budget: Option<BudgetContext>,
    /// For a launch.
    pub fresh: Option<FreshLease>,
    /// When the lease's agent was last heard.
    pub agent_seen: Option<Timestamp>,
    /// All other trials of the job have ended.
    pub siblings_ended: bool,
    /// Nothing is launched: the rows may be older than what really runs.
    pub held: bool,
}

/// A provider call to make once the step is durable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Call {
    /// Launch; the caller completes the request with the bootstrap.
    Launch(LeaseId),
    /// Find the lease's nodes.
    Find(LeaseId),
    /// Read a node.
    Describe(NodeId),
    /// End a node.
    Terminate(NodeId),
}

impl Call {
    /// Which kind of call it is.
    pub fn kind(&self) -> CallKind {
        match self {
            Self::Launch(_) => CallKind::Launch,
            Self::Find(_) => CallKind::Find,
            Self::Describe(_) => CallKind::Describe,
            Self::Terminate(_) => CallKind::Terminate,
        }
    }
}

/// Which call an outcome is of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallRef {
    /// The lease it was made for.
    pub lease: LeaseId,
    /// When the step that asked for it was taken.
    pub started_at: Timestamp,
}

/// The outcome of a provider call.
#[derive(Debug)]
pub enum Outcome {
    /// Of a launch.
    Launch(Result<Launched, ProviderError>),
    /// Of a launch that its caller did not make: by then the price was not within the ceiling.
    LaunchWithheld,
    /// Of a find.
    Find(Result<Found, ProviderError>),
    /// Of a read.
    Describe(NodeId, Result<NodeState, ProviderError>),
    /// Of a termination.
    Terminate(NodeId, Result<Terminated, ProviderError>),
}

/// What a step changed and wants.
#[derive(Clone, Debug)]
pub struct Step {
    /// The unit after it.
    pub unit: Unit,
    /// The budget after it, when it changed.
    pub budget: Option<Budget>,
    /// New segments.
    pub segments: Vec<UsageSegment>,
    /// New outputs.
    pub outputs: Vec<Output>,
    /// Audit.
    pub events: Vec<EventRecord>,
    /// The call to make after the commit.
    pub call: Option<Call>,
}

/// A step that cannot be taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StepError {
    /// The agent's lease is not the trial's present one, or has ended.
    #[error("the agent's lease has ended")]
    Fenced,
    /// An agent event out of order: the agent sends the missing ones first.
    #[error("agent event {got} came where {wanted} was expected")]
    Gap {
        /// The next one that can be applied.
        wanted: u64,
        /// The one that came.
        got: u64,
    },
    /// Money out of range.
    #[error(transparent)]
    Money(#[from] MoneyError),
}

/// The working copy of a step.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) job: Job,
    pub(crate) trial: Trial,
    pub(crate) lease: Option<Lease>,
    pub(crate) context: &'a Context<'a>,
    pub(crate) budget: Option<Budget>,
    pub(crate) segments: Vec<UsageSegment>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) events: Vec<EventRecord>,
    pub(crate) call: Option<Call>,
}

impl Unit {
    /// What is due now: moves the unit on and says which call to make, if any. Waking too early
    /// or twice is harmless.
    pub fn wake(self, context: &Context<'_>) -> Result<Step, StepError> {
        #[cfg(feature = "sabotage")]
        tape::keep(&self, || Input::Wake, context);
        let mut work = self.work(context);
        work.wake_lease()?;
        work.wake_trial()?;
        // A trial that ends or begins a lease can make more of the lease due at once.
        if work.call.is_none() {
            work.wake_lease()?;
        }
        work.finish()
    }

    /// Names the call that a step has just asked for, for [`Unit::apply`].
    pub fn call_ref(&self, now: Timestamp) -> Option<CallRef> {
        let lease = self.lease.as_ref()?;
        let started_at = lease.in_flight.as_ref().map_or(now, |call| call.started_at);
        Some(CallRef { lease: lease.id.clone(), started_at })
    }

    /// Takes in the outcome of a provider call. A late outcome (of a call already taken for lost,
    /// even of an earlier lease) is still used for what it shows, never as proof of absence.
    pub fn apply(
        self,
        made: &CallRef,
        outcome: &Outcome,
        context: &Context<'_>,
    ) -> Result<Step, StepError> {
        #[cfg(feature = "sabotage")]
        tape::keep(&self, || Input::Apply(made.clone(), tape::copy(outcome)), context);
        let mut work = self.work(context);
        work.outcome(made, outcome)?;
        work.finish()
    }

    /// Takes in an event of the agent of a lease. A repeat (by sequence number) changes nothing.
    pub fn agent(
        self,
        lease: &LeaseId,
        seq: u64,
        event: &AgentEvent,
        context: &Context<'_>,
    ) -> Result<Step, StepError> {
        #[cfg(feature = "sabotage")]
        tape::keep(&self, || Input::Agent(lease.clone(), seq, event.clone()), context);
        let mut work = self.work(context);
        work.agent_event(lease, seq, event)?;
        work.finish()
    }

    /// A listing shows nodes of a lease that has not ended and is not about to be launched: what a
    /// launch of unknown outcome made is taken, those beyond its own are ended as surplus, its own
    /// one that was proven gone is ended and proven anew. The listing was begun at `listed_at`; with each
    /// node comes up to when it was billed as nobody's.
    pub fn sighted(
        self,
        lease: &LeaseId,
        nodes: &[(NodeState, Option<Timestamp>)],
        listed_at: Timestamp,
        context: &Context<'_>,
    ) -> Result<Step, StepError> {
        let mut work = self.work(context);
        work.sighted(lease, nodes, listed_at)?;
        work.finish()
    }

    /// A user wants it stopped. Harmless when it is ended or being stopped.
    pub fn stop(self, context: &Context<'_>) -> Result<Step, StepError> {
        #[cfg(feature = "sabotage")]
        tape::keep(&self, || Input::Stop, context);
        let mut work = self.work(context);
        work.want_end(Desired::Stop)?;
        work.finish()
    }

    /// What the agent is to do now.
    pub fn order(&self) -> AgentOrder {
        let releasing = self.lease.as_ref().is_none_or(|lease| {
            lease.release_wanted
                || lease.state == LeaseState::Releasing
                || lease.state.is_terminal()
        });
        match (releasing || self.trial.state.is_terminal(), self.trial.desired) {
            (true, _) => AgentOrder::Release,
            (false, Desired::Run) => AgentOrder::Run,
            (false, Desired::Stop) => AgentOrder::Stop,
            (false, Desired::TimeOut) => AgentOrder::TimeOut,
            (false, Desired::Reclaim) => AgentOrder::Reclaim,
        }
    }

    fn work<'a>(self, context: &'a Context<'a>) -> Work<'a> {
        Work {
            job: self.job,
            trial: self.trial,
            lease: self.lease,
            context,
            budget: None,
            segments: Vec::new(),
            outputs: Vec::new(),
            events: Vec::new(),
            call: None,
        }
    }
}

impl Work<'_> {
    fn finish(mut self) -> Result<Step, StepError> {
        self.schedule();
        Ok(Step {
            unit: Unit { job: self.job, trial: self.trial, lease: self.lease },
            budget: self.budget,
            segments: self.segments,
            outputs: self.outputs,
            events: self.events,
            call: self.call,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.context.now
    }

    pub(crate) fn after(&self, span: Duration) -> Timestamp {
        add(self.context.now, span)
    }

    pub(crate) fn record(&mut self, kind: impl Into<String>, payload: serde_json::Value) {
        self.events.push(EventRecord {
            version: EVENT_VERSION,
            at: self.context.now,
            workspace: self.trial.workspace.clone(),
            project: self.trial.project.clone(),
            subject: Subject {
                job: Some(self.job.id.clone()),
                trial: Some(self.trial.id.clone()),
                lease: self.lease.as_ref().map(|lease| lease.id.clone()),
            },
            kind: kind.into(),
            payload,
        });
    }

    /// The budget as this step has it so far, in its own currency.
    pub(crate) fn with_own_budget<T>(
        &mut self,
        change: impl FnOnce(&mut Budget) -> T,
    ) -> Option<T> {
        let context = self.context.budget.as_ref()?;
        let mut budget = self.budget.clone().unwrap_or_else(|| context.budget.clone());
        let result = change(&mut budget);
        self.budget = (budget != context.budget).then_some(budget);
        Some(result)
    }

    /// The same, with the rate from another currency; `None` without a budget or a rate.
    pub(crate) fn with_budget<T>(
        &mut self,
        currency: Currency,
        change: impl FnOnce(&mut Budget, Decimal) -> T,
    ) -> Option<T> {
        let context = self.context.budget.as_ref()?;
        let rate = match (currency == context.budget.currency, &context.rate) {
            (true, _) => Decimal::ONE,
            (false, Some(rate)) => rate.rate,
            (false, None) => return None,
        };
        self.with_own_budget(|budget| change(budget, rate))
    }
}

pub(crate) fn add(at: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| at.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// Pause before a repeat: doubled each time, bounded.
pub(crate) fn backoff(first: Duration, longest: Duration, repeats: u32) -> Duration {
    first.saturating_mul(1u32.checked_shl(repeats.min(16)).unwrap_or(u32::MAX)).min(longest)
}

/// Time for preparing, collecting and releasing, on top of the program's own limit, before the
/// cloud itself may end a node.
const END_SLACK_SECONDS: u64 = 2 * 3600;

/// The request of a lease's launch; the same for every repeat of it.
pub fn launch_request(
    unit: &Unit,
    lease: &Lease,
    deployment: runwhere_model::DeploymentId,
    bootstrap: runwhere_model::Bootstrap,
) -> LaunchRequest {
    LaunchRequest {
        deployment,
        lease: lease.id.clone(),
        project: lease.project.clone(),
        trial: lease.trial.clone(),
        token: lease.token.clone(),
        offer: lease.offer.clone(),
        gpus: lease.gpu_count,
        gpu_model: lease.gpu_model,
        ceiling: lease.ceiling,
        end_by: unit.job.terms(unit.trial.index).max_duration_seconds.map(|seconds| {
            let run = Duration::from_secs(seconds.saturating_add(END_SLACK_SECONDS));
            add(lease.intended_at, run.saturating_add(lease.capabilities.boot_timeout))
        }),
        labels: std::collections::BTreeMap::new(),
        bootstrap,
    }
}

pub(crate) fn nothing_launched(at: Timestamp) -> Evidence {
    Evidence::NothingLaunched { at }
}

pub(crate) type EndOf = (TrialState, EndReason);

pub(crate) fn call_of(kind: CallKind, lease: &Lease, node: Option<&NodeId>) -> Option<Call> {
    match (kind, node) {
        (CallKind::Launch, _) => Some(Call::Launch(lease.id.clone())),
        (CallKind::Find, _) => Some(Call::Find(lease.id.clone())),
        (CallKind::Describe, Some(node)) => Some(Call::Describe(node.clone())),
        (CallKind::Terminate, Some(node)) => Some(Call::Terminate(node.clone())),
        (CallKind::Describe | CallKind::Terminate, None) => None,
    }
}
