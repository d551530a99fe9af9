//! Provider calls: made once, bounded in time, their outcome always brought home.

use std::sync::Arc;
use std::time::Duration;

use runwhere_engine::unit::launch_request;
use runwhere_engine::{Call, Lease, Outcome, Unit, sabotage};
use runwhere_model::{
    Bootstrap, Effect, EndCause, ErrorKind, NodePhase, ProviderError, Terminated,
};
use runwhere_providers::Provider;

use super::core::Core;
use super::points;

/// Whether a node has ended by what a provider says.
fn is_end(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Describe(_, Ok(state)) => state.phase == NodePhase::Gone,
        Outcome::Terminate(_, Ok(Terminated::Gone { .. })) => true,
        Outcome::Launch(_)
        | Outcome::LaunchWithheld
        | Outcome::Find(_)
        | Outcome::Describe(..)
        | Outcome::Terminate(..) => false,
    }
}

impl Core {
    /// Makes a call in a task of its own. The step that asked for it is durable by now.
    pub(super) fn spawn_call(self: &Arc<Self>, unit: Unit, call: Call) {
        let Some(made) = unit.call_ref(self.parts.clock.now()) else { return };
        let core = Arc::clone(self);
        tokio::spawn(async move {
            // A process that slept since it wrote the call down: others have taken it for lost, and
            // have acted on that.
            let turn = core.is_still_its_turn(&unit, &call).await;
            let limit = core.patience(&unit, &call);
            if !turn || limit.is_zero() {
                tracing::warn!(trial.id = %unit.trial.id, "A call was not made: its time was over");
                return;
            }
            points::calling(&call);
            let outcome = core.make_call(&unit, &call, limit).await;
            points::called(&call);
            if sabotage!(NodeSavedAfterWait) && matches!(outcome, Outcome::Launch(Ok(_))) {
                core.parts.clock.sleep(core.parts.policy.call_timeout / 2).await;
            }
            core.step_until_durable(&unit.trial.id, |unit, context| {
                unit.apply(&made, &outcome, context)
            })
            .await;
            if let Some(lease) = &unit.lease
                && is_end(&outcome)
            {
                core.fill(&lease.offer).await;
            }
        });
    }

    /// Whether a launch is still noted as this process's own. The other calls do no harm.
    async fn is_still_its_turn(&self, unit: &Unit, call: &Call) -> bool {
        let Call::Launch(lease) = call else { return true };
        let noted = unit.lease.as_ref().and_then(|lease| lease.in_flight.as_ref());
        let stored = self.parts.store.lease(lease).await;
        sabotage!(CallBeforeCommit)
            || matches!(stored, Ok(Some(row)) if row.in_flight.as_ref() == noted)
    }

    /// How long an answer is waited for: the call is over before others take it for lost, however
    /// late it begins.
    fn patience(&self, unit: &Unit, call: &Call) -> Duration {
        let whole = self.parts.policy.call_timeout * 9 / 10;
        let noted = unit.lease.as_ref().and_then(|lease| lease.in_flight.as_ref());
        // The end of a node that nobody waits for is noted nowhere.
        let Some(noted) = noted.filter(|noted| noted.call == call.kind()) else { return whole };
        let slack = self.parts.policy.call_timeout - whole;
        let left = noted.until.duration_since(self.parts.clock.now());
        Duration::try_from(left)
            .map_or(Duration::ZERO, |left| left.saturating_sub(slack))
            .min(whole)
    }

    async fn make_call(&self, unit: &Unit, call: &Call, limit: Duration) -> Outcome {
        let id = &unit.job.terms(unit.trial.index).offer.provider;
        let Some(provider) = self.parts.registry.get(id) else {
            let missing = |operation| {
                ProviderError::new(id.clone(), operation, ErrorKind::Auth)
                    .because("the provider is not connected any more")
            };
            return failed(call, missing);
        };
        let provider = Arc::clone(provider);
        let outcome = self.bounded(&provider, unit, call, limit).await;
        if let Some((operation, error)) = told_of(&outcome) {
            self.metrics.call(id, operation, error);
        }
        self.note_refusals(unit, &outcome);
        if let Some(error) = error_of(&outcome) {
            tracing::warn!(trial.id = %unit.trial.id, provider.id = %id, error = %error, "Provider call failed");
        }
        outcome
    }

    /// What an answer says about launches of others.
    fn note_refusals(&self, unit: &Unit, outcome: &Outcome) {
        let Some(lease) = &unit.lease else { return };
        let (offer, now, policy) = (&lease.offer, self.parts.clock.now(), &self.parts.policy);
        match outcome {
            Outcome::Launch(Ok(_)) => self.blocks().lifted(offer),
            Outcome::Launch(Err(error)) => self.blocks().launch_refused(offer, error, now, policy),
            Outcome::Find(Err(error))
            | Outcome::Describe(_, Err(error))
            | Outcome::Terminate(_, Err(error))
                if error.kind == ErrorKind::Throttle =>
            {
                self.blocks().throttled(offer, error, now, policy);
            }
            Outcome::Describe(_, Ok(state)) if state.cause == Some(EndCause::Capacity) => {
                let words = state.reason.as_deref().unwrap_or("no reason given");
                self.blocks().capacity_failed(offer, words, now, policy);
            }
            Outcome::Describe(_, Ok(state)) if state.phase == NodePhase::Gone => {
                self.blocks().lifted(offer);
            }
            Outcome::Terminate(_, Ok(Terminated::Gone { .. })) => self.blocks().lifted(offer),
            Outcome::LaunchWithheld
            | Outcome::Find(_)
            | Outcome::Describe(..)
            | Outcome::Terminate(..) => {}
        }
    }

    /// A call that does not answer in time has an unknown outcome.
    async fn bounded(
        &self,
        provider: &Arc<dyn Provider>,
        unit: &Unit,
        call: &Call,
        limit: Duration,
    ) -> Outcome {
        let work = self.call(provider, unit, call);
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = self.parts.clock.sleep(limit) => failed(call, |operation| {
                ProviderError::new(provider.id().clone(), operation, ErrorKind::Transient)
                    .possible()
                    .because("no answer in time")
            }),
        }
    }

    /// A call on behalf of no unit, bounded and counted.
    pub(super) async fn within<T>(
        &self,
        provider: &Arc<dyn Provider>,
        operation: &'static str,
        call: impl Future<Output = Result<T, ProviderError>> + Send,
    ) -> Result<T, ProviderError> {
        let limit = self.parts.policy.call_timeout * 9 / 10;
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = self.parts.clock.sleep(limit) => {
                Err(ProviderError::new(provider.id().clone(), operation, ErrorKind::Transient)
                    .possible()
                    .because("no answer in time"))
            }
        };
        self.metrics.call(provider.id(), operation, answer.as_ref().err());
        answer
    }

    async fn call(&self, provider: &Arc<dyn Provider>, unit: &Unit, call: &Call) -> Outcome {
        match call {
            Call::Launch(lease_id) => {
                let Some(lease) = unit.lease.as_ref().filter(|lease| lease.id == *lease_id) else {
                    let error =
                        ProviderError::new(provider.id().clone(), "launch", ErrorKind::Invalid);
                    return Outcome::Launch(Err(error));
                };
                self.note_launch().await;
                if !self.is_within_ceiling(lease) {
                    return Outcome::LaunchWithheld;
                }
                let bootstrap = Bootstrap {
                    broker_url: self.parts.broker_url.clone(),
                    lease_token: self.lease_token(lease_id),
                    agent_sha256: None,
                    ca_pem: self.parts.ca_pem.clone(),
                    agent_ttl_seconds: self.parts.policy.agent_ttl.as_secs(),
                };
                let request = launch_request(unit, lease, self.parts.deployment.clone(), bootstrap);
                Outcome::Launch(provider.launch(&request).await)
            }
            Call::Find(lease) => Outcome::Find(provider.find(lease).await),
            Call::Describe(node) => Outcome::Describe(node.clone(), provider.describe(node).await),
            Call::Terminate(node) => {
                Outcome::Terminate(node.clone(), provider.terminate(node).await)
            }
        }
    }

    /// Whether the price of a launch that was decided is within its ceiling still: writing it down can
    /// take its time.
    fn is_within_ceiling(&self, lease: &Lease) -> bool {
        let price = self.price_of(&lease.offer);
        price.is_some_and(|now| now.price.is_within(lease.ceiling))
            || sabotage!(CeilingNotRechecked)
    }
}

fn failed(call: &Call, error: impl FnOnce(&'static str) -> ProviderError) -> Outcome {
    match call {
        Call::Launch(_) => Outcome::Launch(Err(error("launch"))),
        Call::Find(_) => Outcome::Find(Err(error("find"))),
        Call::Describe(node) => Outcome::Describe(node.clone(), Err(error("describe"))),
        Call::Terminate(node) => Outcome::Terminate(node.clone(), Err(error("terminate"))),
    }
}

/// Which call an outcome is of, and its error; `None` where the provider was asked nothing.
fn told_of(outcome: &Outcome) -> Option<(&'static str, Option<&ProviderError>)> {
    Some(match outcome {
        Outcome::Launch(answer) => ("launch", answer.as_ref().err()),
        Outcome::LaunchWithheld => return None,
        Outcome::Find(answer) => ("find", answer.as_ref().err()),
        Outcome::Describe(_, answer) => ("describe", answer.as_ref().err()),
        Outcome::Terminate(_, answer) => ("terminate", answer.as_ref().err()),
    })
}

fn error_of(outcome: &Outcome) -> Option<&ProviderError> {
    match outcome {
        Outcome::Launch(Err(error))
        | Outcome::Find(Err(error))
        | Outcome::Describe(_, Err(error))
        | Outcome::Terminate(_, Err(error)) => {
            (error.kind != ErrorKind::NotFound || error.effect == Effect::Possible).then_some(error)
        }
        Outcome::Launch(Ok(_))
        | Outcome::LaunchWithheld
        | Outcome::Find(Ok(_))
        | Outcome::Describe(_, Ok(_))
        | Outcome::Terminate(_, Ok(_)) => None,
    }
}
