//! The sweeper: lists every provider's nodes from time to time, and ends those that nobody owns.
//!
//! What is to be ended is a durable row before anything is called, and its end is proven like a
//! lease's. One process sweeps a provider at a time; two at once would be harmless, since every
//! row has a version and a termination can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use runwhere_engine::{
    CallKind, Claim, EventRecord, Finding, LedgerEntry, Look, Stray, StrayState, StrayStep, Sweep,
    SweepCounts, SweepRefused, SweeperState, sabotage, sweep,
};
use runwhere_model::{LeaseId, NodeState, ProviderError, ProviderId};
use runwhere_providers::Provider;
use tokio::sync::{Mutex, Notify};

use super::core::Core;
use crate::store::{Row, StoreError, StrayQuery, Transition};

/// Pause after the store failed, or another process was quicker.
const RETRY: Duration = Duration::from_secs(1);
/// Longest sleep, so that a changed clock is noticed.
const LONGEST: Duration = Duration::from_secs(30);
/// Calls for strays that are made at once.
const AT_ONCE: usize = 16;
/// How often the bill of a stray is written anew because its trial or budget changed meanwhile.
const STALE_TRIES: u32 = 16;

/// What a sweep of one provider came to.
#[derive(Clone, Debug)]
pub struct SweepReport {
    /// Which provider.
    pub provider: ProviderId,
    /// Nodes are not ended now: an operator has not confirmed a restored database yet.
    pub held: bool,
    /// Numbers.
    pub counts: SweepCounts,
    /// Every live node of ours.
    pub findings: Vec<Finding>,
    /// Nodes without an owner of which something is still to be done or learnt.
    pub strays: Vec<Stray>,
}

/// Why a provider cannot be swept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// It is not connected.
    #[error("the provider {0} is not connected")]
    NotConnected(ProviderId),
    /// Another process is at it.
    #[error("another server sweeps the provider until {0}")]
    Busy(Timestamp),
    /// It does not answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was read proves nothing.
    #[error(transparent)]
    Refused(#[from] SweepRefused),
}

/// The sweeper of all providers of a server.
#[derive(Debug)]
pub struct Sweeper {
    core: Arc<Core>,
    providers: BTreeMap<ProviderId, OneProvider>,
}

#[derive(Debug, Default)]
struct OneProvider {
    /// Held during a turn.
    turn: Mutex<()>,
    /// Something became due earlier.
    alarm: Notify,
}

impl Sweeper {
    /// A sweeper of the driver's providers.
    pub fn new(core: Arc<Core>) -> Arc<Self> {
        let ids = core.parts.registry.iter().map(|provider| provider.id().clone());
        let providers = ids.map(|id| (id, OneProvider::default())).collect();
        Arc::new(Self { core, providers })
    }

    /// Sweeps every provider when it is due, for ever.
    pub async fn run(self: Arc<Self>) {
        let tasks = self.providers.keys().cloned().map(|id| {
            let sweeper = Arc::clone(&self);
            async move { sweeper.run_one(&id).await }
        });
        // In this task, so that it ends with it.
        join_all(tasks).await;
    }

    async fn run_one(self: Arc<Self>, id: &ProviderId) {
        let Some(one) = self.providers.get(id) else { return };
        loop {
            // In a task of its own: one that breaks off does not end the sweeping.
            let (sweeper, provider) = (Arc::clone(&self), id.clone());
            let turn = tokio::spawn(async move { sweeper.turn(&provider).await }).await;
            let next = match turn {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!(provider.id = %id, %error, "A sweep broke off");
                    self.after(LONGEST)
                }
            };
            let next = next.min(self.after(LONGEST)).max(self.after(Duration::from_millis(1)));
            tokio::select! {
                biased;
                () = one.alarm.notified() => {}
                () = self.core.parts.clock.sleep_until(next) => {}
            }
        }
    }

    /// Does what is due at one provider; returns when something is due again.
    pub async fn turn(&self, id: &ProviderId) -> Timestamp {
        match self.try_turn(id, false).await {
            Ok((next, _)) => next,
            Err(SweepError::Busy(until)) => until,
            Err(SweepError::Store(StoreError::Stale { .. })) => self.after(RETRY),
            Err(error) => {
                tracing::warn!(provider.id = %id, %error, "The provider could not be swept");
                self.after(RETRY)
            }
        }
    }

    /// Sweeps a provider now. Two such sweeps, with the time between two looks in between, end
    /// what nobody owns.
    pub async fn sweep_now(&self, id: &ProviderId) -> Result<SweepReport, SweepError> {
        let swept = self.try_turn(id, true).await;
        if let Some(one) = self.providers.get(id) {
            one.alarm.notify_one();
        }
        let (_, report) = swept?;
        report.ok_or_else(|| SweepError::Busy(self.after(RETRY)))
    }

    /// What a sweep of a provider would come to now; changes nothing.
    pub async fn dry_run(&self, id: &ProviderId) -> Result<SweepReport, SweepError> {
        let provider = self.provider(id)?;
        let seen = self.look(&provider, false).await?;
        let query = StrayQuery { provider: Some(id.clone()), nodes: None, open: true };
        let strays = self.core.parts.store.strays(&query).await?;
        Ok(self.report(id, &seen, strays))
    }

    /// The connected providers.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderId> {
        self.providers.keys()
    }

    fn provider(&self, id: &ProviderId) -> Result<Arc<dyn Provider>, SweepError> {
        let provider = self.core.parts.registry.get(id).cloned();
        provider.ok_or_else(|| SweepError::NotConnected(id.clone()))
    }

    fn report(&self, id: &ProviderId, seen: &Sweep, strays: Vec<Stray>) -> SweepReport {
        SweepReport {
            provider: id.clone(),
            held: self.core.is_held(),
            counts: seen.counts.clone(),
            findings: seen.findings.clone(),
            strays,
        }
    }

    async fn try_turn(
        &self,
        id: &ProviderId,
        now: bool,
    ) -> Result<(Timestamp, Option<SweepReport>), SweepError> {
        let provider = self.provider(id)?;
        let one = self.providers.get(id).ok_or_else(|| SweepError::NotConnected(id.clone()))?;
        let _turn = one.turn.lock().await;
        let store = &self.core.parts.store;
        let at = self.core.parts.clock.now();
        let stored = store.sweepers().await?.into_iter().find(|row| row.provider == *id);
        let stored = stored.unwrap_or_else(|| SweeperState::new(id.clone(), at));
        let sweeps = now || at >= stored.next_at;
        let query = StrayQuery { provider: Some(id.clone()), nodes: None, open: true };
        let next_call =
            store.strays(&query).await?.iter().filter_map(Stray::next_at).min().filter(|_| {
                // After a restore nothing is ended before an operator says so.
                !self.core.is_held()
            });
        if !sweeps && next_call.is_none_or(|next| next > at) {
            return Ok((next_call.map_or(stored.next_at, |next| next.min(stored.next_at)), None));
        }
        let mut row = match stored.claim(&self.core.owner, at, self.core.parts.policy.sweep_lock) {
            Claim::Mine(row) => *row,
            Claim::Held(until) => return Err(SweepError::Busy(until)),
        };
        self.write(&mut row, Vec::new(), Vec::new()).await?;
        let mut seen = None;
        let mut failed = None;
        if sweeps {
            match self.look(&provider, true).await {
                Ok(sweep) => {
                    row.swept(sweep.counts.clone(), sweep.again_at, &self.core.parts.policy);
                    self.take_in(&mut row, &sweep).await?;
                    seen = Some(sweep);
                }
                Err(SweepError::Provider(error)) => {
                    let at = self.core.parts.clock.now();
                    let wanted = error.retry_after.unwrap_or_default();
                    row.failed(&error.to_string(), wanted, &self.core.parts.policy, at);
                    tracing::warn!(
                        provider.id = %id, failures = row.failures, %error,
                        "The provider's nodes could not be listed"
                    );
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if !self.core.is_held() {
            self.call_for_strays(&provider).await?;
        }
        let mut row = row.released();
        self.write(&mut row, Vec::new(), Vec::new()).await?;
        if let (Some(error), true) = (failed, now) {
            return Err(error.into());
        }
        let strays = store.strays(&query).await?;
        let held = self.core.is_held();
        let call = strays.iter().filter_map(Stray::next_at).min().filter(|_| !held);
        let next = call.map_or(row.next_at, |next| next.min(row.next_at));
        Ok((next, seen.map(|seen| self.report(id, &seen, strays))))
    }

    /// Lists the cloud, then reads what the labels name, in this order, and decides.
    async fn look(&self, provider: &Arc<dyn Provider>, apply: bool) -> Result<Sweep, SweepError> {
        let (core, id) = (&self.core, provider.id());
        let now = || core.parts.clock.now();
        let listed_at = now();
        let early = match sabotage!(LeasesReadBeforeCloud) {
            true => Some(core.parts.store.newest_leases(None, u32::MAX).await?),
            false => None,
        };
        let list = core.within(provider, "nodes", provider.nodes()).await?;
        let answered_at = now();
        let leases_read_at = now();
        let nodes = list.nodes.iter().map(|seen| seen.state.node.clone()).collect();
        let shown = StrayQuery { provider: Some(id.clone()), nodes: Some(nodes), open: false };
        let open = StrayQuery { provider: Some(id.clone()), nodes: None, open: true };
        let mut strays = core.parts.store.strays(&shown).await?;
        strays.extend(core.parts.store.strays(&open).await?);
        // A node that is no longer shown may be one that its lease took over, and pays for.
        let shown = list.nodes.iter().filter_map(|seen| seen.lease.clone());
        let labels = shown.chain(strays.iter().filter_map(|stray| stray.lease.clone()));
        let labels: BTreeSet<_> = labels.collect();
        let leases = match early {
            Some(early) => early,
            None => core.parts.store.leases(&labels.into_iter().collect::<Vec<_>>()).await?,
        };
        let look = Look {
            provider: id,
            deployment: &core.parts.deployment,
            capabilities: provider.capabilities(),
            policy: &core.parts.policy,
            list: &list,
            listed_at,
            answered_at,
            leases_read_at,
            leases: &leases.into_iter().map(|lease| (lease.id.clone(), lease)).collect(),
            strays: &strays.into_iter().map(|stray| (stray.node().clone(), stray)).collect(),
            may_end: apply && !core.is_held(),
            now: now(),
        };
        Ok(sweep(&look)?)
    }

    /// Makes a sweep durable.
    async fn take_in(&self, row: &mut SweeperState, sweep: &Sweep) -> Result<(), SweepError> {
        for (lease, state, _) in &sweep.extra {
            tracing::error!(
                lease.id = %lease, node.id = %state.node,
                "A lease has a node beyond the one wanted; it is ended"
            );
        }
        // All nodes of a lease at once: on which of them its agent runs decides which one it keeps.
        let mut sighted: BTreeMap<&LeaseId, Vec<(NodeState, Option<Timestamp>)>> = BTreeMap::new();
        for (lease, state, billed) in &sweep.extra {
            sighted.entry(lease).or_default().push((state.clone(), *billed));
        }
        for (lease, state) in &sweep.made {
            sighted.entry(lease).or_default().push((state.clone(), None));
        }
        let listed_at = sweep.counts.listed_at;
        for (lease, nodes) in sighted {
            let Some(lease) = self.core.parts.store.lease(lease).await? else { continue };
            let id = lease.id.clone();
            let sight = self.core.step_to_end(lease.trial.clone(), false, move |unit, context| {
                unit.sighted(&id, &nodes, listed_at, context)
            });
            if let Err(error) = sight.await {
                // It is still there at the next sweep.
                tracing::warn!(lease.id = %lease.id, %error, "A node of it could not be noted");
            }
        }
        let (billed, plain): (Vec<_>, Vec<_>) =
            sweep.strays.iter().partition(|step| !step.segments.is_empty());
        let mut events = Vec::new();
        let mut rows = Vec::new();
        for step in plain {
            rows.push(Row::Stray(step.stray.clone()));
            events.extend(step.events.iter().cloned());
            self.tell(&step.stray);
        }
        self.core.tell_people(&events);
        self.write(row, rows, events).await?;
        for step in billed {
            self.write_step(step.clone()).await?;
        }
        Ok(())
    }

    fn tell(&self, stray: &Stray) {
        let (node, provider) = (stray.node(), &stray.provider);
        let lease = stray.lease.as_ref().map_or("-", |lease| lease.as_str());
        let held = self.core.is_held();
        match stray.state {
            StrayState::Suspected if held && stray.looks <= 1 => tracing::error!(
                node.id = %node, provider.id = %provider, lease.id = lease, cause = stray.cause.as_str(),
                "A node without an owner is only reported: the database was restored; see `runwhere admin leases`"
            ),
            StrayState::Suspected => tracing::info!(
                node.id = %node, provider.id = %provider, lease.id = lease, cause = stray.cause.as_str(),
                looks = stray.looks, "A node has no owner; a later look decides"
            ),
            StrayState::Ending => tracing::error!(
                node.id = %node, provider.id = %provider, lease.id = lease, cause = stray.cause.as_str(),
                attributed = stray.owner.is_some(), "A node without an owner is ended"
            ),
            StrayState::Ended | StrayState::Cleared => tracing::info!(
                node.id = %node, provider.id = %provider, lease.id = lease, cause = stray.cause.as_str(),
                state = stray.state.as_str(), "A node without an owner is settled"
            ),
        }
    }

    /// Calls for the strays whose turn it is.
    async fn call_for_strays(&self, provider: &Arc<dyn Provider>) -> Result<(), SweepError> {
        let at = self.core.parts.clock.now();
        let query = StrayQuery { provider: Some(provider.id().clone()), nodes: None, open: true };
        let strays = self.core.parts.store.strays(&query).await?;
        let due: Vec<Stray> =
            strays.into_iter().filter(|one| one.next_at().is_some_and(|next| next <= at)).collect();
        for some in due.chunks(AT_ONCE) {
            for done in join_all(some.iter().map(|stray| self.call_for(provider, stray))).await {
                match done {
                    // Somebody else brought it further meanwhile.
                    Ok(()) | Err(SweepError::Store(StoreError::Stale { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    async fn call_for(
        &self,
        provider: &Arc<dyn Provider>,
        stray: &Stray,
    ) -> Result<(), SweepError> {
        let (core, node) = (&self.core, stray.node());
        let (capabilities, policy) = (provider.capabilities(), &core.parts.policy);
        let now = || core.parts.clock.now();
        let step = match stray.next_call(capabilities) {
            CallKind::Describe => {
                let read_at = now();
                let answer = core.within(provider, "describe", provider.describe(node)).await;
                stray.clone().described(&answer, read_at, capabilities, policy, now())
            }
            CallKind::Terminate | CallKind::Find | CallKind::Launch => {
                let answer = core.within(provider, "terminate", provider.terminate(node)).await;
                stray.clone().terminated(&answer, capabilities, policy, now())
            }
        };
        let step = step.map_err(SweepRefused::from)?;
        if step.stray.state != stray.state {
            self.tell(&step.stray);
        }
        self.write_step(step).await
    }

    async fn write(
        &self,
        row: &mut SweeperState,
        mut rows: Vec<Row>,
        events: Vec<EventRecord>,
    ) -> Result<(), SweepError> {
        rows.insert(0, Row::Sweeper(row.clone()));
        self.core.parts.store.commit(Transition { rows, events }).await?;
        row.version += 1;
        Ok(())
    }

    /// Writes a stray with its bill: the segments, their entries, and what its trial and project
    /// have spent.
    async fn write_step(&self, step: StrayStep) -> Result<(), SweepError> {
        let store = &self.core.parts.store;
        let mut tries = 0;
        loop {
            let at = self.core.parts.clock.now();
            let mut rows = vec![Row::Stray(step.stray.clone())];
            for segment in &step.segments {
                rows.push(Row::Segment(segment.clone()));
                rows.push(Row::Entry(LedgerEntry::of_segment(segment, at)));
            }
            if let Some(first) = step.segments.first() {
                if let Some((_, mut trial, _)) = store.unit(&first.trial).await? {
                    for segment in &step.segments {
                        let micros = segment.billed_to_micros - segment.billed_from_micros;
                        trial.add_past(micros, segment.amount);
                    }
                    rows.push(Row::Trial(trial));
                }
                if let Some(mut budget) = store.budget(&first.project).await? {
                    let currency = first.amount.currency;
                    let rate = self.core.parts.prices.rate(currency, budget.currency);
                    let rate = match currency == budget.currency {
                        true => Some(rust_decimal::Decimal::ONE),
                        false => rate.map(|rate| rate.rate),
                    };
                    for segment in &step.segments {
                        let Some(rate) = rate else {
                            tracing::error!(
                                segment.id = segment.id,
                                "A cost is in no budget: there is no exchange rate for it"
                            );
                            break;
                        };
                        budget.spend(segment.amount.amount.saturating_mul(rate));
                    }
                    rows.push(Row::Budget(budget));
                }
            }
            let transition = Transition { rows, events: step.events.clone() };
            match store.commit(transition).await {
                Ok(()) => break,
                // The trial or the budget: read again. The stray itself stays stale.
                Err(StoreError::Stale { .. })
                    if !step.segments.is_empty() && tries < STALE_TRIES =>
                {
                    tries += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.core.tell_people(&step.events);
        Ok(())
    }

    fn after(&self, span: Duration) -> Timestamp {
        self.core.parts.clock.now().checked_add(span).unwrap_or(Timestamp::MAX)
    }
}
