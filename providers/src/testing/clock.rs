//! Virtual time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::clock::Clock;

/// How often the other tasks get their turn after each step, so that what a woken task starts has
/// begun to wait before time goes on. A chain of more hand-overs than this between two waits needs
/// a smaller step or [`ManualClock::settle`].
const TURNS: usize = 64;

/// A clock that stands still until it is told to go on. For a `current_thread` runtime, whose
/// tasks run in the same order each time.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    now: Timestamp,
    /// Waiting tasks by deadline, then by arrival.
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
    arrivals: u64,
}

impl Default for ManualClock {
    /// Starts at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self::new(Timestamp::from_second(1_767_225_600).expect("a valid constant"))
    }
}

impl ManualClock {
    /// Starts at an instant.
    pub fn new(now: Timestamp) -> Self {
        Self { state: Mutex::new(State { now, sleepers: BTreeMap::new(), arrivals: 0 }) }
    }

    /// Lets `span` pass: sleepers wake one after the other, in the order of their deadlines (equal
    /// ones in the order in which they began to wait), each at its own instant, and what they
    /// start meanwhile takes part.
    pub async fn advance(&self, span: Duration) {
        let target = self.state().now.checked_add(span).unwrap_or(Timestamp::MAX);
        self.settle().await;
        while self.wake_next(target) {
            self.settle().await;
        }
        let mut state = self.state();
        state.now = state.now.max(target);
    }

    /// Jumps to the next deadline, if anybody waits; returns the new time.
    pub async fn advance_to_next(&self) -> Option<Timestamp> {
        self.settle().await;
        self.wake_next(Timestamp::MAX).then(|| self.now())
    }

    /// The earliest instant that somebody waits for.
    pub fn next_deadline(&self) -> Option<Timestamp> {
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

    /// Goes to an instant at once and wakes everyone who waited for one up to it, in the order of
    /// their deadlines. For a caller that runs the woken tasks itself, and goes from deadline to
    /// deadline.
    pub fn go_to(&self, instant: Timestamp) {
        let mut state = self.state();
        state.now = state.now.max(instant);
        while let Some(first) = state.sleepers.first_entry().filter(|e| e.key().0 <= instant) {
            let _ = first.remove().send(());
        }
    }

    /// Gives the other tasks their turns without letting time pass.
    pub async fn settle(&self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    fn wake_next(&self, limit: Timestamp) -> bool {
        if self.next_deadline().is_none_or(|at| at > limit) {
            return false;
        }
        let mut state = self.state();
        let Some(((at, _), sleeper)) = state.sleepers.pop_first() else { return false };
        state.now = state.now.max(at);
        drop(state);
        let _ = sleeper.send(());
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clock for ManualClock {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_order_at_their_own_instants() {
        let clock = Arc::new(ManualClock::default());
        let start = clock.now();
        let log = Arc::new(Mutex::new(Vec::new()));
        for (name, seconds, rounds) in [("slow", 30u64, 2), ("quick", 10, 4), ("twin", 10, 1)] {
            let (clock, log) = (Arc::clone(&clock), Arc::clone(&log));
            tokio::spawn(async move {
                for _ in 0..rounds {
                    clock.sleep(Duration::from_secs(seconds)).await;
                    let at = clock.now().duration_since(start).as_secs();
                    log.lock().unwrap().push((name, at));
                }
            });
        }
        clock.advance(Duration::from_secs(45)).await;
        let seen = log.lock().unwrap().clone();
        // At 30 s both wait: the slow one began to wait earlier.
        let expected = [
            ("quick", 10),
            ("twin", 10),
            ("quick", 20),
            ("slow", 30),
            ("quick", 30),
            ("quick", 40),
        ];
        assert_eq!(seen, expected);
        assert_eq!(clock.now().duration_since(start).as_secs(), 45);
        assert_eq!(
            clock.advance_to_next().await.map(|at| at.duration_since(start).as_secs()),
            Some(60)
        );
        assert_eq!(clock.advance_to_next().await, None);
    }

    #[tokio::test]
    async fn a_cancelled_sleep_is_forgotten() {
        let clock = Arc::new(ManualClock::default());
        let other = Arc::clone(&clock);
        let task = tokio::spawn(async move { other.sleep(Duration::from_secs(5)).await });
        clock.settle().await;
        assert!(clock.next_deadline().is_some());
        task.abort();
        clock.settle().await;
        assert_eq!(clock.next_deadline(), None);
    }
}
