//! Why a verb failed, before it is known which verb it was.

use std::io;

use runwhere_model::{BlockScope, BoxError, Effect, ErrorKind, NodeId, ProviderError, ProviderId};

/// A failure without its provider and operation.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) effect: Effect,
    pub(super) nodes: Vec<NodeId>,
    pub(super) source: BoxError,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, source: impl Into<BoxError>) -> Self {
        Self { kind, effect: Effect::None, nodes: Vec::new(), source: source.into() }
    }

    pub(super) fn possible(mut self) -> Self {
        self.effect = Effect::Possible;
        self
    }

    pub(super) fn with_node(mut self, node: NodeId) -> Self {
        self.nodes.push(node);
        self
    }

    pub(super) fn at(self, provider: ProviderId, operation: &'static str) -> ProviderError {
        ProviderError {
            provider,
            operation,
            kind: self.kind,
            effect: self.effect,
            nodes: self.nodes,
            scope: BlockScope::Call,
            retry_after: None,
            source: Some(self.source),
        }
    }
}

/// Disk full, no rights, too many files: all of these can pass.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(ErrorKind::Transient, error)
    }
}

/// The work was cut off: nothing is known.
pub(super) fn lost(error: tokio::task::JoinError) -> Failure {
    Failure::new(ErrorKind::Transient, error).possible()
}
