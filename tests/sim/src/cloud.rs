//! The simulated cloud as the broker sees it: every call is traced, and what a node is told at its
//! launch is kept for the node's agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use runwhere_model::{
    Capabilities, Found, LaunchRequest, Launched, LeaseId, NodeId, NodeList, NodeState, OfferScope,
    OfferSheet, Period, ProviderId, Terminated, UsageRecords,
};
use runwhere_providers::testing::SimCloud;
use runwhere_providers::{OfferSource, Provider};

use crate::trace::Trace;

type Answer<T> = Result<T, runwhere_model::ProviderError>;

#[derive(Debug)]
pub(crate) struct TracedCloud {
    pub(crate) cloud: SimCloud,
    trace: Trace,
    tokens: Mutex<BTreeMap<LeaseId, String>>,
}

impl TracedCloud {
    pub(crate) fn new(cloud: SimCloud, trace: Trace) -> Arc<Self> {
        Arc::new(Self { cloud, trace, tokens: Mutex::default() })
    }

    /// The one-time token in the bootstrap of a lease's nodes.
    pub(crate) fn token(&self, lease: &LeaseId) -> Option<String> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(lease).cloned()
    }

    fn note<T: std::fmt::Debug>(
        &self,
        call: impl std::fmt::Display,
        answer: Answer<T>,
    ) -> Answer<T> {
        match &answer {
            Ok(good) => self.trace.line(format_args!("{call}: {good:?}")),
            Err(error) => self.trace.line(format_args!("{call}: {error} {:?}", error.nodes)),
        }
        answer
    }
}

#[async_trait]
impl OfferSource for TracedCloud {
    fn id(&self) -> &ProviderId {
        self.cloud.id()
    }

    async fn offers(&self, scope: &OfferScope) -> Answer<OfferSheet> {
        self.cloud.offers(scope).await
    }
}

#[async_trait]
impl Provider for TracedCloud {
    fn capabilities(&self) -> &Capabilities {
        self.cloud.capabilities()
    }

    async fn launch(&self, request: &LaunchRequest) -> Answer<Launched> {
        let token = request.bootstrap.lease_token.expose().to_owned();
        self.tokens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(request.lease.clone(), token);
        self.trace.line(format_args!("launch {} ...", request.lease));
        let answer = self.cloud.launch(request).await;
        self.note(format_args!("launch {}", request.lease), answer)
    }

    async fn find(&self, lease: &LeaseId) -> Answer<Found> {
        let answer = self.cloud.find(lease).await;
        self.note(format_args!("find {lease}"), answer)
    }

    async fn nodes(&self) -> Answer<NodeList> {
        let answer = self.cloud.nodes().await;
        self.note("nodes", answer)
    }

    async fn describe(&self, node: &NodeId) -> Answer<NodeState> {
        let answer = self.cloud.describe(node).await;
        self.note(format_args!("describe {node}"), answer)
    }

    async fn terminate(&self, node: &NodeId) -> Answer<Terminated> {
        let answer = self.cloud.terminate(node).await;
        self.note(format_args!("terminate {node}"), answer)
    }

    async fn usage(&self, period: &Period) -> Answer<UsageRecords> {
        let answer = self.cloud.usage(period).await;
        self.note("usage", answer)
    }
}
