//! The simulated cloud.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_model::{
    BillingModel, BlockScope, Capabilities, Deadman, DeploymentId, Effect, EndCause, ErrorKind,
    Found, GpuCount, HourlyPrice, Identity, LaunchRequest, Launched, LeaseId, NodeId, NodeList,
    NodePhase, NodeState, Offer, OfferKey, OfferScope, OfferSheet, Period, Price, PriceKind,
    PriceState, ProviderError, ProviderId, SeenNode, Stock, Terminated, UsageRecords,
};
use rust_decimal::Decimal;

use super::life::SimNode;
use super::profile::{SimOffer, SimProfile};
use super::script::{Outcome, Verb};
use super::truth::{Truth, TruthNode};
use super::world::World;
use crate::clock::Clock;
use crate::provider::{OfferSource, Provider, Result};

/// A scriptable cloud: hidden truth with its own meter, a view of it that lags, and an outcome for
/// each call. Deterministic: time comes from the given clock, nothing is random.
///
/// A value is one installation's access to the cloud; [`SimCloud::as_installation`] gives another
/// one to the same truth.
#[derive(Clone, Debug)]
pub struct SimCloud {
    id: ProviderId,
    deployment: DeploymentId,
    pub(super) profile: Arc<SimProfile>,
    pub(super) clock: Arc<dyn Clock>,
    world: Arc<Mutex<World>>,
}

impl SimCloud {
    /// A cloud named `sim` with the sample offers.
    pub fn new(profile: SimProfile, deployment: DeploymentId, clock: Arc<dyn Clock>) -> Self {
        Self::with_offers(profile, deployment, clock, SimOffer::samples())
    }

    /// A cloud named `sim` that sells the given offers.
    pub fn with_offers(
        profile: SimProfile,
        deployment: DeploymentId,
        clock: Arc<dyn Clock>,
        offers: Vec<SimOffer>,
    ) -> Self {
        Self {
            id: ProviderId::new("sim").expect("a valid constant"),
            deployment,
            profile: Arc::new(profile),
            clock,
            world: Arc::new(Mutex::new(World::new(offers))),
        }
    }

    /// The same cloud under another provider id.
    pub fn named(mut self, id: ProviderId) -> Self {
        self.id = id;
        self
    }

    /// Another installation's access to the same account.
    pub fn as_installation(&self, deployment: DeploymentId) -> Self {
        Self { deployment, ..self.clone() }
    }

    /// How it behaves.
    pub fn profile(&self) -> &SimProfile {
        &self.profile
    }

    /// What really is, now.
    pub fn truth(&self) -> Truth {
        let now = self.clock.now();
        let world = self.world();
        let nodes = world.nodes.iter().map(|node| self.truth_of(node, now)).collect();
        Truth {
            nodes,
            launches: world.launches.clone(),
            launched_at: world.launched_at.clone(),
            touched_foreign: world.touched_foreign.clone(),
        }
    }

    /// The keys of its offers, in their order.
    pub fn keys(&self) -> Vec<OfferKey> {
        self.world().offers.iter().map(|offer| self.key(offer)).collect()
    }

    fn truth_of(&self, node: &SimNode, now: Timestamp) -> TruthNode {
        let phase = node.phase_at(now);
        TruthNode {
            node: node.id.clone(),
            deployment: node.deployment.clone(),
            lease: node.lease.clone(),
            phase,
            live: phase != NodePhase::Gone,
            served: node.served,
            unsaid: node.unsaid,
            created_at: node.created_at,
            reclaim_at: node.reclaim_at.filter(|_| phase != NodePhase::Gone),
            billed_from: node.billed_from(&self.profile).filter(|at| *at <= now),
            billed_to: node.billed_to(&self.profile, now),
            meter_micros: node.meter_micros(&self.profile, now),
            price: node.price,
        }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn key(&self, offer: &SimOffer) -> OfferKey {
        OfferKey {
            provider: self.id.clone(),
            region: Some(offer.region.clone()),
            zone: offer.zone.clone(),
            billing_model: BillingModel::OnDemand,
            instance_type: offer.instance_type.clone(),
        }
    }

    fn error(&self, verb: Verb, kind: ErrorKind, why: &'static str) -> ProviderError {
        ProviderError::new(self.id.clone(), verb.as_str(), kind).because(why)
    }

    /// Plays one call: what it does happens now, its answer may come later.
    async fn play<T>(
        &self,
        verb: Verb,
        act: impl FnOnce(&mut World, Timestamp, &Outcome) -> Result<(T, Vec<NodeId>)>,
    ) -> Result<T> {
        let (answer, wait) = {
            let now = self.clock.now();
            let mut world = self.world();
            let mut outcome = world.script.next(verb, now);
            if verb == Verb::Launch {
                world.launched_at.push(now);
            }
            let mut wait = Duration::ZERO;
            while let Outcome::Delay(span, then) = outcome {
                wait = wait.saturating_add(span);
                outcome = *then;
            }
            (self.answer(verb, outcome, |outcome| act(&mut world, now, outcome)), wait)
        };
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        answer
    }

    fn answer<T>(
        &self,
        verb: Verb,
        outcome: Outcome,
        act: impl FnOnce(&Outcome) -> Result<(T, Vec<NodeId>)>,
    ) -> Result<T> {
        let effect = if verb.acts() { Effect::Possible } else { Effect::None };
        let lost = || {
            let mut error = self.error(verb, ErrorKind::Transient, "the connection broke off");
            error.effect = effect;
            error
        };
        match outcome {
            Outcome::NotDoneReplyLost => Err(lost()),
            Outcome::DoneReplyLost if !verb.acts() => Err(lost()),
            Outcome::DoneReplyLost => {
                act(&outcome)?;
                Err(lost())
            }
            Outcome::FailedButDone(kind) if verb.acts() => {
                let (_, nodes) = act(&outcome)?;
                let mut error =
                    self.error(verb, kind, "scripted failure after the deed").possible();
                error.nodes = nodes;
                Err(error)
            }
            Outcome::FailedButDone(kind) | Outcome::FailedNotDone(kind) => {
                Err(self.error(verb, kind, "scripted failure"))
            }
            Outcome::Refused(kind, scope, retry_after) => {
                let mut error = self.error(verb, kind, "scripted refusal");
                (error.scope, error.retry_after) = (scope, retry_after);
                Err(error)
            }
            Outcome::NoneMade if verb == Verb::Launch => {
                Err(self.error(verb, ErrorKind::Malformed, "accepted, without a node").possible())
            }
            Outcome::Throttle(retry_after) => {
                let mut error = self.error(verb, ErrorKind::Throttle, "too many calls");
                error.retry_after = retry_after;
                Err(error)
            }
            Outcome::Auth => {
                let mut error = self.error(verb, ErrorKind::Auth, "credentials refused");
                error.scope = BlockScope::Account;
                Err(error)
            }
            Outcome::Ok
            | Outcome::CapacityLater
            | Outcome::Surplus(_)
            | Outcome::SurplusLater(..)
            | Outcome::NoneMade
            | Outcome::AckButLives
            | Outcome::Resurrects(_)
            | Outcome::Incomplete
            | Outcome::Duplicates
            | Outcome::Gap
            | Outcome::Delay(..) => act(&outcome).map(|(answer, _)| answer),
        }
    }

    fn do_launch(
        &self,
        world: &mut World,
        request: &LaunchRequest,
        now: Timestamp,
        outcome: &Outcome,
    ) -> Result<(Launched, Vec<NodeId>)> {
        *world.launches.entry(request.token.clone()).or_default() += 1;
        let refuse = |kind, why| Err(self.error(Verb::Launch, kind, why));
        let ours = |node: &&SimNode| node.deployment == request.deployment;
        match self.profile.capabilities.identity {
            Identity::Token if self.profile.ignores_token => {}
            Identity::Token => {
                let first = world.nodes.iter().filter(ours).find(|n| n.token == request.token);
                if let Some(first) = first {
                    if first.phase_at(now) == NodePhase::Gone {
                        return refuse(ErrorKind::Conflict, "the token's node has ended");
                    }
                    if first.offer != request.offer || first.lease != request.lease {
                        return refuse(ErrorKind::Conflict, "the token's parameters differ");
                    }
                    return Ok((launched(first, Vec::new()), vec![first.id.clone()]));
                }
            }
            Identity::UniqueName => {
                let mut same = world.nodes.iter().filter(ours).filter(|n| n.lease == request.lease);
                if same.any(|node| node.phase_at(now) != NodePhase::Gone) {
                    return refuse(ErrorKind::Conflict, "the name is taken");
                }
            }
            Identity::LabelOnly => {}
        }
        let Some(offer) = world.offers.iter().find(|offer| self.key(offer) == request.offer) else {
            return refuse(ErrorKind::Invalid, "no such instance type there");
        };
        if Some(request.gpus) != GpuCount::whole(offer.count) {
            return refuse(ErrorKind::Invalid, "the GPUs asked for are not those of the offer");
        }
        let price = offer
            .price
            .unwrap_or(HourlyPrice { amount: Decimal::ONE, currency: request.ceiling.currency });
        if !price.is_within(request.ceiling) {
            return refuse(ErrorKind::Invalid, "the price is above the ceiling");
        }
        let stock = offer.stock as usize;
        let sold = world.nodes.iter().filter(|node| node.offer == request.offer);
        let out = sold.filter(|node| node.phase_at(now) != NodePhase::Gone).count() >= stock;
        if out && !self.profile.capacity_shows_later {
            let mut error = self.error(Verb::Launch, ErrorKind::Capacity, "none left in the zone");
            error.scope = BlockScope::Zone;
            if self.profile.refusal_makes_node {
                let mut node = SimNode::new(world.next_id(), request, price, now);
                node.refuse(now);
                error.nodes.push(node.id.clone());
                world.nodes.push(node);
                error = error.possible();
            }
            return Err(error);
        }
        let fails = out || *outcome == Outcome::CapacityLater;
        let (extra, unseen) = match outcome {
            Outcome::Surplus(extra) => (*extra, Duration::ZERO),
            Outcome::SurplusLater(extra, span) => (*extra, *span),
            _ => (0, Duration::ZERO),
        };
        let first = world.nodes.len();
        let mut made: Vec<NodeId> = Vec::new();
        for number in 0..=extra {
            let id = world.next_id();
            let mut node = SimNode::new(id.clone(), request, price, now);
            if let Some(region) = &world.lands_in {
                (node.region, node.zone) = (Some(region.clone()), None);
            }
            let late = if number == 0 { Duration::ZERO } else { unseen };
            if fails {
                node.fail(now, self.profile.delays.boot);
            } else {
                node.boot(now, self.profile.delays.boot.saturating_add(late));
                if let (Deadman::Cloud, Some(end_by)) =
                    (self.profile.capabilities.deadman, request.end_by)
                    && !self.profile.ignores_end_time
                {
                    node.end_by(end_by.max(now), self.profile.delays.shutdown);
                }
            }
            match late.is_zero() {
                true => made.push(id),
                false => node.come_unsaid(now, late),
            }
            world.nodes.push(node);
        }
        Ok((launched(&world.nodes[first], made[1..].to_vec()), made))
    }

    fn do_terminate(
        &self,
        world: &mut World,
        node: &NodeId,
        now: Timestamp,
        outcome: &Outcome,
    ) -> Result<(Terminated, Vec<NodeId>)> {
        let shown = world
            .nodes
            .iter()
            .position(|one| one.id == *node && one.shown(now, now, self.profile.shown_after_end));
        let Some(at) = shown else {
            return Err(self.error(Verb::Terminate, ErrorKind::NotFound, "no such node"));
        };
        if world.nodes[at].deployment != self.deployment {
            // A cloud obeys whoever has the account's rights; the truth remembers it.
            world.touched_foreign.push(node.clone());
        }
        let target = &mut world.nodes[at];
        let ids = vec![node.clone()];
        match target.phase_at(now) {
            NodePhase::Gone => {
                let stopped_at = self.stated(target.billed_to(&self.profile, now));
                Ok((Terminated::Gone { stopped_at }, ids))
            }
            NodePhase::Stopping => Ok((Terminated::Requested, ids)),
            NodePhase::Pending | NodePhase::Running | NodePhase::Stopped => {
                if let Some(reservation) = self.profile.capabilities.minimum_reservation
                    && let Ok(until) = target.created_at.checked_add(reservation)
                    && let Ok(left) = Duration::try_from(until.duration_since(now))
                    && !left.is_zero()
                {
                    let why = "the minimum reservation is not over";
                    let mut error = self.error(Verb::Terminate, ErrorKind::Conflict, why);
                    error.retry_after = Some(left);
                    return Err(error);
                }
                match outcome {
                    Outcome::AckButLives => {}
                    Outcome::Resurrects(span) => target.seem_to_end(now, *span),
                    _ => target.end(
                        now,
                        self.profile.delays.shutdown,
                        (EndCause::Requested, "terminated"),
                    ),
                }
                Ok((Terminated::Requested, ids))
            }
        }
    }

    fn seen_at(&self, now: Timestamp) -> Timestamp {
        now.checked_sub(self.profile.read_lag).unwrap_or(Timestamp::MIN)
    }

    /// An instant by the cloud's own clock, where it states its times.
    fn stated(&self, at: Option<Timestamp>) -> Option<Timestamp> {
        at.filter(|_| self.profile.capabilities.states_times).map(|at| self.by_its_clock(at))
    }

    fn by_its_clock(&self, at: Timestamp) -> Timestamp {
        at.checked_add(self.profile.clock_ahead).unwrap_or(at)
    }

    /// A node as the lagged view shows it.
    fn view(&self, node: &SimNode, now: Timestamp) -> Option<NodeState> {
        let seen = self.seen_at(now);
        if !node.shown(now, seen, self.profile.shown_after_end) {
            return None;
        }
        let started = node.billed_from(&self.profile).filter(|at| *at <= seen);
        let why = node.why_at(seen);
        Some(NodeState {
            node: node.id.clone(),
            phase: node.phase_at(seen),
            started_at: self.stated(started),
            stopped_at: self.stated(node.billed_to(&self.profile, seen)),
            reason: why.map(|(_, words)| words.to_owned()),
            cause: why.map(|(cause, _)| cause),
            billed_price: Some(node.price),
            region: node.region.clone(),
            zone: node.zone.clone(),
        })
    }

    /// Everything that a listing shows at an instant, the newest first; of others only the count.
    fn rows(&self, world: &World, now: Timestamp) -> (Vec<SeenNode>, u64) {
        let mut foreign = 0;
        let mut rows = Vec::new();
        for node in world.nodes.iter().rev() {
            let Some(state) = self.view(node, now) else { continue };
            if node.deployment != self.deployment {
                foreign += 1;
                continue;
            }
            let created = self.profile.states_created.then_some(node.created_at);
            let labelled = node.created_at.checked_add(self.profile.label_lag);
            let labelled = labelled.is_ok_and(|at| at <= self.seen_at(now));
            rows.push(SeenNode {
                state,
                deployment: Some(node.deployment.clone()),
                lease: labelled.then(|| node.lease.clone()),
                created_at: created.map(|at| self.by_its_clock(at)),
            });
        }
        (rows, foreign)
    }
}

fn launched(node: &SimNode, surplus: Vec<NodeId>) -> Launched {
    Launched { node: node.id.clone(), surplus, started_at: None, billed_price: Some(node.price) }
}

/// What a scripted listing shows, and whether it says that it is complete.
fn cut<T: Clone>(mut rows: Vec<T>, outcome: &Outcome) -> (Vec<T>, bool) {
    match outcome {
        Outcome::Incomplete => rows.truncate(rows.len() / 2),
        Outcome::Duplicates => rows.extend_from_within(..),
        Outcome::Gap if !rows.is_empty() => drop(rows.remove(0)),
        _ => {}
    }
    (rows, *outcome != Outcome::Incomplete)
}

#[async_trait]
impl OfferSource for SimCloud {
    fn id(&self) -> &ProviderId {
        &self.id
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        self.play(Verb::Offers, |world, now, outcome| {
            let wanted = |offer: &&SimOffer| {
                scope.regions.is_empty() || scope.regions.contains(&offer.region)
            };
            let offers = world.offers.iter().filter(wanted).map(|offer| {
                let key = self.key(offer);
                let sold = world.nodes.iter().filter(|node| node.offer == key);
                let live = sold.filter(|node| node.phase_at(now) != NodePhase::Gone).count();
                let stock = match self.profile.capabilities.states_stock {
                    false => Stock::Unstated,
                    true if live >= offer.stock as usize => Stock::SoldOut,
                    true => Stock::Available,
                };
                Offer {
                    key,
                    gpu: Some(offer.gpu),
                    gpu_raw: offer.gpu.model().name.to_owned(),
                    gpu_count: GpuCount::whole(offer.count).unwrap_or_else(one),
                    vcpus: None,
                    memory_mib: None,
                    price: Price {
                        state: offer
                            .price
                            .map_or(PriceState::Unknown, |price| PriceState::Known { price }),
                        kind: PriceKind::Account,
                        source: "simulated cloud".to_owned(),
                        observed_at: Some(now),
                        effective_at: None,
                    },
                    stock,
                    launchable: offer.price.is_some(),
                    pretended: false,
                    gpu_memory_mib: None,
                    marks: runwhere_model::Marks::NONE,
                    details: None,
                }
            });
            let (offers, complete) = cut(offers.collect(), outcome);
            let sheet = OfferSheet { complete, ..OfferSheet::complete(offers, Vec::new(), now) };
            Ok((sheet, Vec::new()))
        })
        .await
    }
}

fn one() -> GpuCount {
    GpuCount::whole(1).expect("one is above 0")
}

#[async_trait]
impl Provider for SimCloud {
    fn capabilities(&self) -> &Capabilities {
        &self.profile.capabilities
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Launched> {
        self.play(Verb::Launch, |world, now, outcome| self.do_launch(world, request, now, outcome))
            .await
    }

    async fn find(&self, lease: &LeaseId) -> Result<Found> {
        self.play(Verb::Find, |world, now, outcome| {
            let labelled =
                |node: &&SimNode| node.lease == *lease && node.deployment == self.deployment;
            let nodes = world.nodes.iter().filter(labelled).filter_map(|n| self.view(n, now));
            let (nodes, complete) = cut(nodes.collect(), outcome);
            Ok((Found { nodes, complete }, Vec::new()))
        })
        .await
    }

    async fn nodes(&self) -> Result<NodeList> {
        let page = self.profile.paging.map_or(usize::MAX, |paging| paging.rows.max(1));
        let (mut list, mut all) = self
            .play(Verb::Nodes, |world, now, outcome| {
                let (rows, foreign) = self.rows(world, now);
                let (mut rows, complete) = cut(rows, outcome);
                let all = rows.len();
                rows.truncate(page);
                Ok(((NodeList { nodes: rows, foreign, complete }, all), Vec::new()))
            })
            .await?;
        // Pages are counted off by rows: what comes or goes meanwhile is seen twice or never.
        while let Some(paging) = self.profile.paging.filter(|_| list.complete) {
            let read = page.saturating_mul(list.nodes.len().div_ceil(page));
            if read >= all {
                break;
            }
            self.clock.sleep(paging.pause).await;
            let (rows, _) = self.rows(&self.world(), self.clock.now());
            all = rows.len();
            let next = rows.into_iter().skip(read).take(page);
            let before = list.nodes.len();
            list.nodes.extend(next);
            if list.nodes.len() == before {
                break;
            }
        }
        Ok(list)
    }

    async fn describe(&self, node: &NodeId) -> Result<NodeState> {
        self.play(Verb::Describe, |world, now, _| {
            let found = world.nodes.iter().find(|one| one.id == *node);
            let state = found.and_then(|node| self.view(node, now));
            let unknown = || self.error(Verb::Describe, ErrorKind::NotFound, "no such node");
            state.map(|state| (state, Vec::new())).ok_or_else(unknown)
        })
        .await
    }

    async fn terminate(&self, node: &NodeId) -> Result<Terminated> {
        self.play(Verb::Terminate, |world, now, outcome| {
            self.do_terminate(world, node, now, outcome)
        })
        .await
    }

    async fn usage(&self, period: &Period) -> Result<UsageRecords> {
        self.play(Verb::Usage, |world, now, _| {
            if !self.profile.capabilities.states_usage {
                return Err(self.error(Verb::Usage, ErrorKind::Unsupported, "no usage records"));
            }
            let metering = &self.profile.capabilities.metering;
            let records = world
                .nodes
                .iter()
                .filter(|node| node.deployment == self.deployment)
                .flat_map(|node| {
                    let spans = node.billed(&self.profile, now).into_iter();
                    spans.filter_map(|span| span.record(node.id.clone(), period, metering))
                })
                .collect();
            Ok((UsageRecords { records, complete: period.end <= now }, Vec::new()))
        })
        .await
    }
}
