//! What lists of a lease's nodes mean: which one is its own, which are too many, and when none is
//! there.

use jiff::Timestamp;
use runwhere_model::{Found, NodePhase, NodeState};
use serde_json::json;

use super::{StepError, Work, add};
use crate::evidence::Evidence;
use crate::lease::LeaseState;

impl Work<'_> {
    pub(super) fn found(
        &mut self,
        found: &Found,
        read_at: Option<Timestamp>,
    ) -> Result<(), StepError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let due = lease.recheck_at.is_some_and(|at| read_at.is_some_and(|read| read >= at));
        if due && found.complete {
            lease.recheck_at = None;
        } else if due {
            self.recheck_later(None);
        }
        self.found_nodes(found, read_at)
    }

    /// Another try at a complete find, after a pause.
    pub(super) fn recheck_later(&mut self, wanted: Option<std::time::Duration>) {
        let (now, policy) = (self.now(), self.context.policy);
        let Some(lease) = &mut self.lease else { return };
        if lease.recheck_at.is_some_and(|at| at <= now) {
            let pause = (policy.poll * 5).max(wanted.unwrap_or_default());
            lease.recheck_at = Some(add(now, pause));
        }
    }

    pub(super) fn found_nodes(
        &mut self,
        found: &Found,
        read_at: Option<Timestamp>,
    ) -> Result<(), StepError> {
        let now = self.now();
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let (gone, live): (Vec<&NodeState>, Vec<&NodeState>) =
            found.nodes.iter().partition(|node| node.phase == NodePhase::Gone);
        if !live.is_empty() {
            let its = |state: &&&NodeState| lease.agent.node.as_ref() == Some(&state.node);
            // Its agent runs on one that is not shown yet: another one must not be taken for it, and
            // that one be ended with the program on it.
            let awaited = lease.node.is_none()
                && !lease.release_wanted
                && lease.agent.node.is_some()
                && live.iter().find(its).is_none();
            if awaited && now < add(lease.since, lease.capabilities.settle) {
                lease.absent_reads.clear();
                return self.read_again(None);
            }
            let first = live.iter().find(its).map_or(live[0], |state| *state).node.clone();
            let main = lease.node.get_or_insert(first).clone();
            let mut back = false;
            for state in live {
                if state.node == main && lease.evidence.is_none() {
                    lease.observe(state, now);
                } else {
                    // Beyond its own; or proven gone, and there again: it is to be ended, and
                    // proven gone, on its own.
                    back |= state.node == main && lease.surplus.iter().all(|one| one.node != main);
                    lease.add_surplus(&state.node, Some((state, read_at)), now);
                }
            }
            if back {
                self.record("node.resurrected", json!({ "node": main }));
            }
            if let Some(state) = found.nodes.iter().find(|s| s.node == main) {
                self.billed_at(state.billed_price)?;
                self.stands_at(state)?;
            }
            return self.node_exists(false);
        }
        // Absence, and the end of a node of another name, mean something only while no node is
        // known; an incomplete or untimely reading proves nothing.
        let unknown = lease.state == LeaseState::Unknown && lease.node.is_none();
        let complete = found.complete || crate::sabotage!(IncompleteListAsProof);
        let (true, Some(read_at)) = (unknown && complete, read_at) else {
            return match (unknown, read_at) {
                (true, Some(_)) => self.read_again(None),
                _ => Ok(()),
            };
        };
        lease.release_failures = 0;
        if let Some(ended) = gone.first() {
            // It was made and has already ended.
            lease.node = Some(ended.node.clone());
            return self.gone(ended, "find", "the node ended before it could be used");
        }
        // An agent that was heard runs somewhere: the window begins anew.
        let redeemed = lease.agent.session_key_sha256.is_some();
        let heard = redeemed
            .then(|| self.context.agent_seen.max(lease.agent.seen_at))
            .flatten()
            .unwrap_or(Timestamp::MIN);
        // The window begins when the launch could last have been under way. Reads within it may lag,
        // and prove nothing; those after it can miss a row once, not each time.
        let capabilities = &lease.capabilities;
        let (wanted, settle) = match crate::sabotage!(OneEmptyListAsProof) {
            true => (1, std::time::Duration::ZERO),
            false => (capabilities.absent_reads, capabilities.settle),
        };
        let window_end = add(lease.since.max(heard), settle);
        lease.absent_reads.retain(|at| *at >= window_end);
        let proven = match read_at >= window_end {
            true => absent(&mut lease.absent_reads, read_at, wanted, window_end),
            false => None,
        };
        match proven {
            Some(reads) => {
                self.node_died("the launch made nothing")?;
                self.end_lease(LeaseState::Void, Evidence::FoundNothing { reads })
            }
            None => self.read_again(None),
        }
    }
}

/// Notes a read without the node, and returns all of them when they prove its absence: enough,
/// the last one begun at or after `window_end`.
pub(crate) fn absent(
    reads: &mut Vec<Timestamp>,
    read_at: Timestamp,
    wanted: u32,
    window_end: Timestamp,
) -> Option<Vec<Timestamp>> {
    /// More tell nothing new.
    const KEPT: usize = 32;
    if reads.len() >= KEPT {
        reads.pop();
    }
    reads.push(read_at);
    let enough = u32::try_from(reads.len()).unwrap_or(u32::MAX) >= wanted.max(1);
    (enough && read_at >= window_end).then(|| reads.clone())
}
