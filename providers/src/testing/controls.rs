//! What a test does to a simulated cloud: scripted answers, and what happens to its nodes.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{BlockScope, EndCause, ErrorKind, HourlyPrice, NodeId, OfferKey};

use super::life::SimNode;
use super::profile::{SimOffer, SimProfile};
use super::script::{Outcome, Verb};
use super::sim::SimCloud;

impl SimCloud {
    /// Sets what becomes of the next call of a verb that has no outcome set yet.
    pub fn script(&self, verb: Verb, outcome: Outcome) {
        self.world().script.push(verb, outcome);
    }

    /// Outcomes that no call has used up yet.
    pub fn scripted_left(&self) -> usize {
        self.world().script.left()
    }

    /// Every call of the verb (of all verbs when `None`) has this outcome until an instant; `None`
    /// = until [`heal`](Self::heal). Credentials revoked from now on are `Outcome::Auth`.
    pub fn script_until(&self, verb: Option<Verb>, until: Option<Timestamp>, outcome: Outcome) {
        let now = self.clock.now();
        self.world().script.stand(verb, now, until.unwrap_or(Timestamp::MAX), outcome);
    }

    /// From now on every call works; what is still scripted is dropped.
    pub fn heal(&self) {
        self.world().script.heal();
    }

    /// How often a verb was called, whatever came of it.
    pub fn calls(&self, verb: Verb) -> u64 {
        self.world().script.calls(verb)
    }

    /// Changes a price from now on; nodes keep theirs.
    pub fn set_price(&self, key: &OfferKey, price: Option<HourlyPrice>) {
        self.change_offer(key, |offer| offer.price = price);
    }

    /// From now on machines are made in this region, whatever region is asked for; `None` = as asked.
    pub fn land_in(&self, region: Option<&str>) {
        self.world().lands_in = region.map(str::to_owned);
    }

    /// Changes how many of an offer can live at a time.
    pub fn set_stock(&self, key: &OfferKey, stock: u32) {
        self.change_offer(key, |offer| offer.stock = stock);
    }

    /// The cloud takes a node back at once, as with a spot reclaim without notice.
    pub fn reclaim(&self, node: &NodeId) {
        self.change_node(node, reclaim);
    }

    /// The cloud says on the node that it will take it back, and does so once its notice is over;
    /// without one it does so at once. Returns when.
    pub fn reclaim_with_notice(&self, node: &NodeId) -> Option<Timestamp> {
        let mut when = None;
        self.change_node(node, |node, now, profile| {
            let notice = profile.capabilities.reclaim_notice.unwrap_or_default();
            let at = now.checked_add(notice).unwrap_or(Timestamp::MAX);
            node.reclaim_at = Some(at);
            reclaim(node, at, profile);
            when = Some(at);
        });
        when
    }

    /// The node is gone at once, without a notice.
    pub fn lose(&self, node: &NodeId) {
        self.change_node(node, |node, now, _| {
            node.end(now, Duration::ZERO, (EndCause::HostFailed, "host failed"));
        });
    }

    /// The node halts, as after a power-off from inside.
    pub fn halt(&self, node: &NodeId) {
        self.change_node(node, |node, now, _| {
            node.halt(now, Some((EndCause::Requested, "powered off")));
        });
    }

    /// A halted or ended node runs again, and is billed again.
    pub fn resume(&self, node: &NodeId) {
        self.change_node(node, |node, now, _| node.resume(now));
    }

    /// Reads miss the node for a while, though it is there.
    pub fn hide(&self, node: &NodeId, span: Duration) {
        self.change_node(node, |node, now, _| node.hide(now, span));
    }

    /// The account is out of money: its nodes are stopped and no launch is accepted until
    /// [`heal`](Self::heal).
    pub fn run_out_of_money(&self) {
        let now = self.clock.now();
        let mut world = self.world();
        for node in &mut world.nodes {
            node.halt(now, Some((EndCause::Balance, "the account is out of money")));
        }
        let refused = Outcome::Refused(ErrorKind::Balance, BlockScope::Account, None);
        world.script.stand(Some(Verb::Launch), now, Timestamp::MAX, refused);
    }

    fn change_offer(&self, key: &OfferKey, change: impl FnOnce(&mut SimOffer)) {
        let mut world = self.world();
        if let Some(offer) = world.offers.iter_mut().find(|offer| self.key(offer) == *key) {
            change(offer);
        }
    }

    fn change_node(
        &self,
        node: &NodeId,
        change: impl FnOnce(&mut SimNode, Timestamp, &SimProfile),
    ) {
        let now = self.clock.now();
        let mut world = self.world();
        if let Some(node) = world.nodes.iter_mut().find(|one| one.id == *node) {
            change(node, now, &self.profile);
        }
    }
}

fn reclaim(node: &mut SimNode, at: Timestamp, profile: &SimProfile) {
    let why = (EndCause::Reclaimed, "reclaimed");
    match profile.reclaim_stops {
        true => node.halt(at, Some(why)),
        false => node.end(at, profile.delays.shutdown, why),
    }
}
