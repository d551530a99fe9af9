//! The price service: catalogue, exchange rates, quotes, recommendations and their HTTP routes.
//!
//! A [`Catalogue`] is an immutable state of all offers: those bundled with the program, which
//! launch nothing, and those that connected providers state in sheets. [`PriceService`] holds the
//! current one and answers, in process, what [`router`] serves over HTTP: summary, list and
//! quote. Everything is ordered by one total order, so the same state and the same question give
//! the same answer, under the same quote id.

#![deny(clippy::disallowed_types, clippy::float_arithmetic)]

pub mod canonical;
pub mod catalogue;
pub mod codes;
mod digits;
mod directory;
pub mod ecb;
pub mod fx;
pub mod history;
pub mod http;
pub mod import;
pub mod keep;
pub mod listing;
pub mod quote;
pub mod reason;
pub mod refresh;
pub mod request;
mod resold;
pub mod resolve;
pub mod rows;
pub mod run_cost;
mod select;
pub mod service;
pub mod shard;
pub mod snapshot;
pub mod suggest;
mod summary;

pub use canonical::{QUOTE_VALID_SECONDS, QuoteRef};
pub use catalogue::{
    Assessed, Audience, Catalogue, Entry, NotLaunchable, Parts, SpotStanding, Standing, Trouble,
};
pub use codes::CodeBook;
pub use digits::Digits;
pub use ecb::{ECB_DAILY, EcbError, read_ecb};
pub use fx::{
    Converted, FxError, FxFileError, FxRate, FxRateSetting, FxSettingError, FxSettings, FxTable,
};
pub use history::{Change, ChangeKind};
pub use http::{Operator, price_metrics, router, router_with, standalone};
pub use import::{ImportError, ImportOptions, Imported, Layout, import};
pub use keep::PriceFolder;
pub use listing::Listed;
pub use quote::{Policy, Query, Quote, Recommended, Rejection, TaskType};
pub use reason::{Reason, Tag};
pub use refresh::{Outcome, Quarantined, RefreshError, Refresher, SourceStatus, Waiting};
pub use request::{ListRequest, MOST_HOURS, Problem, RequestError};
pub use resolve::ResolveError;
pub use rows::{
    Flag, OfferPage, OfferRow, QuoteReply, RecommendationRow, SummaryReply, SummaryRow,
    four_decimals,
};
pub use run_cost::{BillingRule, RunCost, RunPlan, billing_rule, run_cost};
pub use service::{PriceOptions, PriceService};
pub use shard::{Limits, Shard, ShardFileError};
pub use snapshot::Bundled;
pub use suggest::suggest;
