//! What a step changes, as one transition.

use runwhere_engine::{LedgerEntry, Step, Unit};

use crate::store::{Row, Transition};

/// The rows and events of a step; empty when nothing changed.
pub(super) fn transition(before: &Unit, step: &Step) -> Transition {
    let mut rows = Vec::new();
    if step.unit.job != before.job {
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
