//! What the cases have in common.

use std::fmt::Debug;
use std::time::Duration;

use runwhere_model::{
    Effect, ErrorKind, LaunchRequest, NodeId, NodeList, NodePhase, NodeState, ProviderError,
    Terminated,
};

use super::Subject;

/// A case's result; the text says what is wrong.
pub(super) type Outcome = Result<(), String>;

pub(super) fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(wrong()) }
}

pub(super) fn same<T: PartialEq + Debug>(what: &str, got: &T, want: &T) -> Outcome {
    ensure(got == want, || format!("{what}: {got:?} instead of {want:?}"))
}

/// Names the call that failed.
pub(super) fn in_call(call: &'static str) -> impl Fn(ProviderError) -> String {
    move |error| format!("{call} failed: {error}")
}

/// The error of a call that must be refused, without any effect.
pub(super) fn refused<T: Debug>(
    what: &str,
    result: Result<T, ProviderError>,
) -> Result<ProviderError, String> {
    match result {
        Ok(answer) => Err(format!("{what} was not refused: {answer:?}")),
        Err(error) if error.effect == Effect::Possible => {
            Err(format!("{what} was refused without saying that nothing happened: {error}"))
        }
        Err(error) => Ok(error),
    }
}

/// How long reads may take to show what is true, and a margin.
pub(super) fn patience(subject: &dyn Subject) -> Duration {
    let capabilities = subject.provider().capabilities();
    capabilities.settle + capabilities.boot_timeout
}

async fn step(subject: &dyn Subject) {
    let settle = subject.provider().capabilities().settle;
    subject.pass((settle / 50).max(Duration::from_millis(50))).await;
}

/// All nodes of the request's lease, once there are at least so many, in a complete read.
pub(super) async fn found(
    subject: &dyn Subject,
    request: &LaunchRequest,
    least: usize,
) -> Result<Vec<NodeState>, String> {
    let start = subject.now();
    loop {
        let found = subject.provider().find(&request.lease).await.map_err(in_call("find"))?;
        if found.complete && found.nodes.len() >= least {
            return Ok(found.nodes);
        }
        if subject.now().duration_since(start).unsigned_abs() > patience(subject) {
            return Err(format!(
                "find shows {} of {least} launched nodes (complete: {})",
                found.nodes.len(),
                found.complete
            ));
        }
        step(subject).await;
    }
}

/// Waits until a node is in a phase; the read that shows it.
pub(super) async fn reaches(
    subject: &dyn Subject,
    node: &NodeId,
    wanted: NodePhase,
) -> Result<NodeState, String> {
    let start = subject.now();
    loop {
        let seen = match subject.provider().describe(node).await {
            Ok(state) if state.phase == wanted => return Ok(state),
            Ok(state) => format!("{:?}", state.phase),
            // Right after a launch, reads may not know it yet.
            Err(error) if error.kind == ErrorKind::NotFound => "not found".to_owned(),
            Err(error) => return Err(in_call("describe")(error)),
        };
        if subject.now().duration_since(start).unsigned_abs() > patience(subject) {
            return Err(format!("{node} does not become {wanted:?}; it is {seen}"));
        }
        step(subject).await;
    }
}

/// All nodes. Reading them can take time, which passes meanwhile.
pub(super) async fn listed(subject: &dyn Subject) -> Result<NodeList, String> {
    let mut listing = subject.provider().nodes();
    loop {
        tokio::select! {
            biased;
            list = &mut listing => return list.map_err(in_call("nodes")),
            () = subject.pass(Duration::from_millis(200)) => {}
        }
    }
}

/// Lets the time pass in which an end would be refused.
pub(super) async fn reservation_over(subject: &dyn Subject) {
    if let Some(span) = subject.provider().capabilities().minimum_reservation {
        subject.pass(span).await;
    }
}

/// Ends a node and waits for the proof: a terminal read, or, once it was seen, its absence.
pub(super) async fn end(subject: &dyn Subject, node: &NodeId) -> Result<Option<NodeState>, String> {
    let provider = subject.provider();
    reservation_over(subject).await;
    let mut word = provider.terminate(node).await.map_err(in_call("terminate"))?;
    let start = subject.now();
    loop {
        match provider.describe(node).await {
            Ok(state) if state.phase == NodePhase::Gone => return Ok(Some(state)),
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(in_call("describe")(error)),
        }
        if matches!(word, Terminated::Gone { .. }) && provider.capabilities().settle.is_zero() {
            return Err(format!("terminate said that {node} is gone, describe does not"));
        }
        if subject.now().duration_since(start).unsigned_abs() > patience(subject) {
            return Err(format!("{node} was terminated and is not gone"));
        }
        step(subject).await;
        word = Terminated::Requested;
    }
}

/// Ends every node of a request.
pub(super) async fn clean(subject: &dyn Subject, request: &LaunchRequest, least: usize) -> Outcome {
    for node in found(subject, request, least).await? {
        if node.phase != NodePhase::Gone {
            end(subject, &node.node).await?;
        }
    }
    Ok(())
}
