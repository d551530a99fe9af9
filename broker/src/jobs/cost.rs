//! What a job has cost so far.

use jiff::Timestamp;
use runwhere_model::{Money, MoneyError};

use crate::api::runwhere::Cost;
use crate::store::JobView;

/// Billed time and exact cost over all leases of a job, running ones up to `now`.
pub fn cost_of(view: &JobView, now: Timestamp) -> Result<Cost, MoneyError> {
    let mut cost = Cost { settled: true, ..Cost::default() };
    for (trial, lease) in &view.trials {
        cost.settled &= trial.cleanup_confirmed;
        cost.billed_micros = cost.billed_micros.saturating_add(trial.past_billed_micros);
        for amount in &trial.past_amounts {
            add(&mut cost.amounts, *amount)?;
        }
        let Some(lease) = lease else { continue };
        let micros = lease.meter.billed_micros(&lease.capabilities.metering, now);
        cost.billed_micros = cost.billed_micros.saturating_add(micros);
        add(&mut cost.amounts, lease.meter.cost(lease, now)?)?;
    }
    Ok(cost)
}

fn add(amounts: &mut Vec<Money>, amount: Money) -> Result<(), MoneyError> {
    match amounts.iter_mut().find(|sum| sum.currency == amount.currency) {
        Some(sum) => *sum = sum.checked_add(amount)?,
        None => amounts.push(amount),
    }
    Ok(())
}
