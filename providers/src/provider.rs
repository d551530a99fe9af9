//! The traits every source of offers and every provider implements.

use std::fmt;

use async_trait::async_trait;
use runwhere_model::{
    Capabilities, Found, LaunchRequest, Launched, LeaseId, NodeId, NodeList, NodeState, OfferScope,
    OfferSheet, Period, ProviderError, ProviderId, SourceTerms, Terminated, UsageRecords,
};

/// The result of a provider call.
pub type Result<T> = std::result::Result<T, ProviderError>;

/// Something that states offers.
#[async_trait]
pub trait OfferSource: fmt::Debug + Send + Sync + 'static {
    /// Its name; the first part of its offers' keys.
    fn id(&self) -> &ProviderId;

    /// Reads its offers. Rows that do not fit come back as rejected, never dropped; a partial
    /// reading says that it is not complete.
    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet>;

    /// What its sheets must have and how long they hold. The refresh refuses what falls short.
    fn terms(&self) -> SourceTerms {
        SourceTerms::default()
    }
}

/// A source of offers that can also launch them.
///
/// No verb has a default body: whatever costs money or proves an end must be decided by each
/// provider. Implementations do not retry launches, on any layer.
#[async_trait]
pub trait Provider: OfferSource {
    /// What it can do and promises.
    fn capabilities(&self) -> &Capabilities;

    /// Launches one node. An error whose effect is `Possible` must be resolved by [`find`] (or by
    /// the same launch again where the capability says that a token protects it) before any
    /// other launch of the trial.
    ///
    /// [`find`]: Provider::find
    async fn launch(&self, request: &LaunchRequest) -> Result<Launched>;

    /// All nodes with the lease's label, and whether everything was read.
    async fn find(&self, lease: &LeaseId) -> Result<Found>;

    /// All nodes with our deployment label, a count of others, and whether everything was read.
    async fn nodes(&self) -> Result<NodeList>;

    /// One node, with the provider's own times where it states them. A node that the provider no
    /// longer knows is an error of kind `NotFound`, not `Gone`: what that proves is the engine's
    /// decision.
    async fn describe(&self, node: &NodeId) -> Result<NodeState>;

    /// Asks for the end of a node; idempotent. `Gone` only on the provider's own word.
    async fn terminate(&self, node: &NodeId) -> Result<Terminated>;

    /// The provider's own bill for a period; `Unsupported` where there is none.
    async fn usage(&self, period: &Period) -> Result<UsageRecords>;
}
