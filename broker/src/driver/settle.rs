//! The provider's own bill of leases whose times were only observed: asked for once a lease has
//! ended, until it has settled what was estimated.

use runwhere_engine::{Lease, LedgerEntry, Settlement, UsageSegment, sabotage, settle};
use runwhere_model::{LeaseId, Period, UsageRecords};
use rust_decimal::Decimal;

use super::core::{Core, DriveError};
use crate::store::{Row, SegmentQuery, StoreError, Transition};

/// How often a settlement is decided anew because a row was changed meanwhile.
const STALE_TRIES: u32 = 16;

impl Core {
    /// Asks for the bill of an ended lease and books what it corrects. Without an answer the lease
    /// is asked for again later.
    pub(super) async fn settle_lease(&self, id: &LeaseId) -> Result<(), DriveError> {
        let store = &self.parts.store;
        let Some(lease) = store.lease(id).await? else { return Ok(()) };
        let now = self.parts.clock.now();
        if lease.usage_due().is_none_or(|at| at > now) {
            return Ok(());
        }
        let asked = lease.usage_period(now);
        let answer = match self.parts.registry.get(&lease.offer.provider).cloned() {
            Some(provider) => self
                .within(&provider, "usage", provider.usage(&asked))
                .await
                .map_err(|error| error.to_string()),
            None => Err("the provider is not connected any more".to_owned()),
        };
        match answer {
            Ok(bill) => self.book_bill(lease, &bill, &asked).await,
            Err(error) => {
                tracing::warn!(lease.id = %id, %error, "The provider's bill could not be read");
                let now = self.parts.clock.now();
                let lease = lease.usage_failed(&error, &self.parts.policy, now);
                match store.commit(rows(vec![Row::Lease(lease)])).await {
                    // Somebody else was quicker.
                    Ok(()) | Err(StoreError::Stale { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    async fn book_bill(
        &self,
        mut lease: Lease,
        bill: &UsageRecords,
        asked: &Period,
    ) -> Result<(), DriveError> {
        let store = &self.parts.store;
        for _ in 0..STALE_TRIES {
            let Some((_, trial, _)) = store.unit(&lease.trial).await? else { return Ok(()) };
            let segments = self.segments_of(&lease).await?;
            let (id, policy) = (lease.id.clone(), &self.parts.policy);
            let now = self.parts.clock.now();
            let mut settled = settle(lease, &trial, &segments, bill, asked, policy, now)
                .map_err(runwhere_engine::StepError::from)?;
            if sabotage!(BillIgnored) {
                settled.segments.clear();
            }
            let mut written = vec![Row::Lease(settled.lease.clone())];
            for segment in &settled.segments {
                written.push(Row::Segment(segment.clone()));
                written.push(Row::Entry(LedgerEntry::of_segment(segment, now)));
            }
            if settled.past_micros != 0 || !settled.past_amounts.is_empty() {
                let mut trial = trial;
                trial.adjust_past(settled.past_micros, &settled.past_amounts);
                written.push(Row::Trial(trial));
            }
            self.correct_budget(&settled, &mut written).await?;
            let transition = Transition { rows: written, events: settled.events };
            match store.commit(transition).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Stale { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            // The trial, the budget, or another process with the same bill: read again.
            match store.lease(&id).await? {
                Some(again) if again.usage_due().is_some() => lease = again,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    async fn segments_of(&self, lease: &Lease) -> Result<Vec<UsageSegment>, StoreError> {
        let query = SegmentQuery {
            job: Some(lease.job.clone()),
            limit: u32::MAX,
            ..SegmentQuery::default()
        };
        let of_job = self.parts.store.segments(&lease.project, &query).await?;
        let of_lease = of_job.into_iter().map(|(_, segment)| segment);
        Ok(of_lease.filter(|segment| segment.lease == lease.id).collect())
    }

    async fn correct_budget(
        &self,
        settled: &Settlement,
        rows: &mut Vec<Row>,
    ) -> Result<(), StoreError> {
        if settled.spent.iter().all(|money| money.amount.is_zero()) {
            return Ok(());
        }
        let store = &self.parts.store;
        let Some(mut budget) = store.budget(&settled.lease.project).await? else { return Ok(()) };
        for money in &settled.spent {
            let rate = match money.currency == budget.currency {
                true => Some(Decimal::ONE),
                false => self.parts.prices.rate(money.currency, budget.currency).map(|r| r.rate),
            };
            match rate {
                Some(rate) => budget.spend(money.amount.saturating_mul(rate)),
                None => tracing::error!(
                    lease.id = %settled.lease.id,
                    "A correction is in no budget: there is no exchange rate for it"
                ),
            }
        }
        rows.push(Row::Budget(budget));
        Ok(())
    }
}

fn rows(rows: Vec<Row>) -> Transition {
    Transition { rows, events: Vec::new() }
}
