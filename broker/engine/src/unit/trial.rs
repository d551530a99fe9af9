//! The trial's side of a step.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::ErrorKind;
use serde_json::json;

use super::{EndOf, StepError, Work, add, backoff, nothing_launched};
use crate::job::EndReason;
use crate::lease::{AgentSession, Lease, LeaseState};
use crate::meter::Meter;
use crate::trial::{Desired, OutputState, TrialState};

/// Why nothing is launched after a restore.
pub(super) const HELD: &str =
    "launches are held until an operator confirms that the database was restored";

impl Work<'_> {
    pub(crate) fn wake_trial(&mut self) -> Result<(), StepError> {
        match self.trial.state {
            TrialState::Queued => self.leave_queue(),
            TrialState::Provisioning => Ok(()),
            TrialState::Preparing | TrialState::Running | TrialState::Collecting => {
                self.keep_deadlines()
            }
            TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => Ok(()),
        }
    }

    /// Begins a lease when everything allows it.
    fn leave_queue(&mut self) -> Result<(), StepError> {
        let now = self.now();
        if self.trial.desired != Desired::Run {
            return self.end((TrialState::Cancelled, EndReason::Stopped));
        }
        // No other launch of this trial while an earlier lease is not proven ended.
        if self.lease.as_ref().is_some_and(|lease| !lease.state.is_terminal())
            || self.trial.next_at.is_some_and(|at| now < at)
        {
            return Ok(());
        }
        if self.context.held {
            return self.wait_in_queue(HELD);
        }
        if now > add(self.trial.created_at, self.context.policy.queue_limit) {
            return self.end((TrialState::Failed, self.no_capacity()));
        }
        if let Some(block) = self.context.blocked {
            return self.held_back(block);
        }
        let (Some(price), Some(capabilities), Some(fresh)) =
            (&self.context.price, self.context.capabilities, &self.context.fresh)
        else {
            return self.wait_in_queue("the offer is not listed by a connected account now");
        };
        if !crate::meter::fits(price.price) {
            let detail = format!("the price {} cannot be metered exactly", price.price.amount);
            return self.end((TrialState::Failed, EndReason::LaunchRefused { detail }));
        }
        let terms = self.job.terms(self.trial.index);
        let ceiling = terms.ceiling;
        let above = !price.price.is_within(ceiling);
        if above && !crate::sabotage!(CeilingNotRechecked) {
            return self.end((TrialState::Failed, EndReason::PriceChanged));
        }
        let lease = Lease {
            id: fresh.id.clone(),
            version: 0,
            epoch: 1,
            workspace: self.trial.workspace.clone(),
            project: self.trial.project.clone(),
            job: self.job.id.clone(),
            trial: self.trial.id.clone(),
            offer: terms.offer.clone(),
            gpu_count: terms.gpu_count,
            gpu_model: terms.gpu_model,
            state: LeaseState::Intended,
            since: now,
            token: fresh.id.to_string(),
            ceiling,
            price: price.clone(),
            capabilities: capabilities.clone(),
            intended_at: now,
            launched_at: None,
            node: None,
            surplus: Vec::new(),
            surplus_ended: BTreeMap::new(),
            alone_since: None,
            recheck_at: None,
            seen_at: None,
            release_wanted: false,
            release_acked: false,
            absent_reads: Vec::new(),
            release_failures: 0,
            alerts: 0,
            hold: None,
            unreachable_since: None,
            reclaim_at: None,
            end_cause: None,
            last_error: None,
            in_flight: None,
            agent: AgentSession {
                lease_token_sha256: fresh.lease_token_sha256.clone(),
                ..AgentSession::default()
            },
            meter: Meter::default(),
            evidence: None,
            settled_at: None,
            settle_tries: 0,
            next_at: Some(now),
        };
        let offer = lease.offer.clone();
        let hour = price.price.amount;
        let reserved = self.with_budget(price.price.currency, |budget, rate| {
            match crate::sabotage!(BudgetNotReserved) {
                true => Ok(()),
                false => budget.reserve(&lease.id, hour.saturating_mul(rate)),
            }
        });
        let limited = self.context.budget.as_ref().is_some_and(|b| b.budget.limit.is_some());
        match reserved {
            Some(Err(exceeded)) => {
                self.record("budget.exceeded", json!({ "detail": exceeded.to_string() }));
                return self.end((TrialState::Failed, EndReason::BudgetExceeded));
            }
            // A limit in another currency without a usable rate cannot be kept: refuse.
            None if limited => {
                self.record("budget.no_rate", json!({ "currency": price.price.currency }));
                return self.end((TrialState::Failed, EndReason::BudgetExceeded));
            }
            Some(Ok(())) | None => {}
        }
        if let Some(past) = &self.lease {
            let billed = past.meter.billed_micros(&past.capabilities.metering, now);
            let cost = past.meter.cost(past, now)?;
            self.trial.add_past(billed, cost);
        }
        self.trial.lease = Some(lease.id.clone());
        self.trial.agent_seq = 0;
        self.trial.attempts += 1;
        self.trial.waiting_for = None;
        self.trial.next_at = None;
        self.lease = Some(lease);
        self.enter(TrialState::Provisioning);
        self.record("lease.intended", json!({ "offer": offer }));
        Ok(())
    }

    pub(crate) fn wait_in_queue(&mut self, why: &str) -> Result<(), StepError> {
        let policy = self.context.policy;
        // Who has waited long can wait a little longer between two tries.
        let waited = self.now().duration_since(self.trial.created_at);
        let waited = u64::try_from(waited.as_secs()).unwrap_or(0);
        let slower = std::time::Duration::from_secs(waited / 32);
        let pause = backoff(policy.launch_retry, policy.launch_retry_max, self.trial.attempts)
            .max(slower.min(policy.launch_retry_max));
        self.trial.waiting_for = Some(why.to_owned());
        self.trial.next_at = Some(self.after(pause));
        if self.trial.state != TrialState::Queued {
            self.enter(TrialState::Queued);
        }
        Ok(())
    }

    /// What a refused launch means for the trial.
    pub(crate) fn launch_refused(
        &mut self,
        kind: ErrorKind,
        detail: &str,
    ) -> Result<(), StepError> {
        if self.trial.state.is_terminal() {
            return Ok(());
        }
        self.note_refusal(kind, detail);
        match kind {
            ErrorKind::Capacity
            | ErrorKind::Quota
            | ErrorKind::Throttle
            | ErrorKind::Transient
            | ErrorKind::Conflict => {
                self.trial.waiting_for = Some(format!("{}: {detail}", kind.as_str()));
                Ok(())
            }
            ErrorKind::Balance
            | ErrorKind::Auth
            | ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Unsupported
            | ErrorKind::Malformed => {
                let detail = format!("{}: {detail}", kind.as_str());
                self.end((TrialState::Failed, EndReason::LaunchRefused { detail }))
            }
        }
    }

    fn keep_deadlines(&mut self) -> Result<(), StepError> {
        if self.deadline().is_none_or(|deadline| self.now() < deadline) {
            return Ok(());
        }
        match (self.trial.state, self.trial.desired) {
            (TrialState::Running, Desired::Run) => self.want_end(Desired::TimeOut),
            (TrialState::Preparing, Desired::Run) => {
                let detail = "the work folder was not ready in time".to_owned();
                self.end((TrialState::Failed, EndReason::PrepareFailed { detail }))
            }
            (_, _) => self.end_lost("not collected in time"),
        }
    }

    /// When the trial's present state is over at the latest. What was to happen while the broker
    /// was down could not be heard: such a wait begins anew with the process.
    fn deadline(&self) -> Option<Timestamp> {
        let policy = self.context.policy;
        let from = |at: Timestamp, span| Some(add(at.max(self.context.started_at), span));
        let slack = policy.agent_silence * 4;
        match (self.trial.state, self.trial.desired_at) {
            // Whatever else is wanted meanwhile: a stop must not hold the node longer than none.
            (TrialState::Collecting, _) => from(self.trial.since, policy.collect_limit + slack),
            (TrialState::Preparing | TrialState::Running, Some(at)) => {
                from(at, policy.stop_grace + policy.collect_limit + slack)
            }
            (TrialState::Preparing, None) => from(self.trial.since, policy.prepare_limit),
            (TrialState::Running, None) => self.run_deadline(),
            (_, _) => None,
        }
    }

    fn run_deadline(&self) -> Option<Timestamp> {
        let seconds = self.job.terms(self.trial.index).max_duration_seconds?;
        Some(add(self.trial.started_at?, std::time::Duration::from_secs(seconds)))
    }

    /// A stop or the time limit wants the trial to end.
    pub(crate) fn want_end(&mut self, desired: Desired) -> Result<(), StepError> {
        if self.trial.state.is_terminal() || self.trial.desired != Desired::Run {
            return Ok(());
        }
        self.trial.desired = desired;
        self.trial.desired_at = Some(self.now());
        self.record("trial.end_wanted", json!({ "by": desired }));
        match self.trial.state {
            // No agent holds anything of it yet: it ends now; a lease, if any, is resolved and
            // released on its own.
            TrialState::Queued | TrialState::Provisioning => {
                let end = self.wanted_end();
                self.end(end)
            }
            TrialState::Preparing
            | TrialState::Running
            | TrialState::Collecting
            | TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => Ok(()),
        }
    }

    pub(crate) fn wanted_end(&self) -> EndOf {
        match self.trial.desired {
            Desired::TimeOut => (TrialState::TimedOut, EndReason::MaxDurationExceeded),
            Desired::Stop | Desired::Run => (TrialState::Cancelled, EndReason::Stopped),
            Desired::Reclaim => self.reclaimed_end("the provider takes the node back"),
        }
    }

    /// How the program's own end is judged.
    pub(crate) fn natural_end(&self) -> EndOf {
        match self.trial.exit {
            Some(exit) if exit.code == Some(0) && exit.signal.is_none() => {
                (TrialState::Succeeded, EndReason::Succeeded)
            }
            Some(_) | None => (TrialState::Failed, EndReason::ProgramFailed),
        }
    }

    /// Ends the trial; the first end stays.
    pub(crate) fn end(&mut self, (state, reason): EndOf) -> Result<(), StepError> {
        if self.trial.state.is_terminal() && !crate::sabotage!(EndOverwritten) {
            return Ok(());
        }
        self.trial.ended_at = Some(self.now());
        self.trial.end_reason = Some(reason);
        self.trial.waiting_for = None;
        if self.trial.outputs == OutputState::Pending {
            self.trial.outputs = match self.trial.started_at {
                None => OutputState::None,
                Some(_) => OutputState::Failed { reason: "not reported".into() },
            };
        }
        self.enter(state);
        if self.context.siblings_ended {
            self.job.active = false;
        }
        match &mut self.lease {
            Some(lease) if !lease.state.is_terminal() => {
                lease.release_wanted = true;
                lease.next_at = Some(self.context.now);
                self.trial.cleanup_confirmed |= crate::sabotage!(CleanUpConfirmedTooEarly);
            }
            Some(_) => self.trial.cleanup_confirmed = true,
            None => {
                self.trial.evidence.push(nothing_launched(self.context.now));
                self.trial.cleanup_confirmed = true;
            }
        }
        Ok(())
    }

    pub(crate) fn enter(&mut self, state: TrialState) {
        self.trial.state = state;
        self.trial.since = self.now();
        let reason = self.trial.end_reason.clone();
        self.record(format!("trial.{}", state.as_str()), json!({ "reason": reason }));
    }

    /// Sets when trial and lease are to be looked at next: whatever has not ended is.
    pub(crate) fn schedule(&mut self) {
        let now = self.now();
        self.trial.next_at = match self.trial.state {
            TrialState::Queued => self.trial.next_at.or(Some(now)),
            // The lease is what is waited for.
            TrialState::Provisioning => None,
            TrialState::Preparing | TrialState::Running | TrialState::Collecting => self.deadline(),
            TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => None,
        };
        let Some(lease) = &mut self.lease else { return };
        let surplus = lease.surplus.iter().map(|surplus| surplus.next_at).min();
        // Once its own node is proven ended, only the surplus is waited for.
        let own = match lease.evidence {
            Some(_) => None,
            None => Some(lease.next_at.unwrap_or(now)),
        };
        let others = surplus.into_iter().chain(lease.recheck_at);
        lease.next_at = match (&lease.in_flight, lease.state.is_terminal()) {
            // Only its provider's bill is waited for.
            (_, true) => lease.usage_due(),
            (Some(call), false) => Some(call.until),
            (None, false) => Some(own.into_iter().chain(others).min().unwrap_or(now)),
        };
    }
}
