//! The pure decisions of runwhere: jobs, trials, leases, metering, ledger, budgets.
//!
//! Nothing here reads a clock, does I/O or draws randomness. A [`Unit`] is one trial with its job
//! and its present lease; [`Unit::wake`] says what is due at an instant and which provider call
//! to make, [`Unit::apply`] takes in what happened. The caller makes every change durable before
//! it performs the returned [`Call`], so that a crash at any point leaves a state from which the
//! same functions go on.

#![deny(clippy::disallowed_types, clippy::float_arithmetic)]

pub mod account;
pub mod block;
pub mod budget;
pub mod event;
pub mod evidence;
pub mod hold;
pub mod job;
pub mod lease;
pub mod ledger;
pub mod meter;
pub mod policy;
pub mod publication;
pub mod run;
#[cfg(feature = "sabotage")]
pub mod sabotage;
pub mod settlement;
pub mod stray;
pub mod surplus;
pub mod sweep;
pub mod sweeper;
#[cfg(feature = "sabotage")]
pub mod tape;
pub mod trial;
pub mod unit;

pub use account::{ApiKey, KeyKind, Permission, Principal, Project, Quota, Workspace};
pub use block::{Block, Blocks};
pub use budget::Budget;
pub use event::{EventRecord, Subject};
pub use evidence::Evidence;
pub use hold::{Hold, Refusal};
pub use job::{
    Decided, EndReason, Job, JobKind, JobSpec, JobState, Resumed, SyncManifest, SyncedFile,
    UsedRate,
};
pub use lease::{AgentSession, CallKind, InFlight, Lease, LeaseState, PriceSnapshot};
pub use ledger::{LedgerEntry, LedgerLine, UsageSegment};
pub use meter::Meter;
pub use policy::Policy;
pub use publication::{Publication, PublicationKind, Visibility};
pub use run::{FrozenImage, RunLimits, RunnerRun, Terms, TrialSpec};
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use settlement::{Settlement, settle};
pub use stray::{Stray, StrayCause, StrayOwner, StrayState, StrayStep};
pub use surplus::Surplus;
pub use sweep::{Finding, Look, Sweep, SweepCounts, SweepRefused, Verdict, sweep};
pub use sweeper::{Claim, SweeperState};
pub use trial::{
    Desired, Exit, ExitCause, LogSeal, Output, OutputState, PlatformLine, Trial, TrialState,
};
pub use unit::{
    AgentEvent, AgentOrder, BudgetContext, Call, CallRef, Context, FreshLease, FxRate, Outcome,
    Step, StepError, Unit,
};

/// Whether the calling thread has a defect now, by its name in `sabotage::Sabotage`.
#[cfg(feature = "sabotage")]
#[macro_export]
macro_rules! sabotage {
    ($defect:ident) => {
        $crate::sabotage::Sabotage::$defect.is_on()
    };
}

/// Nothing has a defect but what is built with the feature `sabotage`.
#[cfg(not(feature = "sabotage"))]
#[macro_export]
macro_rules! sabotage {
    ($defect:ident) => {
        false
    };
}
