//! What a list of all our nodes means: which of them nobody owns, and what is done about them.
//!
//! The cloud is listed first and the leases are read afterwards, so that a lease which was made
//! meanwhile protects its node. A lease is durable before its node is asked for: a node without
//! one is nobody's. Even so it is ended only when it is old enough and a second look, later than
//! reads can lag, finds it still without an owner.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use runwhere_model::{
    Capabilities, DeploymentId, HourlyPrice, LeaseId, MoneyError, NodeId, NodeList, NodePhase,
    NodeState, ProviderId, SeenNode,
};
use serde::{Deserialize, Serialize};

use crate::event::EventRecord;
use crate::evidence::Evidence;
use crate::lease::{Lease, LeaseState};
use crate::policy::Policy;
use crate::stray::{Stray, StrayCause, StrayState, StrayStep};
use crate::unit::{absent, add};

/// The shortest span between two looks.
const SHORTEST_GAP: std::time::Duration = std::time::Duration::from_secs(1);

/// Everything a sweep looks at.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Whose list it is.
    pub provider: &'a ProviderId,
    /// This installation.
    pub deployment: &'a DeploymentId,
    /// What the provider promises.
    pub capabilities: &'a Capabilities,
    /// Bounds.
    pub policy: &'a Policy,
    /// The list.
    pub list: &'a NodeList,
    /// When it was asked for.
    pub listed_at: Timestamp,
    /// When its answer was there.
    pub answered_at: Timestamp,
    /// When the reading of leases and strays began; not before the list's answer was there.
    pub leases_read_at: Timestamp,
    /// The leases that the list's labels name, as far as they are stored.
    pub leases: &'a BTreeMap<LeaseId, Lease>,
    /// The strays of this provider that are open, or in the list.
    pub strays: &'a BTreeMap<NodeId, Stray>,
    /// Nodes may be ended. Off after a restore and for a dry run: then nothing moves on.
    pub may_end: bool,
    /// The present instant.
    pub now: Timestamp,
}

/// What is thought of one node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A lease that has not ended has it.
    Owned,
    /// A launch whose outcome is open may have made it.
    InFlight,
    /// Its lease ended so recently that the list may be older.
    Settling,
    /// Without an owner, but too young.
    Young,
    /// Without an owner; a second look decides.
    Suspected,
    /// Without an owner at two looks: to be ended.
    End,
    /// Being ended.
    Ending,
}

impl Verdict {
    /// The word used in logs and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::InFlight => "in_flight",
            Self::Settling => "settling",
            Self::Young => "young",
            Self::Suspected => "suspected",
            Self::End => "end",
            Self::Ending => "ending",
        }
    }
}

/// One node of the list and what is thought of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The node.
    pub node: NodeId,
    /// The lease its label names.
    pub lease: Option<LeaseId>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why nobody owns it, where nobody does.
    pub cause: Option<StrayCause>,
    /// When it was made, where stated.
    pub created_at: Option<Timestamp>,
    /// When it was first seen without an owner.
    pub first_seen: Option<Timestamp>,
    /// Its price per hour, where known.
    pub price: Option<HourlyPrice>,
    /// From when on a look can end it.
    pub again_at: Option<Timestamp>,
}

/// Numbers of a sweep.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SweepCounts {
    /// When the list was asked for.
    pub listed_at: Timestamp,
    /// Whether everything was read.
    pub complete: bool,
    /// Nodes with our label that have not ended.
    pub live: u64,
    /// Owned by leases, or possibly made by a launch whose outcome is open.
    pub owned: u64,
    /// Without an owner, but too young or their lease ended only now.
    pub waiting: u64,
    /// Without an owner, before the second look.
    pub suspected: u64,
    /// Being ended.
    pub ending: u64,
    /// Other people's nodes: counted, never touched.
    pub foreign: u64,
}

/// What a sweep changes and wants.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Numbers.
    pub counts: SweepCounts,
    /// Every live node of ours.
    pub findings: Vec<Finding>,
    /// Strays that changed, with their bills and their audit.
    pub strays: Vec<StrayStep>,
    /// Nodes of open leases that own others, and up to when they were billed as strays: their units end them.
    pub extra: Vec<(LeaseId, NodeState, Option<Timestamp>)>,
    /// Nodes that launches of unknown outcome made: their units take them.
    pub made: Vec<(LeaseId, NodeState)>,
    /// When a second look is due, if one is.
    pub again_at: Option<Timestamp>,
}

/// Why a list cannot be judged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SweepRefused {
    /// The leases were read before the list was there: a node launched in between would look like
    /// nobody's.
    #[error("the leases were read before the list was there")]
    LeasesFirst,
    /// Money out of range.
    #[error(transparent)]
    Money(#[from] MoneyError),
}

/// Decides about every node of a list. Pure: the caller makes the changes durable before it ends
/// anything.
pub fn sweep(look: &Look<'_>) -> Result<Sweep, SweepRefused> {
    if look.leases_read_at < look.answered_at || look.answered_at < look.listed_at {
        return Err(SweepRefused::LeasesFirst);
    }
    let counts = SweepCounts {
        listed_at: look.listed_at,
        complete: look.list.complete,
        live: 0,
        owned: 0,
        waiting: 0,
        suspected: 0,
        ending: 0,
        foreign: look.list.foreign,
    };
    let mut sweep = Sweep {
        counts,
        findings: Vec::new(),
        strays: Vec::new(),
        extra: Vec::new(),
        made: Vec::new(),
        again_at: None,
    };
    let mut shown = BTreeSet::new();
    for seen in &look.list.nodes {
        // Without our label it is nobody's business of ours, whatever the provider was asked.
        if seen.deployment.as_ref() != Some(look.deployment) {
            sweep.counts.foreign += 1;
            continue;
        }
        // A list that changes while it is read can name a node twice; that is one look.
        if !shown.insert(&seen.state.node) {
            continue;
        }
        match seen.state.phase {
            NodePhase::Gone => look.gone(&seen.state, &mut sweep)?,
            _ => look.judge(seen, &mut sweep),
        }
    }
    for (node, stray) in look.strays {
        if stray.state == StrayState::Suspected && !shown.contains(node) {
            look.missing(stray, &mut sweep)?;
        }
    }
    Ok(sweep)
}

fn plain(stray: Stray, events: Vec<EventRecord>) -> StrayStep {
    StrayStep { stray, segments: Vec::new(), events }
}

impl Look<'_> {
    fn gap(&self) -> std::time::Duration {
        self.capabilities.settle.min(self.policy.sweep_gap).max(SHORTEST_GAP)
    }

    fn age(&self) -> std::time::Duration {
        self.policy.sweep_age.max(self.capabilities.settle)
    }

    /// Why nobody owns it; otherwise who protects it.
    fn cause(&self, seen: &SeenNode) -> Result<StrayCause, Verdict> {
        let node = &seen.state.node;
        let Some(id) = &seen.lease else { return Ok(StrayCause::NoLease) };
        let Some(lease) = self.leases.get(id) else { return Ok(StrayCause::UnknownLease) };
        match lease.state {
            LeaseState::Intended | LeaseState::Launching | LeaseState::Unknown => {
                Err(Verdict::InFlight)
            }
            LeaseState::Booting | LeaseState::Ready | LeaseState::Releasing => {
                if lease.has(node) {
                    return Err(Verdict::Owned);
                }
                // A release of a lease that knows of no node: its launch is not resolved.
                if lease.node.is_none() {
                    return Err(Verdict::InFlight);
                }
                Ok(StrayCause::Extra)
            }
            LeaseState::Released | LeaseState::Void => {
                if self.listed_at < add(lease.since, self.capabilities.settle) {
                    return Err(Verdict::Settling);
                }
                let own = lease.node.as_ref() == Some(node);
                let known = own || lease.surplus_ended.contains_key(node);
                Ok(if known { StrayCause::Resurrected } else { StrayCause::LeftBehind })
            }
        }
    }

    fn judge(&self, seen: &SeenNode, sweep: &mut Sweep) {
        sweep.counts.live += 1;
        let stray = self.strays.get(&seen.state.node);
        let mut finding = Finding {
            node: seen.state.node.clone(),
            lease: seen.lease.clone(),
            verdict: Verdict::Owned,
            cause: None,
            created_at: seen.created_at,
            first_seen: stray.filter(|stray| stray.state.is_open()).map(|stray| stray.first_seen),
            price: seen.state.billed_price,
            again_at: None,
        };
        let verdict = match stray {
            Some(stray) if stray.state == StrayState::Ending => {
                finding.cause = Some(stray.cause);
                finding.price = stray.price();
                Verdict::Ending
            }
            _ => match self.cause(seen) {
                Ok(cause) => self.unowned(seen, cause, stray, &mut finding, sweep),
                Err(protected) => {
                    self.made(seen, sweep);
                    if let Some(stray) = stray.filter(|one| one.state == StrayState::Suspected) {
                        let mut stray = stray.clone();
                        stray.close(StrayState::Cleared, None, self.now);
                        sweep.strays.push(plain(stray, Vec::new()));
                    }
                    protected
                }
            },
        };
        finding.verdict = verdict;
        match verdict {
            Verdict::Owned | Verdict::InFlight => sweep.counts.owned += 1,
            Verdict::Settling | Verdict::Young => sweep.counts.waiting += 1,
            Verdict::Suspected => sweep.counts.suspected += 1,
            // Nothing of it may be ended now: it is only told.
            Verdict::End if !self.may_end => sweep.counts.suspected += 1,
            Verdict::End | Verdict::Ending => sweep.counts.ending += 1,
        }
        sweep.findings.push(finding);
    }

    /// What a list shows of a launch of unknown outcome is an answer, whatever other reads miss.
    fn made(&self, seen: &SeenNode, sweep: &mut Sweep) {
        let lease = seen.lease.as_ref().and_then(|id| self.leases.get(id));
        if let Some(lease) = lease.filter(|lease| lease.state == LeaseState::Unknown) {
            sweep.made.push((lease.id.clone(), seen.state.clone()));
        }
    }

    fn unowned(
        &self,
        seen: &SeenNode,
        cause: StrayCause,
        stray: Option<&Stray>,
        finding: &mut Finding,
        sweep: &mut Sweep,
    ) -> Verdict {
        let lease = seen.lease.as_ref().and_then(|id| self.leases.get(id));
        let fresh = || {
            let label = seen.lease.as_ref();
            let about = (cause, lease);
            let (at, capabilities) = (self.listed_at, self.capabilities);
            Stray::new(self.provider, &seen.state, label, about, capabilities, at)
        };
        let paid = lease.and_then(|lease| lease.paid_until(&seen.state.node));
        let mut stray = match stray {
            // A label that changed between two looks, and a node that its lease had and paid for meanwhile, are
            // looked at twice anew.
            Some(known)
                if known.state == StrayState::Suspected
                    && (known.lease != seen.lease || paid > known.target.billed_from) =>
            {
                Stray::reopened(fresh(), known)
            }
            Some(known) if known.state == StrayState::Suspected => {
                let mut stray = known.clone();
                stray.cause = cause;
                if self.listed_at > stray.last_seen {
                    stray.looks = stray.looks.saturating_add(1);
                    stray.last_seen = self.listed_at;
                }
                stray.target.absent_reads.clear();
                stray.target.observe(&seen.state, self.now);
                stray
            }
            // Settled before, and there again. A list that lags shows what was.
            Some(known) if self.listed_at < add(known.since, self.capabilities.settle) => {
                finding.cause = Some(known.cause);
                return Verdict::Settling;
            }
            Some(known) => Stray::reopened(fresh(), known),
            None => fresh(),
        };
        finding.cause = Some(stray.cause);
        finding.first_seen = Some(stray.first_seen);
        finding.price = stray.price();
        // A clock that runs ahead must not make a node young for ever.
        let made = seen.created_at.filter(|at| *at <= self.listed_at);
        let born = made.unwrap_or(stray.first_seen);
        let old_at = add(born, self.age());
        let second_at = add(stray.first_seen, self.gap());
        let again_at = match crate::sabotage!(SweptWithoutAgeGate) {
            true => self.listed_at,
            false => old_at.max(second_at),
        };
        // Believes one look too.
        let again_at = match crate::sabotage!(LeasesReadBeforeCloud) {
            true => self.listed_at,
            false => again_at,
        };
        finding.again_at = Some(again_at);
        let verdict = match self.listed_at {
            at if at >= again_at => Verdict::End,
            at if at < old_at => Verdict::Young,
            _ => Verdict::Suspected,
        };
        let mut events = Vec::new();
        if verdict != Verdict::End {
            sweep.again_at = Some(sweep.again_at.map_or(again_at, |at| at.min(again_at)));
        } else if !self.may_end {
            // Told, and left as it is.
        } else if cause == StrayCause::Extra {
            // Its lease has not ended: it takes care of the node, and pays for it.
            if let Some(id) = &seen.lease {
                sweep.extra.push((id.clone(), seen.state.clone(), stray.target.billed_from));
            }
        } else {
            stray.state = StrayState::Ending;
            stray.since = self.now;
            stray.target.next_at = self.now;
            let kind = match stray.cause {
                StrayCause::Resurrected => "node.resurrected",
                _ => "node.unowned",
            };
            events.extend(stray.event(kind, self.now));
        }
        sweep.strays.push(plain(stray, events));
        verdict
    }

    /// The provider itself says that it ended.
    fn gone(&self, state: &NodeState, sweep: &mut Sweep) -> Result<(), SweepRefused> {
        let known = self.strays.get(&state.node);
        let Some(stray) = known.filter(|stray| stray.state == StrayState::Suspected) else {
            return Ok(());
        };
        let mut stray = stray.clone();
        stray.target.observe(state, self.now);
        let seen = stray.target.seen_at;
        stray.target.meter.stop_after(seen, state.stopped_at, self.now);
        let evidence = Evidence::TerminalRead {
            node: state.node.clone(),
            at: self.now,
            call: "nodes".into(),
            stopped_at: state.stopped_at,
        };
        sweep.strays.push(self.gone_by_itself(stray, evidence)?);
        Ok(())
    }

    /// A suspect that the list does not show. Only complete lists say anything about it, and only
    /// enough of them, over the settle window.
    fn missing(&self, stray: &Stray, sweep: &mut Sweep) -> Result<(), SweepRefused> {
        if !self.list.complete {
            return Ok(());
        }
        let mut stray = stray.clone();
        let reads = &mut stray.target.absent_reads;
        let first = reads.first().copied().unwrap_or(self.listed_at);
        let window_end = add(first, self.capabilities.settle);
        let proven = absent(reads, self.listed_at, self.capabilities.absent_reads, window_end);
        match proven {
            Some(reads) => {
                stray.target.meter.stop(None, first);
                let node = stray.target.node.clone();
                let evidence = Evidence::AbsentReads { node, reads };
                sweep.strays.push(self.gone_by_itself(stray, evidence)?);
            }
            None => {
                let again = add(self.listed_at, self.gap());
                sweep.again_at = Some(sweep.again_at.map_or(again, |at| at.min(again)));
                sweep.strays.push(plain(stray, Vec::new()));
            }
        }
        Ok(())
    }

    fn gone_by_itself(
        &self,
        mut stray: Stray,
        evidence: Evidence,
    ) -> Result<StrayStep, SweepRefused> {
        stray.close(StrayState::Cleared, Some(evidence), self.now);
        let lease = stray.lease.as_ref().and_then(|id| self.leases.get(id));
        // What its lease has, or had after the first look, is on that one's bills.
        let paid = !crate::sabotage!(BilledTwice)
            && lease.is_some_and(|lease| {
                let node = stray.node();
                lease.has(node) || lease.paid_until(node) > stray.target.billed_from
            });
        let segments = if paid { Vec::new() } else { stray.charge(self.now)? };
        let events = stray.event("node.ended", self.now).into_iter().collect();
        Ok(StrayStep { stray, segments, events })
    }
}
