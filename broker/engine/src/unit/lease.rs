//! The lease's side of a step.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{
    Bootstrapping, Effect, Found, Launched, MeterStart, NodeId, NodePhase, NodeState,
    ProviderError, Terminated,
};
use serde_json::json;

use super::{Outcome, StepError, Work, add, backoff, call_of};
use crate::evidence::Evidence;
use crate::job::EndReason;
use crate::lease::{CallKind, InFlight, Lease, LeaseState};
use crate::meter;
use crate::trial::TrialState;

/// A node that never got as far as its agent is replaced so often, then the trial fails.
const MAX_NODE_FAILURES: u32 = 3;

impl Work<'_> {
    pub(crate) fn wake_lease(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.state.is_terminal() {
            return Ok(());
        }
        if let Some(call) = &lease.in_flight {
            let own = call.owner == self.context.owner;
            let lost = if own || !self.context.recovering { now >= call.until } else { true };
            if !lost {
                lease.next_at = Some(call.until);
                return Ok(());
            }
            let kind = call.call;
            lease.in_flight = None;
            if kind == CallKind::Launch && lease.state == LeaseState::Launching {
                self.enter_lease(
                    LeaseState::Unknown,
                    json!({ "why": "the launch was not answered" }),
                );
            }
        }
        let Some(lease) = &self.lease else { return Ok(()) };
        match lease.state {
            LeaseState::Intended => self.launch(),
            // Launching without a call under way: its answer is lost.
            LeaseState::Launching => {
                self.enter_lease(
                    LeaseState::Unknown,
                    json!({ "why": "the launch was interrupted" }),
                );
                self.call(CallKind::Find)
            }
            LeaseState::Unknown => self.call_when_due(CallKind::Find),
            LeaseState::Booting => self.wake_booting(),
            LeaseState::Ready => self.wake_ready(),
            LeaseState::Releasing => self.wake_releasing(),
            LeaseState::Released | LeaseState::Void => Ok(()),
        }
    }

    fn launch(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.release_wanted {
            return self.end_lease(LeaseState::Void, Evidence::NothingLaunched { at: now });
        }
        // The ceiling is checked again right before the launch: prices move while one waits.
        let within = self.context.price.as_ref().is_some_and(|price| {
            price.price.currency == lease.ceiling.currency
                && price.price.amount <= lease.ceiling.amount
        });
        if !within {
            self.end((TrialState::Failed, EndReason::PriceChanged))?;
            return self.end_lease(LeaseState::Void, Evidence::NothingLaunched { at: now });
        }
        lease.launched_at = Some(now);
        self.enter_lease(LeaseState::Launching, json!({}));
        self.call(CallKind::Launch)
    }

    fn wake_booting(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &self.lease else { return Ok(()) };
        if lease.release_wanted {
            return self.release();
        }
        let begun = lease.launched_at.unwrap_or(lease.intended_at);
        if now >= add(begun, lease.capabilities.boot_timeout) {
            let detail = "the agent did not report in time".to_owned();
            self.end((TrialState::Failed, EndReason::NodeFailed { detail }))?;
            return self.release();
        }
        self.call_when_due(CallKind::Describe)
    }

    fn wake_ready(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let policy = self.context.policy;
        if self.lease.as_ref().is_some_and(|lease| lease.release_wanted) {
            return self.release();
        }
        self.charge()?;
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let heard = self.context.agent_seen.unwrap_or(lease.since).max(lease.since);
        if now >= add(heard, policy.agent_lost) {
            return self.execution_lost("the agent has been silent too long");
        }
        if now >= add(heard, policy.agent_silence) {
            return self.call(CallKind::Describe);
        }
        // While the agent is connected its loss is noticed by the connection's end.
        let pause = if heard >= now { policy.agent_check } else { policy.agent_silence };
        lease.next_at = Some(add(heard, pause));
        if let Some(cut) = lease.meter.next_cut() {
            lease.next_at = lease.next_at.map(|at| at.min(cut));
        }
        Ok(())
    }

    fn wake_releasing(&mut self) -> Result<(), StepError> {
        self.charge()?;
        let Some(lease) = &self.lease else { return Ok(()) };
        let kind = match lease.release_acked && lease.surplus.is_empty() {
            true => CallKind::Describe,
            false => CallKind::Terminate,
        };
        self.call_when_due(kind)
    }

    fn call_when_due(&mut self, kind: CallKind) -> Result<(), StepError> {
        let due =
            self.lease.as_ref().is_none_or(|l| l.next_at.is_none_or(|at| at <= self.context.now));
        if due { self.call(kind) } else { Ok(()) }
    }

    /// Marks a call as under way; the caller makes it after the commit.
    fn call(&mut self, kind: CallKind) -> Result<(), StepError> {
        let until = self.after(self.context.policy.call_timeout);
        let Some(lease) = &mut self.lease else { return Ok(()) };
        // Surplus nodes are ended first: nothing else refers to them.
        let node = match kind {
            CallKind::Terminate => lease.surplus.first().or(lease.node.as_ref()),
            CallKind::Launch | CallKind::Find | CallKind::Describe => lease.node.as_ref(),
        };
        self.call = call_of(kind, lease, node);
        if self.call.is_some() {
            lease.in_flight = Some(InFlight {
                call: kind,
                owner: self.context.owner.to_owned(),
                started_at: self.context.now,
                until,
            });
            lease.next_at = Some(until);
        }
        Ok(())
    }

    pub(crate) fn outcome(&mut self, outcome: &Outcome) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.state.is_terminal() {
            return Ok(());
        }
        lease.in_flight = None;
        match outcome {
            Outcome::Launch(Ok(launched)) => self.launched(launched.clone()),
            Outcome::Launch(Err(error)) => self.launch_failed(error),
            Outcome::Find(Ok(found)) => self.found(found.clone()),
            Outcome::Find(Err(error)) => self.read_failed(error),
            Outcome::Describe(node, Ok(state)) => self.described(node, state),
            Outcome::Describe(node, Err(error)) => self.describe_failed(node, error),
            Outcome::Terminate(node, Ok(answer)) => self.terminated(node, answer),
            Outcome::Terminate(_, Err(error)) => self.release_failed(error),
        }
    }

    fn launched(&mut self, launched: Launched) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        for node in launched.surplus {
            lease.add_surplus(node);
        }
        match &lease.node {
            None => lease.node = Some(launched.node),
            Some(known) if *known == launched.node => {}
            // A late answer names another node than the one found meanwhile: it is one too many.
            Some(_) => lease.add_surplus(launched.node),
        }
        lease.seen_at = Some(now);
        let requested = lease.capabilities.metering.start == MeterStart::Requested;
        if launched.started_at.is_some() || requested {
            let observed = lease.launched_at.unwrap_or(now);
            lease.meter.start(launched.started_at, observed);
        }
        let dearer = launched.billed_price.is_some_and(|price| {
            price.currency != lease.ceiling.currency || price.amount > lease.ceiling.amount
        });
        if dearer {
            self.end((TrialState::Failed, EndReason::PriceChanged))?;
        }
        self.node_exists()
    }

    /// There is a node: wait for its agent, or end it at once.
    fn node_exists(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.absent_reads.clear();
        let (state, wanted) = (lease.state, lease.release_wanted);
        let node = lease.node.clone();
        match state {
            LeaseState::Intended | LeaseState::Launching | LeaseState::Unknown if wanted => {
                self.release()
            }
            LeaseState::Intended | LeaseState::Launching | LeaseState::Unknown => {
                let pause = self.poll_pause();
                self.enter_lease(LeaseState::Booting, json!({ "node": node }));
                if let Some(lease) = &mut self.lease {
                    lease.next_at = Some(add(now, pause));
                }
                Ok(())
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
        let mut nodes = error.nodes.iter().cloned();
        if lease.node.is_none() {
            lease.node = nodes.next();
        }
        for node in nodes {
            lease.add_surplus(node);
        }
        let brought = lease.node.is_some();
        let pending = matches!(lease.state, LeaseState::Launching | LeaseState::Unknown);
        match (brought, error.effect, pending) {
            // An error that brought nodes: they exist and bill; end them.
            (true, _, true) => {
                lease.meter.start(None, lease.launched_at.unwrap_or(now));
                lease.release_wanted = true;
                self.launch_refused(error.kind, &error.to_string())?;
                self.release()
            }
            (true, _, false) => Ok(()),
            (false, Effect::Possible, _) => {
                if lease.state == LeaseState::Launching {
                    self.enter_lease(LeaseState::Unknown, json!({ "why": error.to_string() }));
                }
                self.read_again()
            }
            // A refusal that comes late, after the outcome counted as unknown, is still definite.
            (false, Effect::None, _) => {
                self.launch_refused(error.kind, &error.to_string())?;
                self.end_lease(LeaseState::Void, Evidence::Refused { at: now, error: error.kind })
            }
        }
    }

    fn found(&mut self, found: Found) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let (live, gone): (Vec<NodeState>, Vec<NodeState>) =
            found.nodes.into_iter().partition(|node| node.phase != NodePhase::Gone);
        let mut live = live.into_iter();
        if let Some(first) = live.next() {
            match &lease.node {
                None => lease.node = Some(first.node.clone()),
                Some(known) if *known == first.node => {}
                Some(_) => lease.add_surplus(first.node.clone()),
            }
            for more in live {
                lease.add_surplus(more.node);
            }
            lease.seen_at = Some(now);
            lease.observe(&first, now);
            return self.node_exists();
        }
        if let Some(ended) = gone.first() {
            // It was made and has already ended.
            lease.node = Some(ended.node.clone());
            lease.observe(ended, now);
            lease.meter.stop(ended.stopped_at, now);
            let evidence = Evidence::TerminalRead {
                node: ended.node.clone(),
                at: now,
                call: "find".into(),
                stopped_at: ended.stopped_at,
            };
            self.node_died("the node ended before it could be used")?;
            return self.end_lease(LeaseState::Released, evidence);
        }
        if !found.complete {
            // An incomplete reading proves nothing.
            return self.read_again();
        }
        lease.absent_reads.push(now);
        if lease.absence_proves(lease.launched_at.unwrap_or(lease.intended_at), now) {
            let reads = lease.absent_reads.clone();
            return self.end_lease(LeaseState::Void, Evidence::FoundNothing { reads });
        }
        self.read_again()
    }

    fn described(&mut self, node: &NodeId, state: &NodeState) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.node.as_ref() != Some(node) {
            return Ok(());
        }
        lease.seen_at = Some(now);
        lease.absent_reads.clear();
        lease.observe(state, now);
        let reason = state.reason.clone().unwrap_or_else(|| "no reason given".into());
        match (state.phase, lease.state) {
            (NodePhase::Gone, _) => {
                lease.meter.stop(state.stopped_at, now);
                let evidence = Evidence::TerminalRead {
                    node: node.clone(),
                    at: now,
                    call: "describe".into(),
                    stopped_at: state.stopped_at,
                };
                self.node_died(&format!("the node is gone: {reason}"))?;
                self.end_lease(LeaseState::Released, evidence)
            }
            (NodePhase::Stopped, LeaseState::Booting | LeaseState::Ready) => {
                self.node_died(&format!("the node stopped: {reason}"))?;
                self.release()
            }
            (_, LeaseState::Releasing) => {
                // Accepted, but still there: ask again from time to time, for ever.
                lease.release_failures = lease.release_failures.saturating_add(1);
                if lease.release_failures % 5 == 0 {
                    lease.release_acked = false;
                }
                self.release_again()
            }
            (_, _) => self.read_again(),
        }
    }

    fn describe_failed(&mut self, node: &NodeId, error: &ProviderError) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if error.kind != runwhere_model::ErrorKind::NotFound || lease.node.as_ref() != Some(node) {
            return self.read_failed(error);
        }
        // Not found: proof only when repeated over the settle window.
        lease.absent_reads.push(now);
        if !lease.absence_proves(lease.launched_at.unwrap_or(lease.intended_at), now) {
            return self.read_again();
        }
        let reads = lease.absent_reads.clone();
        let first = reads.first().copied().unwrap_or(now);
        lease.meter.stop(None, first);
        self.node_died("the provider no longer knows the node")?;
        self.end_lease(LeaseState::Released, Evidence::AbsentReads { node: node.clone(), reads })
    }

    fn terminated(&mut self, node: &NodeId, answer: &Terminated) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.last_error = None;
        if let Some(at) = lease.surplus.iter().position(|surplus| surplus == node) {
            match answer {
                Terminated::Gone { .. } => {
                    lease.surplus.remove(at);
                    lease.next_at = Some(now);
                    return match lease.surplus.is_empty() && lease.node.is_none() {
                        true => {
                            let node = node.clone();
                            let evidence = Evidence::TerminalRead {
                                node,
                                at: now,
                                call: "terminate".into(),
                                stopped_at: None,
                            };
                            self.end_lease(LeaseState::Released, evidence)
                        }
                        false => Ok(()),
                    };
                }
                // Asked again until the provider says that it is gone.
                Terminated::Requested => return self.release_again(),
            }
        }
        match answer {
            Terminated::Gone { stopped_at } => {
                lease.meter.stop(*stopped_at, now);
                let evidence = Evidence::TerminalRead {
                    node: node.clone(),
                    at: now,
                    call: "terminate".into(),
                    stopped_at: *stopped_at,
                };
                self.end_lease(LeaseState::Released, evidence)
            }
            Terminated::Requested => {
                lease.release_acked = true;
                self.read_again()
            }
        }
    }

    fn release_failed(&mut self, error: &ProviderError) -> Result<(), StepError> {
        if let Some(lease) = &mut self.lease {
            lease.last_error = Some(error.to_string());
            lease.release_failures = lease.release_failures.saturating_add(1);
            // "Not found" may be lag: only reads over the settle window prove it.
            lease.release_acked |= error.kind == runwhere_model::ErrorKind::NotFound;
        }
        self.release_again_after(error.retry_after)
    }

    fn release_again(&mut self) -> Result<(), StepError> {
        self.release_again_after(None)
    }

    fn release_again_after(&mut self, wanted: Option<Duration>) -> Result<(), StepError> {
        let policy = self.context.policy;
        let now = self.now();
        if let Some(lease) = &mut self.lease {
            let pause = backoff(policy.poll, policy.release_retry_max, lease.release_failures);
            lease.next_at = Some(add(now, pause.max(wanted.unwrap_or_default())));
        }
        Ok(())
    }

    fn read_failed(&mut self, error: &ProviderError) -> Result<(), StepError> {
        let pause = self.poll_pause().max(error.retry_after.unwrap_or_default());
        let now = self.now();
        if let Some(lease) = &mut self.lease {
            lease.last_error = Some(error.to_string());
            lease.next_at = Some(add(now, pause));
        }
        Ok(())
    }

    fn read_again(&mut self) -> Result<(), StepError> {
        let at = self.after(self.poll_pause());
        if let Some(lease) = &mut self.lease {
            lease.next_at = Some(at);
        }
        Ok(())
    }

    /// Pause between reads: such that the reads absence takes are spread over the settle window.
    fn poll_pause(&self) -> Duration {
        let poll = self.context.policy.poll;
        match &self.lease {
            Some(lease) => {
                let capabilities = &lease.capabilities;
                let spread = capabilities.settle / capabilities.absent_reads.max(1);
                let direct = capabilities.bootstrapping == Bootstrapping::Direct;
                if direct { poll.min(Duration::from_secs(1)).max(spread) } else { poll.max(spread) }
            }
            None => poll,
        }
    }

    /// The node ended without our wish: what that means for the trial.
    fn node_died(&mut self, detail: &str) -> Result<(), StepError> {
        match self.trial.state {
            TrialState::Running | TrialState::Collecting => self.execution_lost(detail),
            TrialState::Preparing => {
                let detail = detail.to_owned();
                self.end((TrialState::Failed, EndReason::NodeFailed { detail }))
            }
            TrialState::Provisioning if self.trial.attempts >= MAX_NODE_FAILURES => {
                let detail = detail.to_owned();
                self.end((TrialState::Failed, EndReason::NodeFailed { detail }))
            }
            // Before its agent reported: another node is tried once this lease is proven ended.
            TrialState::Provisioning => {
                self.trial.waiting_for = Some(detail.to_owned());
                Ok(())
            }
            TrialState::Queued
            | TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => Ok(()),
        }
    }

    fn execution_lost(&mut self, detail: &str) -> Result<(), StepError> {
        let end = match self.trial.started_at {
            Some(_) => (TrialState::Lost, EndReason::Lost { detail: detail.to_owned() }),
            None => (TrialState::Failed, EndReason::NodeFailed { detail: detail.to_owned() }),
        };
        self.end(end)?;
        match self.lease.as_ref().is_some_and(|lease| !lease.state.is_terminal()) {
            true => self.release(),
            false => Ok(()),
        }
    }

    fn release(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.release_wanted = true;
        lease.next_at = Some(now);
        if lease.state != LeaseState::Releasing {
            self.enter_lease(LeaseState::Releasing, json!({}));
        }
        Ok(())
    }

    /// Cuts the segments that are due and keeps the budget's reservation up with the cost.
    fn charge(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let segments = meter::cut(lease, now)?;
        let cost = lease.meter.cost(lease, now)?;
        let id = lease.id.clone();
        // One more hour is always bound ahead of what is already owed.
        let ahead = lease.price.price.amount;
        if !segments.is_empty() {
            self.segments.extend(segments);
            self.with_budget(cost.currency, |budget, rate| {
                budget.raise(&id, cost.amount.saturating_add(ahead).saturating_mul(rate));
            });
        }
        Ok(())
    }

    fn end_lease(&mut self, state: LeaseState, evidence: Evidence) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if state == LeaseState::Released && !lease.surplus.is_empty() {
            // The main node is gone, the surplus is not: go on until all are.
            lease.node = None;
            lease.release_acked = false;
            lease.next_at = Some(now);
            return self.release();
        }
        lease.meter.stop(None, now);
        lease.evidence = Some(evidence.clone());
        lease.in_flight = None;
        lease.next_at = None;
        let segments = meter::cut(lease, now)?;
        let cost = lease.meter.cost(lease, now)?;
        let id = lease.id.clone();
        self.segments.extend(segments);
        self.enter_lease(state, json!({ "evidence": evidence }));
        self.with_budget(cost.currency, |budget, rate| {
            budget.settle(&id, cost.amount.saturating_mul(rate));
        });
        self.trial.evidence.push(evidence);
        match self.trial.state {
            TrialState::Provisioning => {
                let why = self.trial.waiting_for.clone().unwrap_or_else(|| "launch".to_owned());
                self.wait_in_queue(&why)
            }
            state if state.is_terminal() => {
                self.trial.cleanup_confirmed = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn enter_lease(&mut self, state: LeaseState, payload: serde_json::Value) {
        let now = self.now();
        if let Some(lease) = &mut self.lease {
            lease.state = state;
            lease.since = now;
        }
        self.record(format!("lease.{}", state.as_str()), payload);
    }
}

impl Lease {
    fn add_surplus(&mut self, node: NodeId) {
        if self.node.as_ref() != Some(&node) && !self.surplus.contains(&node) {
            self.surplus.push(node);
        }
    }

    /// Takes the provider's times from a read.
    fn observe(&mut self, state: &NodeState, now: Timestamp) {
        let running = match state.phase {
            NodePhase::Running => true,
            NodePhase::Pending | NodePhase::Stopping | NodePhase::Stopped | NodePhase::Gone => {
                false
            }
        };
        if state.started_at.is_some() || running {
            self.meter.start(state.started_at, now);
        }
    }

    /// Whether complete reads without the node prove its absence: enough of them, spread over the
    /// settle window, which itself begins with the launch.
    fn absence_proves(&self, launched_at: Timestamp, now: Timestamp) -> bool {
        let reads = u32::try_from(self.absent_reads.len()).unwrap_or(u32::MAX);
        let first = self.absent_reads.first().copied().unwrap_or(now);
        let settle = self.capabilities.settle;
        reads >= self.capabilities.absent_reads.max(1)
            && now >= add(launched_at, settle)
            && (self.node.is_none() || now >= add(first, settle))
    }
}
