//! Nodes that their provider takes back, and nodes that are replaced by others.

use jiff::Timestamp;
use runwhere_model::EndCause;
use serde_json::json;

use super::{EndOf, StepError, Work};
use crate::job::EndReason;
use crate::trial::{Desired, TrialState};

/// A node that never got as far as its agent is replaced so often, then the trial fails.
const MAX_NODE_FAILURES: u32 = 3;

impl Work<'_> {
    /// The node was told that it will be taken back: the program is stopped while there is time
    /// to save something.
    pub(super) fn reclaim_noticed(&mut self, at: Timestamp) {
        let now = self.now();
        if let Some(lease) = &mut self.lease {
            lease.reclaim_at.get_or_insert(at);
        }
        self.record("lease.reclaim_noticed", json!({ "reclaim_at": at }));
        if self.trial.desired == Desired::Run && self.trial.state != TrialState::Collecting {
            self.trial.desired = Desired::Reclaim;
            self.trial.desired_at = Some(now);
        }
    }

    /// The end of a trial whose node was taken back.
    pub(super) fn reclaimed_end(&self, detail: &str) -> EndOf {
        let state = match self.trial.started_at {
            Some(_) => TrialState::Lost,
            None => TrialState::Failed,
        };
        (state, EndReason::Reclaimed { detail: detail.to_owned() })
    }

    /// Whether the node ended because it was taken back.
    pub(super) fn was_reclaimed(&self) -> bool {
        self.trial.desired == Desired::Reclaim
            || self.lease.as_ref().is_some_and(|l| l.end_cause == Some(EndCause::Reclaimed))
    }

    /// The node is of no use and user code has surely not been started (an agent waits until its
    /// "ready" is acknowledged): another one is tried once this one is proven ended, but not for
    /// ever.
    pub(super) fn replace_node(&mut self, detail: &str) -> Result<(), StepError> {
        let now = self.now();
        // It is being replaced already: its end is no news.
        if self.lease.as_ref().is_some_and(|lease| lease.release_wanted) {
            return Ok(());
        }
        // A launch that came to nothing for want of capacity is no failure of a node.
        let node = self.lease.as_ref().filter(|lease| lease.node.is_some());
        if node.is_some_and(|lease| lease.end_cause != Some(EndCause::Capacity)) {
            self.trial.node_failures += 1;
        }
        if self.trial.node_failures >= MAX_NODE_FAILURES {
            let detail = detail.to_owned();
            return self.end((TrialState::Failed, EndReason::NodeFailed { detail }));
        }
        if self.trial.state != TrialState::Provisioning {
            self.enter(TrialState::Provisioning);
        }
        if self.trial.desired == Desired::Reclaim {
            (self.trial.desired, self.trial.desired_at) = (Desired::Run, None);
        }
        self.record("trial.node_replaced", json!({ "why": detail }));
        self.trial.waiting_for = Some(detail.to_owned());
        if let Some(lease) = &mut self.lease {
            lease.next_at = Some(now);
        }
        Ok(())
    }
}
