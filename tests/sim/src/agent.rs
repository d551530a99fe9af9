//! A scripted agent: it keeps its journal through crashes of the broker, and talks to whichever
//! broker there is now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_agent::protocol::{
    AgentState, Desired, Digest, Event, EventKind, EventsRequest, ExitReason, PROTOCOL_VERSION,
    PollRequest, RedeemRequest,
};
use runwhere_broker::api::agent::{AgentCaller, AgentRefusal, AgentService};
use runwhere_engine::Lease;
use runwhere_providers::Clock;

use crate::plan::PlannedJob;

/// What is on the node's disk.
#[derive(Debug)]
pub(crate) struct Journal {
    lease: Lease,
    token: String,
    key: [u8; 32],
    job: PlannedJob,
    events: Vec<Event>,
    acked: u64,
    stage: Stage,
    next_at: Option<Timestamp>,
    seen: Option<Desired>,
    reason: ExitReason,
    ended: bool,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Stage {
    Off,
    Booted,
    Ready,
    Running,
    Exited,
    Collected,
    Done,
}

#[derive(Clone, Debug)]
pub(crate) struct Agent(Arc<Mutex<Journal>>);

impl Agent {
    pub(crate) fn new(lease: Lease, token: String, job: PlannedJob, now: Timestamp) -> Self {
        let key = *Digest::of(lease.id.as_str().as_bytes()).as_bytes();
        Self(Arc::new(Mutex::new(Journal {
            lease,
            token,
            key,
            job,
            events: Vec::new(),
            acked: 0,
            stage: Stage::Off,
            next_at: Some(after(now, 3)),
            seen: None,
            reason: ExitReason::Stopped,
            ended: false,
        })))
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves until it is released or fenced; dropped when the node or the broker is gone.
    pub(crate) async fn serve(self, service: Arc<dyn AgentService>, clock: Arc<dyn Clock>) {
        const AGAIN: Duration = Duration::from_secs(2);
        while !self.journal().ended {
            let answer = self.round(service.as_ref(), clock.now()).await;
            match answer {
                Ok(()) => {}
                Err(AgentRefusal::StorageFull | AgentRefusal::Internal(_)) => {
                    clock.sleep(AGAIN).await;
                }
                // Fenced: the agent ends itself.
                Err(_) => self.journal().ended = true,
            }
        }
    }

    async fn round(&self, service: &dyn AgentService, now: Timestamp) -> Result<(), AgentRefusal> {
        let (redeem, caller) = {
            let mut journal = self.journal();
            journal.go_on(now);
            (journal.redeem(), journal.caller())
        };
        service.redeem(redeem).await?;
        let events = self.journal().unsent();
        if !events.is_empty() {
            let reply = service.events(&caller, EventsRequest { events }).await?;
            self.journal().acked = reply.acked_seq;
        }
        let poll = self.journal().poll(now);
        let reply = service.poll(&caller, poll).await?;
        let mut journal = self.journal();
        if reply.desired == Desired::Stop && reply.reason.as_deref() == Some("timeout") {
            journal.reason = ExitReason::Timeout;
        }
        journal.seen = Some(reply.desired);
        journal.ended |= reply.desired == Desired::Release;
        Ok(())
    }
}

impl Journal {
    fn redeem(&self) -> RedeemRequest {
        RedeemRequest {
            protocol: PROTOCOL_VERSION,
            lease_id: self.lease.id.to_string(),
            lease_token: self.token.clone(),
            session_key_sha256: Digest::of(&self.key),
            agent_version: "0".into(),
        }
    }

    fn caller(&self) -> AgentCaller {
        AgentCaller {
            lease: self.lease.id.clone(),
            epoch: self.lease.epoch,
            workspace: self.lease.workspace.clone(),
            project: self.lease.project.clone(),
            job: self.lease.job.clone(),
            trial: self.lease.trial.clone(),
        }
    }

    fn unsent(&self) -> Vec<Event> {
        self.events.iter().filter(|event| event.seq > self.acked).cloned().collect()
    }

    fn poll(&self, now: Timestamp) -> PollRequest {
        let left = self.next_at.map_or(20_000, |at| {
            u64::try_from(at.as_millisecond() - now.as_millisecond()).unwrap_or(0)
        });
        PollRequest {
            state: AgentState::Running,
            last_event_seq: u64::try_from(self.events.len()).unwrap_or(0),
            last_log_seq: 0,
            wait_ms: left.clamp(1, 20_000),
            seen: self.seen,
        }
    }

    fn say(&mut self, at: Timestamp, kind: EventKind) {
        let seq = u64::try_from(self.events.len()).unwrap_or(0) + 1;
        self.events.push(Event { seq, at, kind });
    }

    /// Takes the stages whose time has come.
    fn go_on(&mut self, now: Timestamp) {
        let stopped = self.seen == Some(Desired::Stop);
        if stopped && self.stage < Stage::Exited {
            let signal = (self.stage == Stage::Running).then_some(15);
            self.exit(
                now,
                EventKind::Exited { code: None, signal, reason: Some(self.reason), detail: None },
            );
        }
        while let Some(at) = self.next_at.filter(|at| *at <= now) {
            self.next_at = None;
            match self.stage {
                Stage::Off => {
                    self.say(
                        at,
                        EventKind::Booted { agent_version: "0".into(), boot_id: "b".into() },
                    );
                    self.to(Stage::Booted, at, 4);
                }
                Stage::Booted => {
                    self.say(at, EventKind::GpusReady { gpus: vec![], pretended: false });
                    self.say(at, EventKind::Preparing);
                    self.to(Stage::Ready, at, 6);
                }
                Stage::Ready => {
                    self.say(at, EventKind::Started { pid: 1 });
                    self.to(Stage::Running, at, self.job.runs.as_secs());
                }
                Stage::Running => {
                    let code = Some(self.job.exit_code);
                    self.exit(
                        at,
                        EventKind::Exited { code, signal: None, reason: None, detail: None },
                    );
                }
                Stage::Exited => {
                    self.say(
                        at,
                        EventKind::Collected { files: 0, bytes: 0, skipped: vec![], failed: None },
                    );
                    self.to(Stage::Collected, at, 1);
                }
                Stage::Collected => {
                    self.say(at, EventKind::Done);
                    self.stage = Stage::Done;
                }
                Stage::Done => {}
            }
        }
    }

    fn exit(&mut self, at: Timestamp, exited: EventKind) {
        self.say(at, exited);
        self.say(
            at,
            EventKind::LogSealed {
                frames: 0,
                bytes: 0,
                dropped_bytes: 0,
                sha256_per_stream: vec![],
            },
        );
        self.say(at, EventKind::Collecting);
        self.to(Stage::Exited, at, 5);
    }

    fn to(&mut self, stage: Stage, at: Timestamp, seconds: u64) {
        self.stage = stage;
        self.next_at = Some(after(at, seconds));
    }
}

fn after(at: Timestamp, seconds: u64) -> Timestamp {
    at.checked_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
