//! The vocabulary of runwhere: money, GPU models, offers, keys, nodes, metering, errors.
//!
//! Everything here is pure: no clocks, no I/O, no floats. The words are those of the design: an
//! [`Offer`] is something one can rent now and is named by an [`OfferKey`]; a node is the machine;
//! a [`ProviderError`] says whether the failed call may have had an effect.

#![deny(clippy::disallowed_types, clippy::float_arithmetic)]

pub mod capability;
pub mod code;
pub mod cost;
pub mod decimal;
pub mod detail;
pub mod error;
pub mod gpu;
pub mod ids;
pub mod key;
pub mod lang;
pub mod launch;
pub mod mark;
pub mod metering;
pub mod money;
pub mod node;
pub mod number;
pub mod offer;
pub mod price;
pub mod usage;

pub use capability::{Bootstrapping, Capabilities, Deadman, Identity, StopEffect};
pub use code::OfferCode;
pub use cost::{cost_between, cost_total};
pub use decimal::{DecimalError, parse_decimal};
pub use detail::{Alternative, DiskPrice, OfferDetails, PricePart, PriceTier};
pub use error::{BlockScope, BoxError, Effect, ErrorKind, ProviderError};
pub use gpu::{GpuCount, GpuModel, GpuModelId};
pub use ids::{
    DeploymentId, JobId, KeyId, LeaseId, NodeId, PrincipalId, ProjectId, ProviderId, SyncId,
    TrialId, WorkspaceId,
};
pub use key::{BillingModel, KeyError, OfferKey};
pub use lang::Lang;
pub use launch::{Bootstrap, LaunchRequest, Launched, Secret};
pub use mark::{Mark, Marks};
pub use metering::{MeterStart, Metering, MinimumScope, Rounding};
pub use money::{Currency, CurrencyError, Money, MoneyError};
pub use node::{EndCause, Found, NodeList, NodePhase, NodeState, SeenNode, Terminated};
pub use number::RawNumber;
pub use offer::{Gap, Offer, OfferScope, OfferSheet, RejectedRow, SourceTerms, Stock};
pub use price::{HourlyPrice, Price, PriceKind, PriceState};
pub use usage::{Period, UsageRecord, UsageRecords};
