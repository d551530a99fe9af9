//! The line before a machine of one's own: of those who wait for the same, who came first is
//! launched first, and at once when something becomes free. Clouds have no line: their capacity
//! is nobody's to share out, and a launch takes them too long to go one by one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use runwhere_engine::{
    Context, Desired, Job, LeaseState, Step, StepError, Trial, TrialState, Unit,
};
use runwhere_model::{Bootstrapping, JobId, OfferKey, ProviderId, TrialId};

use super::core::{Core, DriveError, Stepped};
use crate::store::{Due, StoreError};

/// Trials that are put into their lines at the start at most; others come when they are due.
const AT_START: u32 = 10_000;

/// Lines by offer.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<HashMap<OfferKey, Arc<Line>>>);

#[derive(Debug, Default)]
struct Line {
    /// Held by who launches.
    turn: tokio::sync::Mutex<()>,
    waiting: Mutex<BTreeSet<Place>>,
}

/// A place in a line; earlier ones come first.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    since: Timestamp,
    job: JobId,
    index: u32,
    trial: TrialId,
}

impl Place {
    fn of(trial: &Trial) -> Self {
        Self {
            since: trial.created_at,
            job: trial.job.clone(),
            index: trial.index,
            trial: trial.id.clone(),
        }
    }
}

impl Line {
    fn waiting(&self) -> MutexGuard<'_, BTreeSet<Place>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> Option<TrialId> {
        self.waiting().first().map(|place| place.trial.clone())
    }

    fn leave(&self, trial: &TrialId) {
        self.waiting().retain(|place| place.trial != *trial);
    }
}

impl Lines {
    fn of(&self, offer: &OfferKey) -> Arc<Line> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|key, line| {
            key == offer || Arc::strong_count(line) > 1 || !line.waiting().is_empty()
        });
        Arc::clone(lines.entry(offer.clone()).or_default())
    }

    /// The lines before one provider's machine; the one whose first came earliest comes first.
    fn before(&self, provider: &ProviderId) -> Vec<Arc<Line>> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(Place, Arc<Line>)> = lines
            .iter()
            .filter(|(offer, _)| offer.provider == *provider)
            .filter_map(|(_, line)| Some((line.waiting().first().cloned()?, Arc::clone(line))))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.into_iter().map(|(_, line)| line).collect()
    }
}

fn wake(unit: Unit, context: &Context<'_>) -> Result<Step, StepError> {
    unit.wake(context)
}

/// Does what is due for a trial but a launch: somebody before it waits. Its turn is passed on to
/// it, so it need not look often.
fn stay_behind(mut unit: Unit, context: &Context<'_>) -> Result<Step, StepError> {
    if unit.trial.state == TrialState::Queued && unit.trial.desired == Desired::Run {
        let pause = context.policy.launch_retry_max;
        unit.trial.next_at = Some(context.now.checked_add(pause).unwrap_or(Timestamp::MAX));
        unit.trial.waiting_for = Some("somebody before it waits for the same".to_owned());
    }
    unit.wake(context)
}

impl Core {
    /// Wakes a trial; one that waits for a machine of ours only after those before it.
    pub(super) async fn wake_in_turn(
        self: &Arc<Self>,
        trial: TrialId,
    ) -> Result<Stepped, DriveError> {
        let Some(line) = self.line_of(&trial).await? else {
            return self.step_to_end(trial, false, wake).await;
        };
        let _turn = line.turn.lock().await;
        while let Some(first) = line.first().filter(|first| *first != trial) {
            if self.still_waits(&line, &first).await {
                return self.step_to_end(trial, false, stay_behind).await;
            }
        }
        let stepped = self.step_to_end(trial.clone(), false, wake).await;
        if !self.settled(&line, &trial).await {
            self.pass_on(&line).await;
        }
        stepped
    }

    /// Something of a machine has become free: who waits for it is launched, in order. All offers
    /// of a machine share its GPUs, so those who wait for another number of them try as well.
    pub(super) async fn fill(self: &Arc<Self>, offer: &OfferKey) {
        if !self.is_direct(&offer.provider) {
            return;
        }
        self.blocks().freed(&offer.provider);
        for line in self.lines.before(&offer.provider) {
            let _turn = line.turn.lock().await;
            self.pass_on(&line).await;
        }
    }

    /// Lets one after the other try until one has to wait on. By who holds the turn.
    async fn pass_on(self: &Arc<Self>, line: &Line) {
        while let Some(first) = line.first() {
            if self.still_waits(line, &first).await {
                return;
            }
        }
    }

    /// Puts trials that are due into their lines, before any of them tries.
    pub(super) async fn put_in_line(&self, trials: &[TrialId]) {
        if !self.has_own_machines() {
            return;
        }
        for trial in trials {
            // One that cannot be read now comes when it is woken.
            let _ = self.line_of(trial).await;
        }
    }

    /// Puts all that wait for machines of ours into their lines. To be called once, at the start.
    pub(super) async fn line_up(&self) -> Result<(), StoreError> {
        if !self.has_own_machines() {
            return Ok(());
        }
        for due in self.parts.store.due(Timestamp::MAX, AT_START).await? {
            if let Due::Trial(trial) = due {
                self.line_of(&trial).await?;
            }
        }
        Ok(())
    }

    fn has_own_machines(&self) -> bool {
        let direct = Bootstrapping::Direct;
        self.parts.registry.iter().any(|provider| provider.capabilities().bootstrapping == direct)
    }

    /// The line of a trial that waits for a machine of ours, with the trial in it.
    async fn line_of(&self, trial: &TrialId) -> Result<Option<Arc<Line>>, StoreError> {
        if !self.has_own_machines() {
            return Ok(None);
        }
        let Some((job, row, _)) = self.parts.store.unit(trial).await? else { return Ok(None) };
        if row.state != TrialState::Queued || !self.is_own_machine(&job, &row) {
            return Ok(None);
        }
        let line = self.lines.of(&job.terms(row.index).offer.clone());
        line.waiting().insert(Place::of(&row));
        Ok(Some(line))
    }

    fn is_own_machine(&self, job: &Job, trial: &Trial) -> bool {
        self.is_direct(&job.terms(trial.index).offer.provider)
    }

    fn is_direct(&self, provider: &ProviderId) -> bool {
        let provider = self.parts.registry.get(provider);
        provider.is_some_and(|one| one.capabilities().bootstrapping == Bootstrapping::Direct)
    }

    /// Lets the first of a line try, whenever its own next try would have been; whether it waits
    /// on.
    async fn still_waits(self: &Arc<Self>, line: &Line, trial: &TrialId) -> bool {
        let turn = |mut unit: Unit, context: &Context<'_>| {
            if unit.trial.state == TrialState::Queued {
                unit.trial.next_at = None;
            }
            unit.wake(context)
        };
        if let Err(error) = self.step_to_end(trial.clone(), false, turn).await {
            // Nobody waits behind one that cannot go on; it comes again when it is due.
            tracing::warn!(trial.id = %trial, %error, "The first in a line could not be stepped");
            line.leave(trial);
            return false;
        }
        self.settled(line, trial).await
    }

    /// Returns once a trial's launch is answered; whether it waits again.
    async fn settled(&self, line: &Line, trial: &TrialId) -> bool {
        let mut changes = self.signals.watch(trial.as_str());
        let now = self.parts.clock.now();
        let until = now.checked_add(self.parts.policy.call_timeout).unwrap_or(Timestamp::MAX);
        loop {
            let waits = match self.parts.store.unit(trial).await {
                Ok(Some((_, row, lease))) => match row.state {
                    TrialState::Queued => Some(true),
                    TrialState::Provisioning => {
                        let asked = lease.is_some_and(|lease| {
                            matches!(lease.state, LeaseState::Intended | LeaseState::Launching)
                        });
                        (!asked).then_some(false)
                    }
                    _ => Some(false),
                },
                Ok(None) | Err(_) => Some(false),
            };
            if let Some(waits) = waits {
                if !waits {
                    line.leave(trial);
                }
                return waits;
            }
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_ok() { continue },
                () = self.parts.clock.sleep_until(until) => {}
            }
            // Without an answer in time it is not known to wait.
            line.leave(trial);
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(second: i64, job: &str, index: u32) -> Place {
        Place {
            since: Timestamp::from_second(second).unwrap(),
            job: JobId::new(job).unwrap(),
            index,
            trial: TrialId::new(format!("{job}.{index}")).unwrap(),
        }
    }

    #[test]
    fn who_came_first_is_first_and_the_tenth_is_behind_the_second() {
        let line = Line::default();
        for place in [place(2, "job-1", 0), place(1, "job-2", 10), place(1, "job-2", 2)] {
            line.waiting().insert(place);
        }
        for wanted in ["job-2.2", "job-2.10", "job-1.0"] {
            let first = line.first().unwrap();
            assert_eq!(first.as_str(), wanted);
            line.leave(&first);
        }
        assert_eq!(line.first(), None);
    }

    #[test]
    fn an_empty_line_is_forgotten() {
        let lines = Lines::default();
        let offer: OfferKey = "local/-/-/on_demand/h100x1".parse().unwrap();
        let other: OfferKey = "local/-/-/on_demand/h100x2".parse().unwrap();
        lines.of(&offer);
        lines.of(&other).waiting().insert(place(1, "job-1", 0));
        lines.of(&"local/-/-/on_demand/h100x4".parse().unwrap());
        let known = lines.0.lock().unwrap();
        assert!(!known.contains_key(&offer) && known.contains_key(&other));
    }

    #[test]
    fn the_lines_of_one_machine_come_by_who_has_waited_longest() {
        let lines = Lines::default();
        for (offer, second, job) in [
            ("local/-/-/on_demand/h100x1", 3, "job-3"),
            ("local/-/-/on_demand/h100x2", 1, "job-1"),
            ("other/-/-/on_demand/h100x2", 0, "job-0"),
            ("local/-/-/on_demand/h100x4", 2, "job-2"),
        ] {
            lines.of(&offer.parse().unwrap()).waiting().insert(place(second, job, 0));
        }
        lines.of(&"local/-/-/on_demand/h100x8".parse().unwrap());
        let before = lines.before(&ProviderId::new("local").unwrap());
        let firsts: Vec<String> =
            before.iter().map(|line| line.first().unwrap().to_string()).collect();
        assert_eq!(firsts, ["job-1.0", "job-2.0", "job-3.0"]);
    }
}
