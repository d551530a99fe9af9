//! What users of other price services ran into, as far as it is about one cloud's interface; the
//! numbers are those of `docs/price-complaints.md`.

use std::sync::Arc;

use runwhere_model::{OfferSheet, PriceKind, PriceState};
use serde_json::{Value, json};

use super::told::{keys, offer, rejected, told};
use crate::testing::clouds::{Asked, Cloud, Reply, cloud};

/// A cloud whose answers are changed on their way.
async fn with(cloud: Cloud, change: fn(&Asked, String) -> String) -> OfferSheet {
    let script = Arc::new(move |_, asked: &Asked| {
        let reply = cloud.reply(asked);
        match reply.status {
            200 => Reply::json(change(asked, String::from_utf8(reply.body).unwrap())),
            _ => reply,
        }
    });
    cloud.read(script).await.0.unwrap()
}

/// The part of a machine's price that its GPUs are.
fn gpu_part(sheet: &OfferSheet, key: &str) -> String {
    let parts = &offer(sheet, key).details.as_ref().expect("parts").parts;
    let gpu = parts.iter().find(|part| part.part == "gpu").expect("a part for the GPUs");
    gpu.amount.map_or_else(|| "unknown".to_owned(), |amount| amount.to_string())
}

/// One meter of Azure's price list, for a type with a T4.
fn meter(product: &str, name: &str, price: &str) -> String {
    format!(
        r#"{{"currencyCode":"USD","tierMinimumUnits":0.0,"retailPrice":{price},"armRegionName":"eastus",
        "armSkuName":"Standard_NC4as_T4_v3","meterName":"{name}","skuName":"{name}","productName":"{product}",
        "unitOfMeasure":"1 Hour","type":"Consumption","isPrimaryMeterRegion":true,
        "effectiveStartDate":"2026-08-01T00:00:00Z"}}"#
    )
}

/// Azure with these meters alone.
async fn metered(meters: &[String]) -> OfferSheet {
    let page = format!(r#"{{"Items":[{}],"NextPageLink":null}}"#, meters.join(","));
    cloud("azure").read(Arc::new(move |_, _: &Asked| Reply::json(page.clone()))).await.0.unwrap()
}

const T4: &str = "Virtual Machines NCASv3_T4 Series";
const T4_WINDOWS: &str = "Virtual Machines NCASv3_T4 Series Windows";

#[tokio::test]
async fn pr_016_the_windows_meter_is_not_the_price_of_linux() {
    let mut meters =
        [meter(T4_WINDOWS, "NC4as T4 v3", "0.3560"), meter(T4, "NC4as T4 v3", "0.1720")];
    for _ in 0..2 {
        let sheet = metered(&meters).await;
        let linux = offer(&sheet, "azure/eastus/-/on_demand/Standard_NC4as_T4_v3");
        assert_eq!(told(linux), "t4 1 0.172 USD/h unstated");
        assert!(linux.details.is_none(), "the other price is no second price of this offer");
        let windows = offer(&sheet, "azure/eastus/-/windows/Standard_NC4as_T4_v3");
        assert_eq!(told(windows), "t4 1 0.356 USD/h unstated");
        meters.reverse();
    }
}

#[tokio::test]
async fn pr_065_spot_windows_and_low_priority_are_meters_of_their_own() {
    let sheet = metered(&[
        meter(T4_WINDOWS, "NC4as T4 v3 Spot", "0.1116"),
        meter(T4, "NC4as T4 v3 Low Priority", "0.0336"),
        meter(T4, "NC4as T4 v3 Spot", "0.016806"),
        meter(T4_WINDOWS, "NC4as T4 v3 Low Priority", "0.0712"),
        meter(T4, "NC4as T4 v3", "0.168"),
    ])
    .await;
    for (billing, want) in [
        ("spot", "0.016806"),
        ("windows_spot", "0.1116"),
        ("low_priority", "0.0336"),
        ("on_demand", "0.168"),
    ] {
        let key = format!("azure/eastus/-/{billing}/Standard_NC4as_T4_v3");
        assert_eq!(told(offer(&sheet, &key)), format!("t4 1 {want} USD/h unstated"));
    }
    // The one with a Windows licence is no offer that a job could have.
    assert!(rejected(&sheet).iter().any(|(_, why)| why.contains("Windows")), "{sheet:#?}");
    assert!(offer(&sheet, "azure/eastus/-/low_priority/Standard_NC4as_T4_v3").details.is_none());
}

#[tokio::test]
async fn p32_windows_costs_46_thousandths_more_for_each_vcpu_and_stays_apart() {
    let sheet = cloud("azure").sheet().await;
    let amount = |billing: &str| {
        let key = format!("azure/eastus/-/{billing}/Standard_NC24ads_A100_v4");
        offer(&sheet, &key).price.state.known().unwrap().amount
    };
    let licence = runwhere_model::parse_decimal("1.104").unwrap();
    assert_eq!(amount("windows") - amount("on_demand"), licence, "24 x 0.046");
}

#[tokio::test]
async fn pr_022_both_words_for_a3_mega_and_a_region_without_a_price() {
    for word in ["Mega", "Plus"] {
        let mega: fn(&Asked, String) -> String = match word {
            "Mega" => |_, text| {
                text.replace("H100 80GB Plus GPU", "H100 80GB Mega GPU")
                    .replace("A3 Instance", "A3 Mega Instance")
            },
            _ => |_, text| text.replace("A3 Instance", "A3Plus Instance"),
        };
        let sheet = with(cloud("gcp"), mega).await;
        // vCPUs and memory of the type have prices in us-central1, its GPU has none there.
        let key = "gcp/us-central1/-/on_demand/a3-megagpu-8g";
        assert_eq!(told(offer(&sheet, key)), "h100-80g 8 unknown unstated", "{word}");
        let parts = &offer(&sheet, key).details.as_ref().unwrap().parts;
        assert_eq!(parts.iter().filter(|part| part.amount.is_none()).count(), 1, "{parts:?}");
        // In Tokyo only the GPU has one.
        let tokyo = "gcp/asia-northeast1/-/on_demand/a3-megagpu-8g";
        assert_eq!(gpu_part(&sheet, tokyo), "78.4", "{word}: 8 x 9.8");
        assert_eq!(offer(&sheet, tokyo).price.state, PriceState::Unknown);
    }
    // Both parts of one region make a price, whichever the words.
    let here: fn(&Asked, String) -> String = |_, text| {
        text.replace("A3 Instance", "A3 Mega Instance").replace("asia-northeast1", "us-central1")
    };
    let sheet = with(cloud("gcp"), here).await;
    // 8 x 9.8 + 208 x 0.02935 + 1872 x 0.00256 + 6000 x 0.08 / 730.
    assert_eq!(
        told(offer(&sheet, "gcp/us-central1/-/on_demand/a3-megagpu-8g")),
        "h100-80g 8 89.954654246575 USD/h unstated"
    );
}

#[tokio::test]
async fn pr_032_a_later_page_does_not_hide_the_zones_of_an_earlier_one() {
    let aliyun = cloud("aliyun");
    let sheet = with(aliyun, |asked, text| match asked.header("x-acs-action") {
        Some("DescribeSpotPriceHistory") if asked.query.contains("Offset=1000") => {
            text.replace("cn-hangzhou-i", "cn-hangzhou-j")
        }
        _ => text,
    })
    .await;
    let spot = |zone: &str| {
        let key = format!("aliyun/cn-hangzhou/{zone}/spot/ecs.gn7i-c8g1.2xlarge");
        told(offer(&sheet, &key))
    };
    assert_eq!(spot("cn-hangzhou-i"), "a10 1 2.851 CNY/h in_stock", "of page 1");
    assert_eq!(spot("cn-hangzhou-j"), "a10 1 3.1 CNY/h in_stock", "of page 2");
}

#[tokio::test]
async fn pr_068_filters_are_in_the_form_that_the_price_list_takes() {
    let mut azure = cloud("azure");
    azure.settings = r#"{"kind":"azure","endpoint":"{base}","regions":["EastUS","westus3"]}"#;
    // As the real one: everything but comparisons and contains() is a 400.
    let script = Arc::new(move |_, asked: &Asked| {
        let filter = asked.query.split('&').find_map(|pair| pair.strip_prefix("$filter="));
        let taken = filter.is_none_or(|filter| {
            let plain = filter.replace("%20", " ").replace("%27", "'");
            let plain = plain.replace("%28", "(").replace("%29", ")").replace("%2C", ",");
            !plain.contains("not(")
                && plain
                    .split(" and ")
                    .all(|term| term.contains(" eq '") || term.starts_with("contains("))
        });
        match taken {
            true => azure.reply(asked),
            false => Reply::status(400, r#"{"error":{"message":"The filter is not valid"}}"#),
        }
    });
    let (sheet, server, _) = azure.read(script).await;
    assert!(sheet.unwrap().complete);
    assert!(server.asked()[0].query.contains("armRegionName%20eq%20%27eastus%27"));
}

#[tokio::test]
async fn pr_077_a_type_without_a_name_is_refused_here_and_never_asked_about() {
    let nameless = |_: &Asked, text: String| {
        text.replace(r#""InstanceType": "GN7.2XLARGE32""#, r#""InstanceType": """#)
    };
    let sheet = with(cloud("tencent"), nameless).await;
    assert!(sheet.offers.iter().all(|offer| !offer.key.instance_type.is_empty()));
    assert!(rejected(&sheet).iter().any(|(_, why)| why.contains("names no type")), "{sheet:#?}");
    // Where prices are asked for by name, a nameless type is not asked about.
    let mut aliyun = cloud("aliyun");
    aliyun.settings = r#"{"kind":"aliyun","endpoint":"{base}","access_key_id":"id-of-tests",
        "access_key_secret":"{secret}","regions":["cn-hangzhou"],"account_prices":true,"spot":true}"#;
    let script = Arc::new(move |_, asked: &Asked| {
        let body = String::from_utf8(aliyun.reply(asked).body).unwrap();
        Reply::json(body.replace(r#""ecs.gn7i-c8g1.2xlarge""#, r#""""#))
    });
    let (sheet, server, _) = aliyun.read(script).await;
    assert!(server.asked().iter().all(|asked| !asked.query.contains("InstanceType=&")));
    assert!(server.asked().iter().all(|asked| !asked.query.ends_with("InstanceType=")));
    let sheet = sheet.unwrap();
    assert!(rejected(&sheet).iter().any(|(_, why)| why.contains("names no type")), "{sheet:#?}");
    // Nor can anybody name it.
    assert!("tencent/ap-guangzhou/-/on_demand/".parse::<runwhere_model::OfferKey>().is_err());
}

#[tokio::test]
async fn pr_079_the_price_of_a_gpu_is_multiplied_once() {
    let gcp = with(cloud("gcp"), |_, text| {
        let mut page: Value = serde_json::from_str(&text).unwrap();
        for sku in page["skus"].as_array_mut().unwrap() {
            if sku["description"] == "Nvidia Tesla A100 GPU running in Americas" {
                let rate = &mut sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][0];
                rate["unitPrice"]["units"] = json!("2");
                rate["unitPrice"]["nanos"] = json!(480_000_000);
            }
        }
        page.to_string()
    })
    .await;
    assert_eq!(gpu_part(&gcp, "gcp/us-central1/-/on_demand/a2-highgpu-4g"), "9.92");
    let runpod = with(cloud("runpod"), |_, text| text.replace("2.69", "2.48")).await;
    let four = "runpod/-/-/on_demand/secure.NVIDIA%20H100%2080GB%20HBM3.x4";
    assert_eq!(told(offer(&runpod, four)), "h100-80g 4 9.92 USD/h in_stock");
    let oci = with(cloud("oci"), |_, text| {
        text.replace("\"value\": 2\n", "\"value\": 2.48\n")
            .replace("VM.GPU.A10.1", "BM.GPU.A10.4")
            .replace(
                "\"gpuQty\": 1,\n   \"gpuMemoryQty\": 24",
                "\"gpuQty\": 4,\n   \"gpuMemoryQty\": 96",
            )
    })
    .await;
    assert_eq!(told(offer(&oci, "oci/-/-/on_demand/BM.GPU.A10.4")), "a10 4 9.92 USD/h unstated");
    let mut crusoe = cloud("crusoe");
    crusoe.settings = r#"{"kind":"crusoe","endpoint":"{base}","access_key":"id-of-tests","secret_key":"{secret}",
        "project":"p-1","prices":{"H100-SXM-80GB":"2.48"}}"#;
    let crusoe = with(crusoe, |_, text| {
        text.replace("h100-80gb-sxm-ib.8x", "h100-80gb-sxm-ib.4x").replace(
            "\"num_gpu\": 8,\n   \"gpu_type\": \"H100-SXM-80GB\"",
            "\"num_gpu\": 4,\n   \"gpu_type\": \"H100-SXM-80GB\"",
        )
    })
    .await;
    let four = "crusoe/us-east1-a/-/on_demand/h100-80gb-sxm-ib.4x";
    assert_eq!(told(offer(&crusoe, four)), "h100-80g 4 9.92 USD/h in_stock");
}

#[tokio::test]
async fn pr_080_without_a_public_list_a_price_is_unknown() {
    // Crusoe states no prices at all: types that the settings do not price are listed, unknown.
    let crusoe = cloud("crusoe").sheet().await;
    let h100 = offer(&crusoe, "crusoe/us-east1-a/-/on_demand/h100-80gb-sxm-ib.8x");
    assert_eq!(h100.price.state, PriceState::Unknown);
    // Azure's public list has neither China nor the government's regions: that is said, not "nothing
    // is sold there", and other regions are read all the same.
    let mut azure = cloud("azure");
    azure.settings =
        r#"{"kind":"azure","endpoint":"{base}","regions":["eastus","westus3","chinanorth3"]}"#;
    let sheet = azure.sheet().await;
    let gaps: Vec<&str> = sheet.gaps.iter().map(|gap| gap.part.as_str()).collect();
    assert_eq!((sheet.complete, gaps), (false, vec!["chinanorth3"]));
    assert!(!sheet.offers.is_empty());
    // What an account has negotiated is not known from a public list.
    assert!(sheet.offers.iter().all(|offer| offer.price.kind == PriceKind::List));
}

#[tokio::test]
async fn pr_082_a_new_family_is_listed_and_a_refused_disk_leaves_the_machines_price() {
    // Nobody wrote this family into the code.
    let sheet = with(cloud("aliyun"), |_, text| {
        text.replace("ecs.gn7i-c8g1.2xlarge", "ecs.gn99x-c8g1.2xlarge")
    })
    .await;
    let key = "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn99x-c8g1.2xlarge";
    assert_eq!(told(offer(&sheet, key)), "a10 1 9.5025 CNY/h in_stock");
    // The machine's part is the same whatever disk the answer was asked with.
    let mut aliyun = cloud("aliyun");
    aliyun.settings = r#"{"kind":"aliyun","endpoint":"{base}","access_key_id":"id-of-tests",
        "access_key_secret":"{secret}","regions":["cn-hangzhou"],"account_prices":true,"spot":false}"#;
    for refuses in [true, false] {
        let script = Arc::new(move |_, asked: &Asked| {
            let price = asked.header("x-acs-action") == Some("DescribePrice");
            match (price, asked.query.contains("cloud_essd"), refuses) {
                (true, false, true) => Reply::status(
                    403,
                    &crate::testing::clouds::fixture("aliyun/offers/price-disk-refused.json"),
                ),
                (true, false, false) => {
                    Reply::json(crate::testing::clouds::fixture("aliyun/offers/price.json"))
                }
                _ => aliyun.reply(asked),
            }
        });
        let (sheet, server, _) = aliyun.read(script).await;
        let key = "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn7i-c8g1.2xlarge";
        assert_eq!(told(offer(&sheet.unwrap(), key)), "a10 1 8.55225 CNY/h in_stock");
        let again = server.asked().iter().any(|asked| asked.query.contains("cloud_essd"));
        assert_eq!(again, refuses);
    }
}

#[tokio::test]
async fn pr_083_memory_of_one_gpu_whichever_way_a_cloud_counts_it() {
    let verda = cloud("verda").sheet().await;
    let four = offer(&verda, "verda/FIN-01/-/on_demand/4A100.88V");
    assert_eq!((four.gpu_count.as_whole(), four.gpu_memory_mib), (Some(4), Some(80 * 1024)));
    let aliyun = cloud("aliyun").sheet().await;
    let four = offer(&aliyun, "aliyun/cn-hangzhou/-/on_demand/ecs.gn7i-c32g1.32xlarge");
    assert_eq!((four.gpu_count.as_whole(), four.gpu_memory_mib), (Some(4), Some(24 * 1024)));
    // The same where the field holds that of all four.
    let sum = with(cloud("aliyun"), |_, text| {
        text.replace(
            "\"GPUAmount\": 4,\n    \"GPUSpec\": \"NVIDIA A10\",\n    \"GPUMemorySize\": 24.0",
            "\"GPUAmount\": 4,\n    \"GPUSpec\": \"NVIDIA A10\",\n    \"GPUMemorySize\": 96.0",
        )
    })
    .await;
    let four = offer(&sum, "aliyun/cn-hangzhou/-/on_demand/ecs.gn7i-c32g1.32xlarge");
    assert_eq!((four.gpu_count.as_whole(), four.gpu_memory_mib), (Some(4), Some(24 * 1024)));
    assert_eq!(keys(&sum), keys(&aliyun));
}
