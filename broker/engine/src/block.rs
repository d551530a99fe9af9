//! What providers refused lately: nobody asks again for it before its time.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{BlockScope, ErrorKind, OfferKey, ProviderError, ProviderId};

use crate::policy::Policy;
use crate::unit::{add, backoff};

/// First pause after a quota was hit, and the longest.
const QUOTA: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));
/// Pause after an account's credentials or money were refused.
const ACCOUNT: Duration = Duration::from_secs(60);
/// No provider's own wish holds launches longer than this.
const LONGEST: Duration = Duration::from_secs(3600);
/// More are not kept: the oldest goes.
const KEPT: usize = 1024;

/// A refusal that holds for others too.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Block {
    /// What was asked for.
    pub offer: OfferKey,
    /// How far the refusal reaches.
    pub scope: BlockScope,
    /// What was refused.
    pub kind: ErrorKind,
    /// Until when nobody asks again.
    pub until: Timestamp,
    /// How long that is.
    pub pause: Duration,
    /// The provider's words.
    pub detail: String,
    /// Refusals in a row.
    repeats: u32,
}

impl Block {
    /// Whether it holds for an offer. Want of capacity is that of one kind of machine; a quota is
    /// of everything in its scope.
    pub fn covers(&self, offer: &OfferKey) -> bool {
        let (own, other) = (&self.offer, offer);
        let same_kind =
            own.instance_type == other.instance_type && own.billing_model == other.billing_model;
        let near = match self.scope {
            BlockScope::Call => own == other,
            BlockScope::Zone => own.region == other.region && own.zone == other.zone,
            BlockScope::Region => own.region == other.region,
            BlockScope::Account => true,
        };
        own.provider == other.provider && near && (self.kind != ErrorKind::Capacity || same_kind)
    }

    /// Whether a launch that it holds back had better fail at once: waiting does not help.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, ErrorKind::Auth | ErrorKind::Balance)
    }
}

/// The refusals that still hold. They are only a help: forgetting them costs a call each.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Blocks(Vec<Block>);

impl Blocks {
    /// Takes in a refused launch.
    pub fn launch_refused(
        &mut self,
        offer: &OfferKey,
        error: &ProviderError,
        now: Timestamp,
        policy: &Policy,
    ) {
        let scope = match (&error.scope, error.kind) {
            (BlockScope::Call, ErrorKind::Quota) => BlockScope::Region,
            (BlockScope::Call, ErrorKind::Auth | ErrorKind::Balance | ErrorKind::Throttle) => {
                BlockScope::Account
            }
            (scope, _) => scope.clone(),
        };
        self.add(offer, (error.kind, scope), error.retry_after, &error.to_string(), now, policy);
    }

    /// Takes in that an accepted launch came to nothing for want of capacity.
    pub fn capacity_failed(
        &mut self,
        offer: &OfferKey,
        detail: &str,
        now: Timestamp,
        policy: &Policy,
    ) {
        let what = (ErrorKind::Capacity, BlockScope::Call);
        self.add(offer, what, None, detail, now, policy);
    }

    /// Takes in that a call of any kind was one too many: launches wait, releases do not.
    pub fn throttled(
        &mut self,
        offer: &OfferKey,
        error: &ProviderError,
        now: Timestamp,
        policy: &Policy,
    ) {
        let what = (ErrorKind::Throttle, BlockScope::Account);
        self.add(offer, what, error.retry_after, &error.to_string(), now, policy);
    }

    /// A launch was accepted, or a node of it has ended: what was refused may be had again.
    pub fn lifted(&mut self, offer: &OfferKey) {
        self.0.retain(|block| block.kind == ErrorKind::Throttle || !block.covers(offer));
    }

    /// Room has become free on a machine whose offers share it: want of capacity on any of them may
    /// be over.
    pub fn freed(&mut self, provider: &ProviderId) {
        self.0
            .retain(|block| block.kind != ErrorKind::Capacity || block.offer.provider != *provider);
    }

    /// The refusal that holds an offer back longest.
    pub fn of(&self, offer: &OfferKey, now: Timestamp) -> Option<&Block> {
        let holding = self.0.iter().filter(|block| block.until > now && block.covers(offer));
        holding.max_by_key(|block| block.until)
    }

    fn add(
        &mut self,
        offer: &OfferKey,
        (kind, scope): (ErrorKind, BlockScope),
        wanted: Option<Duration>,
        detail: &str,
        now: Timestamp,
        policy: &Policy,
    ) {
        let same =
            |block: &Block| block.kind == kind && block.scope == scope && block.covers(offer);
        let repeats = self.0.iter().find(|block| same(block)).map_or(0, |b| b.repeats + 1);
        let pause = match kind {
            ErrorKind::Capacity | ErrorKind::Throttle => {
                backoff(policy.launch_retry, policy.launch_retry_max, repeats)
            }
            ErrorKind::Quota => backoff(QUOTA.0, QUOTA.1, repeats),
            ErrorKind::Auth | ErrorKind::Balance => ACCOUNT,
            // They say nothing about other launches.
            ErrorKind::Invalid
            | ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::Transient
            | ErrorKind::Unsupported
            | ErrorKind::Malformed => return,
        };
        let pause = pause.max(wanted.unwrap_or_default()).min(LONGEST);
        self.0.retain(|block| !same(block));
        // One that is long over does not count as "in a row" any more.
        self.0.retain(|block| add(block.until, block.pause.max(ACCOUNT)) > now);
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push(Block {
            offer: offer.clone(),
            scope,
            kind,
            until: add(now, pause),
            pause,
            detail: detail.to_owned(),
            repeats,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn error(kind: ErrorKind, scope: BlockScope, pause: Option<u64>) -> ProviderError {
        let mut error = ProviderError::new(ProviderId::new("sim").unwrap(), "launch", kind);
        error.scope = scope;
        error.retry_after = pause.map(Duration::from_secs);
        error
    }

    fn offer(text: &str) -> OfferKey {
        text.parse().unwrap()
    }

    #[test]
    fn a_refusal_reaches_as_far_as_its_scope_and_kind_say() {
        let one = offer("sim/east/a/on_demand/big.8");
        let other_type = offer("sim/east/a/on_demand/small.1");
        let other_zone = offer("sim/east/b/on_demand/big.8");
        let other_region = offer("sim/west/a/on_demand/big.8");
        let other_cloud = offer("aws/east/a/on_demand/big.8");
        let held = |kind, scope| {
            let mut blocks = Blocks::default();
            blocks.launch_refused(&one, &error(kind, scope, None), at(0), &Policy::default());
            [&one, &other_type, &other_zone, &other_region, &other_cloud]
                .map(|offer| blocks.of(offer, at(1)).is_some())
        };
        use BlockScope::{Account, Call, Region, Zone};
        assert_eq!(held(ErrorKind::Capacity, Call), [true, false, false, false, false]);
        assert_eq!(held(ErrorKind::Capacity, Zone), [true, false, false, false, false]);
        assert_eq!(held(ErrorKind::Capacity, Region), [true, false, true, false, false]);
        assert_eq!(held(ErrorKind::Quota, Call), [true, true, true, false, false]);
        assert_eq!(held(ErrorKind::Quota, Account), [true, true, true, true, false]);
        assert_eq!(held(ErrorKind::Auth, Call), [true, true, true, true, false]);
        assert_eq!(held(ErrorKind::Throttle, Call), [true, true, true, true, false]);
        assert_eq!(held(ErrorKind::Transient, Call), [false; 5]);
    }

    #[test]
    fn pauses_grow_with_refusals_in_a_row_and_begin_anew_after_a_success() {
        let (one, policy) = (offer("sim/east/a/on_demand/big.8"), Policy::default());
        let mut blocks = Blocks::default();
        let refused = error(ErrorKind::Quota, BlockScope::Call, None);
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            blocks.launch_refused(&one, &refused, at(now), &policy);
            let block = blocks.of(&one, at(now)).unwrap();
            pauses.push(block.pause.as_secs());
            now = block.until.as_second();
            assert_eq!(blocks.of(&one, at(now)), None);
        }
        assert_eq!(pauses, [60, 120, 240, 480, 600, 600]);
        blocks.lifted(&one);
        blocks.launch_refused(&one, &refused, at(now), &policy);
        assert_eq!(blocks.of(&one, at(now)).unwrap().pause.as_secs(), 60);
    }

    #[test]
    fn room_on_a_shared_machine_is_room_for_all_of_its_offers() {
        let [one, other] = ["sim/-/-/on_demand/x1", "sim/-/-/on_demand/x4"].map(offer);
        let policy = Policy::default();
        let mut blocks = Blocks::default();
        for (offer, kind) in [(&one, ErrorKind::Capacity), (&other, ErrorKind::Quota)] {
            blocks.launch_refused(offer, &error(kind, BlockScope::Call, None), at(0), &policy);
        }
        blocks.freed(&ProviderId::new("aws").unwrap());
        assert_eq!(blocks.0.len(), 2);
        blocks.freed(&one.provider);
        assert_eq!(blocks.of(&one, at(1)).map(|block| block.kind), Some(ErrorKind::Quota));
    }

    #[test]
    fn a_provider_that_asks_for_a_pause_gets_it_within_reason() {
        let (one, policy) = (offer("sim/east/a/on_demand/big.8"), Policy::default());
        for (wanted, given) in [(30, 30), (1_000_000, 3600)] {
            let mut blocks = Blocks::default();
            let error = error(ErrorKind::Throttle, BlockScope::Call, Some(wanted));
            blocks.throttled(&one, &error, at(0), &policy);
            // An ended node frees capacity, not the rate limit.
            blocks.lifted(&one);
            assert_eq!(blocks.of(&one, at(0)).unwrap().until, at(given));
        }
    }
}
