//! Virtual time: it stands still until the simulation moves it to the next instant that somebody
//! waits for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use runwhere_providers::Clock;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct SimClock(Mutex<State>);

#[derive(Debug)]
struct State {
    now: Timestamp,
    /// Waiting tasks by deadline, then by arrival.
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
    arrivals: u64,
}

impl SimClock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self(Mutex::new(State { now, sleepers: BTreeMap::new(), arrivals: 0 }))
    }

    /// The earliest instant that somebody waits for.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let mut state = self.state();
        // Those who stopped waiting must not make time stop at their deadlines.
        while let Some(first) = state.sleepers.first_entry() {
            if !first.get().is_closed() {
                return Some(first.key().0);
            }
            first.remove();
        }
        None
    }

    /// Lets time pass up to an instant and wakes everyone who waited for it, in the order of
    /// their deadlines, equal ones in the order in which they began to wait.
    pub(crate) fn go_to(&self, instant: Timestamp) {
        let mut state = self.state();
        state.now = state.now.max(instant);
        while let Some(first) = state.sleepers.first_entry().filter(|e| e.key().0 <= instant) {
            let _ = first.remove().send(());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.state().now
    }

    async fn sleep_until(&self, deadline: Timestamp) {
        let woken = {
            let mut state = self.state();
            if deadline <= state.now {
                return;
            }
            let (sleeper, woken) = oneshot::channel();
            state.arrivals += 1;
            let arrival = state.arrivals;
            state.sleepers.insert((deadline, arrival), sleeper);
            woken
        };
        // An error means that the clock itself is gone; then nobody waits for time any more.
        let _ = woken.await;
    }
}
