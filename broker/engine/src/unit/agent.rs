//! What the agent reports and is told.

use jiff::Timestamp;
use runwhere_model::{Bootstrapping, LeaseId};
use serde_json::json;

use super::{StepError, Work};
use crate::job::EndReason;
use crate::lease::LeaseState;
use crate::trial::{Desired, Exit, ExitCause, LogSeal, Output, OutputState, TrialState};

/// What the agent is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AgentOrder {
    /// Go on.
    Run,
    /// End the work because a user said so, seal, collect, report.
    Stop,
    /// The same because time is up.
    TimeOut,
    /// The same because the provider takes the node back.
    Reclaim,
    /// End yourself.
    Release,
}

/// An event of the agent, as far as it matters here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AgentEvent {
    /// The agent runs.
    Booted,
    /// The GPUs were checked and can be used.
    GpusReady,
    /// The work folder is being made.
    Preparing,
    /// User code was started.
    Started,
    /// User code ended.
    Exited(Exit),
    /// The system could not start the program; its exit is the agent's helper's.
    NotStarted {
        /// What stands for the program's end.
        exit: Exit,
        /// What the system said.
        detail: String,
    },
    /// User code was ended since it used more than its limits allow.
    OverLimit {
        /// Its end.
        exit: Exit,
        /// Which limit.
        detail: String,
    },
    /// The log is complete.
    LogSealed(LogSeal),
    /// A file was stored and read back.
    Output(Output),
    /// Collection is over.
    Collected {
        /// How many files.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Why it is not complete, if it is not.
        failed: Option<String>,
    },
    /// It failed before user code was started.
    Failed {
        /// What was being done.
        stage: String,
        /// What went wrong.
        reason: String,
    },
    /// User code had been started and is gone.
    Lost {
        /// What was seen.
        reason: String,
    },
    /// The node was told that its provider takes it back.
    ReclaimNotice {
        /// When.
        at: Timestamp,
    },
    /// Everything is delivered.
    Done,
    /// Something this version does not know; recorded only.
    Other,
}

impl Work<'_> {
    pub(crate) fn agent_event(
        &mut self,
        lease: &LeaseId,
        seq: u64,
        event: &AgentEvent,
    ) -> Result<(), StepError> {
        // A trial that has gone on to another lease fences the agent of the earlier one.
        if self.lease.as_ref().is_none_or(|own| own.id != *lease || own.state.is_terminal()) {
            return Err(StepError::Fenced);
        }
        let applied = self.trial.agent_seq;
        if seq <= applied {
            return Ok(());
        }
        if seq != applied + 1 {
            return Err(StepError::Gap { wanted: applied + 1, got: seq });
        }
        if self.is_given_up() {
            return self.agent_of_given_up(event);
        }
        self.trial.agent_seq = seq;
        // Who speaks is there: reads that missed its node before were wrong.
        if let Some(lease) = &mut self.lease {
            lease.absent_reads.clear();
        }
        if let AgentEvent::LogSealed(seal) = event {
            self.trial.log.get_or_insert_with(|| seal.clone());
        }
        if let AgentEvent::Output(output) = event {
            self.outputs.push(output.clone());
        }
        if self.trial.state.is_terminal() {
            return Ok(());
        }
        match event {
            AgentEvent::Booted | AgentEvent::Preparing | AgentEvent::Other => Ok(()),
            AgentEvent::GpusReady => {
                self.node_ready();
                if self.trial.state == TrialState::Provisioning {
                    self.enter(TrialState::Preparing);
                }
                Ok(())
            }
            AgentEvent::Started => {
                self.node_ready();
                if matches!(self.trial.state, TrialState::Provisioning | TrialState::Preparing) {
                    self.trial.started_at.get_or_insert(self.context.now);
                    self.enter(TrialState::Running);
                }
                Ok(())
            }
            // Stopped before it was started, for the node's sake: another node can have it.
            AgentEvent::Exited(exit) if self.is_unstarted(exit) => {
                self.replace_node("the provider takes the node back")?;
                self.release()
            }
            AgentEvent::Exited(exit) => {
                self.exited(*exit);
                Ok(())
            }
            AgentEvent::ReclaimNotice { at } => {
                self.reclaim_noticed(*at);
                Ok(())
            }
            AgentEvent::NotStarted { exit, detail } | AgentEvent::OverLimit { exit, detail } => {
                self.trial.start_failure.get_or_insert_with(|| detail.clone());
                self.exited(*exit);
                Ok(())
            }
            AgentEvent::LogSealed(_) | AgentEvent::Output(_) => Ok(()),
            AgentEvent::Collected { files, bytes, failed } => {
                self.trial.outputs = match failed {
                    Some(reason) => OutputState::Failed { reason: reason.clone() },
                    None if *files == 0 => OutputState::None,
                    None => OutputState::Uploaded { files: *files, bytes: *bytes },
                };
                Ok(())
            }
            AgentEvent::Failed { stage, reason } => {
                if self.is_bad_node(stage) {
                    self.replace_node(&format!("{stage}: {reason}"))?;
                    return self.release();
                }
                let end = match stage.as_str() {
                    "spawn" => EndReason::StartFailed { detail: reason.clone() },
                    // Nothing is wrong with the work folder: the machine lacks what was asked for.
                    "gpu" => EndReason::NodeFailed { detail: reason.clone() },
                    _ => EndReason::PrepareFailed { detail: format!("{stage}: {reason}") },
                };
                // After user code had begun, "failed before it began" cannot be true.
                match (self.trial.started_at, self.trial.desired) {
                    (Some(_), _) => self.end_lost(&format!("{stage}: {reason}")),
                    (None, Desired::Stop | Desired::TimeOut | Desired::Reclaim) => {
                        let end = self.wanted_end();
                        self.end(end)
                    }
                    (None, Desired::Run) => self.end((TrialState::Failed, end)),
                }
            }
            AgentEvent::Lost { reason } => self.end_lost(reason),
            AgentEvent::Done => {
                let end = self.end_by_exit();
                self.end(end)
            }
        }
    }

    /// The node is being ended and the trial waits for another one.
    fn is_given_up(&self) -> bool {
        self.trial.state == TrialState::Provisioning
            && self.lease.as_ref().is_some_and(|l| l.state == LeaseState::Releasing)
    }

    /// No word of its agent is acknowledged: it must not believe that it may start the program. If
    /// it did all the same, another node must not.
    fn agent_of_given_up(&mut self, event: &AgentEvent) -> Result<(), StepError> {
        match event {
            AgentEvent::Started
            | AgentEvent::Exited(Exit { code: Some(_), .. } | Exit { signal: Some(_), .. }) => {
                self.trial.started_at.get_or_insert(self.context.now);
                self.end_lost("the program was started on a node that had been given up")
            }
            _ => Err(StepError::Fenced),
        }
    }

    fn is_unstarted(&self, exit: &Exit) -> bool {
        self.trial.desired == Desired::Reclaim
            && self.trial.started_at.is_none()
            && (exit.cause, exit.code, exit.signal) == (ExitCause::Stop, None, None)
    }

    /// The agent found the machine unusable. Another one can be better, unless there is only one.
    fn is_bad_node(&self, stage: &str) -> bool {
        let direct =
            |lease: &crate::lease::Lease| lease.capabilities.bootstrapping == Bootstrapping::Direct;
        stage == "gpu"
            && self.trial.started_at.is_none()
            && self.trial.desired == Desired::Run
            && self.lease.as_ref().is_some_and(|lease| !direct(lease))
    }

    /// How the trial ends when its node or agent is lost.
    pub(super) fn lost_end(&self, detail: &str) -> super::EndOf {
        match (self.trial.exit, self.trial.desired, self.trial.started_at) {
            (Some(_), _, _) => self.end_by_exit(),
            (None, Desired::Stop | Desired::TimeOut, _) => self.wanted_end(),
            (None, Desired::Run | Desired::Reclaim, _) if self.was_reclaimed() => {
                self.reclaimed_end(detail)
            }
            (None, Desired::Run | Desired::Reclaim, Some(_)) => {
                (TrialState::Lost, EndReason::Lost { detail: detail.to_owned() })
            }
            (None, Desired::Run | Desired::Reclaim, None) => {
                (TrialState::Failed, EndReason::NodeFailed { detail: detail.to_owned() })
            }
        }
    }

    /// How the trial ends by what is known of the program's own end.
    pub(super) fn end_by_exit(&self) -> super::EndOf {
        let Some(exit) = self.trial.exit else {
            return match self.trial.desired {
                Desired::Stop | Desired::TimeOut | Desired::Reclaim => self.wanted_end(),
                Desired::Run => (
                    TrialState::Failed,
                    EndReason::PrepareFailed { detail: "nothing was run".into() },
                ),
            };
        };
        match exit.cause {
            ExitCause::Program => self.natural_end(),
            ExitCause::Stop => self.wanted_end(),
            ExitCause::TimeOut => (TrialState::TimedOut, EndReason::MaxDurationExceeded),
            ExitCause::SpawnFailed => {
                let detail = self.trial.start_failure.clone();
                let detail = detail.unwrap_or_else(|| "the system did not say why".into());
                (TrialState::Failed, EndReason::StartFailed { detail })
            }
            ExitCause::Limit => {
                let detail = self.trial.start_failure.clone();
                let detail = detail.unwrap_or_else(|| "the node did not say which".into());
                (TrialState::Failed, EndReason::LimitExceeded { detail })
            }
            ExitCause::BrokerSilent => (
                TrialState::Lost,
                EndReason::Lost { detail: "the broker was silent too long".into() },
            ),
        }
    }

    fn exited(&mut self, exit: Exit) {
        self.node_ready();
        let exit = *self.trial.exit.get_or_insert(exit);
        self.record(
            "trial.exited",
            json!({ "code": exit.code, "signal": exit.signal, "cause": exit.cause }),
        );
        if self.trial.state != TrialState::Collecting {
            self.enter(TrialState::Collecting);
        }
    }

    /// The agent has reported: from a node that is known, it is ready.
    pub(super) fn node_ready(&mut self) {
        let now = self.context.now;
        let Some(lease) = &mut self.lease else { return };
        if lease.state == LeaseState::Booting {
            lease.state = LeaseState::Ready;
            lease.since = now;
            lease.release_failures = 0;
            lease.meter.start(None, now);
            lease.next_at = Some(now);
            self.record("lease.ready", json!({}));
        }
    }
}
