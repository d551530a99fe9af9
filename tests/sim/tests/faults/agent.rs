//! A node's agent as its broker sees it: the test says what it reports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use runwhere_agent::protocol::{
    AgentState, Desired, Digest, Event, EventKind, EventsRequest, ExitReason, PROTOCOL_VERSION,
    PollReply, PollRequest, RedeemRequest,
};
use runwhere_broker::api::agent::{AgentCaller, AgentRefusal, AgentService};
use runwhere_model::NodeId;

#[derive(Clone, Debug)]
pub(crate) struct Agent(Arc<Mutex<Story>>);

#[derive(Debug)]
struct Story {
    node: NodeId,
    caller: AgentCaller,
    token: String,
    key: String,
    events: Vec<Event>,
    acked: u64,
    seen: Option<Desired>,
    reason: Option<String>,
    names_node: bool,
    protocol: u32,
}

impl Agent {
    /// An agent of a node with a session key of its own.
    pub(crate) fn new(node: NodeId, caller: AgentCaller, token: String, key: &str) -> Self {
        Self(Arc::new(Mutex::new(Story {
            node,
            caller,
            token,
            key: key.to_owned(),
            events: Vec::new(),
            acked: 0,
            seen: None,
            reason: None,
            names_node: true,
            protocol: PROTOCOL_VERSION,
        })))
    }

    /// The same where the node does not know how its provider calls it.
    pub(crate) fn nameless(self) -> Self {
        self.story().names_node = false;
        self
    }

    /// The same, speaking another version of the protocol.
    pub(crate) fn speaking(self, protocol: u32) -> Self {
        self.story().protocol = protocol;
        self
    }

    fn story(&self) -> MutexGuard<'_, Story> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node(&self) -> NodeId {
        self.story().node.clone()
    }

    /// What it was told last.
    pub(crate) fn order(&self) -> (Option<Desired>, Option<String>) {
        let story = self.story();
        (story.seen, story.reason.clone())
    }

    /// Puts an event into its journal.
    pub(crate) fn note(&self, at: Timestamp, kind: EventKind) {
        let mut story = self.story();
        let seq = u64::try_from(story.events.len()).expect("a short story") + 1;
        story.events.push(Event { seq, at, kind });
    }

    pub(crate) async fn join(&self, service: &dyn AgentService) -> Result<(), AgentRefusal> {
        let request = {
            let story = self.story();
            RedeemRequest {
                protocol: story.protocol,
                lease_id: story.caller.lease.to_string(),
                lease_token: story.token.clone(),
                session_key_sha256: Digest::of(story.key.as_bytes()),
                agent_version: "0".into(),
                node_id: story.names_node.then(|| story.node.to_string()),
            }
        };
        service.redeem(request).await.map(|_| ())
    }

    /// Sends what was not acknowledged.
    pub(crate) async fn send(&self, service: &dyn AgentService) -> Result<(), AgentRefusal> {
        let (caller, events) = {
            let story = self.story();
            let left = story.events.iter().filter(|event| event.seq > story.acked).cloned();
            (story.caller.clone(), left.collect::<Vec<_>>())
        };
        let reply = service.events(&caller, EventsRequest { events }).await?;
        self.story().acked = reply.acked_seq;
        Ok(())
    }

    /// Sends exactly these again.
    pub(crate) async fn replay(
        &self,
        service: &dyn AgentService,
        range: std::ops::Range<usize>,
    ) -> Result<u64, AgentRefusal> {
        let (caller, events) = {
            let story = self.story();
            (story.caller.clone(), story.events[range].to_vec())
        };
        let reply = service.events(&caller, EventsRequest { events }).await?;
        Ok(reply.acked_seq)
    }

    pub(crate) async fn poll(&self, service: &dyn AgentService) -> Result<PollReply, AgentRefusal> {
        let (caller, request) = {
            let story = self.story();
            let request = PollRequest {
                state: AgentState::Running,
                last_event_seq: u64::try_from(story.events.len()).expect("a short story"),
                last_log_seq: 0,
                wait_ms: 20_000,
                seen: story.seen,
            };
            (story.caller.clone(), request)
        };
        let reply = service.poll(&caller, request).await?;
        let mut story = self.story();
        (story.seen, story.reason) = (Some(reply.desired), reply.reason.clone());
        Ok(reply)
    }

    /// Stays connected, and sends what it has, until it is refused.
    pub(crate) async fn stay(self, service: Arc<dyn AgentService>) {
        while self.send(service.as_ref()).await.is_ok() && self.poll(service.as_ref()).await.is_ok()
        {
        }
    }
}

pub(crate) fn booted() -> EventKind {
    EventKind::Booted { agent_version: "0".into(), boot_id: "boot".into() }
}

pub(crate) fn gpus_ready() -> EventKind {
    EventKind::GpusReady { gpus: Vec::new(), pretended: false }
}

pub(crate) fn started() -> EventKind {
    EventKind::Started { pid: 1 }
}

pub(crate) fn exited(code: i32) -> EventKind {
    EventKind::Exited { code: Some(code), signal: None, reason: None, detail: None }
}

pub(crate) fn killed(signal: i32, reason: Option<ExitReason>) -> EventKind {
    EventKind::Exited { code: None, signal: Some(signal), reason, detail: None }
}

/// The end of a story, with what the collection brought.
pub(crate) fn ending(failed: Option<&str>) -> [EventKind; 4] {
    [
        EventKind::LogSealed { frames: 0, bytes: 0, dropped_bytes: 0, sha256_per_stream: vec![] },
        EventKind::Collecting,
        EventKind::Collected {
            files: 0,
            bytes: 0,
            skipped: vec![],
            failed: failed.map(str::to_owned),
        },
        EventKind::Done,
    ]
}
