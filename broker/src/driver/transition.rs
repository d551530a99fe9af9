//! What a step changes, as one transition.

use runwhere_engine::{LedgerEntry, Step, Unit};

use crate::store::{Row, Transition};

/// The rows and events of a step; empty when nothing changed.
pub(super) fn transition(before: &Unit, step: &Step) -> Transition {
    let mut rows = Vec::new();
    // The last trial of a job frees its name: two that end at once must not both take the other
    // for the last one, so each end passes through the version of the job.
    let ends = step.unit.trial.state.is_terminal() && !before.trial.state.is_terminal();
    if step.unit.job != before.job || (ends && before.job.trials.len() > 1) {
        rows.push(Row::Job(step.unit.job.clone()));
    }
    if step.unit.trial != before.trial {
        rows.push(Row::Trial(step.unit.trial.clone()));
    }
    match (&before.lease, &step.unit.lease) {
        (old, Some(lease)) if old.as_ref() != Some(lease) => rows.push(Row::Lease(lease.clone())),
        (_, _) => {}
    }
    if let Some(budget) = &step.budget {
        rows.push(Row::Budget(budget.clone()));
    }
    for segment in &step.segments {
        rows.push(Row::Segment(segment.clone()));
        rows.push(Row::Entry(LedgerEntry::of_segment(segment, segment.end)));
    }
    for output in &step.outputs {
        rows.push(Row::Output(step.unit.trial.id.clone(), output.clone()));
    }
    Transition { rows, events: step.events.clone() }
}
