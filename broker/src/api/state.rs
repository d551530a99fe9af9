//! What the routes share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use runwhere_engine::Permission;
use runwhere_model::Secret;
use runwhere_pricing::Refresher;
use runwhere_providers::Clock;
use tokio::sync::watch;

use super::agent::AgentService;
use super::problem::Problem;
use super::runwhere::{CnyRates, JobService};
use crate::accounts::{Accounts, Caller};
use crate::admin::AdminService;
use crate::blobs::Blobs;
use crate::logs::Logs;
use crate::ports::{Ids, Room};
use crate::store::Store;
use crate::sync::{Syncs, Tickets};

/// The broker as the routes see it.
#[derive(Debug)]
pub struct ApiParts {
    /// Rows, for what only reads.
    pub store: Arc<dyn Store>,
    /// Jobs.
    pub jobs: Arc<dyn JobService>,
    /// Space for what is new.
    pub room: Arc<dyn Room>,
    /// Agents.
    pub agents: Arc<dyn AgentService>,
    /// The operators' side of the driver.
    pub admin: Arc<dyn AdminService>,
    /// File contents.
    pub blobs: Blobs,
    /// Logs.
    pub logs: Logs,
    /// Rates for showing yuan.
    pub rates: Arc<dyn CnyRates>,
    /// Where prices are read, for their metrics.
    pub price_sources: Arc<Refresher>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identifiers.
    pub ids: Arc<dyn Ids>,
    /// The server's key, for upload addresses.
    pub key: Secret,
    /// How long an upload address is valid.
    pub uploads_valid_for: Duration,
    /// How clients reach the server; the address they used without.
    pub public_url: Option<String>,
    /// The server speaks TLS.
    pub secure: bool,
    /// Becomes true when the server is to end.
    pub closing: watch::Receiver<bool>,
}

/// The shared state of all routes.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) parts: ApiParts,
    pub(crate) accounts: Accounts,
    pub(crate) syncs: Syncs,
    pub(crate) readable: super::agent::Readable,
}

impl Api {
    pub(crate) fn new(parts: ApiParts) -> Self {
        let (store, clock, ids) =
            (Arc::clone(&parts.store), Arc::clone(&parts.clock), Arc::clone(&parts.ids));
        let accounts = Accounts::new(store.clone(), clock.clone(), ids.clone());
        let tickets = Tickets::new(&parts.key);
        let syncs =
            Syncs::new(store, parts.blobs.clone(), tickets, parts.uploads_valid_for, clock, ids);
        Self { parts, accounts, syncs, readable: super::agent::Readable::default() }
    }

    /// The base of our own addresses, without a slash at its end.
    pub(crate) fn base_url(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.parts.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        let scheme = if self.parts.secure { "https" } else { "http" };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let plain =
            |host: &&str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
        format!("{scheme}://{}", host.filter(plain).unwrap_or("127.0.0.1"))
    }
}

/// The token of `Authorization: Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The caller of a route that needs one.
#[derive(Clone, Debug)]
pub(crate) struct Signed(pub(crate) Caller);

impl Signed {
    /// The caller, if the key allows something.
    pub(crate) fn with(self, permission: Permission) -> Result<Caller, Problem> {
        if self.0.allows(permission) { Ok(self.0) } else { Err(Problem::forbidden()) }
    }
}

impl FromRequestParts<Arc<Api>> for Signed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Problem> {
        let token = bearer(&parts.headers).ok_or_else(Problem::unauthorized)?;
        Ok(Self(api.accounts.authenticate(token).await?))
    }
}
