//! Who waits for what: changes of jobs and trials, and which agents are connected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use runwhere_model::LeaseId;
use tokio::sync::{Notify, watch};

/// Change counters by job or trial id, and the driver's alarm.
#[derive(Debug, Default)]
pub struct Signals {
    counters: Mutex<HashMap<String, watch::Sender<u64>>>,
    alarm: Notify,
}

impl Signals {
    /// A number that changes with every change of the job or trial.
    pub fn watch(&self, id: &str) -> watch::Receiver<u64> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.retain(|key, sender| key == id || sender.receiver_count() > 0);
        counters.entry(id.to_owned()).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// Tells everyone who watches.
    pub fn changed(&self, id: &str) {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = counters.get(id) {
            sender.send_modify(|number| *number = number.wrapping_add(1));
        }
    }

    /// Wakes the driver: something may have become due.
    pub fn ring(&self) {
        self.alarm.notify_one();
    }

    /// Waits for a ring.
    pub async fn rung(&self) {
        self.alarm.notified().await;
    }
}

/// Which agents are connected, and when the others were heard last.
#[derive(Debug, Default)]
pub struct AgentPresence {
    seen: Mutex<HashMap<LeaseId, Presence>>,
}

#[derive(Clone, Copy, Debug)]
struct Presence {
    connections: u32,
    last: Timestamp,
}

impl AgentPresence {
    /// When the agent was heard last: now while it is connected.
    pub fn seen(&self, lease: &LeaseId, now: Timestamp) -> Option<Timestamp> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(lease).map(|presence| if presence.connections > 0 { now } else { presence.last })
    }

    /// Forgets a lease that has ended.
    pub fn forget(&self, lease: &LeaseId) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
    }

    /// Counts an agent as connected until the guard is dropped.
    pub fn connected(
        self: &Arc<Self>,
        lease: &LeaseId,
        now: Timestamp,
        left: impl FnOnce() -> Timestamp + Send + 'static,
    ) -> Connected {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let presence = seen.entry(lease.clone()).or_insert(Presence { connections: 0, last: now });
        presence.connections += 1;
        presence.last = now;
        Connected { presence: Arc::clone(self), lease: lease.clone(), left: Some(Box::new(left)) }
    }
}

/// One open call of an agent.
pub struct Connected {
    presence: Arc<AgentPresence>,
    lease: LeaseId,
    left: Option<Box<dyn FnOnce() -> Timestamp + Send>>,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connected").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let now = self.left.take().map(|left| left());
        let mut seen = self.presence.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(presence) = seen.get_mut(&self.lease) {
            presence.connections = presence.connections.saturating_sub(1);
            presence.last = now.unwrap_or(presence.last);
        }
    }
}
