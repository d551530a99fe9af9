//! One simulated node: its whole life, and the bill that follows from it.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{
    DeploymentId, EndCause, HourlyPrice, LaunchRequest, LeaseId, MeterStart, NodeId, NodePhase,
    OfferKey, StopEffect,
};

use super::profile::SimProfile;
use crate::metered::Span;

/// How long a launch that came to nothing is shown.
const FAILURE_SHOWN: Duration = Duration::from_secs(3600);

/// One node with its whole life, what is still to come included.
#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) id: NodeId,
    pub(super) deployment: DeploymentId,
    pub(super) lease: LeaseId,
    pub(super) token: String,
    pub(super) offer: OfferKey,
    pub(super) region: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) price: HourlyPrice,
    pub(super) created_at: Timestamp,
    /// When the cloud will take it back, once that is said.
    pub(super) reclaim_at: Option<Timestamp>,
    /// Nobody was told that it is there.
    pub(super) unsaid: bool,
    /// It is one that the cloud means to run, and so to bill.
    pub(super) served: bool,
    /// When the cloud ends it by itself, and how long that takes.
    end_by: Option<(Timestamp, Duration)>,
    /// Reads miss it in these spans.
    hidden: Vec<(Timestamp, Timestamp)>,
    life: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    at: Timestamp,
    phase: NodePhase,
    why: Option<Why>,
}

/// Why a node is where it is: the code, and the cloud's words.
pub(super) type Why = (EndCause, &'static str);

impl SimNode {
    pub(super) fn new(
        id: NodeId,
        request: &LaunchRequest,
        price: HourlyPrice,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            deployment: request.deployment.clone(),
            lease: request.lease.clone(),
            token: request.token.clone(),
            offer: request.offer.clone(),
            region: request.offer.region.clone(),
            zone: request.offer.zone.clone(),
            price,
            created_at: now,
            reclaim_at: None,
            unsaid: false,
            served: true,
            end_by: None,
            hidden: Vec::new(),
            life: vec![Change { at: now, phase: NodePhase::Pending, why: None }],
        }
    }

    pub(super) fn boot(&mut self, now: Timestamp, after: Duration) {
        self.push(later(now, after), NodePhase::Running, None);
    }

    /// It will end by itself at an instant, unless it has ended by then.
    pub(super) fn end_by(&mut self, at: Timestamp, takes: Duration) {
        self.end_by = Some((at, takes));
        self.plan_end();
    }

    /// It was accepted and will never run.
    pub(super) fn fail(&mut self, now: Timestamp, after: Duration) {
        self.served = false;
        let why = (EndCause::Capacity, "no capacity in the zone");
        self.push(later(now, after), NodePhase::Gone, Some(why));
    }

    /// It was refused, and is there all the same: stopped, and never run.
    pub(super) fn refuse(&mut self, now: Timestamp) {
        self.served = false;
        self.push(now, NodePhase::Stopped, Some((EndCause::Capacity, "outbid")));
    }

    pub(super) fn halt(&mut self, now: Timestamp, why: Option<Why>) {
        if matches!(self.phase_at(now), NodePhase::Pending | NodePhase::Running) {
            self.forget_plans(now);
            self.push(now, NodePhase::Stopped, why);
            self.plan_end();
        }
    }

    /// Runs again, whatever became of it.
    pub(super) fn resume(&mut self, now: Timestamp) {
        if self.phase_at(now) != NodePhase::Running {
            self.unsaid |= self.phase_at(now) == NodePhase::Gone;
            self.forget_plans(now);
            self.push(now, NodePhase::Running, None);
            self.plan_end();
        }
    }

    /// Ends it at an instant, whatever was planned for later. One that is ending keeps its end.
    pub(super) fn end(&mut self, at: Timestamp, takes: Duration, why: Why) {
        if self.is_ending(at) {
            return;
        }
        self.forget_plans(at);
        if !takes.is_zero() {
            self.push(at, NodePhase::Stopping, Some(why));
        }
        self.push(later(at, takes), NodePhase::Gone, Some(why));
    }

    /// Seems to end, and runs on.
    pub(super) fn seem_to_end(&mut self, now: Timestamp, span: Duration) {
        self.forget_plans(now);
        self.push(now, NodePhase::Stopping, Some((EndCause::Requested, "terminated")));
        self.push(later(now, span), NodePhase::Running, None);
        self.plan_end();
    }

    /// Nobody is told of it, and no read shows it for a while.
    pub(super) fn come_unsaid(&mut self, now: Timestamp, span: Duration) {
        self.unsaid = true;
        self.hide(now, span);
    }

    pub(super) fn hide(&mut self, now: Timestamp, span: Duration) {
        self.hidden.push((now, later(now, span)));
    }

    /// What is still to come no longer does, its own end time apart.
    fn forget_plans(&mut self, now: Timestamp) {
        self.life.retain(|change| change.at <= now);
    }

    fn plan_end(&mut self) {
        let Some((at, takes)) = self.end_by else { return };
        let last = self.life.last().map_or(at, |change| change.at);
        let (at, why) = (at.max(last), Some((EndCause::TimeLimit, "end time reached")));
        self.push(at, NodePhase::Stopping, why);
        self.push(later(at, takes), NodePhase::Gone, why);
    }

    fn is_ending(&self, at: Timestamp) -> bool {
        match self.phase_at(at) {
            NodePhase::Gone => true,
            NodePhase::Stopping => {
                let next = self.life.iter().find(|change| change.at > at);
                next.is_none_or(|change| change.phase == NodePhase::Gone)
            }
            NodePhase::Pending | NodePhase::Running | NodePhase::Stopped => false,
        }
    }

    fn push(&mut self, at: Timestamp, phase: NodePhase, why: Option<Why>) {
        self.life.push(Change { at, phase, why });
    }

    fn change_at(&self, at: Timestamp) -> Option<&Change> {
        self.life.iter().rev().find(|change| change.at <= at)
    }

    pub(super) fn phase_at(&self, at: Timestamp) -> NodePhase {
        self.change_at(at).map_or(NodePhase::Pending, |change| change.phase)
    }

    pub(super) fn why_at(&self, at: Timestamp) -> Option<Why> {
        self.change_at(at)?.why
    }

    /// Whether a read made now, of the truth at `seen`, shows it.
    pub(super) fn shown(&self, now: Timestamp, seen: Timestamp, after_end: Duration) -> bool {
        let hidden = self.hidden.iter().any(|(from, to)| *from <= now && now < *to);
        let gone = self.change_at(seen).filter(|change| change.phase == NodePhase::Gone);
        // What a launch came to can be read for long, where it came to nothing.
        let after_end = if self.served { after_end } else { after_end.max(FAILURE_SHOWN) };
        self.created_at <= seen
            && !hidden
            && gone.is_none_or(|gone| seen < later(gone.at, after_end))
    }

    /// The spans that are billed as things are planned now, in order; the last may be open.
    fn spans(&self, profile: &SimProfile) -> Vec<(Timestamp, Option<Timestamp>)> {
        let (start, stop) = (profile.capabilities.metering.start, profile.capabilities.stop);
        let mut spans: Vec<(Timestamp, Option<Timestamp>)> = Vec::new();
        let mut open = (start == MeterStart::Requested && self.served).then_some(self.created_at);
        for (number, change) in self.life.iter().enumerate() {
            let gone_next =
                self.life.get(number + 1).is_some_and(|next| next.phase == NodePhase::Gone);
            match (change.phase, open) {
                (NodePhase::Running, None) => {
                    let first = spans.is_empty() && start == MeterStart::Healthy;
                    let wait = if first { profile.delays.health } else { Duration::ZERO };
                    open = Some(later(change.at, wait));
                }
                (NodePhase::Gone, Some(from))
                | (NodePhase::Stopped, Some(from))
                | (NodePhase::Stopping, Some(from)) => {
                    let ends = match change.phase {
                        NodePhase::Gone => true,
                        NodePhase::Stopped => stop == StopEffect::EndsCompute,
                        _ => gone_next && !profile.bills_shutdown,
                    };
                    if ends {
                        // One that ended before its bill began has none.
                        spans.extend((change.at >= from).then_some((from, Some(change.at))));
                        open = None;
                    }
                }
                (_, _) => {}
            }
        }
        spans.extend(open.map(|from| (from, None)));
        spans
    }

    /// When its bill begins, if it ever does as things are planned now.
    pub(super) fn billed_from(&self, profile: &SimProfile) -> Option<Timestamp> {
        self.spans(profile).first().map(|(from, _)| *from)
    }

    /// When its bill ended, if it began and has ended by then.
    pub(super) fn billed_to(&self, profile: &SimProfile, by: Timestamp) -> Option<Timestamp> {
        let mut begun = self.spans(profile).into_iter().filter(|(from, _)| *from <= by);
        begun.next_back()?.1.filter(|end| *end <= by)
    }

    /// What is billed by now, one piece per start.
    pub(super) fn billed(&self, profile: &SimProfile, now: Timestamp) -> Vec<Span> {
        let begun = self.spans(profile).into_iter().filter(|(from, _)| *from <= now);
        begun
            .map(|(from, to)| Span {
                from,
                to: to.map_or(now, |to| to.min(now)),
                price: self.price,
            })
            .collect()
    }

    pub(super) fn meter_micros(&self, profile: &SimProfile, now: Timestamp) -> u64 {
        let metering = &profile.capabilities.metering;
        self.billed(profile, now).iter().map(|span| span.billed_until(now, metering)).sum()
    }
}

fn later(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
