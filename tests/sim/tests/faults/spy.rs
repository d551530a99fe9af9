//! The cloud as the broker sees it: what a node is told at its launch is kept for its agent, every
//! call is counted, and a call can be made to hang, so that the broker dies in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use runwhere_model::{
    Capabilities, Found, LaunchRequest, Launched, LeaseId, NodeId, NodeList, NodeState, OfferScope,
    OfferSheet, Period, ProviderId, Terminated, UsageRecords,
};
use runwhere_providers::testing::{SimCloud, Verb};
use runwhere_providers::{OfferSource, Provider};
use tokio::sync::Notify;

type Answer<T> = Result<T, runwhere_model::ProviderError>;

/// Where a call hangs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hang {
    /// Before anything is done.
    Before,
    /// When it is done, before the broker hears of it.
    After,
    /// Before anything is done, until [`Spy::let_go`].
    Gate,
}

#[derive(Debug)]
pub(crate) struct Spy {
    pub(crate) cloud: SimCloud,
    state: Mutex<State>,
    gate: Notify,
}

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<LeaseId, String>,
    requests: Vec<LaunchRequest>,
    hang: Option<(Verb, Hang)>,
    hung: bool,
    shown_too: Option<SimCloud>,
}

impl Spy {
    pub(crate) fn new(cloud: SimCloud) -> Arc<Self> {
        Arc::new(Self { cloud, state: Mutex::default(), gate: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one-time token that the nodes of a lease were started with.
    pub(crate) fn token(&self, lease: &LeaseId) -> String {
        self.state().tokens.get(lease).cloned().expect("the lease was launched")
    }

    /// Every launch request, in order.
    pub(crate) fn requests(&self) -> Vec<LaunchRequest> {
        self.state().requests.clone()
    }

    /// The next call of the verb never comes back.
    pub(crate) fn hang(&self, verb: Verb, hang: Hang) {
        let mut state = self.state();
        (state.hang, state.hung) = (Some((verb, hang)), false);
    }

    /// What waits at the gate goes on.
    pub(crate) fn let_go(&self) {
        self.gate.notify_one();
    }

    /// Whether it hangs already.
    pub(crate) fn hangs(&self) -> bool {
        self.state().hung
    }

    /// From now on listings also show the nodes of another installation in the same account, as
    /// where a provider cannot filter by label.
    pub(crate) fn shows_too(&self, other: SimCloud) {
        self.state().shown_too = Some(other);
    }

    async fn point(&self, verb: Verb, at: Hang) {
        let here = {
            let mut state = self.state();
            let here = state.hang == Some((verb, at));
            if here {
                (state.hang, state.hung) = (None, true);
            }
            here
        };
        match here {
            true if at == Hang::Gate => self.gate.notified().await,
            true => std::future::pending::<()>().await,
            false => {}
        }
    }

    async fn call<T>(&self, verb: Verb, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        self.point(verb, Hang::Before).await;
        self.point(verb, Hang::Gate).await;
        let answer = call.await;
        self.point(verb, Hang::After).await;
        answer
    }
}

#[async_trait]
impl OfferSource for Spy {
    fn id(&self) -> &ProviderId {
        self.cloud.id()
    }
    async fn offers(&self, scope: &OfferScope) -> Answer<OfferSheet> {
        self.cloud.offers(scope).await
    }
}

#[async_trait]
impl Provider for Spy {
    fn capabilities(&self) -> &Capabilities {
        self.cloud.capabilities()
    }
    async fn launch(&self, request: &LaunchRequest) -> Answer<Launched> {
        {
            let mut state = self.state();
            let token = request.bootstrap.lease_token.expose().to_owned();
            state.tokens.insert(request.lease.clone(), token);
            state.requests.push(request.clone());
        }
        self.call(Verb::Launch, self.cloud.launch(request)).await
    }
    async fn find(&self, lease: &LeaseId) -> Answer<Found> {
        self.call(Verb::Find, self.cloud.find(lease)).await
    }
    async fn nodes(&self) -> Answer<NodeList> {
        let mut list = self.call(Verb::Nodes, self.cloud.nodes()).await?;
        let other = self.state().shown_too.clone();
        if let Some(other) = other {
            list.nodes.extend(other.nodes().await?.nodes);
        }
        Ok(list)
    }
    async fn describe(&self, node: &NodeId) -> Answer<NodeState> {
        self.call(Verb::Describe, self.cloud.describe(node)).await
    }
    async fn terminate(&self, node: &NodeId) -> Answer<Terminated> {
        self.call(Verb::Terminate, self.cloud.terminate(node)).await
    }
    async fn usage(&self, period: &Period) -> Answer<UsageRecords> {
        self.call(Verb::Usage, self.cloud.usage(period)).await
    }
}
