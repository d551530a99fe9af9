//! A scripted agent: it keeps its journal and its log through crashes of the broker and its own,
//! and talks to whichever broker process there is now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use runwhere_agent::protocol::{
    AgentState, Desired, Digest, Event, EventKind, EventsRequest, ExitReason, LogFrame, LogStream,
    PROTOCOL_VERSION, PollRequest, RedeemRequest,
};
use runwhere_broker::api::agent::{AgentCaller, AgentRefusal, AgentService};
use runwhere_broker::logs::{LogError, Logs};
use runwhere_broker::store::Store;
use runwhere_engine::Lease;
use runwhere_model::{LeaseId, NodeId};
use runwhere_providers::Clock;

use crate::plan::PlannedJob;

/// What a broker process offers to agents.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) service: Arc<dyn AgentService>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) logs: Option<Logs>,
}

/// What is on the node's disk.
#[derive(Debug)]
pub(crate) struct Journal {
    node: NodeId,
    lease: Lease,
    token: String,
    key: [u8; 32],
    epoch: u64,
    job: PlannedJob,
    /// How long the program runs.
    runs: Duration,
    events: Vec<Event>,
    acked: u64,
    frames: Vec<LogFrame>,
    durable: u64,
    log_next: Option<Timestamp>,
    stage: Stage,
    next_at: Option<Timestamp>,
    seen: Option<Desired>,
    reason: ExitReason,
    ended: bool,
    joined: bool,
    taken_back: Option<(u64, u64)>,
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
    pub(crate) fn new(
        node: &NodeId,
        (lease, token): (Lease, String),
        (mut job, index): (PlannedJob, u32),
        now: Timestamp,
    ) -> Self {
        job.exit_code = job.exit_code_of(index);
        let key = *Digest::of(node.as_str().as_bytes()).as_bytes();
        Self(Arc::new(Mutex::new(Journal {
            node: node.clone(),
            lease,
            token,
            key,
            epoch: 0,
            runs: job.runs + Duration::from_secs(7 * u64::from(index)),
            job,
            events: Vec::new(),
            acked: 0,
            frames: Vec::new(),
            durable: 0,
            log_next: None,
            stage: Stage::Off,
            next_at: Some(after(now, 3)),
            seen: None,
            reason: ExitReason::Stopped,
            ended: false,
            joined: false,
            taken_back: None,
        })))
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease it holds, and how many bytes of output it sent in how many frames.
    pub(crate) fn log(&self) -> (LeaseId, u64, u64) {
        let journal = self.journal();
        let last = journal.frames.last();
        let bytes = last.map_or(0, |frame| frame.offset + frame.bytes.len() as u64);
        (journal.lease.id.clone(), last.map_or(0, |frame| frame.seq), bytes)
    }

    /// Another one with the same token, as on a copied disk, asks for the session.
    pub(crate) async fn twin_joins(&self, door: &Door) -> Result<(), AgentRefusal> {
        let mut redeem = self.journal().redeem();
        redeem.session_key_sha256 = Digest::of(b"another key");
        door.service.redeem(redeem).await.map(|_| ())
    }

    /// Whether it holds a session already.
    pub(crate) fn has_joined(&self) -> bool {
        self.journal().joined
    }

    /// What was durable in the broker's words and is not any more.
    pub(crate) fn taken_back(&self) -> Option<(u64, u64)> {
        self.journal().taken_back
    }

    /// It was killed, and with it the program; it starts again and looks into its journal.
    pub(crate) fn restart(&self, now: Timestamp) {
        let mut journal = self.journal();
        journal.seen = None;
        journal.say(now, EventKind::Booted { agent_version: "0".into(), boot_id: "b".into() });
        if journal.stage == Stage::Running {
            journal.say(now, EventKind::Lost { reason: "the program is gone".into() });
            journal.seal(now);
            journal.stage = Stage::Exited;
            journal.next_at = None;
        }
    }

    /// Serves until it is released or fenced; dropped when the node or the broker is gone.
    pub(crate) async fn serve(self, door: Door, clock: Arc<dyn Clock>) {
        const AGAIN: Duration = Duration::from_secs(2);
        let mut joined = false;
        while !self.journal().ended {
            let answer = self.round(&door, clock.now(), &mut joined).await;
            match answer {
                Ok(()) => {}
                Err(
                    AgentRefusal::NotYet(_) | AgentRefusal::StorageFull | AgentRefusal::Internal(_),
                ) => {
                    clock.sleep(AGAIN).await;
                }
                // Fenced: the agent ends itself.
                Err(_) => self.journal().ended = true,
            }
        }
    }

    async fn round(
        &self,
        door: &Door,
        now: Timestamp,
        joined: &mut bool,
    ) -> Result<(), AgentRefusal> {
        let redeem = {
            let mut journal = self.journal();
            journal.go_on(now);
            journal.redeem()
        };
        if !*joined {
            let reply = door.service.redeem(redeem).await?;
            *joined = true;
            let mut journal = self.journal();
            (journal.joined, journal.epoch) = (true, reply.epoch);
        }
        let caller = self.caller(door, 0).await?;
        // The end of the log is told after the log.
        self.send_log(door, &caller).await?;
        let events = self.journal().unsent();
        if !events.is_empty() {
            let reply = door.service.events(&caller, EventsRequest { events }).await?;
            self.journal().acked = reply.acked_seq;
        }
        let poll = self.journal().poll(now);
        let reply = door.service.poll(&caller, poll).await?;
        let mut journal = self.journal();
        if reply.desired == Desired::Stop && reply.reason.as_deref() == Some("timeout") {
            journal.reason = ExitReason::Timeout;
        }
        journal.seen = Some(reply.desired);
        journal.ended |= reply.desired == Desired::Release;
        Ok(())
    }

    /// As the routes do it: its session key and its epoch are looked at.
    async fn caller(&self, door: &Door, behind: u64) -> Result<AgentCaller, AgentRefusal> {
        let (lease, key, epoch) = {
            let journal = self.journal();
            (journal.lease.id.clone(), journal.key, journal.epoch)
        };
        let epoch = epoch.wrapping_sub(behind);
        AgentCaller::authenticate(door.store.as_ref(), &lease, &key, Some(epoch)).await
    }

    /// The same session, as an earlier epoch knew it, goes on.
    pub(crate) async fn stale_goes_on(&self, door: &Door) -> Result<(), AgentRefusal> {
        self.caller(door, 1).await.map(|_| ())
    }

    /// As the route does it: the session first, then the log.
    async fn send_log(&self, door: &Door, caller: &AgentCaller) -> Result<(), AgentRefusal> {
        let Some(logs) = &door.logs else { return Ok(()) };
        let frames = self.journal().unsent_frames();
        if frames.is_empty() {
            return Ok(());
        }
        let lease = door.store.lease(&caller.lease).await?;
        if lease.is_none_or(|lease| lease.state.is_terminal()) {
            return Err(AgentRefusal::Gone);
        }
        match logs.append(&caller.trial, &caller.lease, frames).await {
            Ok(durable) | Err(LogError::Gap { durable_seq: durable }) => {
                let mut journal = self.journal();
                if durable < journal.durable {
                    journal.taken_back = Some((journal.durable, durable));
                }
                journal.durable = durable;
                Ok(())
            }
            Err(LogError::Sealed) => Ok(()),
            Err(error) => Err(AgentRefusal::Internal(error.to_string())),
        }
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
            node_id: Some(self.node.to_string()),
        }
    }

    fn unsent(&self) -> Vec<Event> {
        self.events.iter().filter(|event| event.seq > self.acked).cloned().collect()
    }

    /// Some that were sent before are sent again: only what is said to be durable is forgotten.
    fn unsent_frames(&self) -> Vec<LogFrame> {
        self.frames.iter().filter(|frame| frame.seq > self.durable).cloned().collect()
    }

    fn poll(&self, now: Timestamp) -> PollRequest {
        let next = self.next_at.into_iter().chain(self.log_next).min();
        let left = next.map_or(20_000, |at| {
            u64::try_from(at.as_millisecond() - now.as_millisecond()).unwrap_or(0)
        });
        PollRequest {
            state: AgentState::Running,
            last_event_seq: u64::try_from(self.events.len()).unwrap_or(0),
            last_log_seq: self.frames.len() as u64,
            wait_ms: left.clamp(1, 20_000),
            seen: self.seen,
        }
    }

    fn say(&mut self, at: Timestamp, kind: EventKind) {
        let seq = u64::try_from(self.events.len()).unwrap_or(0) + 1;
        self.events.push(Event { seq, at, kind });
    }

    fn print(&mut self, at: Timestamp) {
        let seq = self.frames.len() as u64 + 1;
        let offset = self.frames.last().map_or(0, |last| last.offset + last.bytes.len() as u64);
        let bytes = format!("line {seq} of {}\n", self.lease.id).into_bytes().into();
        let time_us = at.as_microsecond();
        self.frames.push(LogFrame { seq, stream: LogStream::Stdout, time_us, offset, bytes });
    }

    /// Takes the stages whose time has come.
    fn go_on(&mut self, now: Timestamp) {
        while let Some(at) = self.log_next.filter(|at| *at <= now) {
            self.print(at);
            self.log_next = Some(after(at, self.job.log_every));
        }
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
                // No user code before the broker knows that the node was ready.
                Stage::Ready if self.acked < self.events.len() as u64 => {
                    self.next_at = Some(after(now, 1));
                }
                Stage::Ready => {
                    self.say(at, EventKind::Started { pid: 1 });
                    self.print(at);
                    self.log_next = Some(after(at, self.job.log_every));
                    self.stage = Stage::Running;
                    self.next_at = at.checked_add(self.runs).ok();
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
        self.seal(at);
        self.say(at, EventKind::Collecting);
        self.to(Stage::Exited, at, 5);
    }

    fn seal(&mut self, at: Timestamp) {
        self.log_next = None;
        let frames = self.frames.len() as u64;
        let bytes = self.frames.iter().map(|frame| frame.bytes.len() as u64).sum();
        let seal =
            EventKind::LogSealed { frames, bytes, dropped_bytes: 0, sha256_per_stream: vec![] };
        self.say(at, seal);
    }

    fn to(&mut self, stage: Stage, at: Timestamp, seconds: u64) {
        self.stage = stage;
        self.next_at = Some(after(at, seconds));
    }
}

fn after(at: Timestamp, seconds: u64) -> Timestamp {
    at.checked_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
