//! The hidden truth of a simulated cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{
    DeploymentId, HourlyPrice, LaunchRequest, LeaseId, MeterStart, NodeId, NodePhase, OfferKey,
    StopEffect,
};

use super::profile::{SimOffer, SimProfile};
use super::script::Script;
use crate::metered::Span;

/// Everything that is.
#[derive(Debug)]
pub(super) struct World {
    pub(super) offers: Vec<SimOffer>,
    pub(super) nodes: Vec<SimNode>,
    pub(super) launches: BTreeMap<String, u32>,
    pub(super) touched_foreign: Vec<NodeId>,
    pub(super) script: Script,
    made: u64,
}

impl World {
    pub(super) fn new(offers: Vec<SimOffer>) -> Self {
        Self {
            offers,
            nodes: Vec::new(),
            launches: BTreeMap::new(),
            touched_foreign: Vec::new(),
            script: Script::default(),
            made: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> NodeId {
        self.made += 1;
        NodeId::new(format!("sim-{:06}", self.made)).expect("a valid id")
    }
}

/// One node with its whole life, what is still to come included.
#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) id: NodeId,
    pub(super) deployment: DeploymentId,
    pub(super) lease: LeaseId,
    pub(super) token: String,
    pub(super) offer: OfferKey,
    pub(super) price: HourlyPrice,
    pub(super) created_at: Timestamp,
    life: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    at: Timestamp,
    phase: NodePhase,
    reason: Option<&'static str>,
}

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
            price,
            created_at: now,
            life: vec![Change { at: now, phase: NodePhase::Pending, reason: None }],
        }
    }

    pub(super) fn boot(&mut self, now: Timestamp, after: Duration) {
        self.then(now, after, NodePhase::Running, None);
    }

    pub(super) fn fail(&mut self, now: Timestamp, after: Duration, reason: &'static str) {
        self.then(now, after, NodePhase::Gone, Some(reason));
    }

    pub(super) fn halt(&mut self, now: Timestamp) {
        if matches!(self.phase_at(now), NodePhase::Pending | NodePhase::Running) {
            self.life.retain(|change| change.at <= now);
            self.then(now, Duration::ZERO, NodePhase::Stopped, Some("powered off"));
        }
    }

    /// Ends it at an instant, whatever was planned for later. One that is ending keeps its end.
    pub(super) fn end(&mut self, at: Timestamp, takes: Duration, reason: Option<&'static str>) {
        if matches!(self.phase_at(at), NodePhase::Stopping | NodePhase::Gone) {
            return;
        }
        self.life.retain(|change| change.at <= at);
        if !takes.is_zero() {
            self.then(at, Duration::ZERO, NodePhase::Stopping, reason);
        }
        self.then(at, takes, NodePhase::Gone, reason);
    }

    fn then(
        &mut self,
        from: Timestamp,
        after: Duration,
        phase: NodePhase,
        reason: Option<&'static str>,
    ) {
        let at = from.checked_add(after).unwrap_or(Timestamp::MAX);
        self.life.push(Change { at, phase, reason });
    }

    fn change_at(&self, at: Timestamp) -> Option<&Change> {
        self.life.iter().rev().find(|change| change.at <= at)
    }

    pub(super) fn phase_at(&self, at: Timestamp) -> NodePhase {
        self.change_at(at).map_or(NodePhase::Pending, |change| change.phase)
    }

    pub(super) fn reason_at(&self, at: Timestamp) -> Option<&'static str> {
        self.change_at(at)?.reason
    }

    /// Whether a read at that instant of the truth shows it.
    pub(super) fn shown_at(&self, at: Timestamp, after_end: Duration) -> bool {
        let gone = self.first(|phase| phase == NodePhase::Gone).filter(|gone| *gone <= at);
        self.created_at <= at
            && gone.is_none_or(|gone| {
                at.as_microsecond() - gone.as_microsecond()
                    < i64::try_from(after_end.as_micros()).unwrap_or(i64::MAX)
            })
    }

    fn first(&self, wanted: impl Fn(NodePhase) -> bool) -> Option<Timestamp> {
        self.life.iter().find(|change| wanted(change.phase)).map(|change| change.at)
    }

    /// When its bill begins, if it ever does as things are planned now.
    pub(super) fn billed_from(&self, profile: &SimProfile) -> Option<Timestamp> {
        let running = self.first(|phase| phase == NodePhase::Running);
        let from = match profile.capabilities.metering.start {
            MeterStart::Requested => Some(self.created_at),
            MeterStart::Running => running,
            MeterStart::Healthy => {
                running.and_then(|at| at.checked_add(profile.delays.health).ok())
            }
        }?;
        match self.planned_end(profile) {
            Some(end) if end < from => None,
            _ => Some(from),
        }
    }

    fn planned_end(&self, profile: &SimProfile) -> Option<Timestamp> {
        self.first(|phase| match phase {
            NodePhase::Gone => true,
            NodePhase::Stopping => !profile.bills_shutdown,
            NodePhase::Stopped => profile.capabilities.stop == StopEffect::EndsCompute,
            NodePhase::Pending | NodePhase::Running => false,
        })
    }

    /// When its bill ended, if it began and has ended by then.
    pub(super) fn billed_to(&self, profile: &SimProfile, by: Timestamp) -> Option<Timestamp> {
        self.billed_from(profile)?;
        self.planned_end(profile).filter(|end| *end <= by)
    }

    pub(super) fn span(&self, profile: &SimProfile, now: Timestamp) -> Option<Span> {
        let from = self.billed_from(profile).filter(|from| *from <= now)?;
        let to = self.billed_to(profile, now).unwrap_or(now);
        Some(Span { from, to, price: self.price })
    }

    pub(super) fn meter_micros(&self, profile: &SimProfile, now: Timestamp) -> u64 {
        self.span(profile, now)
            .map_or(0, |span| span.billed_until(now, &profile.capabilities.metering))
    }
}
