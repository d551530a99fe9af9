//! From the wire to the vocabulary: pure, and total. What does not fit is rejected with a reason.

use std::time::Duration;

use jiff::Timestamp;
use runwhere_providers::model::{
    BillingModel, CurrencyError, DeploymentId, EndCause, GpuCount, GpuModel, HourlyPrice, LeaseId,
    NodeId, NodePhase, NodeState, Offer, OfferKey, OfferScope, OfferSheet, Price, PriceKind,
    PriceState, ProviderId, RejectedRow, SeenNode, Stock, parse_decimal,
};
use serde_json::value::RawValue;

use crate::wire::{Flavor, Hourly, Machine, Order};

/// From the order until a machine runs.
pub(crate) const BOOT: Duration = Duration::from_secs(3);
/// From the asking until a machine is gone.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Labels on every machine.
pub(crate) const DEPLOYMENT: &str = "runwhere-deployment";
/// The lease of a machine.
pub(crate) const LEASE: &str = "runwhere-lease";

/// The price list as a sheet.
pub(crate) fn sheet(
    provider: &ProviderId,
    rows: &[Box<RawValue>],
    scope: &OfferScope,
    now: Timestamp,
) -> OfferSheet {
    let mut sheet = OfferSheet::complete(Vec::new(), Vec::new(), now);
    for row in rows {
        match offer(provider, row, now) {
            Ok(offer) => {
                let region = offer.key.region.as_ref();
                if scope.regions.is_empty() || region.is_some_and(|r| scope.regions.contains(r)) {
                    sheet.offers.push(offer);
                }
            }
            Err(reason) => sheet.rejected.push(RejectedRow { row: row.get().to_owned(), reason }),
        }
    }
    sheet
}

fn offer(provider: &ProviderId, row: &RawValue, now: Timestamp) -> Result<Offer, String> {
    let flavor: Flavor = serde_json::from_str(row.get()).map_err(|error| error.to_string())?;
    let gpu_count = GpuCount::whole(flavor.gpus).ok_or("gpus: at least one is needed")?;
    let state = match &flavor.hourly {
        Some(hourly) => PriceState::Known { price: price(hourly)? },
        // Not stated is not free.
        None => PriceState::Unknown,
    };
    Ok(Offer {
        key: OfferKey {
            provider: provider.clone(),
            region: Some(flavor.site),
            zone: None,
            billing_model: BillingModel::OnDemand,
            instance_type: flavor.name,
        },
        gpu: GpuModel::resolve(&flavor.gpu).map(|model| model.id),
        gpu_raw: flavor.gpu,
        gpu_count,
        vcpus: flavor.cpus,
        memory_mib: flavor.memory_mib,
        launchable: state.known().is_some(),
        price: Price {
            state,
            kind: PriceKind::Account,
            source: "harbour flavors".to_owned(),
            observed_at: Some(now),
            effective_at: None,
        },
        stock: Stock::Unstated,
        pretended: false,
        gpu_memory_mib: None,
        marks: runwhere_providers::model::Marks::NONE,
        details: None,
    })
}

fn price(hourly: &Hourly) -> Result<HourlyPrice, String> {
    let amount = parse_decimal(hourly.price.get()).map_err(|error| format!("price: {error}"))?;
    let currency = hourly.unit.parse().map_err(|error: CurrencyError| format!("unit: {error}"))?;
    if amount.is_zero() || amount.is_sign_negative() {
        return Err("price: expected more than 0".to_owned());
    }
    Ok(HourlyPrice { amount, currency })
}

/// A machine at an instant. `None` where its name is none that a node can have.
pub(crate) fn node(machine: &Machine, now: Timestamp) -> Option<NodeState> {
    let order = &machine.order;
    let asked = machine.end.map(|end| end.asked_at);
    let ends_at = match (asked, order.end_by) {
        (Some(asked), Some(end_by)) => Some(asked.min(end_by)),
        (asked, end_by) => asked.or(end_by),
    };
    let gone_at = ends_at.map(|at| at.checked_add(SHUTDOWN).unwrap_or(Timestamp::MAX));
    let phase = match (ends_at, gone_at) {
        (_, Some(gone_at)) if gone_at <= now => NodePhase::Gone,
        (Some(ends_at), _) if ends_at <= now => NodePhase::Stopping,
        _ if order.runs_at <= now => NodePhase::Running,
        _ => NodePhase::Pending,
    };
    // A machine that was ended before it ran has never been billed.
    let ran = ends_at.is_none_or(|at| order.runs_at < at);
    Some(NodeState {
        node: NodeId::new(order.name.as_str()).ok()?,
        phase,
        started_at: Some(order.runs_at).filter(|at| ran && *at <= now),
        stopped_at: ends_at.filter(|_| ran && phase == NodePhase::Gone),
        reason: match phase {
            NodePhase::Gone | NodePhase::Stopping if asked == ends_at => Some("ended by request"),
            NodePhase::Gone | NodePhase::Stopping => Some("end time reached"),
            NodePhase::Pending | NodePhase::Running | NodePhase::Stopped => None,
        }
        .map(str::to_owned),
        cause: match phase {
            NodePhase::Gone | NodePhase::Stopping if asked == ends_at => Some(EndCause::Requested),
            NodePhase::Gone | NodePhase::Stopping => Some(EndCause::TimeLimit),
            NodePhase::Pending | NodePhase::Running | NodePhase::Stopped => None,
        },
        billed_price: billed_price(order),
        region: Some(order.site.clone()),
        zone: None,
    })
}

/// The price that a machine was ordered at.
pub(crate) fn billed_price(order: &Order) -> Option<HourlyPrice> {
    let amount = parse_decimal(&order.price).ok()?;
    Some(HourlyPrice { amount, currency: order.unit.parse().ok()? })
}

/// A machine in a listing.
pub(crate) fn seen(machine: &Machine, now: Timestamp) -> Option<SeenNode> {
    let label = |name: &str| machine.order.labels.get(name).map(String::as_str);
    Some(SeenNode {
        state: node(machine, now)?,
        deployment: label(DEPLOYMENT).and_then(|text| DeploymentId::new(text).ok()),
        lease: label(LEASE).and_then(|text| LeaseId::new(text).ok()),
        created_at: Some(machine.order.ordered_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_an_offer_or_has_a_reason() {
        let rows: Vec<Box<RawValue>> =
            serde_json::from_str(include_str!("../fixtures/flavors.json")).unwrap();
        let provider = ProviderId::new("harbour").unwrap();
        let sheet = sheet(&provider, &rows, &OfferScope::default(), Timestamp::UNIX_EPOCH);
        let offers: Vec<_> = sheet
            .offers
            .iter()
            .map(|offer| {
                let price = offer.price.state.known().map(|price| price.to_string());
                (offer.key.to_string(), offer.gpu.map(|gpu| gpu.to_string()), price)
            })
            .collect();
        let offer = |key: &str, gpu: &str, price: Option<&str>| {
            (key.to_owned(), Some(gpu.to_owned()), price.map(str::to_owned))
        };
        let expected = [
            offer("harbour/north/-/on_demand/skiff.1", "l40s", Some("1.85 EUR/h")),
            offer("harbour/south/-/on_demand/barge.8", "a100-80g", Some("14.07 EUR/h")),
            offer("harbour/south/-/on_demand/ghost.1", "t4", None),
        ];
        assert_eq!(offers, expected);
        let reasons: Vec<_> = sheet.rejected.iter().map(|row| row.reason.as_str()).collect();
        assert!(reasons[0].starts_with("gpus"), "{reasons:?}");
        assert!(reasons[1].starts_with("price"), "{reasons:?}");
        assert!(reasons[2].contains("site"), "{reasons:?}");
        assert_eq!(reasons.len(), 3);
    }
}
