//! A node that is to be ended: one beyond those wanted, or one that nobody owns any more.

use jiff::Timestamp;
use runwhere_model::{
    Capabilities, EndCause, ErrorKind, HourlyPrice, MeterStart, NodeId, NodePhase, NodeState,
    ProviderError, Terminated,
};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::lease::CallKind;
use crate::meter::{Meter, fits};
use crate::policy::Policy;
use crate::unit::{absent, add, backoff};

/// Every so many fruitless reads a termination is asked for again.
const ASK_AGAIN: u32 = 5;

/// A node that must go, what has been tried, and what it costs until then.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Surplus {
    /// The node.
    pub node: NodeId,
    /// Since when it is known.
    pub since: Timestamp,
    /// The provider has accepted its termination; reads must show the end.
    pub acked: bool,
    /// When reads without it were begun, in order.
    pub absent_reads: Vec<Timestamp>,
    /// Calls for it that failed or did not bring its end nearer.
    pub failures: u32,
    /// When to call for it next.
    pub next_at: Timestamp,
    /// Its billed time.
    #[serde(default)]
    pub meter: Meter,
    /// When a read last showed it in a phase that is billed.
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
    /// What the provider says it charges, where it says so.
    #[serde(default)]
    pub stated_price: Option<HourlyPrice>,
    /// Its time up to here is billed elsewhere.
    #[serde(default)]
    pub billed_from: Option<Timestamp>,
}

impl Surplus {
    /// A node that is known from now on. One that is billed from its request on was requested at
    /// `requested_at`.
    pub fn new(
        node: NodeId,
        capabilities: &Capabilities,
        requested_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        let mut meter = Meter::default();
        if capabilities.metering.start == MeterStart::Requested {
            meter.start(None, requested_at);
        }
        Self {
            node,
            since: now,
            acked: false,
            absent_reads: Vec::new(),
            failures: 0,
            next_at: now,
            meter,
            seen_at: None,
            stated_price: None,
            billed_from: None,
        }
    }

    /// Its time before an instant is on another bill: it is billed from there on. A node that
    /// states no times is taken to have never stopped since.
    pub fn billed_only_from(&mut self, at: Timestamp) {
        self.billed_from = Some(at);
        self.meter.start(None, at);
    }

    /// Takes in what a read of the node says.
    pub fn observe(&mut self, state: &NodeState, now: Timestamp) {
        if state.cause == Some(EndCause::Capacity) {
            // Accepted, but never served: nothing of it is billed.
            self.meter = Meter::default();
            return;
        }
        let running = state.phase == NodePhase::Running;
        if running {
            self.seen_at = Some(now);
        }
        if let Some(price) = state.billed_price.filter(|price| fits(*price)) {
            self.stated_price.get_or_insert(price);
        }
        if state.started_at.is_some() || running {
            let floor = self.billed_from;
            let stated = state.started_at.map(|at| floor.map_or(at, |floor| at.max(floor)));
            self.meter.start(stated, floor.unwrap_or(now));
        }
    }

    /// Which call brings its end nearer.
    pub fn next_call(&self, capabilities: &Capabilities) -> CallKind {
        // The provider's own times can be read only as long as it shows the node.
        let times_first =
            capabilities.states_times && self.meter.awaits_provider_start() && self.failures == 0;
        // One that cannot be ended for a while may begin to run, and to be billed, meanwhile.
        let look = self.failures % 3 == 2 && self.meter.started_at.is_none();
        // Whether one whose end was proven really is there again, and is billed, only a read tells.
        let again = self.billed_from.is_some() && self.meter.started_at.is_none();
        match self.acked || times_first || look || (again && self.failures == 0) {
            true => CallKind::Describe,
            false => CallKind::Terminate,
        }
    }

    /// Takes in the answer to a termination; returns the proof of its end, if it is one.
    pub fn terminated(
        &mut self,
        answer: &Result<Terminated, ProviderError>,
        capabilities: &Capabilities,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Evidence> {
        match answer {
            // Gone, but when it began to bill was never read: a read may still tell.
            Ok(Terminated::Gone { .. })
                if capabilities.states_times
                    && self.meter.awaits_provider_start()
                    && self.failures < ASK_AGAIN =>
            {
                self.later(true, None, policy, now);
                self.next_at = now;
                None
            }
            Ok(Terminated::Gone { stopped_at }) => {
                self.meter.stop_after(self.seen_at, *stopped_at, now);
                Some(Evidence::TerminalRead {
                    node: self.node.clone(),
                    at: now,
                    call: "terminate".into(),
                    stopped_at: *stopped_at,
                })
            }
            Ok(Terminated::Requested) => {
                self.later(true, None, policy, now);
                None
            }
            Err(error) => {
                // "Not found" may be lag: only reads over the settle window prove it.
                let acked = error.kind == ErrorKind::NotFound;
                self.later(acked, (!acked).then_some(error), policy, now);
                None
            }
        }
    }

    /// Takes in the answer to a read that was begun at `read_at` (`None` when it says nothing
    /// about absence); returns the proof of its end, if it is one.
    pub fn described(
        &mut self,
        answer: &Result<NodeState, ProviderError>,
        read_at: Option<Timestamp>,
        capabilities: &Capabilities,
        policy: &Policy,
        now: Timestamp,
    ) -> Option<Evidence> {
        match answer {
            Ok(state) if state.phase == NodePhase::Gone => {
                if self.is_news(read_at) {
                    self.observe(state, now);
                }
                self.meter.stop_after(self.seen_at, state.stopped_at, now);
                Some(Evidence::TerminalRead {
                    node: self.node.clone(),
                    at: now,
                    call: "describe".into(),
                    stopped_at: state.stopped_at,
                })
            }
            Ok(state) => {
                if self.is_news(read_at) {
                    self.observe(state, now);
                }
                self.absent_reads.clear();
                let acked = self.acked && !(self.failures + 1).is_multiple_of(ASK_AGAIN);
                let asked = self.acked;
                self.later(acked, None, policy, now);
                if !asked {
                    // Read for its times; now it is ended.
                    self.next_at = now;
                }
                None
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                let read_at = read_at?;
                let first = self.absent_reads.first().copied().unwrap_or(read_at);
                let window_end = add(first.max(self.since), capabilities.settle);
                let wanted = capabilities.absent_reads;
                let Some(reads) = absent(&mut self.absent_reads, read_at, wanted, window_end)
                else {
                    self.later(true, None, policy, now);
                    return None;
                };
                self.meter.stop(None, first);
                Some(Evidence::AbsentReads { node: self.node.clone(), reads })
            }
            Err(error) => {
                self.later(self.acked, Some(error), policy, now);
                None
            }
        }
    }

    /// Whether a read that was begun at an instant says something of it: of one whose end was proven before, only
    /// one that was begun after that does.
    fn is_news(&self, read_at: Option<Timestamp>) -> bool {
        let since = self.billed_from.filter(|_| self.meter.started_at.is_none());
        since.is_none_or(|since| read_at.is_some_and(|read_at| read_at > since))
    }

    fn later(
        &mut self,
        acked: bool,
        error: Option<&ProviderError>,
        policy: &Policy,
        now: Timestamp,
    ) {
        self.acked = acked;
        let wanted = error.and_then(|error| error.retry_after).unwrap_or_default();
        let pause = match error {
            Some(_) => backoff(policy.poll, policy.release_retry_max, self.failures),
            // Where the end shows only by its absence, how often one looks is how exact its bill is.
            None => policy.poll.saturating_mul(1 + self.failures / 4).min(policy.release_retry_max),
        };
        self.failures = self.failures.saturating_add(1);
        self.next_at = add(now, pause.max(wanted));
    }
}
