//! Signals as events.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Outcome};
use crate::texts;

/// What interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Interrupt {
    /// Ctrl-C, or a request to end: somebody may ask twice.
    Asked,
    /// The terminal is gone: this cannot be a second wish.
    HungUp,
}

/// The signals that end a command.
#[derive(Debug)]
pub(in crate::commands) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    /// Takes the signals over from now on.
    pub(in crate::commands) fn new() -> Outcome<Self> {
        let take =
            |kind| signal(kind).map_err(|error| Failure::other("signals", texts::runtime(error)));
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub(in crate::commands) async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::Asked,
            _ = self.terminate.recv() => Interrupt::Asked,
            _ = self.hang_up.recv() => Interrupt::HungUp,
        }
    }
}
