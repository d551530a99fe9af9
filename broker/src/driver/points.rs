//! Points of the driver at which tests end the process.

use runwhere_engine::{Call, LeaseState, TrialState, Unit};
use runwhere_failpoint::failpoint;

/// A step is committed: one point for all, and one for each state that was entered.
pub(super) fn entered(before: &Unit, after: &Unit, changed: bool) {
    if !changed {
        return;
    }
    failpoint!("driver.step.committed");
    if before.trial.state != after.trial.state {
        match after.trial.state {
            TrialState::Queued => failpoint!("state.trial.queued"),
            TrialState::Provisioning => failpoint!("state.trial.provisioning"),
            TrialState::Preparing => failpoint!("state.trial.preparing"),
            TrialState::Running => failpoint!("state.trial.running"),
            TrialState::Collecting => failpoint!("state.trial.collecting"),
            TrialState::Succeeded => failpoint!("state.trial.succeeded"),
            TrialState::Failed => failpoint!("state.trial.failed"),
            TrialState::Lost => failpoint!("state.trial.lost"),
            TrialState::TimedOut => failpoint!("state.trial.timed_out"),
            TrialState::Cancelled => failpoint!("state.trial.cancelled"),
        }
    }
    let of = |unit: &Unit| unit.lease.as_ref().map(|lease| (lease.id.clone(), lease.state));
    if let Some((_, state)) = of(after).filter(|lease| of(before).as_ref() != Some(lease)) {
        match state {
            // A lease is intended and launching with one commit: nothing lies between.
            LeaseState::Intended => {}
            LeaseState::Launching => failpoint!("state.lease.launching"),
            LeaseState::Unknown => failpoint!("state.lease.unknown"),
            LeaseState::Booting => failpoint!("state.lease.booting"),
            LeaseState::Ready => failpoint!("state.lease.ready"),
            LeaseState::Releasing => failpoint!("state.lease.releasing"),
            LeaseState::Released => failpoint!("state.lease.released"),
            LeaseState::Void => failpoint!("state.lease.void"),
        }
    }
}

/// A call is about to be made.
pub(super) fn calling(call: &Call) {
    match call {
        Call::Launch(_) => failpoint!("driver.launch.before"),
        Call::Find(_) => failpoint!("driver.find.before"),
        Call::Describe(_) => failpoint!("driver.describe.before"),
        Call::Terminate(_) => failpoint!("driver.terminate.before"),
    }
}

/// A call was answered; nothing of the answer is stored yet.
pub(super) fn called(call: &Call) {
    match call {
        Call::Launch(_) => failpoint!("driver.launch.after"),
        Call::Find(_) => failpoint!("driver.find.after"),
        Call::Describe(_) => failpoint!("driver.describe.after"),
        Call::Terminate(_) => failpoint!("driver.terminate.after"),
    }
}
