//! Money records: usage segments and the balanced entries made of them.

use jiff::Timestamp;
use runwhere_model::{
    HourlyPrice, JobId, LeaseId, Money, NodeId, OfferKey, ProjectId, TrialId, WorkspaceId,
};
use serde::{Deserialize, Serialize};

/// Node x price x UTC hour slice of billed time; the only input of money.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UsageSegment {
    /// `<lease>.<number>`: made again after a crash it is the same. Of a node that nobody wanted
    /// `<lease>+<node>+<since>.<number>`; a reversal has the id of what it reverses and a `~`; by the
    /// provider's usage record `<lease>=<node>.<number>`.
    pub id: String,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// The job.
    pub job: JobId,
    /// The trial.
    pub trial: TrialId,
    /// The lease.
    pub lease: LeaseId,
    /// The node.
    pub node: Option<NodeId>,
    /// What was rented.
    pub offer: OfferKey,
    /// First instant.
    pub start: Timestamp,
    /// First instant after; within the same UTC hour.
    pub end: Timestamp,
    /// Billed microseconds of the lease before this segment.
    pub billed_from_micros: u64,
    /// Billed microseconds of the lease after it; the last segment holds the provider's rounding.
    /// Less than before it where time is taken back.
    pub billed_to_micros: u64,
    /// The price per hour.
    pub price: HourlyPrice,
    /// The catalogue the price is from.
    pub price_snapshot: String,
    /// Exact cost at 12 decimals: the difference of two running totals.
    pub amount: Money,
    /// The times are our own observation.
    pub estimated: bool,
    /// The segment that this one takes back; the two are nothing together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrects: Option<String>,
    /// The line of the provider's bill that it is by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_record: Option<String>,
}

impl UsageSegment {
    /// Its billed microseconds; negative where time is taken back.
    pub fn billed_micros(&self) -> i64 {
        let signed = |micros| i64::try_from(micros).unwrap_or(i64::MAX);
        signed(self.billed_to_micros).saturating_sub(signed(self.billed_from_micros))
    }

    /// It is of a node beyond the one that its lease wanted.
    pub(crate) fn is_of_surplus(&self) -> bool {
        self.id.contains('+')
    }
}

/// One side of an entry.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LedgerLine {
    /// The account, for example `usage:<project>` or `payable:<provider>`.
    pub account: String,
    /// Positive = debit, negative = credit.
    pub amount: Money,
}

/// A balanced, append-only money record.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Derived from what it records.
    pub id: String,
    /// Tenant.
    pub workspace: WorkspaceId,
    /// Tenant's part.
    pub project: ProjectId,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// The segment it records.
    pub segment: String,
    /// Its sides; they sum to zero per currency.
    pub lines: Vec<LedgerLine>,
}

impl LedgerEntry {
    /// The entry of a segment: the project's usage against what the provider is owed.
    pub fn of_segment(segment: &UsageSegment, recorded_at: Timestamp) -> Self {
        let credit = Money::new(-segment.amount.amount, segment.amount.currency);
        Self {
            id: format!("entry.{}", segment.id),
            workspace: segment.workspace.clone(),
            project: segment.project.clone(),
            recorded_at,
            segment: segment.id.clone(),
            lines: vec![
                LedgerLine {
                    account: format!("usage:{}", segment.project),
                    amount: segment.amount,
                },
                LedgerLine {
                    account: format!("payable:{}", segment.offer.provider),
                    amount: credit,
                },
            ],
        }
    }

    /// Whether its lines sum to zero in every currency.
    pub fn is_balanced(&self) -> bool {
        let mut sums: Vec<Money> = Vec::new();
        for line in &self.lines {
            match sums.iter_mut().find(|sum| sum.currency == line.amount.currency) {
                Some(sum) => match sum.checked_add(line.amount) {
                    Ok(total) => *sum = total,
                    Err(_) => return false,
                },
                None => sums.push(line.amount),
            }
        }
        sums.iter().all(|sum| sum.amount.is_zero())
    }
}
