//! What a step changes, as one transition.

use jiff::Timestamp;
use runwhere_engine::{LedgerEntry, Step, Unit};

use crate::store::{Row, Transition};

/// The rows and events of a step taken at `now`; empty when nothing changed.
pub(super) fn transition(before: &Unit, step: &Step, now: Timestamp) -> Transition {
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
        rows.push(Row::Entry(LedgerEntry::of_segment(segment, now)));
    }
    for output in &step.outputs {
        rows.push(Row::Output(step.unit.trial.id.clone(), output.clone()));
    }
    Transition { rows, events: step.events.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sample::{self, at};

    #[test]
    fn an_entry_is_dated_when_it_is_recorded() {
        let job = sample::job("p", 1, "hello");
        let trial = sample::trial(&job, 0);
        let lease = sample::lease(&trial, "l1");
        let segment = sample::segment(&lease, 0);
        let unit = Unit { job, trial, lease: Some(lease) };
        let step = Step {
            unit: unit.clone(),
            budget: None,
            segments: vec![segment.clone()],
            outputs: Vec::new(),
            events: Vec::new(),
            call: None,
        };
        // Long after the segment's end: after a restart, say.
        let now = at(86_400);
        let rows = transition(&unit, &step, now).rows;
        let [Row::Segment(stored), Row::Entry(entry)] = &rows[..] else {
            panic!("a segment and its entry: {rows:?}");
        };
        assert_eq!(stored, &segment);
        assert!(segment.end < now);
        assert_eq!(entry.recorded_at, now);
        assert!(entry.is_balanced());
    }
}
