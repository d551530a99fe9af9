//! Filters of price lists, and lists as CSV.

use runwhere_model::{BillingModel, GpuCount, Stock};
use runwhere_pricing::ListRequest;
use rust_decimal::Decimal;
use serde_json::Value;

use crate::api::query_value;
use crate::args::{PriceListArgs, StockArg};
use crate::failure::{Failure, Outcome};
use crate::texts;

pub(super) const SUMMARY_COLUMNS: [&str; 10] = [
    "gpu_model",
    "gpu_type",
    "gpu_memory_gb",
    "min_hourly_price",
    "max_hourly_price",
    "min_hourly_price_per_gpu",
    "provider_count",
    "offer_count",
    "launchable_count",
    "has_spot",
];

pub(super) const OFFER_COLUMNS: [&str; 25] = [
    "offer_key",
    "offer_code",
    "provider",
    "region",
    "zone",
    "billing_model",
    "instance_type",
    "gpu_model",
    "gpu_type",
    "gpu_count",
    "gpu_memory_gb",
    "vcpus",
    "memory_mib",
    "price",
    "currency",
    "price_state",
    "price_per_gpu",
    "hourly_price",
    "stock",
    "price_kind",
    "observed_at",
    "age",
    "stale",
    "launchable",
    "flags",
];

/// Rows as CSV; lists in a cell are separated by blanks, what is absent is an empty cell.
pub(super) fn csv(columns: &[&str], items: &[Value]) -> Outcome<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let cell = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
        }
        Some(other) => other.to_string(),
    };
    let wrong =
        |error: &dyn std::fmt::Display| Failure::other("price_answer", texts::price_answer(error));
    writer.write_record(columns).map_err(|error| wrong(&error))?;
    for item in items {
        let row = columns.iter().map(|column| cell(item.get(column)));
        writer.write_record(row).map_err(|error| wrong(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| wrong(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(&error))?;
    Ok(text.trim_end().to_owned())
}

/// The filters; `max_price` in CNY.
pub(super) fn list_request(
    args: &PriceListArgs,
    max_price: Option<Decimal>,
) -> Outcome<ListRequest> {
    let count = args.gpu_num.as_deref().map(str::parse::<GpuCount>).transpose();
    Ok(ListRequest {
        gpu_model: args.gpu_type.clone(),
        provider: args.provider.clone(),
        billing_model: args.billing_model.map(BillingModel::from),
        region: args.region.clone(),
        zone: args.zone.clone(),
        country: args.country.clone(),
        gpu_count: count.map_err(|_| Failure::usage("gpu_num", texts::price_gpu_num()))?,
        min_memory_mib: args.min_memory.map(|gib| u64::from(gib) * 1024),
        max_price,
        stock: args.stock.map(|stock| match stock {
            StockArg::InStock => Stock::Available,
            StockArg::Low => Stock::Low,
            StockArg::SoldOut => Stock::SoldOut,
            StockArg::Unstated => Stock::Unstated,
        }),
        max_age_seconds: args.max_age.map(|hours| i64::from(hours) * 3600),
        fresh_only: args.fresh,
        all_forms: args.all_forms,
        launchable_only: args.launchable,
        ..ListRequest::default()
    })
}

/// The filters as parameters of the route.
pub(super) fn filters(request: &ListRequest) -> String {
    let stock = request.stock.map(|stock| match stock {
        Stock::Available => "in_stock",
        Stock::Low => "low",
        Stock::SoldOut => "sold_out",
        Stock::Unstated => "unstated",
    });
    let yes = |flag: bool| flag.then(|| "true".to_owned());
    let texts = [
        ("gpu_model", request.gpu_model.clone()),
        ("provider", request.provider.clone()),
        ("billing_model", request.billing_model.map(|model| model.as_str().to_owned())),
        ("region", request.region.clone()),
        ("zone", request.zone.clone()),
        ("country", request.country.clone()),
        ("gpu_count", request.gpu_count.map(|count| count.to_string())),
        ("min_memory_mib", request.min_memory_mib.map(|mib| mib.to_string())),
        ("max_price", request.max_price.map(|price| price.to_string())),
        ("stock", stock.map(str::to_owned)),
        ("max_age_seconds", request.max_age_seconds.map(|age| age.to_string())),
        ("fresh", yes(request.fresh_only)),
        ("all_forms", yes(request.all_forms)),
        ("launchable", yes(request.launchable_only)),
    ];
    let mut path = String::new();
    for (key, value) in texts {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", query_value(&value)));
        }
    }
    path
}
