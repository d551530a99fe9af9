//! GPU types to offers: one for each cloud (secure, community), count and billing model.
//!
//! All of RunPod's prices are per GPU; an offer's is that of all its GPUs. `minimumBidPrice` is the
//! floor of an auction and never taken for a price.

use runwhere_model::{BillingModel, Currency, GpuCount, PriceState, RawNumber, Stock};
use rust_decimal::Decimal;

use super::wire::{GpuType, Lowest};
use crate::sources::{Listing, SheetBuilder, gib_to_mib, hourly, whole};

/// The counts that are asked for.
pub(super) const COUNTS: [u32; 4] = [1, 2, 4, 8];

/// A cloud of RunPod.
#[derive(Clone, Copy)]
pub(super) struct Cloud {
    /// In types and in the query's aliases.
    pub(super) name: &'static str,
    pub(super) secure: bool,
    here: &'static str,
    price: &'static str,
    spot: &'static str,
    most: &'static str,
}

/// Both clouds.
pub(super) const CLOUDS: [Cloud; 2] = [
    Cloud {
        name: "secure",
        secure: true,
        here: "secureCloud",
        price: "securePrice",
        spot: "secureSpotPrice",
        most: "maxGpuCountSecureCloud",
    },
    Cloud {
        name: "community",
        secure: false,
        here: "communityCloud",
        price: "communityPrice",
        spot: "communitySpotPrice",
        most: "maxGpuCountCommunityCloud",
    },
];

/// The query for all types, counts and clouds.
pub(super) fn query() -> String {
    let mut fields = "id displayName memoryInGb secureCloud communityCloud securePrice \
                      communityPrice secureSpotPrice communitySpotPrice maxGpuCountSecureCloud \
                      maxGpuCountCommunityCloud"
        .to_owned();
    for cloud in CLOUDS {
        for count in COUNTS {
            fields.push_str(&format!(
                " {}{count}: lowestPrice(input: {{gpuCount: {count}, secureCloud: {}}}) \
                 {{ stockStatus minVcpu minMemory }}",
                cloud.name, cloud.secure,
            ));
        }
    }
    format!("query {{ gpuTypes {{ {fields} }} }}")
}

/// Adds a type's offers.
pub(super) fn gpu_type(row: &GpuType, sheet: &mut SheetBuilder) {
    let id: String = match row.field("id") {
        Ok(Some(id)) => id,
        Ok(None) => return sheet.reject("a GPU type", "it has no id"),
        Err(reason) => return sheet.reject("a GPU type", reason),
    };
    if id == "unknown" {
        // RunPod's own placeholder.
        return;
    }
    for cloud in CLOUDS {
        if let Err(reason) = cloud_offers(row, &id, cloud, sheet) {
            sheet.reject(format!("{}.{id}", cloud.name), reason);
        }
    }
}

fn cloud_offers(
    row: &GpuType,
    id: &str,
    cloud: Cloud,
    sheet: &mut SheetBuilder,
) -> Result<(), String> {
    if row.field::<bool>(cloud.here)? == Some(false) {
        return Ok(());
    }
    let most = row.field::<RawNumber>(cloud.most)?.as_ref().and_then(whole);
    let memory = row.field::<RawNumber>("memoryInGb")?.as_ref().and_then(gib_to_mib);
    let on_demand = row.field::<RawNumber>(cloud.price)?;
    let spot = row.field::<RawNumber>(cloud.spot)?;
    for gpus in COUNTS.into_iter().filter(|gpus| most.is_none_or(|most| *gpus <= most)) {
        let count = GpuCount::whole(gpus).ok_or("no GPU count")?;
        let lowest: Option<Lowest> = row.field(&format!("{}{gpus}", cloud.name))?;
        for (billing, each) in [(BillingModel::OnDemand, &on_demand), (BillingModel::Spot, &spot)] {
            if billing == BillingModel::Spot && each.is_none() {
                continue;
            }
            let price = times(hourly(each.as_ref(), Currency::USD)?, gpus)?;
            let mut offer = Listing::new(format!("{}.{id}.x{gpus}", cloud.name), id, count, price);
            offer.billing = billing;
            offer.gpu_memory_mib = memory;
            offer.stock = stock(lowest.as_ref());
            offer.vcpus = lowest.as_ref().and_then(|l| l.min_vcpu.as_ref()).and_then(whole);
            offer.memory_mib =
                lowest.as_ref().and_then(|l| l.min_memory.as_ref()).and_then(gib_to_mib);
            sheet.offer(offer);
        }
    }
    Ok(())
}

/// No status means that there is none: what RunPod's own page shows as unavailable.
fn stock(lowest: Option<&Lowest>) -> Stock {
    match lowest {
        None => Stock::Unstated,
        Some(lowest) => match lowest.stock_status.as_deref() {
            None | Some("None" | "Unavailable") => Stock::SoldOut,
            Some("Low") => Stock::Low,
            Some("Medium" | "High") => Stock::Available,
            Some(_) => Stock::Unstated,
        },
    }
}

fn times(price: PriceState, gpus: u32) -> Result<PriceState, String> {
    let PriceState::Known { mut price } = price else { return Ok(price) };
    price.amount = price
        .amount
        .checked_mul(Decimal::from(gpus))
        .ok_or("the price of all GPUs is too large")?
        .normalize();
    Ok(PriceState::Known { price })
}
