//! Offer sources and providers: the traits, the registry, the local machine, the simulated cloud.
//!
//! A provider instance is one account with one cloud, cluster or machine. Launching, finding and
//! ending nodes are separate verbs, each of which says whether a failed call may have had an
//! effect; see [`Provider`].

#![deny(clippy::disallowed_types, clippy::float_arithmetic)]

pub mod aliyun;
pub mod azure;
pub mod clock;
pub mod crusoe;
pub mod digitalocean;
pub mod gcp;
pub mod http;
pub mod huawei;
pub mod lambda;
pub mod local;
mod metered;
pub mod oci;
pub mod provider;
pub mod registry;
pub mod runpod;
pub mod sources;
pub mod tencent;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vast;
pub mod verda;
pub mod vultr;

pub use clock::{Clock, SystemClock};
pub use provider::{OfferSource, Provider, Result};
pub use registry::Registry;
pub use runwhere_model as model;
