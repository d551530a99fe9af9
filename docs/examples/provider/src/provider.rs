//! The provider: which calls a verb makes, and what its failure means.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_providers::model::{
    Bootstrapping, Capabilities, Deadman, Effect, ErrorKind, Found, Identity, LaunchRequest,
    Launched, LeaseId, MeterStart, Metering, NodeId, NodeList, NodePhase, NodeState, OfferScope,
    OfferSheet, Period, ProviderError, ProviderId, Secret, StopEffect, Terminated, UsageRecords,
};
use runwhere_providers::{Clock, OfferSource, Provider, Result};

use crate::client::{CallError, Client};
use crate::config::HarbourConfig;
use crate::map;
use crate::wire::{End, Order};

/// What Harbour promises.
const CAPABILITIES: Capabilities = Capabilities {
    // A name is given once: a launch whose answer was lost is found under it.
    identity: Identity::UniqueName,
    // What was ordered is shown at once.
    settle: Duration::ZERO,
    absent_reads: 1,
    tags: true,
    spot: false,
    reclaim_notice: None,
    states_stock: false,
    states_times: true,
    states_usage: false,
    stop: StopEffect::None,
    minimum_reservation: None,
    deadman: Deadman::Cloud,
    bootstrapping: Bootstrapping::UserData,
    needs_public_url: true,
    metering: Metering { start: MeterStart::Running, ..Metering::PER_SECOND },
    boot_timeout: Duration::from_secs(60),
};

/// One account with Harbour.
#[derive(Debug)]
pub struct Harbour {
    config: HarbourConfig,
    client: Client,
    clock: Arc<dyn Clock>,
}

impl Harbour {
    /// Opens the account; makes the cloud's folders where they are missing.
    pub fn open(config: HarbourConfig, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let client = Client::open(config.folder.clone())?;
        Ok(Self { config, client, clock })
    }

    fn error(&self, operation: &'static str, kind: ErrorKind, why: &'static str) -> ProviderError {
        ProviderError::new(self.config.id.clone(), operation, kind).because(why)
    }

    /// Makes a call away from the runtime's threads. It goes on when the caller stops waiting.
    async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Client) -> std::result::Result<T, CallError> + Send + 'static,
    ) -> Result<T> {
        let client = self.client.clone();
        let failed = |kind| ProviderError::new(self.config.id.clone(), operation, kind);
        match tokio::task::spawn_blocking(move || call(&client)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(match error {
                CallError::Taken => failed(ErrorKind::Conflict),
                CallError::NotDone(_) => failed(ErrorKind::Transient),
                CallError::Unclear(_) => failed(ErrorKind::Transient).possible(),
                CallError::Malformed(_) => failed(ErrorKind::Malformed),
            }
            .because(error)),
            // It broke off somewhere.
            Err(error) => Err(failed(ErrorKind::Transient).possible().because(error)),
        }
    }

    async fn sheet(&self, operation: &'static str, scope: &OfferScope) -> Result<OfferSheet> {
        let rows = self.call(operation, Client::flavors).await?;
        Ok(map::sheet(&self.config.id, &rows, scope, self.clock.now()))
    }

    /// Checks a launch against the price list of now, and makes the order of it.
    async fn order_of(&self, request: &LaunchRequest, now: Timestamp) -> Result<(NodeId, Order)> {
        let refuse = |why| Err(self.error("launch", ErrorKind::Invalid, why));
        let sheet = self.sheet("launch", &OfferScope::default()).await?;
        let Some(offer) = sheet.offers.into_iter().find(|offer| offer.key == request.offer) else {
            return refuse("there is no such flavor at that site");
        };
        if offer.gpu_count != request.gpus
            || (request.gpu_model.is_some() && offer.gpu != request.gpu_model)
        {
            return refuse("the GPUs asked for are not those of the flavor");
        }
        let Some(price) = offer.price.state.known() else {
            return refuse("the price is not known");
        };
        if price.currency != request.ceiling.currency || price.amount > request.ceiling.amount {
            return refuse("the price is above the ceiling");
        }
        // Both installation and lease, for others may launch in the same account.
        let name = format!("{}.{}", request.deployment, request.lease);
        let Ok(node) = NodeId::new(name) else { return refuse("the name is too long") };
        let mut labels = request.labels.clone();
        labels.insert(map::DEPLOYMENT.to_owned(), request.deployment.to_string());
        labels.insert(map::LEASE.to_owned(), request.lease.to_string());
        let user_data = serde_json::to_string(&request.bootstrap)
            .map_err(|_| self.error("launch", ErrorKind::Invalid, "the bootstrap is no JSON"))?;
        let order = Order {
            name: node.to_string(),
            flavor: offer.key.instance_type,
            site: offer.key.region.unwrap_or_default(),
            labels,
            price: price.amount.to_string(),
            unit: price.currency.to_string(),
            ordered_at: now,
            runs_at: now.checked_add(map::BOOT).unwrap_or(Timestamp::MAX),
            end_by: request.end_by,
            user_data: Secret::new(user_data),
        };
        Ok((node, order))
    }

    /// The nodes of our installation, the number of others, and whether everything was read.
    async fn listed(&self, operation: &'static str) -> Result<NodeList> {
        let (machines, complete) = self.call(operation, Client::machines).await?;
        let now = self.clock.now();
        let mut list = NodeList { nodes: Vec::new(), foreign: 0, complete };
        for machine in &machines {
            match map::seen(machine, now) {
                Some(seen) if seen.deployment.as_ref() == Some(&self.config.deployment) => {
                    list.nodes.push(seen);
                }
                // Somebody else's, whatever it is.
                Some(_) | None => list.foreign += 1,
            }
        }
        Ok(list)
    }
}

#[async_trait]
impl OfferSource for Harbour {
    fn id(&self) -> &ProviderId {
        &self.config.id
    }

    async fn offers(&self, scope: &OfferScope) -> Result<OfferSheet> {
        self.sheet("offers", scope).await
    }
}

#[async_trait]
impl Provider for Harbour {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    async fn launch(&self, request: &LaunchRequest) -> Result<Launched> {
        let (node, order) = self.order_of(request, self.clock.now()).await?;
        let billed_price = map::billed_price(&order);
        // Once and never again: whether a failed one is repeated is the broker's decision.
        match self.call("launch", move |client| client.order(&order)).await {
            Ok(()) => Ok(Launched { node, surplus: Vec::new(), started_at: None, billed_price }),
            Err(mut error) => {
                if error.effect == Effect::Possible {
                    // If it was ordered after all, then under this name.
                    error.nodes.push(node);
                }
                Err(error)
            }
        }
    }

    async fn find(&self, lease: &LeaseId) -> Result<Found> {
        let list = self.listed("find").await?;
        let ours = list.nodes.into_iter().filter(|seen| seen.lease.as_ref() == Some(lease));
        Ok(Found { nodes: ours.map(|seen| seen.state).collect(), complete: list.complete })
    }

    async fn nodes(&self) -> Result<NodeList> {
        self.listed("nodes").await
    }

    async fn describe(&self, node: &NodeId) -> Result<NodeState> {
        let name = node.to_string();
        let machine = self.call("describe", move |client| client.machine(&name)).await?;
        machine
            .and_then(|machine| map::node(&machine, self.clock.now()))
            .ok_or_else(|| self.error("describe", ErrorKind::NotFound, "no such machine"))
    }

    async fn terminate(&self, node: &NodeId) -> Result<Terminated> {
        let (name, now) = (node.to_string(), self.clock.now());
        let ended = self
            .call("terminate", move |client| {
                let Some(machine) = client.machine(&name)? else { return Ok(None) };
                if machine.end.is_none() {
                    client.end(&name, End { asked_at: now })?;
                }
                Ok(Some(machine))
            })
            .await?;
        match ended.and_then(|before| map::node(&before, now)) {
            Some(state) if state.phase == NodePhase::Gone => {
                Ok(Terminated::Gone { stopped_at: state.stopped_at })
            }
            Some(_) => Ok(Terminated::Requested),
            None => Err(self.error("terminate", ErrorKind::NotFound, "no such machine")),
        }
    }

    async fn usage(&self, _period: &Period) -> Result<UsageRecords> {
        Err(self.error("usage", ErrorKind::Unsupported, "Harbour sends no bill"))
    }
}
