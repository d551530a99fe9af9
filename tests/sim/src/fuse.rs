//! Crash points: every provider call and every commit is an effect with a number, and a process
//! can be made to end before one, or after it before anybody heard of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// A point at which a process ends.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct CrashPoint {
    /// The number of the effect.
    pub(crate) effect: u64,
    pub(crate) moment: Moment,
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
}

#[derive(Debug, Default)]
struct State {
    blown: bool,
    /// The process ends at its next commit.
    unwritten: bool,
}

/// An effect that is about to happen.
#[derive(Debug)]
pub(crate) struct Effect<'a> {
    fuse: &'a Fuse,
    number: u64,
}

impl Fuse {
    pub(crate) fn new(effects: Arc<Effects>) -> Self {
        Self { effects, state: Arc::default() }
    }

    /// The process has ended: whatever it still does must not be seen.
    pub(crate) fn is_blown(&self) -> bool {
        self.state().blown
    }

    /// Never returns to a process that has ended.
    pub(crate) async fn alive(&self) {
        if self.is_blown() {
            std::future::pending::<()>().await;
        }
    }

    /// Numbers a provider call.
    pub(crate) async fn call(&self) -> Effect<'_> {
        self.alive().await;
        self.effect().await
    }

    /// Numbers a commit.
    pub(crate) async fn commit(&self) -> Effect<'_> {
        self.alive().await;
        if self.state().unwritten {
            self.blow().await;
        }
        self.effect().await
    }

    async fn effect(&self) -> Effect<'_> {
        let number = {
            let mut counted = self.effects.lock();
            counted.number += 1;
            counted.number - 1
        };
        let effect = Effect { fuse: self, number };
        if effect.ends(Moment::Before) {
            self.blow().await;
        }
        effect
    }

    async fn blow(&self) {
        self.state().blown = true;
        std::future::pending::<()>().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Effect<'_> {
    /// The effect has happened, its answer is on its way.
    pub(crate) async fn done(self) {
        self.fuse.alive().await;
        if self.ends(Moment::Unsaid) {
            self.fuse.blow().await;
        }
        if self.ends(Moment::Unwritten) {
            self.fuse.state().unwritten = true;
        }
    }

    /// Each point ends one process only.
    fn ends(&self, moment: Moment) -> bool {
        let point = CrashPoint { effect: self.number, moment };
        self.fuse.effects.lock().points.remove(&point)
    }
}
