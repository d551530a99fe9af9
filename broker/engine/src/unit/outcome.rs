//! What the outcome of a provider call means for the lease.

use jiff::Timestamp;
use runwhere_model::{
    Effect, EndCause, ErrorKind, HourlyPrice, Launched, MeterStart, NodeId, NodePhase, NodeState,
    ProviderError, Terminated,
};
use serde_json::json;

use super::{Call, CallRef, Outcome, StepError, Work, absent, add};
use crate::evidence::Evidence;
use crate::hold::HOLD_POLL;
use crate::job::EndReason;
use crate::lease::{CallKind, LeaseState};
use crate::meter::{Meter, fits};
use crate::trial::TrialState;

/// Every so many fruitless reads a termination is asked for again.
const ASK_AGAIN: u32 = 5;

impl Outcome {
    fn kind(&self) -> CallKind {
        match self {
            Self::Launch(_) | Self::LaunchWithheld => CallKind::Launch,
            Self::Find(_) => CallKind::Find,
            Self::Describe(..) => CallKind::Describe,
            Self::Terminate(..) => CallKind::Terminate,
        }
    }

    /// Nodes that it shows to be, or to have been, alive.
    fn nodes(&self) -> Vec<NodeId> {
        match self {
            Self::Launch(Ok(launched)) => {
                [&launched.node].into_iter().chain(&launched.surplus).cloned().collect()
            }
            Self::Launch(Err(error)) => error.nodes.clone(),
            Self::Find(Ok(found)) => found
                .nodes
                .iter()
                .filter(|node| node.phase != NodePhase::Gone)
                .map(|node| node.node.clone())
                .collect(),
            Self::LaunchWithheld
            | Self::Find(Err(_))
            | Self::Describe(..)
            | Self::Terminate(..) => Vec::new(),
        }
    }
}

impl Work<'_> {
    pub(crate) fn outcome(&mut self, made: &CallRef, outcome: &Outcome) -> Result<(), StepError> {
        self.take_in(made, outcome)?;
        self.conclude()
    }

    fn take_in(&mut self, made: &CallRef, outcome: &Outcome) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.id != made.lease || lease.state.is_terminal() {
            return self.stray(made, outcome);
        }
        // Only the answer to the call that is waited for says anything about absence: when another
        // one was really given is not known.
        let timely = lease
            .in_flight
            .as_ref()
            .is_some_and(|call| call.call == outcome.kind() && call.started_at == made.started_at);
        if timely {
            lease.in_flight = None;
            lease.next_at = Some(self.context.now);
        }
        let read_at = timely.then_some(made.started_at);
        match outcome {
            Outcome::Launch(Ok(launched)) => self.launched(launched),
            Outcome::Launch(Err(error)) => self.launch_failed(error),
            Outcome::LaunchWithheld => self.launch_withheld(timely),
            Outcome::Find(Ok(found)) => self.found(found, read_at),
            Outcome::Find(Err(error)) => {
                self.recheck_later(error.retry_after);
                self.read_failed(error, timely)
            }
            Outcome::Describe(node, answer) if self.is_surplus(node) => {
                self.surplus_described(node, answer, read_at)
            }
            Outcome::Terminate(node, answer) if self.is_surplus(node) => {
                self.surplus_terminated(node, answer)
            }
            Outcome::Describe(node, _) | Outcome::Terminate(node, _) if !self.is_main(node) => {
                Ok(())
            }
            Outcome::Describe(node, Ok(state)) => self.described(node, state, timely),
            Outcome::Describe(node, Err(error)) => self.describe_failed(node, error, read_at),
            Outcome::Terminate(node, Ok(answer)) => self.terminated(node, answer),
            Outcome::Terminate(_, Err(error)) => self.release_failed(error),
        }
    }

    fn is_main(&self, node: &NodeId) -> bool {
        self.lease
            .as_ref()
            .is_some_and(|lease| lease.node.as_ref() == Some(node) && lease.evidence.is_none())
    }

    /// An answer for a lease that has ended, or that is not the present one. Its end had proof, so
    /// it stays ended; but a node that shows up all the same is asked to end, and written down.
    fn stray(&mut self, made: &CallRef, outcome: &Outcome) -> Result<(), StepError> {
        let ended = self.lease.as_ref().and_then(|lease| lease.node.clone());
        let Some(node) = outcome.nodes().into_iter().find(|node| ended.as_ref() != Some(node))
        else {
            return Ok(());
        };
        self.record("lease.stray_node", json!({ "of": made.lease, "node": node }));
        self.call = Some(Call::Terminate(node));
        Ok(())
    }

    fn launched(&mut self, launched: &Launched) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.recheck_at = None;
        let all = || [&launched.node].into_iter().chain(&launched.surplus);
        // The agent can be quicker than the answer: the node that it is on is the wanted one.
        let main = lease.node.get_or_insert_with(|| {
            let its = lease.agent.node.as_ref().filter(|its| all().any(|node| node == *its));
            its.unwrap_or(&launched.node).clone()
        });
        let main = main.clone();
        for node in &launched.surplus {
            lease.add_surplus(node, None, now);
        }
        if main != launched.node {
            // Another one than that was found, or taken, meanwhile: it is one too many.
            lease.add_surplus(&launched.node, None, now);
            return self.node_exists(true);
        }
        if launched.started_at.is_some() {
            lease.meter.start(launched.started_at, now);
        }
        self.billed_at(launched.billed_price)?;
        self.node_exists(true)
    }

    /// The provider states what it charges: above the ceiling is not what was agreed to; below
    /// it, it is what is metered.
    pub(super) fn billed_at(&mut self, stated: Option<HourlyPrice>) -> Result<(), StepError> {
        let now = self.now();
        let (Some(price), Some(lease)) = (stated, &mut self.lease) else { return Ok(()) };
        if price == lease.price.price || lease.meter.charged_to.is_some() {
            return Ok(());
        }
        if price.currency == lease.price.price.currency && fits(price) {
            lease.price.price = price;
            lease.price.source = lease.offer.provider.to_string();
            lease.price.observed_at = Some(now);
        }
        let ceiling = lease.ceiling;
        self.record("lease.price_stated", json!({ "price": price }));
        if !price.is_within(ceiling) {
            return self.end((TrialState::Failed, EndReason::PriceChanged));
        }
        Ok(())
    }

    /// A node in another place than was agreed to is not what was asked for: other prices, other
    /// laws, far from the data. Once user code runs there its work is not thrown away for it.
    pub(super) fn stands_at(&mut self, state: &NodeState) -> Result<(), StepError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let early = matches!(self.trial.state, TrialState::Provisioning | TrialState::Preparing);
        if !early || state.phase == NodePhase::Gone || !state.is_elsewhere(&lease.offer) {
            return Ok(());
        }
        let place = |region: &Option<String>, zone: &Option<String>| {
            [region, zone].into_iter().flatten().cloned().collect::<Vec<_>>().join("/")
        };
        let is = place(&state.region, &state.zone);
        let wanted = place(&lease.offer.region, &lease.offer.zone);
        self.record("lease.misplaced", json!({ "is": is, "wanted": wanted }));
        let detail = format!("the node is in {is} where {wanted} was asked for");
        self.end((TrialState::Failed, EndReason::NodeFailed { detail }))
    }

    /// There is a node: wait for its agent, or end it at once.
    pub(super) fn node_exists(&mut self, answered: bool) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.absent_reads.clear();
        if lease.capabilities.metering.start == MeterStart::Requested {
            lease.meter.start(None, lease.launched_at.unwrap_or(now));
        }
        let (state, wanted) = (lease.state, lease.release_wanted);
        let node = lease.node.clone();
        if state == LeaseState::Unknown && !answered {
            // What the launch made became visible by then at the latest.
            lease.recheck_at = Some(add(lease.since, lease.capabilities.settle));
        }
        match state {
            LeaseState::Intended | LeaseState::Launching | LeaseState::Unknown if wanted => {
                self.release()
            }
            LeaseState::Intended | LeaseState::Launching | LeaseState::Unknown => {
                self.enter_lease(LeaseState::Booting, json!({ "node": node }));
                // The agent may have reported before the launch itself was answered.
                if self.trial.state != TrialState::Provisioning {
                    self.node_ready();
                    return Ok(());
                }
                self.read_again(None)
            }
            LeaseState::Booting | LeaseState::Ready | LeaseState::Releasing => {
                lease.next_at = Some(now);
                Ok(())
            }
            LeaseState::Released | LeaseState::Void => Ok(()),
        }
    }

    fn launch_failed(&mut self, error: &ProviderError) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.last_error = Some(error.to_string());
        let had = lease.node.is_some();
        let mut nodes = error.nodes.iter();
        if !had {
            lease.node = nodes.next().cloned();
        }
        for node in nodes {
            lease.add_surplus(node, None, now);
        }
        let pending = matches!(lease.state, LeaseState::Launching | LeaseState::Unknown);
        let effect = match crate::sabotage!(RelaunchWithoutFind) {
            true => Effect::None,
            false => error.effect,
        };
        match (lease.node.is_some(), effect, pending) {
            // An error that brought nodes: they exist and bill; end them.
            (true, _, true) => {
                if lease.capabilities.metering.start == MeterStart::Requested {
                    lease.meter.start(None, lease.launched_at.unwrap_or(now));
                }
                if error.effect == Effect::Possible {
                    lease.recheck_at = Some(add(now, lease.capabilities.settle));
                }
                // Each such node can cost its minimum: as one that fails they are not tried for ever. One
                // that comes with a want of capacity never runs, and capacity is waited for.
                if error.kind != ErrorKind::Capacity {
                    self.node_died(&error.to_string())?;
                }
                self.launch_refused(error.kind, &error.to_string())?;
                self.launch_not_before(error.retry_after);
                self.release()
            }
            (true, _, false) => Ok(()),
            (false, Effect::Possible, _) => {
                if lease.state == LeaseState::Launching {
                    self.enter_lease(LeaseState::Unknown, json!({ "why": error.to_string() }));
                }
                self.read_again(None)
            }
            // A refusal that comes late, after the outcome counted as unknown, is still definite.
            (false, Effect::None, _) => {
                self.launch_refused(error.kind, &error.to_string())?;
                self.end_lease(LeaseState::Void, Evidence::Refused { at: now, error: error.kind })?;
                self.launch_not_before(error.retry_after);
                Ok(())
            }
        }
    }

    /// Nothing was asked of the provider, and its caller knows that. Where the call has been taken for
    /// lost meanwhile, a find answers as for any other.
    fn launch_withheld(&mut self, timely: bool) -> Result<(), StepError> {
        if !timely {
            return Ok(());
        }
        // What the price means for the trial is decided in the queue.
        self.trial.waiting_for = Some("the price or the listing of the offer changed".to_owned());
        let nothing = Evidence::NothingLaunched { at: self.now() };
        self.end_lease(LeaseState::Void, nothing)
    }

    /// A provider that asks for a pause gets it.
    fn launch_not_before(&mut self, pause: Option<std::time::Duration>) {
        let Some(pause) = pause else { return };
        let at = add(self.now(), pause.min(self.context.policy.queue_limit));
        if self.trial.state == TrialState::Queued {
            self.trial.next_at = self.trial.next_at.map(|next| next.max(at));
        }
    }

    fn described(
        &mut self,
        node: &NodeId,
        state: &NodeState,
        timely: bool,
    ) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.absent_reads.clear();
        lease.last_error = None;
        lease.observe(state, now);
        // Credentials that were refused are accepted again.
        if lease.hold.as_ref().is_some_and(|hold| hold.kind == ErrorKind::Auth) {
            self.unhold();
        }
        self.billed_at(state.billed_price)?;
        self.stands_at(state)?;
        let Some(lease) = &mut self.lease else { return Ok(()) };
        match (state.phase, lease.state) {
            (NodePhase::Gone, _) => {
                let why = state.reason.clone().unwrap_or_else(|| "no reason given".into());
                debug_assert_eq!(*node, state.node);
                self.gone(state, "describe", &format!("the node is gone: {why}"))
            }
            (NodePhase::Stopped, LeaseState::Booting | LeaseState::Ready) => {
                let why = state.reason.clone().unwrap_or_else(|| "no reason given".into());
                self.node_died(&format!("the node stopped: {why}"))?;
                self.release()
            }
            (_, LeaseState::Releasing) if !timely => Ok(()),
            (_, LeaseState::Releasing) if !lease.release_acked => {
                // Read for its times; now it is ended.
                lease.release_failures = lease.release_failures.saturating_add(1);
                lease.next_at = Some(now);
                Ok(())
            }
            (_, LeaseState::Releasing) => {
                // Accepted, but still there: ask again from time to time, for ever.
                self.no_progress();
                let Some(lease) = &mut self.lease else { return Ok(()) };
                if lease.release_failures % ASK_AGAIN == 0 {
                    lease.release_acked = false;
                }
                self.read_again(None)
            }
            (_, _) => {
                lease.release_failures = 0;
                self.read_again(None)
            }
        }
    }

    /// The provider itself says that the node has ended.
    pub(super) fn gone(
        &mut self,
        state: &NodeState,
        call: &str,
        why: &str,
    ) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.observe(state, now);
        if lease.end_cause == Some(EndCause::Capacity) && state.started_at.is_none() {
            return self.never_ran(state, call);
        }
        let noticed = state.stopped_at.and(Some(now));
        match crate::sabotage!(SegmentClosedAtNoticing) {
            true => lease.meter.stop(noticed, now),
            false => lease.meter.stop_after(lease.seen_at, state.stopped_at, now),
        }
        let evidence = Evidence::TerminalRead {
            node: state.node.clone(),
            at: now,
            call: call.into(),
            stopped_at: state.stopped_at,
        };
        self.node_died(why)?;
        self.end_lease(LeaseState::Released, evidence)
    }

    /// The provider could not serve what it had accepted: nothing ran, nothing is billed, and it is
    /// the provider's stock that is wanting, not the node that failed.
    fn never_ran(&mut self, state: &NodeState, call: &str) -> Result<(), StepError> {
        let now = self.now();
        let words = state.reason.clone().unwrap_or_else(|| "no reason given".into());
        if let Some(lease) = &mut self.lease
            && lease.meter.charged_to.is_none()
        {
            lease.meter = Meter::default();
        }
        self.launch_refused(ErrorKind::Capacity, &words)?;
        let evidence = Evidence::TerminalRead {
            node: state.node.clone(),
            at: now,
            call: call.into(),
            stopped_at: state.stopped_at,
        };
        self.end_lease(LeaseState::Released, evidence)
    }

    fn describe_failed(
        &mut self,
        node: &NodeId,
        error: &ProviderError,
        read_at: Option<Timestamp>,
    ) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if error.kind != ErrorKind::NotFound {
            return self.read_failed(error, read_at.is_some());
        }
        let Some(read_at) = read_at else { return Ok(()) };
        if lease.state == LeaseState::Releasing && !lease.release_acked {
            lease.release_failures = lease.release_failures.saturating_add(1);
        }
        // Not found: proof only when repeated over the settle window.
        let launched_at = lease.launched_at.unwrap_or(lease.intended_at);
        let first = lease.absent_reads.first().copied().unwrap_or(read_at);
        let capabilities = &lease.capabilities;
        let (wanted, settle) = match crate::sabotage!(OneNotFoundAsProof) {
            true => (1, std::time::Duration::ZERO),
            false => (capabilities.absent_reads, capabilities.settle),
        };
        let window_end = add(first.max(launched_at), settle);
        let proven = absent(&mut lease.absent_reads, read_at, wanted, window_end);
        let Some(reads) = proven else { return self.read_again(None) };
        // One that we had to end was there, though no read ever showed since when it ran.
        if lease.state == LeaseState::Releasing && lease.meter.started_at.is_none() {
            lease.meter.start(None, launched_at);
        }
        lease.meter.stop(None, first);
        self.node_died("the provider no longer knows the node")?;
        self.end_lease(LeaseState::Released, Evidence::AbsentReads { node: node.clone(), reads })
    }

    fn terminated(&mut self, node: &NodeId, answer: &Terminated) -> Result<(), StepError> {
        let now = self.now();
        self.unhold();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.last_error = None;
        match answer {
            Terminated::Requested if crate::sabotage!(ReleaseWithoutEvidence) => {
                let (node, call) = (node.clone(), "terminate".to_owned());
                let evidence = Evidence::TerminalRead { node, at: now, call, stopped_at: None };
                self.end_lease(LeaseState::Released, evidence)
            }
            // Gone, but when it began to bill was never read: a read may still tell.
            Terminated::Gone { .. }
                if lease.capabilities.states_times && lease.meter.awaits_provider_start() =>
            {
                lease.release_acked = true;
                lease.next_at = Some(now);
                Ok(())
            }
            Terminated::Gone { stopped_at } => {
                lease.meter.stop_after(lease.seen_at, *stopped_at, now);
                let evidence = Evidence::TerminalRead {
                    node: node.clone(),
                    at: now,
                    call: "terminate".into(),
                    stopped_at: *stopped_at,
                };
                self.node_died("the node is gone")?;
                self.end_lease(LeaseState::Released, evidence)
            }
            Terminated::Requested => {
                lease.release_acked = true;
                self.read_again(None)
            }
        }
    }

    fn release_failed(&mut self, error: &ProviderError) -> Result<(), StepError> {
        if crate::sabotage!(TerminateGivenUp)
            && let Some(lease) = self.lease.as_ref().filter(|lease| lease.release_failures >= 2)
        {
            let reads = vec![self.now()];
            let evidence = lease.node.clone().map(|node| Evidence::AbsentReads { node, reads });
            return evidence.map_or(Ok(()), |e| self.end_lease(LeaseState::Released, e));
        }
        if let Some(lease) = &mut self.lease {
            lease.last_error = Some(error.to_string());
            // "Not found" may be lag: only reads over the settle window prove it.
            lease.release_acked |= error.kind == ErrorKind::NotFound;
        }
        self.hold(error);
        self.no_progress();
        self.read_again(error.retry_after.map(|pause| pause.min(HOLD_POLL)))
    }

    fn read_failed(&mut self, error: &ProviderError, timely: bool) -> Result<(), StepError> {
        if let Some(lease) = &mut self.lease {
            lease.last_error = Some(error.to_string());
        }
        if !timely {
            return Ok(());
        }
        self.hold(error);
        self.no_progress();
        self.read_again(error.retry_after.map(|pause| pause.min(HOLD_POLL)))
    }

    /// Counts a fruitless call.
    fn no_progress(&mut self) {
        let Some(lease) = &mut self.lease else { return };
        lease.release_failures = lease.release_failures.saturating_add(1);
    }
}
