//! What the agent routes need of the broker.

use std::fmt;

use async_trait::async_trait;
use runwhere_agent::protocol::{
    Assignment, Digest, EventsReply, EventsRequest, PollReply, PollRequest, RedeemReply,
    RedeemRequest,
};
use runwhere_engine::sabotage;
use runwhere_model::{JobId, LeaseId, ProjectId, TrialId, WorkspaceId};

use crate::store::Store;

/// An agent whose session key and epoch were checked against its lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentCaller {
    /// Its lease.
    pub lease: LeaseId,
    /// The epoch of its session.
    pub epoch: u32,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// The job.
    pub job: JobId,
    /// The trial.
    pub trial: TrialId,
}

impl AgentCaller {
    /// The agent that shows a session key of a lease and the epoch of its session.
    pub async fn authenticate(
        store: &dyn Store,
        lease: &LeaseId,
        session_key: &[u8],
        epoch: Option<u64>,
    ) -> Result<Self, AgentRefusal> {
        let lease = store.lease(lease).await?.ok_or(AgentRefusal::Unauthorized)?;
        // Compared as hashes: how long that takes tells nothing about the key.
        let shown = Digest::of(session_key).to_string();
        if lease.agent.session_key_sha256.as_deref() != Some(&*shown) {
            return Err(AgentRefusal::Unauthorized);
        }
        let same = epoch == Some(u64::from(lease.epoch)) || sabotage!(EpochNotChecked);
        if !same || lease.state.is_terminal() {
            return Err(AgentRefusal::Gone);
        }
        Ok(Self {
            lease: lease.id,
            epoch: lease.epoch,
            workspace: lease.workspace,
            project: lease.project,
            job: lease.job,
            trial: lease.trial,
        })
    }
}

/// The broker's side of a node's session. Authentication of everything but `redeem` is done by the
/// routes, as are logs, blobs and outputs.
#[async_trait]
pub trait AgentService: fmt::Debug + Send + Sync + 'static {
    /// Binds a session key to a lease; the same key again gives the same answer.
    async fn redeem(&self, request: RedeemRequest) -> Result<RedeemReply, AgentRefusal>;

    /// What to run. It does not change during a lease.
    async fn assignment(&self, caller: &AgentCaller) -> Result<Assignment, AgentRefusal>;

    /// Applies events; returns once they are durable.
    async fn events(
        &self,
        caller: &AgentCaller,
        request: EventsRequest,
    ) -> Result<EventsReply, AgentRefusal>;

    /// Heartbeat; waits as the request says for a change of what is wanted.
    async fn poll(
        &self,
        caller: &AgentCaller,
        request: PollRequest,
    ) -> Result<PollReply, AgentRefusal>;
}

/// Why an agent is refused. 401 and 410 end it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AgentRefusal {
    /// Unknown lease, wrong token or key: 401.
    Unauthorized,
    /// Fenced: another epoch, or the lease has ended: 410.
    Gone,
    /// Another key was redeemed, or the state does not allow it: 409.
    Conflict(String),
    /// The request is wrong: 400.
    Invalid(String),
    /// Its turn has not come: 503; the agent repeats.
    NotYet(String),
    /// No space left: 507; the agent keeps its spool and repeats.
    StorageFull,
    /// A fault of ours: 500; the agent repeats.
    Internal(String),
}

impl From<crate::store::StoreError> for AgentRefusal {
    fn from(error: crate::store::StoreError) -> Self {
        match error {
            crate::store::StoreError::Full => Self::StorageFull,
            other => Self::Internal(other.to_string()),
        }
    }
}
