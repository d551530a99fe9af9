//! The billed time of a lease and its cutting into segments.

use jiff::Timestamp;
use runwhere_model::{
    HourlyPrice, JobId, LeaseId, Metering, Money, MoneyError, NodeId, OfferKey, ProjectId, TrialId,
    WorkspaceId, cost_between, cost_total,
};
use serde::{Deserialize, Serialize};

use crate::lease::Lease;
use crate::ledger::UsageSegment;

const HOUR_MICROS: i64 = 3_600_000_000;

/// When billing ran, and how much of it is already in the ledger.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// When billing started.
    pub started_at: Option<Timestamp>,
    /// When billing ended.
    pub stopped_at: Option<Timestamp>,
    /// A time is our own observation, not the provider's word.
    pub estimated: bool,
    /// Billed microseconds already cut into segments.
    pub charged_micros: u64,
    /// Up to which instant they are cut.
    pub charged_to: Option<Timestamp>,
    /// Number of segments cut so far.
    pub segments: u32,
    /// How far the provider's clock is ahead of ours at least, in microseconds, as its stated
    /// start shows.
    #[serde(default)]
    pub clock_ahead_micros: i64,
    /// The provider's bill has settled it: what is charged is what it says.
    #[serde(default)]
    pub settled: bool,
    /// What that bill states beyond the time at the agreed price; below zero for a discount.
    #[serde(default)]
    pub beyond_price: Option<Money>,
}

impl Meter {
    /// Takes in a start. The provider's word replaces our own observation as long as nothing has
    /// been charged by it.
    pub fn start(&mut self, provider: Option<Timestamp>, observed: Timestamp) {
        match (provider, self.started_at) {
            (Some(at), None) => self.started_at = Some(at),
            (Some(at), Some(_)) if self.estimated && self.charged_to.is_none() => {
                self.started_at = Some(at);
                self.estimated = false;
            }
            (None, None) => {
                self.started_at = Some(observed);
                self.estimated = true;
            }
            (Some(_) | None, Some(_)) => {}
        }
    }

    /// Takes in an end that is known by its absence, or that we observed; the first one stays. An end
    /// before the start counts as no time at all.
    pub fn stop(&mut self, provider: Option<Timestamp>, observed: Timestamp) {
        self.stop_after(None, provider, observed);
    }

    /// The same, where a read showed it running at `seen`.
    pub fn stop_after(
        &mut self,
        seen: Option<Timestamp>,
        provider: Option<Timestamp>,
        observed: Timestamp,
    ) {
        let Some(started_at) = self.started_at else { return };
        if self.stopped_at.is_some() {
            return;
        }
        let stopped_at = match provider {
            Some(at) if self.estimated => self.by_our_clock(at, seen, observed),
            Some(at) => at,
            None => self.by_the_starts_clock(observed),
        };
        self.estimated |= provider.is_none();
        self.stopped_at = Some(stopped_at.max(started_at));
    }

    /// Learns from a stated start: it lies between our request and our first sight of the running
    /// node, or the provider's clock is off.
    pub fn compare_clocks(
        &mut self,
        stated: Timestamp,
        requested: Option<Timestamp>,
        seen: Timestamp,
    ) {
        let floor = requested.unwrap_or(seen).min(seen);
        let possible = stated.clamp(floor, seen);
        let ahead = stated.as_microsecond().saturating_sub(possible.as_microsecond());
        if ahead.unsigned_abs() > self.clock_ahead_micros.unsigned_abs() {
            self.clock_ahead_micros = ahead;
        }
    }

    /// An instant of our clock by the clock that the start was stated by, so that a span has both
    /// its ends from one.
    fn by_the_starts_clock(&self, at: Timestamp) -> Timestamp {
        if self.estimated {
            return at;
        }
        let micros = at.as_microsecond().saturating_add(self.clock_ahead_micros);
        Timestamp::from_microsecond(micros).unwrap_or(at)
    }

    /// A stated end by our clock, by which the start was observed: not after we heard of it, and not
    /// before we last saw it running, however far the provider's clock is off.
    fn by_our_clock(
        &self,
        at: Timestamp,
        seen: Option<Timestamp>,
        observed: Timestamp,
    ) -> Timestamp {
        let micros = at.as_microsecond().saturating_sub(self.clock_ahead_micros);
        let at = Timestamp::from_microsecond(micros).unwrap_or(at);
        at.max(seen.unwrap_or(at)).min(observed)
    }

    /// Billed microseconds as of an instant: under the provider's rule, as if it ended then.
    pub fn billed_micros(&self, metering: &Metering, now: Timestamp) -> u64 {
        if self.settled {
            return self.charged_micros;
        }
        let Some(started_at) = self.started_at else { return 0 };
        let end = self.stopped_at.unwrap_or_else(|| self.by_the_starts_clock(now));
        metering.billed_micros(micros_between(started_at, end)).max(self.charged_micros)
    }

    /// Exact cost as of an instant.
    pub fn cost(&self, lease: &Lease, now: Timestamp) -> Result<Money, MoneyError> {
        let micros = self.billed_micros(&lease.capabilities.metering, now);
        let cost = cost_total(lease.price.price, micros)?;
        match self.beyond_price {
            Some(more) if self.settled => cost.checked_add(more),
            Some(_) | None => Ok(cost),
        }
    }

    /// Whether the provider's own word on the start would still be taken.
    pub fn awaits_provider_start(&self) -> bool {
        self.charged_to.is_none()
            && self.stopped_at.is_none()
            && (self.started_at.is_none() || self.estimated)
    }

    /// The next instant at which a segment is to be cut: the next UTC hour.
    pub fn next_cut(&self) -> Option<Timestamp> {
        match self.stopped_at {
            Some(_) => None,
            None => self.charged_to.or(self.started_at).and_then(next_hour),
        }
    }
}

/// Whose bill a node's time goes on, and at what price.
#[derive(Clone, Copy, Debug)]
pub struct Bill<'a> {
    /// First part of the segments' ids, of no other meter.
    pub name: &'a str,
    /// Tenant.
    pub workspace: &'a WorkspaceId,
    /// Tenant's part.
    pub project: &'a ProjectId,
    /// The job.
    pub job: &'a JobId,
    /// The trial.
    pub trial: &'a TrialId,
    /// The lease.
    pub lease: &'a LeaseId,
    /// The node.
    pub node: Option<&'a NodeId>,
    /// What was rented.
    pub offer: &'a OfferKey,
    /// The price per hour.
    pub price: HourlyPrice,
    /// The catalogue the price is from.
    pub price_snapshot: &'a str,
    /// The provider's billing rule.
    pub metering: Metering,
}

/// Cuts what can be charged for good of a lease's own meter; see [`cut_meter`].
pub fn cut(lease: &mut Lease, certain: Timestamp) -> Result<Vec<UsageSegment>, MoneyError> {
    let mut meter = lease.meter.clone();
    let bill = Bill {
        name: lease.id.as_str(),
        workspace: &lease.workspace,
        project: &lease.project,
        job: &lease.job,
        trial: &lease.trial,
        lease: &lease.id,
        node: lease.node.as_ref(),
        offer: &lease.offer,
        price: lease.price.price,
        price_snapshot: &lease.price.snapshot,
        metering: lease.capabilities.metering,
    };
    let segments = cut_meter(&mut meter, &bill, certain)?;
    lease.meter = meter;
    Ok(segments)
}

/// Cuts what can be charged for good: of a running meter the whole UTC hours up to `certain`, an
/// instant at which it surely still ran; of a stopped one everything, with the provider's rounding
/// and minimum in the last piece.
///
/// Returns the segments and moves the meter on. Called twice it returns nothing the second time.
pub fn cut_meter(
    meter: &mut Meter,
    bill: &Bill<'_>,
    certain: Timestamp,
) -> Result<Vec<UsageSegment>, MoneyError> {
    let metering = bill.metering;
    let Some(started_at) = meter.started_at else { return Ok(Vec::new()) };
    let stopped_at = meter.stopped_at;
    let granule = i64::try_from(metering.granularity.as_micros()).unwrap_or(i64::MAX).max(1);
    let mut segments = Vec::new();
    let mut at = meter.charged_to.unwrap_or(started_at);
    loop {
        let boundary = next_hour(at).filter(|hour| match stopped_at {
            Some(stop) => *hour < stop,
            None => *hour <= certain,
        });
        let (to, billed) = match (boundary, stopped_at) {
            (Some(hour), _) => {
                // Only full granules: the rest is decided by the provider's rule at the end.
                let elapsed = micros_between(started_at, hour);
                (hour, elapsed - elapsed % granule.unsigned_abs())
            }
            (None, Some(stop)) => (stop, metering.billed_micros(micros_between(started_at, stop))),
            (None, None) => break,
        };
        let from_micros = meter.charged_micros;
        let to_micros = billed.max(from_micros);
        // A slice shorter than a granule is stated too, with nothing billed yet: no time is left out.
        if to_micros > from_micros || to > at {
            segments.push(segment(meter, bill, (at, to), (from_micros, to_micros))?);
            meter.segments += 1;
            meter.charged_micros = to_micros;
        }
        meter.charged_to = Some(to);
        at = to;
        if boundary.is_none() {
            break;
        }
    }
    Ok(segments)
}

fn segment(
    meter: &Meter,
    bill: &Bill<'_>,
    (start, end): (Timestamp, Timestamp),
    (from, to): (u64, u64),
) -> Result<UsageSegment, MoneyError> {
    Ok(UsageSegment {
        id: format!("{}.{}", bill.name, meter.segments),
        workspace: bill.workspace.clone(),
        project: bill.project.clone(),
        job: bill.job.clone(),
        trial: bill.trial.clone(),
        lease: bill.lease.clone(),
        node: bill.node.cloned(),
        offer: bill.offer.clone(),
        start,
        end,
        billed_from_micros: from,
        billed_to_micros: to,
        price: bill.price,
        price_snapshot: bill.price_snapshot.to_owned(),
        amount: cost_between(bill.price, from, to)?,
        estimated: meter.estimated,
        corrects: None,
        usage_record: None,
    })
}

/// Whether ten years at this price can be told exactly; a dearer or finer one is not launched.
pub fn fits(price: HourlyPrice) -> bool {
    const TEN_YEARS_MICROS: u64 = 10 * 366 * 24 * 3_600_000_000;
    cost_total(price, TEN_YEARS_MICROS).is_ok()
}

/// Whole microseconds from one instant to a later one; 0 when it is not later.
pub fn micros_between(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.as_microsecond().saturating_sub(start.as_microsecond())).unwrap_or(0)
}

pub(crate) fn next_hour(after: Timestamp) -> Option<Timestamp> {
    let micros = after.as_microsecond();
    let hour = micros.div_euclid(HOUR_MICROS).checked_add(1)?.checked_mul(HOUR_MICROS)?;
    Timestamp::from_microsecond(hour).ok()
}

#[cfg(test)]
mod tests {
    use runwhere_model::Currency;
    use rust_decimal::Decimal;

    use super::*;

    #[test]
    fn no_time_is_left_out_where_an_hour_cuts_off_less_than_a_granule() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (start, hour) = (at("2026-11-29T21:59:59.174208Z"), at("2026-11-29T22:00:00Z"));
        let stop = at("2026-11-29T22:00:00.105026Z");
        let mut meter = Meter { started_at: Some(start), ..Meter::default() };
        meter.stop(Some(stop), stop);
        let bill = Bill {
            name: "lease-1",
            workspace: &WorkspaceId::new("w").unwrap(),
            project: &ProjectId::new("p").unwrap(),
            job: &JobId::new("job-1").unwrap(),
            trial: &TrialId::new("job-1.0").unwrap(),
            lease: &LeaseId::new("lease-1").unwrap(),
            node: None,
            offer: &"sim/r/z/on_demand/t".parse().unwrap(),
            price: HourlyPrice { amount: Decimal::from(36), currency: Currency::CNY },
            price_snapshot: "s",
            metering: Metering::PER_SECOND,
        };
        let segments = cut_meter(&mut meter, &bill, stop).unwrap();
        let slices: Vec<_> = segments.iter().map(|one| (one.start, one.end)).collect();
        assert_eq!(slices, [(start, hour), (hour, stop)]);
        let billed: Vec<_> =
            segments.iter().map(|one| (one.billed_from_micros, one.billed_to_micros)).collect();
        assert_eq!(billed, [(0, 0), (0, 1_000_000)]);
        assert!(cut_meter(&mut meter, &bill, stop).unwrap().is_empty());
    }

    #[test]
    fn a_stated_end_after_a_start_that_only_we_saw_is_taken_by_our_clock() {
        let at = |second| Timestamp::from_second(1_000_000 + second).unwrap();
        let billed = |ahead: i64, seen, stated, observed| {
            let mut meter = Meter::default();
            meter.start(None, at(0));
            // A start is charged before the provider states one.
            meter.charged_to = Some(at(60));
            meter.compare_clocks(at(-20 + ahead), Some(at(-30)), at(0));
            meter.stop_after(Some(at(seen)), Some(at(stated + ahead)), at(observed));
            meter.stopped_at.unwrap().as_second() - 1_000_000
        };
        assert_eq!(billed(0, 90, 100, 130), 100);
        // 90 s ahead: never later than we heard of it.
        assert!((100..=130).contains(&billed(90, 90, 100, 130)));
        // 45 s behind: never earlier than we saw it run.
        assert!((95..=100).contains(&billed(-45, 95, 100, 130)));
        // With a start of its own both ends are the provider's.
        let mut meter = Meter::default();
        meter.start(Some(at(90)), at(0));
        meter.stop_after(Some(at(95)), Some(at(190)), at(130));
        assert_eq!(meter.stopped_at, Some(at(190)));
    }
}
