//! The provider's own bill against the ledger: what was charged by our observation is taken back
//! and booked anew by the provider's usage records. Nothing that was booked is changed: a
//! correction is a reversal and a new entry, each with an id that follows from what it corrects,
//! so that a repeat is harmless.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use runwhere_model::{
    Currency, HourlyPrice, Money, MoneyError, NodeId, Period, UsageRecord, UsageRecords,
    cost_between, cost_total,
};
use rust_decimal::Decimal;
use serde_json::json;

use crate::event::{EVENT_VERSION, EventRecord, Subject};
use crate::lease::{Lease, LeaseState};
use crate::ledger::UsageSegment;
use crate::meter::{micros_between, next_hour};
use crate::policy::Policy;
use crate::trial::Trial;
use crate::unit::{add, backoff};

/// The bill is asked for from so long before a lease's intent on: the provider's clock may be
/// behind ours.
const SLACK: Duration = Duration::from_secs(3600);

/// What a bill changes.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The lease after it; asked for again at its `next_at`, if there is one.
    pub lease: Lease,
    /// Reversals and new entries.
    pub segments: Vec<UsageSegment>,
    /// What the trial's earlier leases, and nodes that nobody wanted, cost more (or less) now, in
    /// billed microseconds; for [`Trial::adjust_past`].
    pub past_micros: i64,
    /// The same as money.
    pub past_amounts: Vec<Money>,
    /// What is spent more (or less), per currency.
    pub spent: Vec<Money>,
    /// Audit.
    pub events: Vec<EventRecord>,
}

impl Lease {
    /// When its provider's bill is to be asked for next; `None` = it is not waited for.
    pub fn usage_due(&self) -> Option<Timestamp> {
        self.next_at.filter(|_| self.state.is_terminal() && self.settled_at.is_none())
    }

    /// Whether some of its cost is an estimate that the provider's bill can settle.
    pub(crate) fn awaits_usage(&self) -> bool {
        self.state == LeaseState::Released
            && self.settled_at.is_none()
            && self.capabilities.states_usage
            && (self.meter.estimated || !self.surplus_ended.is_empty())
    }

    /// The period of the bill that holds all its nodes' time.
    pub fn usage_period(&self, now: Timestamp) -> Period {
        let start = self.intended_at.checked_sub(SLACK).unwrap_or(self.intended_at);
        Period { start, end: now }
    }

    /// The bill could not be read: asked for again after a pause that grows.
    pub fn usage_failed(mut self, error: &str, policy: &Policy, now: Timestamp) -> Self {
        self.last_error = Some(error.to_owned());
        self.usage_later(policy, now);
        self
    }

    fn usage_later(&mut self, policy: &Policy, now: Timestamp) {
        let pause = backoff(policy.usage_retry, policy.usage_retry_max, self.settle_tries);
        self.settle_tries = self.settle_tries.saturating_add(1);
        let over = now >= add(self.since, policy.usage_limit);
        self.next_at = (!over).then(|| add(now, pause));
    }
}

/// Holds the segments of an ended lease against its provider's bill of [`Lease::usage_period`].
///
/// A node without a line in a final bill cost nothing, once the bill is old enough to be believed.
/// A node that still runs, and one whose line is missing, are left as they are.
pub fn settle(
    lease: Lease,
    trial: &Trial,
    segments: &[UsageSegment],
    bill: &UsageRecords,
    asked: &Period,
    policy: &Policy,
    now: Timestamp,
) -> Result<Settlement, MoneyError> {
    let mut done = Settlement {
        lease,
        segments: Vec::new(),
        past_micros: 0,
        past_amounts: Vec::new(),
        spent: Vec::new(),
        events: Vec::new(),
    };
    let mut open = false;
    let nodes: BTreeSet<NodeId> =
        done.lease.node.iter().chain(done.lease.surplus_ended.keys()).cloned().collect();
    for node in &nodes {
        let own = done.lease.node.as_ref() == Some(node);
        let booked = booked(segments, node);
        // A node beyond the one wanted that no read ever showed at work was charged nothing: that
        // is a guess too.
        let guessed = if own { done.lease.meter.estimated } else { booked.is_empty() };
        if !guessed && !booked.iter().any(|one| one.estimated) {
            continue;
        }
        let mut lines: Vec<&UsageRecord> = bill.records.iter().collect();
        // One that ran again after its proven end is on another bill.
        lines.retain(|line| line.node == *node && line.period.start < done.lease.since);
        lines.sort_by_key(|line| line.period.start);
        let runs = lines.iter().any(|line| line.period.end >= asked.end);
        let absent = lines.is_empty() && now < add(done.lease.since, policy.usage_absent);
        if !bill.complete || runs || absent {
            open = true;
            continue;
        }
        done.correct(trial, own, node, &booked, &lines)?;
    }
    done.sum_up()?;
    if open {
        done.lease.usage_later(policy, now);
    } else {
        done.lease.settled_at = Some(now);
        done.lease.next_at = None;
    }
    let waits = done.lease.next_at.is_some();
    if !done.segments.is_empty() || !waits {
        let kind = if open && !waits { "lease.usage_missing" } else { "lease.settled" };
        let event = done.event(kind, now);
        done.events.push(event);
    }
    Ok(done)
}

/// What stands in the ledger of a node's time, as far as it was not taken back.
fn booked<'a>(segments: &'a [UsageSegment], node: &NodeId) -> Vec<&'a UsageSegment> {
    let reversed: BTreeSet<&str> =
        segments.iter().filter_map(|one| one.corrects.as_deref()).collect();
    let of_node = segments.iter().filter(|one| one.node.as_ref() == Some(node));
    of_node.filter(|one| one.corrects.is_none() && !reversed.contains(one.id.as_str())).collect()
}

impl Settlement {
    fn correct(
        &mut self,
        trial: &Trial,
        own: bool,
        node: &NodeId,
        booked: &[&UsageSegment],
        lines: &[&UsageRecord],
    ) -> Result<(), MoneyError> {
        let price = booked.last().map_or(self.lease.price.price, |one| one.price);
        let (taken, kept): (Vec<&UsageSegment>, Vec<_>) =
            booked.iter().copied().partition(|one| one.estimated);
        self.segments.extend(taken.iter().map(|one| reversal(one)));
        let kept_amount = kept.iter().fold(Decimal::ZERO, |sum, one| sum + one.amount.amount);
        let kept: i64 = kept.iter().map(|one| one.billed_micros()).sum();
        let kept = u64::try_from(kept).unwrap_or(0);
        let mut new = self.entries(node, price, kept, lines)?;
        let amounts = new.iter().fold(kept_amount, |sum, one| sum + one.amount.amount);
        let by_price = Money::new(amounts, price.currency);
        let is = stated(lines, price.currency)?.unwrap_or(by_price);
        let total = lines.iter().fold(0u64, |sum, line| sum.saturating_add(line.billed_micros));
        if let (Some(line), false) = (lines.last(), is == by_price) {
            // A price that we never heard of, or a discount.
            let span = last_instant(line);
            let entry = self.entry(node, price, line, new.len(), span, (total, total))?;
            new.push(UsageSegment { amount: difference(is, by_price), ..entry });
        }
        self.segments.extend(new);
        let meters = booked.iter().filter(|one| own != one.is_of_surplus());
        let before: i64 = meters.map(|one| one.billed_micros()).sum();
        if own {
            // Everything of it is the lease's own from now on, also what it cost as a surplus one.
            for one in booked.iter().filter(|one| one.is_of_surplus()) {
                self.add_past(-one.billed_micros(), negative(one.amount));
            }
            let agreed = self.lease.price.price;
            let was = cost_total(agreed, u64::try_from(before).unwrap_or(0))?;
            let meter = &mut self.lease.meter;
            meter.estimated = false;
            meter.charged_micros = total;
            meter.settled = true;
            let beyond = difference(is, cost_total(agreed, total)?);
            meter.beyond_price = Some(beyond).filter(|beyond| !beyond.amount.is_zero());
            if let (Some(first), Some(last)) = (lines.first(), lines.last()) {
                meter.started_at = Some(first.period.start);
                meter.stopped_at = Some(last.period.end);
                meter.charged_to = Some(last.period.end);
            }
            // The trial has gone on, and counts this lease as past.
            if trial.lease.as_ref() != Some(&self.lease.id) {
                self.add_past(signed(total) - before, difference(is, was));
            }
            return Ok(());
        }
        let amounts = booked.iter().fold(Decimal::ZERO, |sum, one| sum + one.amount.amount);
        let was = Money::new(amounts, price.currency);
        self.add_past(signed(total) - before, difference(is, was));
        Ok(())
    }

    /// The provider's lines by UTC hours, from `kept` billed microseconds on.
    fn entries(
        &self,
        node: &NodeId,
        price: HourlyPrice,
        kept: u64,
        lines: &[&UsageRecord],
    ) -> Result<Vec<UsageSegment>, MoneyError> {
        let mut entries: Vec<UsageSegment> = Vec::new();
        let (mut before, mut at) = (0u64, kept);
        for line in lines {
            let (start, end) = (line.period.start, line.period.end);
            let whole = before.saturating_add(line.billed_micros);
            let mut from = start;
            while from < end {
                let to = next_hour(from).map_or(end, |hour| hour.min(end));
                // The last piece has the provider's rounding and minimum.
                let passed = before.saturating_add(micros_between(start, to)).min(whole);
                let reached = if to == end { whole } else { passed };
                if reached > at {
                    entries.push(self.entry(
                        node,
                        price,
                        line,
                        entries.len(),
                        (from, to),
                        (at, reached),
                    )?);
                    at = reached;
                }
                from = to;
            }
            before = whole;
        }
        // Less than what is kept: the rest is taken back with the last line.
        if let Some(line) = lines.last().filter(|_| before < at) {
            let span = last_instant(line);
            entries.push(self.entry(node, price, line, entries.len(), span, (at, before))?);
        }
        Ok(entries)
    }

    fn entry(
        &self,
        node: &NodeId,
        price: HourlyPrice,
        line: &UsageRecord,
        number: usize,
        (start, end): (Timestamp, Timestamp),
        (from, to): (u64, u64),
    ) -> Result<UsageSegment, MoneyError> {
        let lease = &self.lease;
        let amount = match from <= to {
            true => cost_between(price, from, to)?,
            false => negative(cost_between(price, to, from)?),
        };
        Ok(UsageSegment {
            id: format!("{}={node}.{number}", lease.id),
            workspace: lease.workspace.clone(),
            project: lease.project.clone(),
            job: lease.job.clone(),
            trial: lease.trial.clone(),
            lease: lease.id.clone(),
            node: Some(node.clone()),
            offer: lease.offer.clone(),
            start,
            end,
            billed_from_micros: from,
            billed_to_micros: to,
            price,
            price_snapshot: lease.price.snapshot.clone(),
            amount,
            estimated: false,
            corrects: None,
            usage_record: Some(line.id()),
        })
    }

    fn add_past(&mut self, micros: i64, amount: Money) {
        self.past_micros = self.past_micros.saturating_add(micros);
        if !amount.amount.is_zero() {
            self.past_amounts.push(amount);
        }
    }

    fn sum_up(&mut self) -> Result<(), MoneyError> {
        for segment in &self.segments {
            let same = |sum: &&mut Money| sum.currency == segment.amount.currency;
            match self.spent.iter_mut().find(same) {
                Some(sum) => *sum = sum.checked_add(segment.amount)?,
                None => self.spent.push(segment.amount),
            }
        }
        Ok(())
    }

    fn event(&self, kind: &str, now: Timestamp) -> EventRecord {
        let lease = &self.lease;
        EventRecord {
            version: EVENT_VERSION,
            at: now,
            workspace: lease.workspace.clone(),
            project: lease.project.clone(),
            subject: Subject {
                job: Some(lease.job.clone()),
                trial: Some(lease.trial.clone()),
                lease: Some(lease.id.clone()),
            },
            kind: kind.to_owned(),
            payload: json!({
                "corrections": self.segments.len(), "difference": self.spent,
                "asked": lease.settle_tries,
            }),
        }
    }
}

/// The taking back of a segment: the same time and money, the other way round.
fn reversal(of: &UsageSegment) -> UsageSegment {
    UsageSegment {
        id: format!("{}~", of.id),
        billed_from_micros: of.billed_to_micros,
        billed_to_micros: of.billed_from_micros,
        amount: negative(of.amount),
        corrects: Some(of.id.clone()),
        ..of.clone()
    }
}

fn negative(money: Money) -> Money {
    Money::new(-money.amount, money.currency)
}

/// What stands for no time of its own is booked at the end of its line.
fn last_instant(line: &UsageRecord) -> (Timestamp, Timestamp) {
    let end = line.period.end;
    (end.checked_sub(Duration::from_micros(1)).unwrap_or(end), end)
}

/// What the lines state in all; `None` unless each of them states an amount in that currency.
fn stated(lines: &[&UsageRecord], currency: Currency) -> Result<Option<Money>, MoneyError> {
    if lines.is_empty() {
        return Ok(None);
    }
    let mut sum = Money::zero(currency);
    for line in lines {
        match line.amount {
            Some(amount) if amount.currency == currency => sum = sum.checked_add(amount)?,
            Some(_) | None => return Ok(None),
        }
    }
    Ok(Some(sum))
}

fn difference(is: Money, was: Money) -> Money {
    Money::new(is.amount - was.amount, is.currency)
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}
