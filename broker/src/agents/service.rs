//! Redeem, assignment, events, poll.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runwhere_agent::protocol::{
    Assignment, Desired, EventKind, EventsReply, EventsRequest, MAX_POLL_WAIT_MS, PROTOCOL_VERSION,
    PollReply, PollRequest, RedeemReply, RedeemRequest, is_output_path,
};
use runwhere_engine::{AgentOrder, Lease, LeaseState, StepError, Unit, sabotage};
use runwhere_failpoint::failpoint;
use runwhere_model::{LeaseId, NodeId, TrialId};

use super::assignment::{Parts, assignment};
use super::event::engine_event;
use crate::api::agent::{AgentCaller, AgentRefusal, AgentService};
use crate::driver::{Core, DriveError};
use crate::store::{Row, StoreError, Transition};

/// Last durable log frame that a lease's agent has sent.
pub trait DurableFrames: std::fmt::Debug + Send + Sync + 'static {
    /// Its sequence number; 0 for none, and for the agent of an earlier lease.
    fn durable_seq(&self, trial: &TrialId, lease: &LeaseId) -> u64;
}

/// Agents over a driver.
#[derive(Debug)]
pub struct Agents {
    core: Arc<Core>,
    frames: Arc<dyn DurableFrames>,
}

impl Agents {
    /// Agents of a driver.
    pub fn new(core: Arc<Core>, frames: Arc<dyn DurableFrames>) -> Self {
        Self { core, frames }
    }

    async fn unit(&self, trial: &TrialId, lease: &LeaseId) -> Result<(Unit, Lease), AgentRefusal> {
        let loaded = self.core.parts.store.unit(trial).await?;
        let Some((job, trial, Some(row))) = loaded else { return Err(AgentRefusal::Gone) };
        // A trial that has gone on to another lease fences the agent of the earlier one.
        if row.id != *lease || row.state.is_terminal() {
            return Err(AgentRefusal::Gone);
        }
        Ok((Unit { job, trial, lease: Some(row.clone()) }, row))
    }
}

/// What an agent without a session is told.
enum Door {
    Open,
    /// It is of no use.
    Shut,
    /// Nobody can tell yet.
    Later(&'static str),
}

/// Whether the agent of a node may have the session of a lease that nobody has yet.
fn door(lease: &Lease, asks: Option<&NodeId>) -> Door {
    let unwanted = |node: &NodeId| {
        lease.surplus.iter().any(|one| one.node == *node) || lease.surplus_ended.contains_key(node)
    };
    match (asks, &lease.node) {
        (Some(node), _) if unwanted(node) => Door::Shut,
        (Some(node), Some(wanted)) if node == wanted => Door::Open,
        // It can be of a node that nobody has told us of; then it is one too many.
        (Some(_), Some(_)) => Door::Later("the lease is for another node"),
        // Until the nodes beyond the wanted one are gone nobody can tell which one asks.
        (None, _) if !lease.surplus.is_empty() => {
            Door::Later("the lease has more nodes than wanted")
        }
        (Some(_) | None, None) | (None, Some(_)) => Door::Open,
    }
}

/// Files named in one event at most.
const MOST_NAMED: usize = 200;

impl Agents {
    /// Notes that an agent was told to come again: it is not late because of that.
    async fn defer(&self, mut lease: Lease) -> Result<(), StoreError> {
        if lease.agent.deferred_at.is_some() {
            return Ok(());
        }
        lease.agent.deferred_at = Some(self.core.parts.clock.now());
        let transition = Transition { rows: vec![Row::Lease(lease)], events: Vec::new() };
        match self.core.parts.store.commit(transition).await {
            // It comes again.
            Ok(()) | Err(StoreError::Stale { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes known to the other processes that this one hears an agent: they may come first at every
    /// look, and would take it for silent.
    async fn say_that_it_is_heard(
        &self,
        trial: &TrialId,
        lease: &Lease,
    ) -> Result<(), AgentRefusal> {
        if lease.state != LeaseState::Ready {
            return Ok(());
        }
        let here = lease.agent.heard_by.as_deref() == Some(self.core.owner.as_str());
        let old = self.core.parts.clock.now().checked_sub(self.core.parts.policy.agent_lost / 4);
        let stale = lease.agent.seen_at.is_none_or(|seen| old.is_ok_and(|old| seen < old));
        if here && !stale {
            return Ok(());
        }
        let wake = self.core.step_to_end(trial.clone(), false, |unit, context| unit.wake(context));
        match wake.await {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(lease.id = %lease.id, %error, "That the agent is heard could not be stored");
                // It comes again at once. Where it is known that it is heard here that has time.
                match here {
                    true => Ok(()),
                    false => Err(AgentRefusal::Internal(error.to_string())),
                }
            }
        }
    }

    /// Keeps which files were not collected, and why.
    async fn note_left_behind(&self, unit: &Unit, kind: &EventKind) -> Result<(), StoreError> {
        let EventKind::Collected { skipped, .. } = kind else { return Ok(()) };
        if skipped.is_empty() {
            return Ok(());
        }
        let mut event = self.core.job_event(&unit.job, "outputs.left_behind");
        event.subject.trial = Some(unit.trial.id.clone());
        let named = skipped
            .iter()
            .take(MOST_NAMED)
            .map(|file| serde_json::json!({ "name": file.path, "reason": file.reason }));
        event.payload = serde_json::json!({
            "files": named.collect::<Vec<_>>(), "count": skipped.len(),
        });
        let transition = Transition { rows: Vec::new(), events: vec![event] };
        self.core.parts.store.commit(transition).await
    }
}

#[async_trait]
impl AgentService for Agents {
    async fn redeem(&self, request: RedeemRequest) -> Result<RedeemReply, AgentRefusal> {
        if request.protocol != PROTOCOL_VERSION {
            return Err(AgentRefusal::Invalid(format!(
                "protocol {} is not spoken here; this broker speaks {PROTOCOL_VERSION}",
                request.protocol
            )));
        }
        let id = LeaseId::new(request.lease_id.clone()).map_err(|_| AgentRefusal::Unauthorized)?;
        let token = crate::driver::sha256_hex(request.lease_token.as_bytes());
        let key = request.session_key_sha256.to_string();
        let asks = request.node_id.as_deref().and_then(|id| NodeId::new(id).ok());
        loop {
            let Some(mut lease) = self.core.parts.store.lease(&id).await? else {
                return Err(AgentRefusal::Unauthorized);
            };
            if lease.agent.lease_token_sha256 != token {
                return Err(AgentRefusal::Unauthorized);
            }
            if lease.state.is_terminal() {
                return Err(AgentRefusal::Gone);
            }
            let reply =
                RedeemReply { epoch: u64::from(lease.epoch), trial_id: lease.trial.to_string() };
            match &lease.agent.session_key_sha256 {
                Some(known) if *known == key => return Ok(reply),
                Some(_) if sabotage!(SecondKeyAccepted) => {}
                Some(_) => {
                    return Err(AgentRefusal::Conflict(
                        "the lease token was redeemed by another agent".into(),
                    ));
                }
                // No program is given to a node that is being ended.
                None if lease.release_wanted => return Err(AgentRefusal::Gone),
                None => match door(&lease, asks.as_ref()) {
                    Door::Open => {}
                    Door::Shut => return Err(AgentRefusal::Gone),
                    Door::Later(why) => {
                        self.defer(lease).await?;
                        return Err(AgentRefusal::NotYet(why.into()));
                    }
                },
            }
            lease.agent.node = asks.clone();
            lease.agent.session_key_sha256 = Some(key.clone());
            lease.agent.seen_at = Some(self.core.parts.clock.now());
            lease.agent.heard_by = Some(self.core.owner.clone());
            let transition = Transition { rows: vec![Row::Lease(lease)], events: Vec::new() };
            failpoint!("node.redeem.before_commit");
            match self.core.parts.store.commit(transition).await {
                Ok(()) => {
                    failpoint!("node.redeem.committed");
                    return Ok(reply);
                }
                Err(StoreError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn assignment(&self, caller: &AgentCaller) -> Result<Assignment, AgentRefusal> {
        let (unit, lease) = self.unit(&caller.trial, &caller.lease).await?;
        let store = &self.core.parts.store;
        let sync = match &unit.job.spec.sync {
            Some(id) => Some(
                store
                    .sync(&unit.job.project, id)
                    .await?
                    .ok_or_else(|| AgentRefusal::Internal("the pinned sync is missing".into()))?,
            ),
            None => None,
        };
        let restore = match &unit.job.resumed {
            Some(resumed) => store.outputs(&resumed.trial).await?,
            None => Vec::new(),
        };
        let parts = Parts {
            job: &unit.job,
            trial: &unit.trial,
            lease: &lease,
            sync: sync.as_ref(),
            restore: &restore,
            policy: &self.core.parts.policy,
        };
        assignment(&parts).map_err(AgentRefusal::Internal)
    }

    async fn events(
        &self,
        caller: &AgentCaller,
        request: EventsRequest,
    ) -> Result<EventsReply, AgentRefusal> {
        let (unit, _) = self.unit(&caller.trial, &caller.lease).await?;
        let mut acked_seq = unit.trial.agent_seq;
        for event in &request.events {
            // User code may have taken over the agent: its words become names of files elsewhere.
            if let EventKind::Output { path, .. } = &event.kind
                && !is_output_path(path)
            {
                return Err(AgentRefusal::Invalid(
                    "the path of an output must lie below the work folder".into(),
                ));
            }
            let kind = engine_event(&event.kind);
            let (lease, seq) = (caller.lease.clone(), event.seq);
            let step = self.core.step_to_end(caller.trial.clone(), false, move |unit, context| {
                unit.agent(&lease, seq, &kind, context)
            });
            match step.await {
                Ok(stepped) => {
                    acked_seq = stepped.unit.trial.agent_seq;
                    failpoint!("node.event.stored");
                    if stepped.changed {
                        self.note_left_behind(&stepped.unit, &event.kind).await?;
                    }
                }
                Err(DriveError::Step(StepError::Gap { wanted, .. })) => {
                    // The reply tells the agent from where to send.
                    acked_seq = wanted - 1;
                    break;
                }
                Err(DriveError::NotFound | DriveError::Step(StepError::Fenced)) => {
                    return Err(AgentRefusal::Gone);
                }
                Err(DriveError::Store(error)) => return Err(error.into()),
                Err(error @ (DriveError::Step(_) | DriveError::Broken)) => {
                    return Err(AgentRefusal::Internal(error.to_string()));
                }
            }
        }
        Ok(EventsReply { acked_seq })
    }

    async fn poll(
        &self,
        caller: &AgentCaller,
        request: PollRequest,
    ) -> Result<PollReply, AgentRefusal> {
        let clock = Arc::clone(&self.core.parts.clock);
        let wait = Duration::from_millis(request.wait_ms.min(MAX_POLL_WAIT_MS));
        let deadline = clock.now().checked_add(wait).unwrap_or(jiff::Timestamp::MAX);
        let mut changes = self.core.signals.watch(caller.trial.as_str());
        // Fenced agents are not counted as connected.
        let (_, lease) = self.unit(&caller.trial, &caller.lease).await?;
        let core = Arc::clone(&self.core);
        let trial = caller.trial.clone();
        // However this call ends, the agent is silent from then on; a moment later its lease is
        // looked at unless it has come back.
        let _connected = self.core.presence.connected(&caller.lease, clock.now(), move || {
            let pause = core.parts.policy.agent_silence + Duration::from_millis(100);
            let now = core.parts.clock.now();
            core.wake_if_silent(trial, pause);
            now
        });
        self.say_that_it_is_heard(&caller.trial, &lease).await?;
        loop {
            changes.mark_unchanged();
            let (unit, _) = self.unit(&caller.trial, &caller.lease).await?;
            let (desired, reason) = match unit.order() {
                AgentOrder::Run => (Desired::Run, None),
                AgentOrder::Stop => (Desired::Stop, Some("stopped")),
                AgentOrder::TimeOut => (Desired::Stop, Some("timeout")),
                AgentOrder::Reclaim => (Desired::Stop, Some("reclaimed")),
                AgentOrder::Release => (Desired::Release, None),
            };
            let known = request.seen == Some(desired);
            if !known || clock.now() >= deadline {
                return Ok(PollReply {
                    desired,
                    reason: reason.map(str::to_owned),
                    deadline_at: None,
                    acked_event_seq: unit.trial.agent_seq,
                    durable_log_seq: self.frames.durable_seq(&caller.trial, &caller.lease),
                });
            }
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() {
                    return Err(AgentRefusal::Internal("shutting down".into()));
                },
                () = clock.sleep_until(deadline) => {}
            }
        }
    }
}
