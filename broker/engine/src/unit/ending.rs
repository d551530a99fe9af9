//! The end of a lease, and what it means for its trial and its bill.

use jiff::Timestamp;
use serde_json::json;

use super::{StepError, Work};
use crate::evidence::Evidence;
use crate::lease::LeaseState;
use crate::meter;
use crate::trial::{OutputState, TrialState};

impl Work<'_> {
    /// The node ended without our wish: what that means for the trial.
    pub(super) fn node_died(&mut self, detail: &str) -> Result<(), StepError> {
        if crate::sabotage!(EndOverwritten) {
            let detail = detail.to_owned();
            return self.end((TrialState::Lost, crate::job::EndReason::Lost { detail }));
        }
        match self.trial.state {
            TrialState::Preparing | TrialState::Running | TrialState::Collecting => {
                self.end_lost(detail)
            }
            TrialState::Provisioning => self.replace_node(detail),
            TrialState::Queued
            | TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => Ok(()),
        }
    }

    /// Ends the trial because its node or agent is lost. A program that had ended before keeps its
    /// own end; only its outputs are lost.
    pub(super) fn end_lost(&mut self, detail: &str) -> Result<(), StepError> {
        if self.trial.outputs == OutputState::Pending && self.trial.started_at.is_some() {
            self.trial.outputs = OutputState::Failed { reason: detail.to_owned() };
        }
        let end = self.lost_end(detail);
        self.end(end)
    }

    pub(super) fn execution_lost(&mut self, detail: &str) -> Result<(), StepError> {
        self.end_lost(detail)?;
        match self.lease.as_ref().is_some_and(|lease| !lease.state.is_terminal()) {
            true => self.release(),
            false => Ok(()),
        }
    }

    pub(super) fn release(&mut self) -> Result<(), StepError> {
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
    ///
    /// `alive` is the last sign of life. Reads lag by up to the settle window, and a provider may
    /// state an earlier end than we noticed: what is charged for good lies before that.
    pub(super) fn charge(&mut self, alive: Timestamp) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let alive = alive.max(lease.seen_at.unwrap_or(alive)).min(now);
        let certain = alive.checked_sub(lease.capabilities.settle).unwrap_or(Timestamp::MIN);
        let segments = meter::cut(lease, certain)?;
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

    pub(super) fn end_lease(
        &mut self,
        state: LeaseState,
        evidence: Evidence,
    ) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.meter.stop(None, now);
        // That no read ever showed it at work says little where the cloud does not say so itself.
        let stated =
            lease.capabilities.states_times && matches!(evidence, Evidence::TerminalRead { .. });
        lease.meter.estimated |=
            state == LeaseState::Released && lease.meter.started_at.is_none() && !stated;
        lease.evidence = Some(evidence.clone());
        lease.in_flight = None;
        lease.hold = None;
        let segments = meter::cut(lease, now)?;
        let cost = lease.meter.cost(lease, now)?;
        let id = lease.id.clone();
        self.segments.extend(segments);
        if state == LeaseState::Released && !lease.is_alone() {
            // The node is gone, others of the launch may not be: go on until all are.
            return self.release();
        }
        self.enter_lease(state, json!({ "evidence": evidence }));
        let asked_at = self.after(self.context.policy.usage_after);
        if let Some(lease) = &mut self.lease {
            lease.next_at = lease.awaits_usage().then_some(asked_at);
        }
        let settled = self.with_budget(cost.currency, |budget, rate| {
            budget.settle(&id, cost.amount.saturating_mul(rate));
        });
        if settled.is_none() {
            // Without a rate the real cost cannot be told; freeing what was bound would be wrong.
            self.with_own_budget(|budget| budget.settle_as_bound(&id));
        }
        // A trial that waits long collects refusals: the last one tells what the others do.
        if matches!(evidence, Evidence::Refused { .. })
            && matches!(self.trial.evidence.last(), Some(Evidence::Refused { .. }))
        {
            self.trial.evidence.pop();
        }
        self.trial.evidence.push(evidence);
        match self.trial.state {
            TrialState::Provisioning => {
                let why = self.trial.waiting_for.clone().unwrap_or_else(|| "launch".to_owned());
                self.wait_in_queue(&why)
            }
            TrialState::Preparing | TrialState::Running | TrialState::Collecting => {
                self.end_lost("the node is gone")
            }
            TrialState::Queued => Ok(()),
            TrialState::Succeeded
            | TrialState::Failed
            | TrialState::Lost
            | TrialState::TimedOut
            | TrialState::Cancelled => {
                self.trial.cleanup_confirmed = true;
                Ok(())
            }
        }
    }
}
