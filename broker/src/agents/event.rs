//! From the agent's words to the engine's.

use runwhere_agent::protocol::{EventKind, ExitReason};
use runwhere_engine::{AgentEvent, Exit, ExitCause, LogSeal, Output};

/// What an event means for the engine.
pub(super) fn engine_event(kind: &EventKind) -> AgentEvent {
    match kind {
        EventKind::Booted { .. } => AgentEvent::Booted,
        EventKind::GpusReady { .. } => AgentEvent::GpusReady,
        EventKind::Preparing => AgentEvent::Preparing,
        EventKind::Started { .. } => AgentEvent::Started,
        EventKind::Exited { code, signal, reason, detail } => {
            let cause = match reason {
                None => ExitCause::Program,
                Some(ExitReason::Stopped) => ExitCause::Stop,
                Some(ExitReason::Timeout) => ExitCause::TimeOut,
                Some(ExitReason::SpawnFailed) => ExitCause::SpawnFailed,
                Some(ExitReason::Limit) => ExitCause::Limit,
                Some(ExitReason::BrokerSilent) => ExitCause::BrokerSilent,
            };
            let exit = Exit { code: *code, signal: *signal, cause };
            match (cause, detail) {
                (ExitCause::SpawnFailed, Some(detail)) => {
                    AgentEvent::NotStarted { exit, detail: detail.chars().take(500).collect() }
                }
                (ExitCause::Limit, Some(detail)) => {
                    AgentEvent::OverLimit { exit, detail: detail.chars().take(500).collect() }
                }
                _ => AgentEvent::Exited(exit),
            }
        }
        EventKind::LogSealed { frames, bytes, dropped_bytes, .. } => {
            AgentEvent::LogSealed(LogSeal {
                frames: *frames,
                bytes: *bytes,
                dropped_bytes: *dropped_bytes,
            })
        }
        EventKind::Collecting | EventKind::Unknown => AgentEvent::Other,
        EventKind::Output { path, sha256, size, checkpoint } => AgentEvent::Output(Output {
            path: path.clone(),
            sha256: sha256.to_string(),
            size: *size,
            checkpoint: *checkpoint,
        }),
        EventKind::Collected { files, bytes, failed, .. } => {
            AgentEvent::Collected { files: *files, bytes: *bytes, failed: failed.clone() }
        }
        EventKind::Failed { stage, reason } => {
            AgentEvent::Failed { stage: stage.clone(), reason: reason.clone() }
        }
        EventKind::Lost { reason } => AgentEvent::Lost { reason: reason.clone() },
        EventKind::ReclaimNotice { reclaim_at } => AgentEvent::ReclaimNotice { at: *reclaim_at },
        EventKind::Done => AgentEvent::Done,
    }
}
