//! Budgets: a hard amount per project, reserved at launch.

use std::collections::BTreeMap;

use runwhere_model::{Currency, HourlyPrice, LeaseId, Money, ProjectId, WorkspaceId};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// A project's budget and what is bound of it, in the budget's currency.
///
/// Its row version is checked with each launch, so two launches cannot both take the last of it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// Row version.
    pub version: u64,
    /// Currency of the limit.
    pub currency: Currency,
    /// The hard limit; `None` = no limit, only counted.
    pub limit: Option<Decimal>,
    /// Cost that is final.
    pub spent: Decimal,
    /// Bound by leases whose end is not confirmed, unconfirmed clean-up included.
    pub reserved: BTreeMap<LeaseId, Decimal>,
}

/// The limit does not allow it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "budget exceeded: {committed} of {limit} {currency} are spent or reserved and {wanted} more are needed"
)]
pub struct BudgetExceeded {
    /// Spent and reserved so far.
    pub committed: Decimal,
    /// What the launch needs.
    pub wanted: Decimal,
    /// The limit.
    pub limit: Decimal,
    /// Its currency.
    pub currency: Currency,
}

impl Budget {
    /// A budget without a limit.
    pub fn unlimited(workspace: WorkspaceId, project: ProjectId, currency: Currency) -> Self {
        Self {
            workspace,
            project,
            version: 0,
            currency,
            limit: None,
            spent: Decimal::ZERO,
            reserved: BTreeMap::new(),
        }
    }

    /// Spent and reserved together.
    pub fn committed(&self) -> Decimal {
        self.reserved.values().fold(self.spent, |sum, amount| sum.saturating_add(*amount))
    }

    /// Binds an amount for a lease, replacing what it had bound; refused above the limit.
    pub fn reserve(&mut self, lease: &LeaseId, amount: Decimal) -> Result<(), BudgetExceeded> {
        let had = self.reserved.get(lease).copied().unwrap_or_default();
        let committed = self.committed().saturating_sub(had);
        if let Some(limit) = self.limit
            && committed.saturating_add(amount) > limit
        {
            return Err(BudgetExceeded {
                committed,
                wanted: amount,
                limit,
                currency: self.currency,
            });
        }
        self.reserved.insert(lease.clone(), amount);
        Ok(())
    }

    /// Grows what a running lease has bound to its cost so far; never refused, for the money is
    /// already owed.
    pub fn raise(&mut self, lease: &LeaseId, cost: Decimal) {
        let bound = self.reserved.entry(lease.clone()).or_default();
        *bound = (*bound).max(cost);
    }

    /// Ends a lease: what it bound is freed, its real cost is spent. Harmless when repeated.
    pub fn settle(&mut self, lease: &LeaseId, cost: Decimal) {
        if self.reserved.remove(lease).is_some() {
            self.spent = self.spent.saturating_add(cost);
        }
    }

    /// Ends a lease whose real cost cannot be told in this currency now: all that it had bound
    /// counts as spent.
    pub fn settle_as_bound(&mut self, lease: &LeaseId) {
        if let Some(bound) = self.reserved.remove(lease) {
            self.spent = self.spent.saturating_add(bound);
        }
    }

    /// Counts money that was owed without a reservation: nodes that nobody wanted.
    pub fn spend(&mut self, amount: Decimal) {
        self.spent = self.spent.saturating_add(amount);
    }

    /// What is reserved for a launch at this price: one hour.
    pub fn hour_of(price: HourlyPrice) -> Money {
        price.per_hour()
    }
}
