//! Offer sources and providers: the traits, the registry, the local machine, the simulated cloud.
//!
//! A provider instance is one account with one cloud, cluster or machine. Launching, finding and
//! ending nodes are separate verbs, each of which says whether a failed call may have had an
//! effect; see [`Provider`].

pub mod clock;
pub mod http;
pub mod local;
mod metered;
pub mod provider;
pub mod registry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use clock::{Clock, SystemClock};
pub use provider::{OfferSource, Provider, Result};
pub use registry::Registry;
pub use runwhere_model as model;
