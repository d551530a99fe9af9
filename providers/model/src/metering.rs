//! Billing clocks as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When a provider starts to bill.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeterStart {
    /// When the node is requested.
    Requested,
    /// When it runs.
    Running,
    /// When it has passed the provider's health checks.
    Healthy,
}

/// What a minimum charge counts for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MinimumScope {
    /// Each start.
    PerStart,
    /// The whole life of a node.
    PerLifetime,
}

/// How a part of a granule is billed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// A started granule counts whole.
    Up,
    /// Half a granule counts whole.
    Nearest,
    /// Only full granules count.
    Down,
}

/// A provider's billing rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Metering {
    /// Smallest billed step; at least one microsecond.
    pub granularity: Duration,
    /// Least time billed once a node started.
    pub minimum: Duration,
    /// What the minimum counts for.
    pub minimum_scope: MinimumScope,
    /// When billing starts.
    pub start: MeterStart,
    /// How parts of a granule count.
    pub rounding: Rounding,
}

impl Metering {
    /// Per second, started seconds count whole, no minimum.
    pub const PER_SECOND: Self = Self {
        granularity: Duration::from_secs(1),
        minimum: Duration::ZERO,
        minimum_scope: MinimumScope::PerStart,
        start: MeterStart::Running,
        rounding: Rounding::Up,
    };

    /// Billed microseconds of one start that lasted `micros` microseconds: rounded to the
    /// granularity, at least the minimum. Nothing ran, nothing is billed.
    pub fn billed_micros(&self, micros: u64) -> u64 {
        if micros == 0 {
            return 0;
        }
        let granule = u64::try_from(self.granularity.as_micros()).unwrap_or(u64::MAX).max(1);
        let minimum = u64::try_from(self.minimum.as_micros()).unwrap_or(u64::MAX);
        let whole = micros / granule;
        let rest = micros % granule;
        let granules = match self.rounding {
            Rounding::Up => whole + u64::from(rest > 0),
            Rounding::Nearest => whole + u64::from(rest >= granule - rest),
            Rounding::Down => whole,
        };
        granules.saturating_mul(granule).max(minimum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_minute_minimum_applies_per_start() {
        let ec2 = Metering { minimum: Duration::from_secs(60), ..Metering::PER_SECOND };
        let billed = |s: u64| ec2.billed_micros(s * SECOND) / SECOND;
        assert_eq!([billed(0), billed(59), billed(60), billed(61)], [0, 60, 60, 61]);
        assert_eq!(billed(20) + billed(20), 120);
    }

    #[test]
    fn started_steps_count_whole() {
        let lambda = Metering { granularity: Duration::from_secs(60), ..Metering::PER_SECOND };
        assert_eq!(lambda.billed_micros(1), 60 * SECOND);
        assert_eq!(lambda.billed_micros(60 * SECOND + 1), 120 * SECOND);
    }

    proptest! {
        #[test]
        fn billed_time_is_monotone_and_never_short(
            a in 0u64..1_000_000_000_000, b in 0u64..1_000_000_000_000,
            granule in 1u64..4_000_000_000, minimum in 0u64..4_000_000_000,
        ) {
            let rule = Metering {
                granularity: Duration::from_micros(granule),
                minimum: Duration::from_micros(minimum),
                ..Metering::PER_SECOND
            };
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(rule.billed_micros(low) <= rule.billed_micros(high));
            prop_assert!(rule.billed_micros(low) >= low);
            prop_assert!(low == 0 || rule.billed_micros(low) >= minimum);
        }
    }
}
