//! Nodes beyond the one wanted: each is ended at once, and proven ended before its lease is.

use jiff::Timestamp;
use runwhere_model::{
    Capabilities, ErrorKind, Found, LeaseId, NodeId, NodePhase, NodeState, ProviderError,
    Terminated,
};
use serde_json::json;

use super::{StepError, Work};
use crate::evidence::Evidence;
use crate::lease::{CallKind, Lease, LeaseState};
use crate::meter::{Bill, Meter, cut_meter};
use crate::policy::Policy;
use crate::surplus::Surplus;

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
        let kind = one.next_call(&lease.capabilities);
        let node = one.node.clone();
        self.call_for(kind, Some(&node))
    }

    pub(super) fn surplus_terminated(
        &mut self,
        node: &NodeId,
        answer: &Result<Terminated, ProviderError>,
    ) -> Result<(), StepError> {
        self.surplus_answered(node, answer.as_ref().err(), |one, capabilities, policy, now| {
            one.terminated(answer, capabilities, policy, now)
        })
    }

    pub(super) fn surplus_described(
        &mut self,
        node: &NodeId,
        answer: &Result<NodeState, ProviderError>,
        read_at: Option<Timestamp>,
    ) -> Result<(), StepError> {
        let error = answer.as_ref().err().filter(|error| error.kind != ErrorKind::NotFound);
        self.surplus_answered(node, error, |one, capabilities, policy, now| {
            one.described(answer, read_at, capabilities, policy, now)
        })
    }

    fn surplus_answered(
        &mut self,
        node: &NodeId,
        error: Option<&ProviderError>,
        take: impl FnOnce(&mut Surplus, &Capabilities, &Policy, Timestamp) -> Option<Evidence>,
    ) -> Result<(), StepError> {
        let (now, policy) = (self.now(), self.context.policy);
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if let Some(error) = error {
            lease.last_error = Some(error.to_string());
        }
        let Some(one) = lease.surplus.iter_mut().find(|one| one.node == *node) else {
            return Ok(());
        };
        let evidence = take(one, &lease.capabilities, policy, now);
        self.charge_surplus(node)?;
        match evidence {
            Some(evidence) => self.surplus_ended(node, evidence),
            None => Ok(()),
        }
    }

    /// Bills what is certain of a surplus node's time to the trial's project.
    fn charge_surplus(&mut self, node: &NodeId) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let Some(index) = lease.surplus.iter().position(|one| one.node == *node) else {
            return Ok(());
        };
        let one = &lease.surplus[index];
        let stated = one.stated_price.filter(|price| price.currency == lease.price.price.currency);
        let mut name = format!("{}+{}+{}", lease.id, one.node, one.since.as_microsecond());
        // Its end can be proven and it can be named again within one instant: that is another meter.
        if let Some(from) = one.billed_from {
            name = format!("{name}+{}", from.as_microsecond());
        }
        let bill = Bill {
            name: &name,
            workspace: &lease.workspace,
            project: &lease.project,
            job: &lease.job,
            trial: &lease.trial,
            lease: &lease.id,
            node: Some(&one.node),
            offer: &lease.offer,
            price: stated.unwrap_or(lease.price.price),
            price_snapshot: &lease.price.snapshot,
            metering: lease.capabilities.metering,
        };
        let seen = one.seen_at.unwrap_or(Timestamp::MIN);
        let certain = seen.checked_sub(lease.capabilities.settle).unwrap_or(Timestamp::MIN);
        let mut meter = one.meter.clone();
        let segments = cut_meter(&mut meter, &bill, certain)?;
        lease.surplus[index].meter = meter;
        for segment in &segments {
            let micros = segment.billed_to_micros.saturating_sub(segment.billed_from_micros);
            self.trial.add_past(micros, segment.amount);
            let amount = segment.amount;
            let spent = self.with_budget(amount.currency, |budget, rate| {
                budget.spend(amount.amount.saturating_mul(rate));
            });
            if spent.is_none() && self.context.budget.is_some() {
                self.record("budget.no_rate", json!({ "currency": amount.currency }));
            }
        }
        self.segments.extend(segments);
        Ok(())
    }

    fn surplus_ended(&mut self, node: &NodeId, evidence: Evidence) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        if let Some(one) = lease.surplus.iter().find(|one| one.node == *node) {
            // One that was made sure of and not seen to run was billed up to its earlier end.
            let stopped = one.meter.stopped_at.or(one.billed_from).unwrap_or(now);
            lease.surplus_ended.insert(node.clone(), stopped);
        }
        lease.surplus.retain(|surplus| surplus.node != *node);
        if lease.surplus.is_empty() {
            lease.alerts = 0;
            lease.alone_since = Some(now);
        }
        self.record("lease.surplus_ended", json!({ "evidence": evidence }));
        self.trial.evidence.push(evidence);
        Ok(())
    }

    pub(super) fn sighted(
        &mut self,
        of: &LeaseId,
        nodes: &[(NodeState, Option<Timestamp>)],
        listed_at: Timestamp,
    ) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let counts = match lease.state {
            LeaseState::Booting | LeaseState::Ready | LeaseState::Releasing => lease.node.is_some(),
            // Its launch made it.
            LeaseState::Unknown => true,
            // A launch under way is answered on its own.
            LeaseState::Intended | LeaseState::Launching => false,
            LeaseState::Released | LeaseState::Void => false,
        };
        if lease.id != *of || !counts {
            return Ok(());
        }
        for (state, billed) in nodes {
            if let Some(billed) = billed
                && !lease.has(&state.node)
            {
                let ended = lease.surplus_ended.entry(state.node.clone()).or_insert(*billed);
                *ended = (*ended).max(*billed);
            }
        }
        let nodes: Vec<NodeState> = nodes
            .iter()
            .map(|(state, _)| state)
            .filter(|state| state.phase != NodePhase::Gone)
            .cloned()
            .collect();
        let resolved = lease.node.is_some();
        for state in &nodes {
            let own = self.lease.as_ref().and_then(|lease| lease.node.as_ref());
            if resolved && own != Some(&state.node) && !self.is_surplus(&state.node) {
                self.record("lease.surplus_found", json!({ "node": state.node }));
            }
        }
        if !nodes.is_empty() {
            self.found_nodes(&Found { nodes, complete: false }, Some(listed_at))?;
        }
        self.conclude()
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
    /// Takes note of a node beyond the one wanted, and of what a read showed of it; the read was begun at an instant
    /// that is `None` where its answer came out of turn.
    pub(super) fn add_surplus(
        &mut self,
        node: &NodeId,
        read: Option<(&NodeState, Option<Timestamp>)>,
        now: Timestamp,
    ) {
        let own = self.node.as_ref() == Some(node);
        if own && self.evidence.is_none() || crate::sabotage!(SurplusForgotten) {
            return;
        }
        let ended = self.paid_until(node);
        // What may have been read before its end, and is answered after the proof of that, shows nothing new.
        let new = |read_at: Option<Timestamp>| {
            ended.is_none_or(|ended| read_at.is_some_and(|read_at| read_at > ended))
        };
        let state = read.and_then(|(state, read_at)| new(read_at).then_some(state));
        let known = self.surplus.iter().position(|surplus| surplus.node == *node);
        let index = known.unwrap_or_else(|| {
            let requested = self.launched_at.unwrap_or(self.intended_at);
            let mut one = Surplus::new(node.clone(), &self.capabilities, requested, now);
            if let Some(stopped) = ended {
                one.meter = Meter::default();
                match state {
                    // Named by a late answer: it is made sure of once more, and billed again only where a new read
                    // shows it.
                    None => one.billed_from = Some(stopped),
                    Some(_) => one.billed_only_from(stopped),
                }
            }
            self.surplus.push(one);
            self.surplus.len() - 1
        });
        if let Some(state) = state {
            self.surplus[index].observe(state, now);
        }
    }

    /// Up to when a node's time is on this lease's bills: its last proven end, however often it came back.
    pub(crate) fn paid_until(&self, node: &NodeId) -> Option<Timestamp> {
        let proven = || self.evidence.as_ref().and_then(Evidence::proven_at);
        let own = self.node.as_ref() == Some(node);
        let first = own.then(|| self.meter.stopped_at.or_else(proven)).flatten();
        first.max(self.surplus_ended.get(node).copied())
    }

    /// Whether a node is its own or one beyond that, and not proven to have ended.
    pub(crate) fn has(&self, node: &NodeId) -> bool {
        self.surplus.iter().any(|one| one.node == *node)
            || (self.node.as_ref() == Some(node) && self.evidence.is_none())
    }

    /// No other node of it is known of or to be looked for.
    pub(super) fn is_alone(&self) -> bool {
        self.surplus.is_empty() && self.recheck_at.is_none()
    }
}
