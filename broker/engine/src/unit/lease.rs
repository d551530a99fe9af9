//! The lease's side of a wake-up: what is due, and which call it takes.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{Bootstrapping, NodeId, NodePhase, NodeState, StopEffect};
use serde_json::json;

use super::{StepError, Work, add, backoff, call_of};
use crate::evidence::Evidence;
use crate::job::EndReason;
use crate::lease::{CallKind, InFlight, Lease, LeaseState};
use crate::trial::TrialState;

/// Longest pause between reads of a node whose agent has not reported.
const BOOT_POLL_MAX: Duration = Duration::from_secs(30);

/// Longest pause between two alerts about one lease.
const ALERT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Work<'_> {
    pub(crate) fn wake_lease(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.state.is_terminal() {
            return Ok(());
        }
        self.alert_when_overdue();
        self.note_heard();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if let Some(call) = &lease.in_flight {
            if crate::sabotage!(CallAwaitedForEver) {
                return Ok(());
            }
            let other = call.owner != self.context.owner;
            if now < call.until && !(other && self.context.recovering) {
                return Ok(());
            }
            let kind = call.call;
            lease.in_flight = None;
            lease.next_at = Some(now);
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
            LeaseState::Unknown if crate::sabotage!(FreshTokenPerRetry) => {
                if let Some(lease) = &mut self.lease {
                    lease.token.push('x');
                }
                self.launch()
            }
            LeaseState::Unknown => self.call_when_due(CallKind::Find),
            LeaseState::Booting => self.wake_booting(),
            LeaseState::Ready => self.wake_ready(),
            LeaseState::Releasing => self.wake_releasing(),
            LeaseState::Released | LeaseState::Void => Ok(()),
        }
    }

    /// A release, or the answer whether there is a node at all, that takes too long is told to
    /// people, ever more rarely; it goes on for ever.
    fn alert_when_overdue(&mut self) {
        let (now, policy) = (self.now(), self.context.policy);
        let Some(lease) = &mut self.lease else { return };
        let since = match lease.state {
            LeaseState::Unknown | LeaseState::Releasing => Some(lease.since),
            _ => lease.surplus.iter().map(|one| one.since).min(),
        };
        let Some(since) = since else { return };
        let longest = policy.release_alert.max(ALERT_MAX);
        // After the bound, then after 2, 4, 8, … times the bound, a day at most between two.
        let mut due = add(since, policy.release_alert);
        for told in 0..lease.alerts {
            due = add(due, backoff(policy.release_alert, longest, told.min(16)));
        }
        if now < due {
            return;
        }
        lease.alerts = lease.alerts.saturating_add(1);
        let seconds = now.duration_since(since).as_secs();
        let payload = json!({
            "state": lease.state, "seconds": seconds, "node": lease.node,
            "surplus": lease.surplus.len(), "calls": lease.release_failures,
            "price": lease.price.price, "error": lease.last_error,
        });
        self.record("lease.release_overdue", payload);
    }

    fn launch(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let nothing = Evidence::NothingLaunched { at: now };
        if lease.release_wanted {
            return self.end_lease(LeaseState::Void, nothing);
        }
        if self.context.held {
            self.trial.waiting_for = Some(super::trial::HELD.to_owned());
            return self.end_lease(LeaseState::Void, nothing);
        }
        // Refused to somebody else since the intent was made.
        if let Some(block) = self.context.blocked {
            self.held_back(block)?;
            return self.end_lease(LeaseState::Void, nothing);
        }
        // The ceiling is checked again right before the launch: prices move while one waits.
        match &self.context.price {
            Some(price) if price.price.is_within(lease.ceiling) => {}
            Some(_) if crate::sabotage!(CeilingNotRechecked) => {}
            Some(_) => {
                self.end((TrialState::Failed, EndReason::PriceChanged))?;
                return self.end_lease(LeaseState::Void, nothing);
            }
            None => {
                self.trial.waiting_for = Some("the offer is not listed now".to_owned());
                return self.end_lease(LeaseState::Void, nothing);
            }
        }
        lease.launched_at = Some(now);
        self.enter_lease(LeaseState::Launching, json!({}));
        self.call(CallKind::Launch)
    }

    fn wake_booting(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &self.lease else { return Ok(()) };
        if lease.release_wanted {
            self.release()?;
            return self.wake_releasing();
        }
        let begun = lease.launched_at.unwrap_or(lease.intended_at).max(self.context.started_at);
        // An agent that was told to come again when the other nodes are gone is not late before.
        let deferred = lease.agent.deferred_at.is_some();
        let begun = begun.max(lease.alone_since.filter(|_| deferred).unwrap_or(begun));
        let waits = deferred && !lease.surplus.is_empty();
        if !waits && now >= add(begun, lease.capabilities.boot_timeout) {
            self.node_died("the agent did not report in time")?;
            self.release()?;
            return self.wake_releasing();
        }
        self.wake_surplus()?;
        self.call_when_due(CallKind::Describe)
    }

    fn wake_ready(&mut self) -> Result<(), StepError> {
        let now = self.now();
        let policy = self.context.policy;
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if lease.release_wanted {
            self.release()?;
            return self.wake_releasing();
        }
        let since = lease.since;
        let alive = self
            .context
            .agent_seen
            .max(lease.agent.seen_at)
            .unwrap_or(since)
            .max(since)
            .min(now.max(since));
        // An agent that talks is a sign of life: reads that missed its node before were wrong.
        lease.absent_reads.retain(|at| *at > alive);
        self.charge(alive)?;
        // Nobody could be heard before this process began: silence counts from there, proving nothing.
        let heard = alive.max(self.context.started_at).min(now.max(since));
        self.wake_surplus()?;
        if self.call.is_some() {
            return Ok(());
        }
        let heard_here = self.is_heard_here();
        // Who hears it elsewhere writes that down at each look.
        let silence = if heard_here { policy.agent_silence } else { policy.agent_check * 2 };
        self.note_silence(add(heard, silence), heard);
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let lost_after = match crate::sabotage!(SilenceAsLoss) {
            true => policy.agent_silence,
            false => policy.agent_lost,
        };
        // What others hear is known up to their last word of it only.
        let unsaid = if heard_here { Duration::ZERO } else { policy.agent_check * 2 };
        let mut given_up = add(heard, lost_after + unsaid);
        if let Some(wanted) = self.trial.desired_at
            && heard_here
            && matches!(self.trial.state, TrialState::Preparing | TrialState::Running)
        {
            // Nobody pays on for an agent that does not even say that it heard of the wanted end.
            let patience = policy.stop_grace + policy.agent_silence * 4;
            given_up = given_up.min(add(heard.max(wanted), patience));
        }
        if now >= given_up {
            self.execution_lost("the agent has been silent too long")?;
            return self.wake_releasing();
        }
        // The provider's own start is read once, before anything is charged by ours.
        let unread = lease.seen_at.is_none_or(|seen| seen < since);
        let wants_start =
            lease.capabilities.states_times && lease.meter.awaits_provider_start() && unread;
        if now >= add(heard, silence) {
            return self.call(CallKind::Describe);
        }
        if wants_start {
            return self.call_when_due(CallKind::Describe);
        }
        // While the agent is connected its loss is noticed by the connection's end.
        let pause = if heard >= now { policy.agent_check } else { silence };
        let mut next = add(heard, pause);
        let settle = lease.capabilities.settle;
        if let Some(cut) = lease.meter.next_cut().map(|hour| add(hour, settle))
            && cut > now
        {
            next = next.min(cut);
        }
        lease.next_at = Some(next);
        Ok(())
    }

    /// An agent that is connected to another process is heard there. Who hears it writes that down
    /// whatever else is under way, so that the others know.
    fn note_heard(&mut self) {
        let now = self.now();
        let owner = self.context.owner;
        let heard = self.context.agent_seen.is_some_and(|seen| seen >= now);
        let Some(lease) = self.lease.as_mut().filter(|_| heard) else { return };
        if lease.state == LeaseState::Ready {
            lease.agent.seen_at = Some(now);
            lease.agent.heard_by = Some(owner.to_owned());
        }
    }

    /// Whether this process would hear the agent if it were not silent.
    fn is_heard_here(&self) -> bool {
        let by = self.lease.as_ref().and_then(|lease| lease.agent.heard_by.as_deref());
        self.context.alone || by.is_none_or(|by| by == self.context.owner)
    }

    /// A long silence is said once, and its end.
    fn note_silence(&mut self, from: Timestamp, heard: Timestamp) {
        let silent = self.now() >= from;
        let Some(lease) = &mut self.lease else { return };
        match (silent, lease.unreachable_since) {
            (true, None) => {
                lease.unreachable_since = Some(heard);
                self.record("lease.unreachable", json!({ "since": heard }));
            }
            (false, Some(since)) => {
                lease.unreachable_since = None;
                self.record("lease.reachable", json!({ "since": since }));
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    pub(super) fn wake_releasing(&mut self) -> Result<(), StepError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let seen = lease.seen_at.unwrap_or(Timestamp::MIN);
        self.charge(seen)?;
        self.wake_surplus()?;
        let Some(lease) = &self.lease else { return Ok(()) };
        if self.call.is_some() || lease.evidence.is_some() {
            return Ok(());
        }
        // The provider's own times can be read only as long as it shows the node.
        let times_first = lease.capabilities.states_times
            && lease.meter.awaits_provider_start()
            && lease.release_failures == 0;
        // A termination that failed or was not answered may have worked, or been refused because
        // there is nothing to end any more: only a read tells, so they take turns.
        let unsure = lease.last_error.is_some() && lease.release_failures % 2 == 1;
        let kind = match lease.release_acked || times_first || unsure {
            true => CallKind::Describe,
            false => CallKind::Terminate,
        };
        self.call_when_due(kind)
    }

    fn call_when_due(&mut self, kind: CallKind) -> Result<(), StepError> {
        let due = self.lease.as_ref().is_some_and(|l| l.next_at.is_none_or(|at| at <= self.now()));
        if due && self.call.is_none() { self.call(kind) } else { Ok(()) }
    }

    fn call(&mut self, kind: CallKind) -> Result<(), StepError> {
        let node = self.lease.as_ref().and_then(|lease| lease.node.clone());
        self.call_for(kind, node.as_ref())
    }

    /// Marks a call as under way; the caller makes it after the commit.
    pub(super) fn call_for(
        &mut self,
        kind: CallKind,
        node: Option<&NodeId>,
    ) -> Result<(), StepError> {
        let until = self.after(self.context.policy.call_timeout);
        let Some(lease) = &mut self.lease else { return Ok(()) };
        self.call = call_of(kind, lease, node);
        if self.call.is_some() {
            lease.in_flight = Some(InFlight {
                call: kind,
                owner: self.context.owner.to_owned(),
                started_at: self.context.now,
                until,
            });
        }
        Ok(())
    }

    /// The next look at the node, after a pause that grows with the age of its state and with
    /// calls that failed in a row.
    pub(super) fn read_again(&mut self, wanted: Option<Duration>) -> Result<(), StepError> {
        let now = self.now();
        let policy = self.context.policy;
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let direct = lease.capabilities.bootstrapping == Bootstrapping::Direct;
        let shortest = if direct { policy.poll.min(Duration::from_secs(1)) } else { policy.poll };
        let longest = match lease.state {
            // Only one thing can be learnt here: absence, over the settle window.
            LeaseState::Unknown => {
                lease.capabilities.settle / lease.capabilities.absent_reads.max(1)
            }
            LeaseState::Releasing => policy.release_retry_max,
            _ => BOOT_POLL_MAX,
        };
        let age = Duration::try_from(now.duration_since(lease.since)).unwrap_or_default();
        let pause = (age / 8).min(longest).max(shortest);
        let pause = match (&lease.last_error, lease.release_failures) {
            (None, _) | (_, 0) => pause,
            (Some(_), failures) => pause.max(backoff(shortest, policy.release_retry_max, failures)),
        };
        let pause = pause.max(wanted.unwrap_or_default());
        // Whole milliseconds: finer instants are kept nowhere.
        let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        lease.next_at = Some(add(now, Duration::from_millis(millis.max(1))));
        Ok(())
    }

    pub(super) fn enter_lease(&mut self, state: LeaseState, payload: serde_json::Value) {
        let now = self.now();
        if let Some(lease) = &mut self.lease {
            lease.state = state;
            lease.since = now;
            lease.release_failures = 0;
            lease.alerts = 0;
            lease.next_at = Some(now);
        }
        self.record(format!("lease.{}", state.as_str()), payload);
    }
}

impl Lease {
    /// Takes the provider's times and price from a read of the node.
    pub(super) fn observe(&mut self, state: &NodeState, now: Timestamp) {
        let running = match state.phase {
            NodePhase::Running => true,
            NodePhase::Pending | NodePhase::Stopping | NodePhase::Stopped | NodePhase::Gone => {
                false
            }
        };
        if running {
            self.seen_at = Some(now);
        }
        if state.cause.is_some() {
            self.end_cause = state.cause;
        }
        if let Some(stated) = state.started_at {
            self.meter.compare_clocks(stated, self.launched_at, now);
        }
        if state.started_at.is_some() || running {
            let noticed = state.started_at.and(Some(now));
            match crate::sabotage!(SegmentOpenedAtNoticing) {
                true => self.meter.start(noticed, now),
                false => self.meter.start(state.started_at, now),
            }
        }
        // Before anything is charged up to now. One that is being ended is billed until that is proven.
        let ends = self.capabilities.stop == StopEffect::EndsCompute;
        if state.phase == NodePhase::Stopped && ends && self.state != LeaseState::Releasing {
            self.meter.stop_after(self.seen_at, state.stopped_at, now);
        }
    }
}
