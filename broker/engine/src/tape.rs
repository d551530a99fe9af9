//! Steps as they are taken, recorded to be taken again: what the bench of the engine plays.
//!
//! Only with the feature `sabotage`, and only on a thread that asks for it.

use std::cell::RefCell;

use jiff::Timestamp;
use runwhere_model::{Capabilities, LeaseId, ProviderError};

use crate::block::Block;
use crate::lease::PriceSnapshot;
use crate::policy::Policy;
use crate::unit::{
    AgentEvent, BudgetContext, CallRef, Context, FreshLease, Outcome, Step, StepError, Unit,
};

thread_local! {
    static TAPE: RefCell<Option<Vec<Taped>>> = const { RefCell::new(None) };
}

/// What a step takes in.
#[derive(Debug)]
pub enum Input {
    /// What is due.
    Wake,
    /// The outcome of a call.
    Apply(CallRef, Outcome),
    /// An agent's event.
    Agent(LeaseId, u64, AgentEvent),
    /// A user's stop.
    Stop,
}

/// A step that was taken.
#[derive(Debug)]
pub struct Taped {
    /// The unit before it.
    pub unit: Unit,
    /// What it took in.
    pub input: Input,
    now: Timestamp,
    policy: Policy,
    owner: String,
    started_at: Timestamp,
    recovering: bool,
    alone: bool,
    price: Option<PriceSnapshot>,
    capabilities: Option<Capabilities>,
    blocked: Option<Block>,
    budget: Option<BudgetContext>,
    fresh: Option<FreshLease>,
    agent_seen: Option<Timestamp>,
    siblings_ended: bool,
    held: bool,
}

/// Begins to record the calling thread's steps.
pub fn begin() {
    TAPE.set(Some(Vec::new()));
}

/// Ends recording and returns what was recorded.
pub fn end() -> Vec<Taped> {
    TAPE.take().unwrap_or_default()
}

pub(crate) fn keep(unit: &Unit, input: impl FnOnce() -> Input, context: &Context<'_>) {
    TAPE.with_borrow_mut(|tape| {
        let Some(tape) = tape else { return };
        tape.push(Taped {
            unit: unit.clone(),
            input: input(),
            now: context.now,
            policy: context.policy.clone(),
            owner: context.owner.to_owned(),
            started_at: context.started_at,
            recovering: context.recovering,
            alone: context.alone,
            price: context.price.clone(),
            capabilities: context.capabilities.cloned(),
            blocked: context.blocked.cloned(),
            budget: context.budget.clone(),
            fresh: context.fresh.clone(),
            agent_seen: context.agent_seen,
            siblings_ended: context.siblings_ended,
            held: context.held,
        });
    });
}

impl Taped {
    /// The context of the step.
    pub fn context(&self) -> Context<'_> {
        Context {
            now: self.now,
            policy: &self.policy,
            owner: &self.owner,
            started_at: self.started_at,
            recovering: self.recovering,
            alone: self.alone,
            price: self.price.clone(),
            capabilities: self.capabilities.as_ref(),
            blocked: self.blocked.as_ref(),
            budget: self.budget.clone(),
            fresh: self.fresh.clone(),
            agent_seen: self.agent_seen,
            siblings_ended: self.siblings_ended,
            held: self.held,
        }
    }

    /// Takes the step again, with a copy of its unit.
    pub fn play(&self, unit: Unit, context: &Context<'_>) -> Result<Step, StepError> {
        match &self.input {
            Input::Wake => unit.wake(context),
            Input::Apply(made, outcome) => unit.apply(made, outcome, context),
            Input::Agent(lease, seq, event) => unit.agent(lease, *seq, event, context),
            Input::Stop => unit.stop(context),
        }
    }
}

/// A copy, but for the cause of an error, which no step looks at.
pub(crate) fn copy(outcome: &Outcome) -> Outcome {
    fn answer<T: Clone>(answer: &Result<T, ProviderError>) -> Result<T, ProviderError> {
        match answer {
            Ok(answer) => Ok(answer.clone()),
            Err(error) => Err(ProviderError {
                provider: error.provider.clone(),
                operation: error.operation,
                kind: error.kind,
                effect: error.effect,
                nodes: error.nodes.clone(),
                scope: error.scope.clone(),
                retry_after: error.retry_after,
                source: None,
            }),
        }
    }
    match outcome {
        Outcome::Launch(one) => Outcome::Launch(answer(one)),
        Outcome::LaunchWithheld => Outcome::LaunchWithheld,
        Outcome::Find(one) => Outcome::Find(answer(one)),
        Outcome::Describe(node, one) => Outcome::Describe(node.clone(), answer(one)),
        Outcome::Terminate(node, one) => Outcome::Terminate(node.clone(), answer(one)),
    }
}
