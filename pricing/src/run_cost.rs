//! What a whole run costs: the billing clock, steps after many hours, disk, and the time it stands
//! stopped.

use runwhere_model::{
    HourlyPrice, Metering, Money, MoneyError, Offer, PriceTier, StopEffect, cost_between,
    cost_total,
};
use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Serialize};

const HOUR: u64 = 3_600_000_000;

/// A run to be priced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunPlan {
    /// How long it runs, in microseconds.
    pub running_micros: u64,
    /// In how many starts; at least one.
    pub starts: u32,
    /// Disk, in GiB.
    pub disk_gib: u32,
    /// How long the machine stands stopped before it is ended, in microseconds.
    pub stopped_micros: u64,
}

/// What a provider bills by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BillingRule {
    /// The clock.
    pub metering: Metering,
    /// What a stop does.
    pub stop: StopEffect,
}

/// What a run costs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct RunCost {
    /// Time that is billed, in microseconds.
    pub billed_micros: u64,
    /// The machine while it runs.
    pub compute: Money,
    /// Disk from first to last; `None` = the source states no price for it.
    pub disk: Option<Money>,
    /// The machine while it stands stopped.
    pub stopped: Money,
    /// All of it; `None` where a part is not known.
    pub total: Option<Money>,
}

/// The price of a run on an offer; `None` where the offer's price is not known.
pub fn run_cost(
    offer: &Offer,
    rule: &BillingRule,
    plan: &RunPlan,
) -> Option<Result<RunCost, MoneyError>> {
    let price = offer.price.state.known()?;
    let tiers = offer.details.as_deref().map_or(&[][..], |details| &details.tiers);
    Some(cost(offer, price, tiers, rule, plan))
}

fn cost(
    offer: &Offer,
    price: HourlyPrice,
    tiers: &[PriceTier],
    rule: &BillingRule,
    plan: &RunPlan,
) -> Result<RunCost, MoneyError> {
    let starts = plan.starts.max(1);
    let each = plan.running_micros / u64::from(starts);
    let last = plan.running_micros - each * u64::from(starts - 1);
    let billed_micros = rule
        .metering
        .billed_micros(each)
        .checked_mul(u64::from(starts - 1))
        .and_then(|before| before.checked_add(rule.metering.billed_micros(last)))
        .ok_or(MoneyError::Range)?;
    let compute = tiered(price, tiers, 0, billed_micros)?;
    let stopped = match rule.stop {
        StopEffect::KeepsBilling => {
            let until = billed_micros.checked_add(plan.stopped_micros).ok_or(MoneyError::Range)?;
            tiered(price, tiers, billed_micros, until)?
        }
        StopEffect::EndsCompute | StopEffect::None => Money::zero(price.currency),
    };
    let disk = disk(offer, price, billed_micros, plan)?;
    let total = match disk {
        Some(disk) => Some(compute.checked_add(stopped)?.checked_add(disk)?),
        None => None,
    };
    Ok(RunCost { billed_micros, compute, disk, stopped, total })
}

/// The price of a span of a node's life with lower prices after some hours.
fn tiered(
    price: HourlyPrice,
    tiers: &[PriceTier],
    from: u64,
    to: u64,
) -> Result<Money, MoneyError> {
    let mut sum = Money::zero(price.currency);
    let mut start = 0;
    let mut present = price;
    let ends = tiers
        .iter()
        .map(|tier| (u64::from(tier.after_hours).saturating_mul(HOUR), Some(tier.amount)))
        .chain([(u64::MAX, None)]);
    for (end, next) in ends {
        let (low, high) = (start.max(from), end.min(to));
        if low < high {
            sum = sum.checked_add(cost_between(present, low, high)?)?;
        }
        start = end;
        if let Some(amount) = next {
            present = HourlyPrice { amount, ..present };
        }
    }
    Ok(sum)
}

fn disk(
    offer: &Offer,
    price: HourlyPrice,
    billed_micros: u64,
    plan: &RunPlan,
) -> Result<Option<Money>, MoneyError> {
    let zero = Money::zero(price.currency);
    if plan.disk_gib == 0 {
        return Ok(Some(zero));
    }
    let Some(rate) = offer.details.as_deref().and_then(|details| details.disk) else {
        return Ok(None);
    };
    let paid = plan.disk_gib.saturating_sub(rate.included_gib);
    let stopped = if rate.billed_when_stopped { plan.stopped_micros } else { 0 };
    let micros = billed_micros.checked_add(stopped).ok_or(MoneyError::Range)?;
    let month = rate.per_gib_month.checked_mul(Decimal::from(paid)).ok_or(MoneyError::Range)?;
    let by_month = HourlyPrice { amount: month, currency: price.currency };
    let total = cost_total(by_month, micros)?;
    let amount = total
        .amount
        .checked_div(Decimal::from(rate.month_hours.max(1)))
        .ok_or(MoneyError::Range)?
        .round_dp_with_strategy(12, RoundingStrategy::MidpointNearestEven);
    Ok(Some(Money::new(amount, price.currency)))
}

/// What a provider's documents say of its bill; per second and "a stop keeps billing" where nothing
/// is known, so that nothing turns out dearer.
pub fn billing_rule(provider: &str) -> BillingRule {
    use std::time::Duration;
    let per = |granularity: u64, minimum: u64| Metering {
        granularity: Duration::from_secs(granularity),
        minimum: Duration::from_secs(minimum),
        ..Metering::PER_SECOND
    };
    let (metering, stop) = match provider {
        "aws" | "aws-cn" | "gcp" => (per(1, 60), StopEffect::EndsCompute),
        "oci" => (per(1, 60), StopEffect::KeepsBilling),
        "azure" | "nebius" | "runpod" | "crusoe" => (per(1, 0), StopEffect::EndsCompute),
        "vast" => (per(1, 0), StopEffect::EndsCompute),
        "lambda" => (per(60, 0), StopEffect::None),
        "digitalocean" => (per(1, 60), StopEffect::KeepsBilling),
        "vultr" => (per(3600, 3600), StopEffect::KeepsBilling),
        _ => (per(1, 0), StopEffect::KeepsBilling),
    };
    BillingRule { metering, stop }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runwhere_model::{DiskPrice, OfferDetails, parse_decimal};

    fn offer(price: &str, details: OfferDetails) -> Offer {
        let mut offer = crate::snapshot::Bundled::get().offers[0].as_ref().clone();
        offer.price.state =
            runwhere_model::PriceState::Known { price: price.parse::<Money>().unwrap().into() };
        offer.details = Some(Box::new(details));
        offer
    }

    fn hours(hours: u64) -> RunPlan {
        RunPlan { running_micros: hours * HOUR, starts: 1, ..RunPlan::default() }
    }

    fn total(offer: &Offer, provider: &str, plan: &RunPlan) -> String {
        let cost = run_cost(offer, &billing_rule(provider), plan).unwrap().unwrap();
        cost.total.map_or_else(|| "unknown".to_owned(), |m| m.amount.normalize().to_string())
    }

    #[test]
    fn minimum_and_granularity_count_for_each_start() {
        let offer = offer("3.6 USD", OfferDetails::default());
        let second = RunPlan { running_micros: 1_000_000, ..hours(0) };
        assert_eq!(total(&offer, "aws", &second), "0.06", "a minute at least");
        assert_eq!(total(&offer, "vultr", &second), "3.6", "an hour at least");
        assert_eq!(total(&offer, "azure", &second), "0.001");
        let two = RunPlan { running_micros: 2_000_000, starts: 2, ..hours(0) };
        assert_eq!(total(&offer, "aws", &two), "0.12");
    }

    #[test]
    fn steps_after_many_hours_are_summed_piece_by_piece() {
        let step = |after_hours, amount: &str| PriceTier {
            after_hours,
            amount: parse_decimal(amount).unwrap(),
        };
        let tiers = vec![step(96, "8"), step(360, "5")];
        let offer = offer("10 CNY", OfferDetails { tiers, ..OfferDetails::default() });
        assert_eq!(total(&offer, "tencent", &hours(96)), "960");
        assert_eq!(total(&offer, "tencent", &hours(97)), "968");
        assert_eq!(total(&offer, "tencent", &hours(400)), (960 + 264 * 8 + 40 * 5).to_string());
    }

    #[test]
    fn pr_053_disk_is_that_which_is_asked_for() {
        let disk = DiskPrice {
            per_gib_month: parse_decimal("0.15").unwrap(),
            month_hours: 720,
            included_gib: 0,
            billed_when_stopped: true,
        };
        let offer = offer("1 USD", OfferDetails { disk: Some(disk), ..OfferDetails::default() });
        let plan = RunPlan { disk_gib: 50, ..hours(720) };
        assert_eq!(total(&offer, "vast", &plan), "727.5", "50 x 0.15 for a month");
        let stopped = RunPlan { disk_gib: 50, stopped_micros: 720 * HOUR, ..hours(720) };
        assert_eq!(total(&offer, "vast", &stopped), "735", "stopped: the disk alone");
    }

    #[test]
    fn what_a_stop_does_and_what_is_not_known() {
        let offer = offer("2 USD", OfferDetails::default());
        let stopped = RunPlan { stopped_micros: 10 * HOUR, ..hours(1) };
        assert_eq!(total(&offer, "aws", &stopped), "2");
        assert_eq!(total(&offer, "digitalocean", &stopped), "22");
        let disk = RunPlan { disk_gib: 10, ..hours(1) };
        assert_eq!(total(&offer, "aws", &disk), "unknown", "no rate for the disk is not free");
    }

    #[test]
    fn pr_070_every_digit_counts_over_a_month() {
        let offer = offer("0.0084 USD", OfferDetails::default());
        assert_eq!(total(&offer, "azure", &hours(730)), "6.132");
    }
}
