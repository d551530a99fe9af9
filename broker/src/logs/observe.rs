//! What a changed unit adds to its log, and when the log is complete.

use jiff::SignedDuration;
use runwhere_engine::{Desired, LeaseState, Unit};
use runwhere_model::Bootstrapping;
use runwhere_providers::Clock;

use super::LogError;
use super::note::{Note, NoteRecord};
use super::store::Logs;

/// A wait shorter than this is not worth a line.
const SAID_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Appends what the unit's state implies. Every note has a key, so repeats are harmless; what a
/// full disk prevents is made up for by the next change.
pub(super) async fn observe(logs: &Logs, clock: &dyn Clock, unit: &Unit) {
    let trial = &unit.trial;
    let mut notes = Vec::new();
    let lease = unit.lease.as_ref();
    // Where the provider makes no machine, nothing is being made before there is an allocation.
    let asking = lease.is_some_and(|lease| {
        lease.capabilities.bootstrapping == Bootstrapping::Direct
            && matches!(
                lease.state,
                LeaseState::Intended | LeaseState::Launching | LeaseState::Unknown
            )
    });
    let reached = trial.platform_lines(lease.map(|lease| lease.state));
    let mut phases = if asking { &[][..] } else { reached }.iter().peekable();
    if phases.peek().is_some() {
        notes.extend(prelude(unit));
    }
    // A phase happens once in a trial, so its name is the key.
    notes.extend(phases.map(|line| (format!("phase.{line:?}"), Note::Phase { line: *line })));
    let waited = clock.now().duration_since(trial.created_at);
    if let Some(detail) = &trial.waiting_for
        && !trial.state.is_terminal()
        && waited >= SAID_AFTER
    {
        // Once for each reason: a long wait does not flood the log.
        let key = format!("waiting.{}", detail.chars().take(80).collect::<String>());
        notes.push((key, Note::Waiting { detail: detail.clone() }));
    }
    match trial.desired {
        Desired::Run => {}
        Desired::Stop => notes.push(("stopping".to_owned(), Note::Stopping)),
        Desired::Reclaim => notes.push(("reclaiming".to_owned(), Note::Reclaiming)),
        Desired::TimeOut => notes.push(("timed_out".to_owned(), Note::TimedOut)),
    }
    if let Some(reason) = trial.end_reason.clone().filter(|_| trial.state.is_terminal()) {
        let exit_code = trial.exit.and_then(|exit| exit.code);
        let signal = trial.exit.and_then(|exit| exit.signal);
        if reason.code() != "succeeded" {
            notes.push(("ended".to_owned(), Note::Ended { reason, exit_code, signal }));
        }
    }
    for (key, note) in notes {
        let record = NoteRecord { key, at: clock.now(), note };
        match logs.note(&trial.id, record).await {
            Ok(()) | Err(LogError::Sealed) => {}
            Err(error) => {
                tracing::warn!(trial.id = %trial.id, %error, "A platform line was not stored");
            }
        }
    }
    // Nothing follows once the agent has delivered everything, or can deliver nothing any more.
    let silent = unit.lease.as_ref().is_none_or(|lease| lease.state.is_terminal());
    if trial.state.is_terminal()
        && (trial.log.is_some() || silent)
        && let Err(error) = logs.seal(&trial.id).await
    {
        tracing::warn!(trial.id = %trial.id, %error, "A log could not be sealed");
    }
}

/// What is said before the first phase.
fn prelude(unit: &Unit) -> Vec<(String, Note)> {
    let spec = &unit.job.spec;
    let mut notes = Vec::new();
    if spec.gpu_pretended {
        let model = spec.gpu_model.map_or("GPU", |model| model.model().name);
        let gpus = format!("{}×{model}", spec.gpu_count);
        notes.push(("pretended".to_owned(), Note::Pretended { gpus }));
    }
    // Nodes that the provider itself starts the agent on run plain processes.
    let direct = unit
        .lease
        .as_ref()
        .is_some_and(|lease| lease.capabilities.bootstrapping == Bootstrapping::Direct);
    if let Some(image) = spec.image.clone().filter(|_| direct) {
        notes.push(("image_unused".to_owned(), Note::ImageUnused { image }));
    }
    notes
}
