//! The one error at the provider seam: what went wrong, and whether anything may have happened.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ProviderId};

/// A source error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The class of a provider failure. Matched exhaustively everywhere: a new kind forces a decision.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// None left of it.
    Capacity,
    /// Our account may not have more.
    Quota,
    /// The account is out of money.
    Balance,
    /// Credentials refused.
    Auth,
    /// Too many calls.
    Throttle,
    /// The request is wrong.
    Invalid,
    /// It clashes with the present state.
    Conflict,
    /// There is no such thing.
    NotFound,
    /// May work later: network, time-outs, 5xx.
    Transient,
    /// The provider cannot do this.
    Unsupported,
    /// The answer could not be understood.
    Malformed,
}

impl ErrorKind {
    /// The word used in logs and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Quota => "quota",
            Self::Balance => "balance",
            Self::Auth => "auth",
            Self::Throttle => "throttle",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Transient => "transient",
            Self::Unsupported => "unsupported",
            Self::Malformed => "malformed",
        }
    }
}

/// Whether the failed call may have changed something at the provider.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Definitely refused: nothing happened.
    None,
    /// A lost or unclear answer: it may have happened.
    Possible,
}

/// What a failure blocks for others.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockScope {
    /// Only this call.
    #[default]
    Call,
    /// This zone.
    Zone,
    /// This region.
    Region,
    /// The whole account.
    Account,
}

/// A failed provider call.
#[derive(Debug)]
pub struct ProviderError {
    /// Which provider.
    pub provider: ProviderId,
    /// Which call, for example `launch`.
    pub operation: &'static str,
    /// What class of failure.
    pub kind: ErrorKind,
    /// Whether it may have had an effect.
    pub effect: Effect,
    /// Nodes that the error brought with it (they exist and must be ended).
    pub nodes: Vec<NodeId>,
    /// What it blocks.
    pub scope: BlockScope,
    /// When the provider asks to be called again.
    pub retry_after: Option<Duration>,
    /// The cause; never holds a secret.
    pub source: Option<BoxError>,
}

impl ProviderError {
    /// A failure without effect, scope or cause; add what is known with the other methods.
    pub fn new(provider: ProviderId, operation: &'static str, kind: ErrorKind) -> Self {
        Self {
            provider,
            operation,
            kind,
            effect: Effect::None,
            nodes: Vec::new(),
            scope: BlockScope::Call,
            retry_after: None,
            source: None,
        }
    }

    /// Marks that the call may have had an effect.
    pub fn possible(mut self) -> Self {
        self.effect = Effect::Possible;
        self
    }

    /// Adds the cause.
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.provider, self.operation, self.kind.as_str())?;
        if self.effect == Effect::Possible {
            f.write_str(" (outcome unknown)")?;
        }
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ProviderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
