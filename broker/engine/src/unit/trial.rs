//! The trial's side of a step.

use runwhere_model::ErrorKind;
use serde_json::json;

use super::{EndOf, StepError, Work, add, backoff, nothing_launched};
use crate::job::EndReason;
use crate::lease::{AgentSession, Lease, LeaseState};
use crate::meter::Meter;
use crate::trial::{Desired, OutputState, TrialState};

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
        if now > add(self.trial.created_at, self.context.policy.queue_limit) {
            let detail = self.trial.waiting_for.clone().unwrap_or_else(|| "queue".to_owned());
            return self.end((TrialState::Failed, EndReason::NoCapacity { detail }));
        }
        let (Some(price), Some(capabilities), Some(fresh)) =
            (&self.context.price, self.context.capabilities, &self.context.fresh)
        else {
            return self.wait_in_queue("the offer is not listed by a connected account now");
        };
        let ceiling = self.job.spec.ceiling;
        if price.price.currency != ceiling.currency || price.price.amount > ceiling.amount {
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
            offer: self.job.spec.offer.clone(),
            gpu_count: self.job.spec.gpu_count,
            gpu_model: self.job.spec.gpu_model,
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
            seen_at: None,
            release_wanted: false,
            release_acked: false,
            absent_reads: Vec::new(),
            release_failures: 0,
            last_error: None,
            in_flight: None,
            agent: AgentSession {
                lease_token_sha256: fresh.lease_token_sha256.clone(),
                ..AgentSession::default()
            },
            meter: Meter::default(),
            evidence: None,
            next_at: Some(now),
        };
        let hour = price.price.amount;
        let reserved = self.with_budget(price.price.currency, |budget, rate| {
            budget.reserve(&lease.id, hour.saturating_mul(rate))
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
        self.record("lease.intended", json!({ "offer": self.job.spec.offer }));
        Ok(())
    }

    pub(crate) fn wait_in_queue(&mut self, why: &str) -> Result<(), StepError> {
        let policy = self.context.policy;
        let pause = backoff(policy.launch_retry, policy.launch_retry_max, self.trial.attempts);
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
        let now = self.now();
        let policy = self.context.policy;
        if let Some(wanted_at) = self.trial.desired_at {
            let bound = policy.stop_grace + policy.collect_limit + policy.agent_silence * 4;
            if now >= add(wanted_at, bound) {
                self.trial.outputs = OutputState::Failed { reason: "not collected in time".into() };
                let end = self.wanted_end();
                return self.end(end);
            }
            return Ok(());
        }
        match self.trial.state {
            TrialState::Running => {
                if self.run_deadline().is_some_and(|deadline| now >= deadline) {
                    return self.want_end(Desired::TimeOut);
                }
                Ok(())
            }
            TrialState::Preparing if now >= add(self.trial.since, policy.prepare_limit) => {
                let detail = "the work folder was not ready in time".to_owned();
                self.end((TrialState::Failed, EndReason::PrepareFailed { detail }))
            }
            TrialState::Collecting
                if now
                    >= add(self.trial.since, policy.collect_limit + policy.agent_silence * 4) =>
            {
                self.trial.outputs = OutputState::Failed { reason: "not collected in time".into() };
                let end = self.natural_end();
                self.end(end)
            }
            TrialState::Preparing | TrialState::Collecting => Ok(()),
            TrialState::Queued
            | TrialState::Provisioning
            | TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => Ok(()),
        }
    }

    fn run_deadline(&self) -> Option<jiff::Timestamp> {
        let seconds = self.job.spec.max_duration_seconds?;
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
        if self.trial.state.is_terminal() {
            return Ok(());
        }
        self.trial.ended_at = Some(self.now());
        self.trial.end_reason = Some(reason);
        self.trial.waiting_for = None;
        if self.trial.outputs == OutputState::Pending && self.trial.started_at.is_none() {
            self.trial.outputs = OutputState::None;
        }
        self.enter(state);
        if self.context.siblings_ended {
            self.job.active = false;
        }
        match &mut self.lease {
            Some(lease) if !lease.state.is_terminal() => {
                lease.release_wanted = true;
                lease.next_at = Some(self.context.now);
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

    /// Sets when trial and lease are to be looked at next.
    pub(crate) fn schedule(&mut self) {
        let policy = self.context.policy;
        self.trial.next_at = match self.trial.state {
            TrialState::Queued => self.trial.next_at.or(Some(self.now())),
            TrialState::Provisioning => None,
            TrialState::Preparing | TrialState::Running | TrialState::Collecting => {
                let wanted = self.trial.desired_at.map(|at| {
                    add(at, policy.stop_grace + policy.collect_limit + policy.agent_silence * 4)
                });
                wanted.or_else(|| match self.trial.state {
                    TrialState::Running => self.run_deadline(),
                    TrialState::Preparing => Some(add(self.trial.since, policy.prepare_limit)),
                    _ => {
                        Some(add(self.trial.since, policy.collect_limit + policy.agent_silence * 4))
                    }
                })
            }
            TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => None,
        };
        if let Some(lease) = &mut self.lease
            && lease.state.is_terminal()
        {
            lease.next_at = None;
        }
    }
}
