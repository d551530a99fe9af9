//! Background talk with the broker: the poll and the delivery of events.

use std::sync::Arc;
use std::time::Duration;

use runwhere_failpoint::failpoint;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::journal::Journal;
use crate::link::{Link, LinkError, Pause};
use crate::protocol::{
    AgentState, Desired, EventsReply, EventsRequest, MAX_POLL_WAIT_MS, PollReply, PollRequest,
};
use crate::spool::Spool;

const EVENTS_PER_POST: usize = 200;
// A broker that answers at once for ever must not be polled in a hot loop.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// What the broker wants, as far as the agent has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) desired: Desired,
    pub(crate) reason: Option<String>,
}

/// One poll; `seen` is absent for the first of an agent process.
pub(crate) async fn poll(
    link: &Link,
    journal: &Journal,
    last_log_seq: u64,
    state: AgentState,
    seen: Option<Desired>,
) -> Result<PollReply, LinkError> {
    let wait_ms = if seen.is_some() { MAX_POLL_WAIT_MS } else { 0 };
    let request =
        PollRequest { state, last_event_seq: journal.last_seq(), last_log_seq, wait_ms, seen };
    link.post("poll", &request, Duration::from_millis(wait_ms)).await
}

/// Polls until the session ends.
pub(crate) async fn poll_loop(
    link: Arc<Link>,
    journal: Arc<Journal>,
    spool: Arc<Spool>,
    state: watch::Receiver<AgentState>,
    wish: watch::Sender<Wish>,
) {
    let mut pause = Pause::default();
    loop {
        let since = Instant::now();
        let seen = wish.borrow().desired;
        let now = *state.borrow();
        match poll(&link, &journal, spool.last_seq(), now, Some(seen)).await {
            Ok(reply) => {
                pause = Pause::default();
                let changed = wish.send_if_modified(|wish| hear(wish, reply));
                if !changed && since.elapsed() < SHORTEST_POLL {
                    tokio::time::sleep(SHORTEST_POLL).await;
                }
            }
            Err(LinkError::Closed(_)) => return,
            Err(error) => {
                tracing::warn!(%error, "poll failed");
                tokio::time::sleep(pause.next()).await;
            }
        }
    }
}

/// Takes over a reply; what the broker wants only ever goes down the list, so a late reply of an
/// earlier poll cannot undo a stop.
pub(crate) fn hear(wish: &mut Wish, reply: PollReply) -> bool {
    let further = reply.desired > wish.desired;
    if further {
        *wish = Wish { desired: reply.desired, reason: reply.reason };
    }
    further
}

/// Sends events until the session ends; `acked` tells how far the broker has them.
pub(crate) async fn event_loop(link: Arc<Link>, journal: Arc<Journal>, acked: watch::Sender<u64>) {
    let mut last = journal.watch();
    let mut pause = Pause::default();
    loop {
        last.borrow_and_update();
        let events = journal.after(*acked.borrow(), EVENTS_PER_POST);
        if events.is_empty() {
            if last.changed().await.is_err() {
                return;
            }
            continue;
        }
        let request = EventsRequest { events };
        failpoint!("agent.events.before_post");
        match link.post::<_, EventsReply>("events", &request, Duration::ZERO).await {
            Ok(reply) => {
                failpoint!("agent.events.acked");
                let before = *acked.borrow();
                acked.send_replace(reply.acked_seq.min(journal.last_seq()));
                if reply.acked_seq > before {
                    pause = Pause::default();
                } else {
                    tokio::time::sleep(pause.next()).await;
                }
            }
            Err(LinkError::Closed(_)) => return,
            Err(error) => {
                tracing::error!(%error, "the broker does not take events");
                tokio::time::sleep(pause.next()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reply_does_not_undo_a_stop() {
        let reply = |desired, reason: &str| PollReply {
            desired,
            reason: Some(reason.to_owned()),
            deadline_at: None,
            acked_event_seq: 0,
            durable_log_seq: 0,
        };
        let mut wish = Wish { desired: Desired::Run, reason: None };
        assert!(hear(&mut wish, reply(Desired::Stop, "timeout")));
        assert!(!hear(&mut wish, reply(Desired::Run, "")));
        assert!(!hear(&mut wish, reply(Desired::Stop, "stopped")));
        assert_eq!(wish.reason.as_deref(), Some("timeout"));
        assert!(hear(&mut wish, reply(Desired::Release, "")));
    }
}
