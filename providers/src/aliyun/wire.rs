//! Answers of ECS and BSS, as sent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runwhere_model::RawNumber;
use serde::Deserialize;

use crate::http::Row;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Regions {
    pub(super) regions: RegionList,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RegionList {
    pub(super) region: Vec<Region>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Region {
    pub(super) region_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TypePage {
    pub(super) instance_types: TypeList,
    pub(super) next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TypeList {
    pub(super) instance_type: Vec<Row<InstanceType>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct InstanceType {
    #[serde(rename = "InstanceTypeId")]
    pub(super) id: String,
    #[serde(rename = "CpuCoreCount")]
    pub(super) cores: Option<RawNumber>,
    #[serde(rename = "MemorySize")]
    pub(super) memory_gib: Option<RawNumber>,
    #[serde(rename = "GPUAmount")]
    pub(super) gpus: Option<RawNumber>,
    #[serde(rename = "GPUSpec")]
    pub(super) gpu: Option<String>,
    /// GiB: of all the GPU of a type with one or a share, of each GPU of a type with several.
    #[serde(rename = "GPUMemorySize")]
    pub(super) gpu_memory_gib: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Resources {
    pub(super) available_zones: Option<Zones>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Zones {
    pub(super) available_zone: Vec<Zone>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Zone {
    pub(super) zone_id: String,
    pub(super) available_resources: Option<ResourceList>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ResourceList {
    pub(super) available_resource: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Resource {
    pub(super) supported_resources: SupportedList,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SupportedList {
    pub(super) supported_resource: Vec<Supported>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Supported {
    pub(super) value: String,
    pub(super) status: Option<String>,
    pub(super) status_category: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SkuAnswer {
    pub(super) data: SkuData,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SkuData {
    pub(super) sku_price_page: SkuPage,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SkuPage {
    pub(super) next_page_token: Option<String>,
    pub(super) sku_price_list: Vec<Row<Sku>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Sku {
    #[serde(default)]
    pub(super) sku_code: String,
    pub(super) sku_factor_map: BTreeMap<String, String>,
    pub(super) csku_price_list: Vec<SkuPrice>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SkuPrice {
    pub(super) price: Option<RawNumber>,
    pub(super) currency: Option<String>,
    pub(super) price_mode: Option<String>,
    pub(super) price_unit: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PriceAnswer {
    pub(super) price_info: PriceInfo,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct PriceInfo {
    pub(super) price: AccountPrice,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AccountPrice {
    pub(super) currency: Option<String>,
    pub(super) detail_infos: DetailList,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DetailList {
    pub(super) detail_info: Vec<Detail>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Detail {
    pub(super) resource: String,
    pub(super) original_price: Option<RawNumber>,
    pub(super) trade_price: Option<RawNumber>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SpotHistory {
    pub(super) currency: Option<String>,
    pub(super) next_offset: Option<RawNumber>,
    pub(super) spot_prices: SpotList,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SpotList {
    pub(super) spot_price_type: Vec<Row<SpotPrice>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SpotPrice {
    pub(super) zone_id: String,
    pub(super) instance_type: String,
    pub(super) spot_price: Option<RawNumber>,
    pub(super) timestamp: Timestamp,
}

/// The public price file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PriceFile {
    pub(super) currency: String,
    pub(super) publication_date: Option<String>,
    pub(super) pricing_info: BTreeMap<String, Row<Periods>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Periods {
    #[serde(default)]
    pub(super) hours: Vec<Period>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Period {
    pub(super) period: RawNumber,
    pub(super) price: RawNumber,
}
