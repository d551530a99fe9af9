//! The one rule by which a meter's span becomes a line of a bill.

use jiff::Timestamp;
use runwhere_model::{HourlyPrice, Metering, NodeId, Period, UsageRecord, cost_between};

/// A node's metered span; `to` is "now" while it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) price: HourlyPrice,
}

impl Span {
    /// Its billed microseconds up to an instant, by the billing rule.
    pub(crate) fn billed_until(&self, at: Timestamp, metering: &Metering) -> u64 {
        let at = at.clamp(self.from, self.to.max(self.from));
        let micros = at.as_microsecond().saturating_sub(self.from.as_microsecond());
        metering.billed_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// Its line in the bill of a period; `None` where it does not reach into it. The time of a
    /// node runs as one total, so the lines of adjoining periods add up to the whole.
    pub(crate) fn record(
        &self,
        node: NodeId,
        period: &Period,
        metering: &Metering,
    ) -> Option<UsageRecord> {
        let start = self.from.max(period.start);
        let end = self.to.min(period.end);
        if start >= end {
            return None;
        }
        let before = self.billed_until(start, metering);
        let after = self.billed_until(end, metering);
        Some(UsageRecord {
            node,
            period: Period { start, end },
            billed_micros: after - before,
            amount: cost_between(self.price, before, after).ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn periods_add_up_to_the_whole() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let span = Span { from: at(100), to: at(287), price: price() };
        let node = NodeId::new("n").unwrap();
        let rule = Metering { minimum: Duration::from_secs(60), ..Metering::PER_SECOND };
        let line = |start, end| {
            span.record(node.clone(), &Period { start: at(start), end: at(end) }, &rule)
        };
        let whole = line(0, 1000).unwrap();
        assert_eq!(whole.billed_micros, 187_000_000);
        assert_eq!(whole.amount.unwrap().to_string(), "1.892855555556 CNY");
        let parts = [line(0, 130).unwrap(), line(130, 200).unwrap(), line(200, 1000).unwrap()];
        assert_eq!(parts.iter().map(|p| p.billed_micros).sum::<u64>(), whole.billed_micros);
        let sum = parts.iter().map(|p| p.amount.unwrap()).reduce(|a, b| a.checked_add(b).unwrap());
        assert_eq!(sum, whole.amount);
        assert_eq!(line(0, 100), None);
        assert_eq!(line(287, 400), None);
    }

    fn price() -> HourlyPrice {
        "36.44 CNY".parse::<runwhere_model::Money>().unwrap().into()
    }
}
