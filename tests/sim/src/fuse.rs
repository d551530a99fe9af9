//! Points at which something becomes of a process: every provider call and every commit is an
//! effect with a number, and a process can be made to end, or to sleep, before one, or after it
//! before anybody heard of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Which side of an effect.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Moment {
    /// The effect does not happen.
    Before,
    /// It happens, and nobody hears of it.
    Unsaid,
    /// The answer arrives, and the process ends before it writes anything.
    Unwritten,
}

impl Moment {
    pub(crate) const ALL: [Self; 3] = [Self::Before, Self::Unsaid, Self::Unwritten];
}

/// A point at which a process ends, or sleeps.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct CrashPoint {
    /// The number of the effect.
    pub(crate) effect: u64,
    pub(crate) moment: Moment,
    /// It does not end, but does nothing for so long, and then goes on as if nothing had been: a
    /// machine that was paused.
    pub(crate) sleeps: Option<Duration>,
}

/// The effects of all processes of a run, counted together.
#[derive(Debug)]
pub(crate) struct Effects {
    counted: Mutex<Counted>,
}

#[derive(Debug)]
struct Counted {
    number: u64,
    points: BTreeSet<CrashPoint>,
}

impl Effects {
    pub(crate) fn new(points: impl IntoIterator<Item = CrashPoint>) -> Arc<Self> {
        let counted = Counted { number: 0, points: points.into_iter().collect() };
        Arc::new(Self { counted: Mutex::new(counted) })
    }

    pub(crate) fn number(&self) -> u64 {
        self.lock().number
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One process's part in it.
#[derive(Clone, Debug)]
pub(crate) struct Fuse {
    effects: Arc<Effects>,
    state: Arc<Mutex<State>>,
    woken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    blown: bool,
    /// What becomes of the process at its next commit.
    unwritten: Option<CrashPoint>,
    asleep: bool,
    /// It has just fallen asleep, for so long.
    falls_asleep: Option<Duration>,
}

/// An effect that is about to happen.
#[derive(Debug)]
pub(crate) struct Effect<'a> {
    fuse: &'a Fuse,
    number: u64,
}

impl Fuse {
    pub(crate) fn new(effects: Arc<Effects>) -> Self {
        Self { effects, state: Arc::default(), woken: Arc::default() }
    }

    /// The process has ended: whatever it still does must not be seen.
    pub(crate) fn is_blown(&self) -> bool {
        self.state().blown
    }

    /// It does nothing now, and will go on.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state().asleep
    }

    /// For how long it sleeps, once after it fell asleep.
    pub(crate) fn falls_asleep(&self) -> Option<Duration> {
        self.state().falls_asleep.take()
    }

    /// Lets it go on.
    pub(crate) fn wake(&self) {
        self.state().asleep = false;
        self.woken.notify_waiters();
    }

    /// Never returns to a process that has ended, and late to one that sleeps.
    pub(crate) async fn alive(&self) {
        loop {
            let woken = self.woken.notified();
            if self.is_blown() {
                std::future::pending::<()>().await;
            }
            if !self.is_asleep() {
                return;
            }
            woken.await;
        }
    }

    /// Numbers a provider call.
    pub(crate) async fn call(&self) -> Effect<'_> {
        self.alive().await;
        self.effect(true).await
    }

    /// The same for a launch. Nobody can take back what is on its way: a process that sleeps between
    /// its last look at its rows and the first byte is beyond what a broker can guard against.
    pub(crate) async fn launch(&self) -> Effect<'_> {
        self.alive().await;
        self.effect(false).await
    }

    /// Numbers a commit.
    pub(crate) async fn commit(&self) -> Effect<'_> {
        self.alive().await;
        let unwritten = self.state().unwritten.take();
        if let Some(point) = unwritten {
            self.meet(point).await;
        }
        self.effect(true).await
    }

    async fn effect(&self, may_sleep: bool) -> Effect<'_> {
        let number = {
            let mut counted = self.effects.lock();
            counted.number += 1;
            counted.number - 1
        };
        let effect = Effect { fuse: self, number };
        if let Some(point) = effect.point(Moment::Before)
            && (may_sleep || point.sleeps.is_none())
        {
            self.meet(point).await;
        }
        effect
    }

    async fn meet(&self, point: CrashPoint) {
        {
            let mut state = self.state();
            match point.sleeps {
                None => state.blown = true,
                Some(span) => (state.asleep, state.falls_asleep) = (true, Some(span)),
            }
        }
        self.alive().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Effect<'_> {
    /// The effect has happened, its answer is on its way.
    pub(crate) async fn done(self) {
        self.fuse.alive().await;
        if let Some(point) = self.point(Moment::Unsaid) {
            self.fuse.meet(point).await;
        }
        if let Some(point) = self.point(Moment::Unwritten) {
            self.fuse.state().unwritten = Some(point);
        }
    }

    /// Each point meets one process only.
    fn point(&self, moment: Moment) -> Option<CrashPoint> {
        let mut counted = self.fuse.effects.lock();
        let here = |point: &&CrashPoint| point.effect == self.number && point.moment == moment;
        let point = counted.points.iter().find(here).copied()?;
        counted.points.take(&point)
    }
}
