//! Calls of EC2, each to its last page.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{InstanceTypeInfo, LocationType};
use jiff::Timestamp;
use runwhere_model::{ErrorKind, GpuCount, ProviderError, ProviderId};
use runwhere_providers::sources::count;
use rust_decimal::Decimal;

use crate::map::{RegionFacts, SpotPrice, TypeFacts};

/// Reads what an account tells of its region.
pub(crate) async fn facts(
    client: &Client,
    provider: &ProviderId,
    now: Timestamp,
) -> Result<RegionFacts, ProviderError> {
    let types = types(client, provider).await?;
    let offered = offered(client, provider, &types).await?;
    let (spot, odd) = spot(client, provider, &types, now).await?;
    Ok(RegionFacts { types, offered, spot, odd })
}

async fn types(
    client: &Client,
    provider: &ProviderId,
) -> Result<BTreeMap<String, TypeFacts>, ProviderError> {
    const CALL: &str = "DescribeInstanceTypes";
    let mut all = BTreeMap::new();
    let mut pages = client.describe_instance_types().into_paginator().page_size(100).items().send();
    while let Some(next) = pages.next().await {
        let info = next.map_err(|error| failed(provider, CALL, &error))?;
        let Some(id) = info.instance_type() else { continue };
        if let Some(facts) = type_facts(&info) {
            all.insert(id.as_str().to_owned(), facts);
        }
    }
    match all.is_empty() {
        true => Err(ProviderError::new(provider.clone(), CALL, ErrorKind::Malformed)
            .because("no type with an accelerator at all")),
        false => Ok(all),
    }
}

fn type_facts(info: &InstanceTypeInfo) -> Option<TypeFacts> {
    let positive = |number: i32| u32::try_from(number).ok().filter(|number| *number > 0);
    let mib = |number: i32| u64::try_from(number).ok().filter(|mib| *mib > 0);
    let mut facts = if let Some(gpus) = info.gpu_info() {
        let gpu = gpus.gpus().first()?;
        // A share: count 0 and the size of the part as a fraction.
        let share = gpu
            .gpu_partition_size()
            .filter(|size| *size < 1.0)
            .and_then(|size| Decimal::from_str(&size.to_string()).ok())
            .and_then(count);
        TypeFacts {
            raw: gpu.name().unwrap_or_default().to_owned(),
            // That of a share is no memory of a GPU.
            memory_mib: match share {
                Some(_) => None,
                None => gpu.memory_info().and_then(|memory| memory.size_in_mib()).and_then(mib),
            },
            count: share.or_else(|| gpu.count().and_then(positive).and_then(GpuCount::whole)),
            ..TypeFacts::default()
        }
    } else if let Some(neuron) = info.neuron_info() {
        let device = neuron.neuron_devices().first()?;
        TypeFacts {
            raw: device.name().unwrap_or_default().to_owned(),
            memory_mib: device.memory_info().and_then(|memory| memory.size_in_mib()).and_then(mib),
            count: device.count().and_then(positive).and_then(GpuCount::whole),
            ..TypeFacts::default()
        }
    } else if let Some(inference) = info.inference_accelerator_info() {
        let device = inference.accelerators().first()?;
        TypeFacts {
            raw: device.name().unwrap_or_default().to_owned(),
            count: device.count().and_then(positive).and_then(GpuCount::whole),
            ..TypeFacts::default()
        }
    } else {
        return None;
    };
    facts.vcpus = info.v_cpu_info().and_then(|cpu| cpu.default_v_cpus()).and_then(positive);
    facts.host_mib = info
        .memory_info()
        .and_then(|memory| memory.size_in_mib())
        .and_then(|mib| u64::try_from(mib).ok());
    Some(facts)
}

async fn offered(
    client: &Client,
    provider: &ProviderId,
    types: &BTreeMap<String, TypeFacts>,
) -> Result<BTreeSet<String>, ProviderError> {
    const CALL: &str = "DescribeInstanceTypeOfferings";
    let mut all = BTreeSet::new();
    let mut pages = client
        .describe_instance_type_offerings()
        // Names of zones differ from account to account, their ids do not.
        .location_type(LocationType::AvailabilityZoneId)
        .into_paginator()
        .items()
        .send();
    while let Some(next) = pages.next().await {
        let offering = next.map_err(|error| failed(provider, CALL, &error))?;
        if let Some(id) = offering.instance_type().map(|id| id.as_str())
            && types.contains_key(id)
        {
            all.insert(id.to_owned());
        }
    }
    Ok(all)
}

async fn spot(
    client: &Client,
    provider: &ProviderId,
    types: &BTreeMap<String, TypeFacts>,
    now: Timestamp,
) -> Result<(Vec<SpotPrice>, Vec<Odd>), ProviderError> {
    const CALL: &str = "DescribeSpotPriceHistory";
    let (mut all, mut odd) = (Vec::new(), Vec::new());
    let ids: Vec<&String> = types.keys().collect();
    // As many names as one call takes without becoming too long.
    for some in ids.chunks(80) {
        let mut call = client
            .describe_spot_price_history()
            .product_descriptions("Linux/UNIX")
            // "From now on" is the present price of each zone.
            .start_time(DateTime::from_secs(now.as_second()));
        for id in some {
            call = call.instance_types(aws_sdk_ec2::types::InstanceType::from(id.as_str()));
        }
        let mut pages = call.into_paginator().items().send();
        while let Some(next) = pages.next().await {
            let row = next.map_err(|error| failed(provider, CALL, &error))?;
            let zone = row.availability_zone_id().or(row.availability_zone());
            let name = || {
                let id = row.instance_type().map_or("unnamed", |id| id.as_str());
                format!("{} {id} (spot)", zone.unwrap_or("no zone"))
            };
            // One zone without a price costs no other zone.
            let (Some(zone), Some(id), Some(price)) = (zone, row.instance_type(), row.spot_price())
            else {
                odd.push((name(), "it does not name zone, type and price"));
                continue;
            };
            all.push(SpotPrice {
                zone: zone.to_owned(),
                instance_type: id.as_str().to_owned(),
                price: price.to_owned(),
                at: row.timestamp().and_then(|at| Timestamp::from_second(at.secs()).ok()),
            });
        }
    }
    Ok((all, odd))
}

/// Whose prices the history holds a row of, and why that is none.
type Odd = (String, &'static str);

/// A failed call, without addresses or credentials.
fn failed<E: ProvideErrorMetadata, R>(
    provider: &ProviderId,
    call: &'static str,
    error: &SdkError<E, R>,
) -> ProviderError {
    let (kind, why) = match error {
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or_default();
            let message = service.err().message().unwrap_or_default();
            let said: String = format!("{code} {message}").chars().take(240).collect();
            (kind_of(code), said.trim().to_owned())
        }
        SdkError::TimeoutError(_) => (ErrorKind::Transient, "no answer in time".to_owned()),
        SdkError::DispatchFailure(failure) => {
            let what = match failure {
                failure if failure.is_timeout() => "no answer in time",
                failure if failure.is_user() => "the call could not be made: no usable credentials",
                _ => "no connection",
            };
            let kind = if failure.is_user() { ErrorKind::Auth } else { ErrorKind::Transient };
            (kind, what.to_owned())
        }
        SdkError::ResponseError(_) => {
            (ErrorKind::Malformed, "the answer could not be understood".to_owned())
        }
        SdkError::ConstructionFailure(_) => {
            (ErrorKind::Auth, "the call could not be made: no usable credentials".to_owned())
        }
        _ => (ErrorKind::Transient, "the call failed".to_owned()),
    };
    let why = if why.is_empty() { "the provider refused without a reason".to_owned() } else { why };
    ProviderError::new(provider.clone(), call, kind).because(why)
}

fn kind_of(code: &str) -> ErrorKind {
    match code {
        "AuthFailure"
        | "UnauthorizedOperation"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "OptInRequired"
        | "Blocked" => ErrorKind::Auth,
        code if code.starts_with("Expired") => ErrorKind::Auth,
        "RequestLimitExceeded" | "Throttling" | "ThrottlingException" => ErrorKind::Throttle,
        "" | "InternalError" | "InternalFailure" | "ServiceUnavailable" | "Unavailable" => {
            ErrorKind::Transient
        }
        _ => ErrorKind::Invalid,
    }
}
