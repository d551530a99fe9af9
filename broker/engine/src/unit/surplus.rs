//! Nodes beyond the one wanted: each is ended at once, and proven ended before its lease is.

use jiff::Timestamp;
use runwhere_model::{ErrorKind, NodeId, NodePhase, NodeState, ProviderError, Terminated};
use serde_json::json;

use super::outcome::absent;
use super::{StepError, Work, add, backoff};
use crate::evidence::Evidence;
use crate::lease::{CallKind, Lease, LeaseState};

/// Every so many fruitless reads a termination is asked for again.
const ASK_AGAIN: u32 = 5;

impl Work<'_> {
    pub(super) fn is_surplus(&self, node: &NodeId) -> bool {
        self.lease.as_ref().is_some_and(|l| l.surplus.iter().any(|one| one.node == *node))
    }

    /// Calls for the surplus node whose turn it is, or looks for such nodes where some may be.
    pub(super) fn wake_surplus(&mut self) -> Result<(), StepError> {
        let now = self.now();
        if self.call.is_some() {
            return Ok(());
        }
        let Some(lease) = &self.lease else { return Ok(()) };
        let due = lease.surplus.iter().filter(|one| one.next_at <= now);
        let Some(one) = due.min_by_key(|one| one.next_at) else {
            return match lease.recheck_at {
                Some(at) if at <= now => self.call_for(CallKind::Find, None),
                _ => Ok(()),
            };
        };
        let kind = if one.acked { CallKind::Describe } else { CallKind::Terminate };
        let node = one.node.clone();
        self.call_for(kind, Some(&node))
    }

    pub(super) fn surplus_terminated(
        &mut self,
        node: &NodeId,
        answer: &Result<Terminated, ProviderError>,
    ) -> Result<(), StepError> {
        let now = self.now();
        match answer {
            Ok(Terminated::Gone { stopped_at }) => {
                let evidence = Evidence::TerminalRead {
                    node: node.clone(),
                    at: now,
                    call: "terminate".into(),
                    stopped_at: *stopped_at,
                };
                self.surplus_ended(node, evidence)
            }
            Ok(Terminated::Requested) => self.surplus_later(node, true, None),
            Err(error) => {
                let gone = error.kind == ErrorKind::NotFound;
                self.surplus_later(node, gone, Some(error))
            }
        }
    }

    pub(super) fn surplus_described(
        &mut self,
        node: &NodeId,
        answer: &Result<NodeState, ProviderError>,
        read_at: Option<Timestamp>,
    ) -> Result<(), StepError> {
        let now = self.now();
        match answer {
            Ok(state) if state.phase == NodePhase::Gone => {
                let evidence = Evidence::TerminalRead {
                    node: node.clone(),
                    at: now,
                    call: "describe".into(),
                    stopped_at: state.stopped_at,
                };
                self.surplus_ended(node, evidence)
            }
            Ok(_) => {
                let one = self.lease.as_mut().and_then(|lease| {
                    lease.surplus.iter_mut().find(|surplus| surplus.node == *node)
                });
                let acked = one.is_some_and(|one| {
                    one.absent_reads.clear();
                    (one.failures + 1) % ASK_AGAIN != 0
                });
                self.surplus_later(node, acked, None)
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                let (Some(lease), Some(read_at)) = (&mut self.lease, read_at) else {
                    return Ok(());
                };
                let (settle, wanted) = (lease.capabilities.settle, lease.capabilities.absent_reads);
                let Some(one) = lease.surplus.iter_mut().find(|surplus| surplus.node == *node)
                else {
                    return Ok(());
                };
                let first = one.absent_reads.first().copied().unwrap_or(read_at);
                let window_end = add(first.max(one.since), settle);
                match absent(&mut one.absent_reads, read_at, wanted, window_end) {
                    Some(reads) => self
                        .surplus_ended(node, Evidence::AbsentReads { node: node.clone(), reads }),
                    None => self.surplus_later(node, true, None),
                }
            }
            Err(error) => self.surplus_later(node, true, Some(error)),
        }
    }

    fn surplus_later(
        &mut self,
        node: &NodeId,
        acked: bool,
        error: Option<&ProviderError>,
    ) -> Result<(), StepError> {
        let now = self.now();
        let policy = self.context.policy;
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if let Some(error) = error {
            lease.last_error = Some(error.to_string());
        }
        if let Some(one) = lease.surplus.iter_mut().find(|surplus| surplus.node == *node) {
            one.acked = acked;
            let wanted = error.and_then(|error| error.retry_after).unwrap_or_default();
            let pause = backoff(policy.poll, policy.release_retry_max, one.failures);
            one.failures = one.failures.saturating_add(1);
            one.next_at = add(now, pause.max(wanted));
        }
        Ok(())
    }

    fn surplus_ended(&mut self, node: &NodeId, evidence: Evidence) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.surplus.retain(|surplus| surplus.node != *node);
        self.record("lease.surplus_ended", json!({ "evidence": evidence }));
        self.trial.evidence.push(evidence);
        Ok(())
    }

    /// Ends the lease once nothing but the proof of its own node was waited for.
    pub(super) fn conclude(&mut self) -> Result<(), StepError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        match &lease.evidence {
            Some(evidence) if !lease.state.is_terminal() && lease.is_alone() => {
                let evidence = evidence.clone();
                self.end_lease(LeaseState::Released, evidence)
            }
            _ => Ok(()),
        }
    }
}

impl Lease {
    /// No other node of it is known of or to be looked for.
    pub(super) fn is_alone(&self) -> bool {
        self.surplus.is_empty() && self.recheck_at.is_none()
    }
}
