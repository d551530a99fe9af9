//! Strays: nodes with our label that no lease owns. They are watched, ended, and proven gone like
//! the nodes of leases, and what they cost is told.

use jiff::Timestamp;
use runwhere_model::{
    Capabilities, JobId, LeaseId, Metering, Money, MoneyError, NodeId, NodeState, OfferKey,
    ProjectId, ProviderError, ProviderId, Terminated, TrialId, WorkspaceId, cost_total,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::event::{EVENT_VERSION, EventRecord, Subject};
use crate::evidence::Evidence;
use crate::lease::{CallKind, Lease, PriceSnapshot};
use crate::ledger::UsageSegment;
use crate::meter::{Bill, cut_meter};
use crate::policy::Policy;
use crate::surplus::Surplus;

/// Why nobody owns a node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrayCause {
    /// It carries our deployment's label but no lease's.
    NoLease,
    /// Its lease is none of those that are stored.
    UnknownLease,
    /// Its lease ended without ever knowing of it.
    LeftBehind,
    /// Its lease ended with proof that this very node was gone.
    Resurrected,
    /// Its lease has not ended and owns another node.
    Extra,
}

impl StrayCause {
    /// The word used in logs and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoLease => "no_lease",
            Self::UnknownLease => "unknown_lease",
            Self::LeftBehind => "left_behind",
            Self::Resurrected => "resurrected",
            Self::Extra => "extra",
        }
    }
}

/// How far it is with a stray.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrayState {
    /// Seen without an owner; nothing is done before a second look.
    Suspected,
    /// To be ended: the durable intent. Calls for ever until its end is proven.
    Ending,
    /// Proven gone.
    Ended,
    /// It has an owner after all, or was proven gone before anything was done.
    Cleared,
}

impl StrayState {
    /// The word used in logs and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suspected => "suspected",
            Self::Ending => "ending",
            Self::Ended => "ended",
            Self::Cleared => "cleared",
        }
    }

    /// Whether something is still to be done or learnt.
    pub fn is_open(self) -> bool {
        match self {
            Self::Suspected | Self::Ending => true,
            Self::Ended | Self::Cleared => false,
        }
    }
}

/// Who pays for a stray: whose lease its label names.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct StrayOwner {
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// The job.
    pub job: JobId,
    /// The trial.
    pub trial: TrialId,
    /// What was rented.
    pub offer: OfferKey,
    /// At which price.
    pub price: PriceSnapshot,
}

impl StrayOwner {
    fn of(lease: &Lease) -> Self {
        Self {
            workspace: lease.workspace.clone(),
            project: lease.project.clone(),
            job: lease.job.clone(),
            trial: lease.trial.clone(),
            offer: lease.offer.clone(),
            price: lease.price.clone(),
        }
    }
}

/// A node without an owner, and what became of it. One row per provider and node.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Stray {
    /// Where it is.
    pub provider: ProviderId,
    /// Row version, for the store's check.
    pub version: u64,
    /// The lease its label names.
    pub lease: Option<LeaseId>,
    /// Who pays; `None` = unattributed: no lease of ours is named.
    pub owner: Option<StrayOwner>,
    /// Why nobody owns it.
    pub cause: StrayCause,
    /// How far it is.
    pub state: StrayState,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// When the first look that found it began.
    pub first_seen: Timestamp,
    /// When the last look that found it began.
    pub last_seen: Timestamp,
    /// Looks that found it without an owner.
    pub looks: u32,
    /// How often people were told that its end is overdue.
    pub alerts: u32,
    /// The last provider error, for operators.
    pub last_error: Option<String>,
    /// The provider's billing rule.
    pub metering: Metering,
    /// The node itself: calls, absent reads, billed time.
    pub target: Surplus,
    /// What proves its end.
    pub evidence: Option<Evidence>,
}

/// A stray after a step, and what is to be written with it.
#[derive(Clone, Debug)]
pub struct StrayStep {
    /// The stray after it.
    pub stray: Stray,
    /// New segments of the project that pays.
    pub segments: Vec<UsageSegment>,
    /// Audit of that project.
    pub events: Vec<EventRecord>,
}

impl Stray {
    /// A stray at its first sighting, by a look that began at `at`.
    pub(crate) fn new(
        provider: &ProviderId,
        state: &NodeState,
        label: Option<&LeaseId>,
        (cause, lease): (StrayCause, Option<&Lease>),
        capabilities: &Capabilities,
        at: Timestamp,
    ) -> Self {
        let requested = lease.map_or(at, |lease| lease.launched_at.unwrap_or(lease.intended_at));
        let mut target = Surplus::new(state.node.clone(), capabilities, requested, at);
        // What its lease has already paid for is not paid twice.
        let paid = lease.and_then(|lease| lease.paid_until(&state.node));
        if let Some(paid) = paid {
            target.meter = crate::meter::Meter::default();
            target.billed_only_from(paid);
        }
        target.observe(state, at);
        Self {
            provider: provider.clone(),
            version: 0,
            lease: label.cloned(),
            owner: lease.map(StrayOwner::of),
            cause,
            state: StrayState::Suspected,
            since: at,
            first_seen: at,
            last_seen: at,
            looks: 1,
            alerts: 0,
            last_error: None,
            metering: capabilities.metering,
            target,
            evidence: None,
        }
    }

    /// Begins anew with a node that was settled before: what was billed stays billed.
    pub(crate) fn reopened(mut fresh: Self, old: &Self) -> Self {
        fresh.version = old.version;
        // One that ended by itself before anything was done is billed too, where nobody else did.
        let billed = old.state == StrayState::Ended || old.target.meter.charged_micros > 0;
        let ended = old.target.meter.stopped_at.filter(|_| billed);
        let floor = fresh.target.billed_from.max(old.target.billed_from).max(ended);
        if let (true, Some(floor)) = (floor > fresh.target.billed_from || billed, floor) {
            fresh.target.meter = crate::meter::Meter::default();
            fresh.target.billed_only_from(floor);
            fresh.cause = StrayCause::Resurrected;
        }
        fresh
    }

    /// The node.
    pub fn node(&self) -> &NodeId {
        &self.target.node
    }

    /// When it is to be called for next.
    pub fn next_at(&self) -> Option<Timestamp> {
        (self.state == StrayState::Ending).then_some(self.target.next_at)
    }

    /// The call that brings its end nearer.
    pub fn next_call(&self, capabilities: &Capabilities) -> CallKind {
        self.target.next_call(capabilities)
    }

    /// Billed microseconds as of an instant.
    pub fn billed_micros(&self, now: Timestamp) -> u64 {
        self.target.meter.billed_micros(&self.metering, now)
    }

    /// Exact cost as of an instant; `None` when no price is known.
    pub fn cost(&self, now: Timestamp) -> Option<Money> {
        cost_total(self.price()?, self.billed_micros(now)).ok()
    }

    /// Its price per hour: what the provider states, else its lease's.
    pub fn price(&self) -> Option<runwhere_model::HourlyPrice> {
        let agreed = self.owner.as_ref().map(|owner| owner.price.price);
        let stated = self.target.stated_price;
        match agreed {
            Some(agreed) => {
                Some(stated.filter(|price| price.currency == agreed.currency).unwrap_or(agreed))
            }
            None => stated,
        }
    }

    /// Takes in the answer to a termination.
    pub fn terminated(
        mut self,
        answer: &Result<Terminated, ProviderError>,
        capabilities: &Capabilities,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<StrayStep, MoneyError> {
        let evidence = self.target.terminated(answer, capabilities, policy, now);
        self.note(answer.as_ref().err());
        self.after_call(evidence, capabilities, policy, now)
    }

    /// Takes in the answer to a read that was begun at `read_at`.
    pub fn described(
        mut self,
        answer: &Result<NodeState, ProviderError>,
        read_at: Timestamp,
        capabilities: &Capabilities,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<StrayStep, MoneyError> {
        let evidence = self.target.described(answer, Some(read_at), capabilities, policy, now);
        self.note(answer.as_ref().err());
        self.after_call(evidence, capabilities, policy, now)
    }

    fn note(&mut self, error: Option<&ProviderError>) {
        self.last_error = error.map(ToString::to_string);
    }

    fn after_call(
        mut self,
        evidence: Option<Evidence>,
        capabilities: &Capabilities,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<StrayStep, MoneyError> {
        let mut events = Vec::new();
        if let Some(evidence) = evidence {
            self.close(StrayState::Ended, Some(evidence), now);
            events.extend(self.event("node.ended", now));
        } else if self.is_overdue(policy, now) {
            self.alerts = self.alerts.saturating_add(1);
            events.extend(self.event("lease.release_overdue", now));
        }
        let seen = self.target.seen_at.unwrap_or(Timestamp::MIN);
        let certain = seen.checked_sub(capabilities.settle).unwrap_or(Timestamp::MIN);
        let segments = self.charge(certain)?;
        Ok(StrayStep { stray: self, segments, events })
    }

    fn is_overdue(&self, policy: &Policy, now: Timestamp) -> bool {
        let bound = policy.release_alert.saturating_mul(1u32 << self.alerts.min(16));
        now >= crate::unit::add(self.since, bound)
    }

    pub(crate) fn close(&mut self, state: StrayState, evidence: Option<Evidence>, now: Timestamp) {
        self.state = state;
        self.since = now;
        self.alerts = 0;
        self.evidence = evidence;
    }

    /// Bills what is certain of its time to the project whose lease its label names.
    pub(crate) fn charge(&mut self, certain: Timestamp) -> Result<Vec<UsageSegment>, MoneyError> {
        let price = self.price();
        let (Some(owner), Some(lease), Some(price)) = (&self.owner, &self.lease, price) else {
            return Ok(Vec::new());
        };
        let since = self.first_seen.as_microsecond();
        let name = format!("{lease}+{}+{since}", self.target.node);
        let bill = Bill {
            name: &name,
            workspace: &owner.workspace,
            project: &owner.project,
            job: &owner.job,
            trial: &owner.trial,
            lease,
            node: Some(&self.target.node),
            offer: &owner.offer,
            price,
            price_snapshot: &owner.price.snapshot,
            metering: self.metering,
        };
        let mut meter = self.target.meter.clone();
        let segments = cut_meter(&mut meter, &bill, certain)?;
        self.target.meter = meter;
        Ok(segments)
    }

    /// An event for the project that pays; nobody's stray is told by its row only.
    pub(crate) fn event(&self, kind: &str, now: Timestamp) -> Option<EventRecord> {
        let owner = self.owner.as_ref()?;
        Some(EventRecord {
            version: EVENT_VERSION,
            at: now,
            workspace: owner.workspace.clone(),
            project: owner.project.clone(),
            subject: Subject {
                job: Some(owner.job.clone()),
                trial: Some(owner.trial.clone()),
                lease: self.lease.clone(),
            },
            kind: kind.to_owned(),
            payload: json!({
                "provider": self.provider, "node": self.target.node, "cause": self.cause,
                "first_seen": self.first_seen, "price": self.price(), "evidence": self.evidence,
                "error": self.last_error,
            }),
        })
    }
}
