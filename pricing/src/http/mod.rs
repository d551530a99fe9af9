//! The HTTP routes of the price service. No route that reads list prices needs a token; who has one is
//! told by an [`Audience`](crate::Audience) in the request's extensions, put there by whoever checks
//! credentials, and who may decide about prices by an [`Operator`].

mod answers;
mod beside;
mod buffers;
mod compression;
mod contract;
mod document;
mod laid;
mod metrics;
mod richer;
mod standalone;

use std::sync::Arc;

use axum::Router;

use crate::refresh::Refresher;
use crate::service::PriceService;

pub use metrics::price_metrics;
pub use standalone::standalone;

/// The caller may refresh sources and decide about quarantined prices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operator;

/// What the routes share.
#[derive(Clone, Debug)]
struct Served {
    service: Arc<PriceService>,
    refresher: Option<Arc<Refresher>>,
}

/// All routes of a service whose sources somebody else reads.
pub fn router(service: Arc<PriceService>) -> Router {
    routes(Served { service, refresher: None })
}

/// All routes of a service with its sources.
pub fn router_with(refresher: Arc<Refresher>) -> Router {
    routes(Served { service: Arc::clone(refresher.service()), refresher: Some(refresher) })
}

fn routes(served: Served) -> Router {
    let service = Arc::clone(&served.service);
    contract::lists(Arc::clone(&service))
        .merge(richer::routes(served))
        .layer(compression::compression())
        .merge(contract::quotes(service))
        .method_not_allowed_fallback(contract::method_not_allowed)
}
