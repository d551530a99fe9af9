//! What changed between two states of prices.

use jiff::Timestamp;
use runwhere_model::{HourlyPrice, OfferKey};
use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Serialize};

use crate::catalogue::Catalogue;
use crate::shard::{PriceStateTag, Row, Shard};

/// What happened to an offer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its price went up.
    Dearer,
    /// Its price went down.
    Cheaper,
    /// Its price is in another currency, became known, or is known no more.
    Otherwise,
}

/// One change.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When the newer price was read; absent for bundled prices.
    pub at: Option<Timestamp>,
    /// Which offer.
    pub offer_key: OfferKey,
    /// What happened.
    pub kind: ChangeKind,
    /// Before.
    pub before: Option<HourlyPrice>,
    /// After.
    pub after: Option<HourlyPrice>,
    /// By how many percent, one decimal, as text; absent where there is no such number.
    pub percent: Option<String>,
}

impl Change {
    fn of(
        shard: &Shard,
        row: &Row,
        before: Option<HourlyPrice>,
        after: Option<HourlyPrice>,
    ) -> Self {
        let kind = match (before, after) {
            (Some(b), Some(a)) if a.currency == b.currency && a.amount > b.amount => {
                ChangeKind::Dearer
            }
            (Some(b), Some(a)) if a.currency == b.currency && a.amount < b.amount => {
                ChangeKind::Cheaper
            }
            _ => ChangeKind::Otherwise,
        };
        Self {
            at: shard.read_at(row),
            offer_key: shard.key(row),
            kind,
            before,
            after,
            percent: percent(before, after),
        }
    }
}

fn percent(before: Option<HourlyPrice>, after: Option<HourlyPrice>) -> Option<String> {
    let (before, after) = (before?, after?);
    if before.currency != after.currency {
        return None;
    }
    let moved = after.amount.checked_sub(before.amount)?.checked_mul(Decimal::ONE_HUNDRED)?;
    let percent = moved.checked_div(before.amount)?;
    Some(
        percent
            .round_dp_with_strategy(1, RoundingStrategy::MidpointAwayFromZero)
            .normalize()
            .to_string(),
    )
}

/// What changed from one shard to another of the same provider, by key.
pub fn changes(before: Option<&Shard>, after: Option<&Shard>) -> Vec<Change> {
    let of = |shard: Option<&Shard>| shard.map_or(0, |shard| shard.len());
    let (mut i, mut j) = (0, 0);
    let mut found = Vec::new();
    while i < of(before) || j < of(after) {
        let old = before.and_then(|shard| Some((shard, shard.rows().get(i)?)));
        let new = after.and_then(|shard| Some((shard, shard.rows().get(j)?)));
        let order = match (old, new) {
            (Some((a, old)), Some((b, new))) => a.parts(old).cmp(&b.parts(new)),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, _) => std::cmp::Ordering::Greater,
        };
        match (order, old, new) {
            (std::cmp::Ordering::Less, Some((shard, old)), _) => {
                i += 1;
                found.push(Change {
                    at: after.and_then(Shard::observed_at),
                    kind: ChangeKind::Removed,
                    ..Change::of(shard, old, old.known(), None)
                });
            }
            (std::cmp::Ordering::Equal, Some((_, old)), Some((shard, new))) => {
                (i, j) = (i + 1, j + 1);
                let same = old.known() == new.known()
                    && (old.state == PriceStateTag::NotOffered)
                        == (new.state == PriceStateTag::NotOffered);
                if !same {
                    found.push(Change::of(shard, new, old.known(), new.known()));
                }
            }
            (_, _, Some((shard, new))) => {
                j += 1;
                found.push(Change {
                    kind: ChangeKind::Added,
                    ..Change::of(shard, new, None, new.known())
                });
            }
            (_, _, None) => break,
        }
    }
    found
}

impl Catalogue {
    /// What changed since an earlier state, by key.
    pub fn changes_since(&self, earlier: &Catalogue) -> Vec<Change> {
        let mut providers: Vec<_> = self
            .shards()
            .iter()
            .chain(earlier.shards())
            .map(|shard| shard.provider().clone())
            .collect();
        providers.sort();
        providers.dedup();
        providers
            .iter()
            .flat_map(|provider| {
                let of = |catalogue: &Catalogue| catalogue.shard(provider).cloned();
                changes(of(earlier).as_deref(), of(self).as_deref())
            })
            .collect()
    }
}
