//! The right value for each peculiarity of each cloud.

use std::sync::Arc;

use runwhere_model::{Offer, OfferSheet};

use crate::http::FolderCache;
use crate::testing::clouds::{Asked, Leaping, Reply, START, Server, cloud, fixture};

pub(super) fn offer<'a>(sheet: &'a OfferSheet, key: &str) -> &'a Offer {
    sheet
        .offers
        .iter()
        .find(|offer| offer.key.to_string() == key)
        .unwrap_or_else(|| panic!("no {key} among {:#?}", keys(sheet)))
}

pub(super) fn keys(sheet: &OfferSheet) -> Vec<String> {
    sheet.offers.iter().map(|offer| offer.key.to_string()).collect()
}

/// `model count price stock`.
pub(super) fn told(offer: &Offer) -> String {
    let model = offer.gpu.map_or("-", |gpu| gpu.as_str());
    let price = offer.price.state.known().map_or("unknown".to_owned(), |p| p.to_string());
    let stock = serde_json::to_value(offer.stock).unwrap();
    format!("{model} {} {price} {}", offer.gpu_count, stock.as_str().unwrap())
}

pub(super) fn rejected(sheet: &OfferSheet) -> Vec<(&str, &str)> {
    sheet.rejected.iter().map(|row| (row.row.as_str(), row.reason.as_str())).collect()
}

#[tokio::test]
async fn azure_tells_forms_apart_and_knows_its_sizes() {
    let sheet = cloud("azure").sheet().await;
    let nc = "Standard_NC24ads_A100_v4";
    for (key, want) in [
        (format!("azure/eastus/-/on_demand/{nc}"), "a100-80g 1 3.673 USD/h unstated"),
        (format!("azure/eastus/-/windows/{nc}"), "a100-80g 1 4.777 USD/h unstated"),
        (format!("azure/eastus/-/spot/{nc}"), "a100-80g 1 0.672884 USD/h unstated"),
        (format!("azure/eastus/-/windows_spot/{nc}"), "a100-80g 1 0.87515 USD/h unstated"),
        (format!("azure/eastus/-/low_priority/{nc}"), "a100-80g 1 0.7346 USD/h unstated"),
        // A region's letter case is one (no. 50).
        (format!("azure/westus3/-/on_demand/{nc}"), "a100-80g 1 3.673 USD/h unstated"),
        // The GPU count is that of the table, not the capability's 12 (no. 5).
        (
            "azure/eastus/-/on_demand/Standard_ND96isr_H100_v5".into(),
            "h100-80g 8 98.32 USD/h unstated",
        ),
        // A placeholder of zero is no price (no. 2).
        (
            "azure/westus3/-/on_demand/Standard_ND96isr_H100_v5".into(),
            "h100-80g 8 unknown unstated",
        ),
        // A sixth of an A10 (no. 4).
        ("azure/eastus/-/on_demand/Standard_NV6ads_A10_v5".into(), "a10 1/6 0.454 USD/h unstated"),
        ("azure/eastus/-/on_demand/Standard_NC4as_T4_v3".into(), "t4 1 0.526 USD/h unstated"),
    ] {
        assert_eq!(told(offer(&sheet, &key)), want, "{key}");
    }
    assert_eq!(sheet.offers.len(), 10);
    let reasons = rejected(&sheet);
    for (row, word) in [
        ("Standard_NC4as_T4_v3", "Cloud Services"),
        ("Standard_ND512isr_R100_v9", "table of sizes"),
        ("Standard_NC48ads_A100_v4", "not in force"),
        ("unnamed", "names no size"),
    ] {
        assert!(
            reasons.iter().any(|(r, why)| *r == row && why.contains(word)),
            "{row}: {reasons:?}"
        );
    }
    assert_eq!(reasons.len(), 4, "{reasons:?}");
}

#[tokio::test]
async fn azure_never_follows_a_link_to_another_host() {
    let (_, server, _) = cloud("azure").read(cloud("azure").good()).await;
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].query.contains("$skip=1000"), "{}", asked[1].query);
    // Filters are in the form that the API takes (no. 68).
    assert!(asked.iter().all(|asked| asked.method == "GET"));
    let filter = &asked[0].query;
    assert!(filter.contains("contains%28armSkuName") && !filter.contains("not%28"), "{filter}");
}

#[tokio::test]
async fn a_page_that_names_itself_as_the_next_one_ends_the_reading_with_a_gap() {
    let azure = cloud("azure");
    let script = Arc::new(move |_, asked: &Asked| {
        let mut asked = asked.clone();
        asked.query = String::new();
        azure.reply(&asked)
    });
    let sheet = azure.read(script).await.0.unwrap();
    assert!(!sheet.complete && sheet.gaps[0].reason.contains("earlier page"), "{:?}", sheet.gaps);
}

#[tokio::test]
async fn lambda_counts_cents_and_says_where() {
    let sheet = cloud("lambda").sheet().await;
    let h100 = "gpu_8x_h100_sxm5";
    for (key, want) in [
        (format!("lambda/us-west-1/-/on_demand/{h100}"), "h100-80g 8 31.92 USD/h in_stock"),
        (format!("lambda/us-east-1/-/on_demand/{h100}"), "h100-80g 8 31.92 USD/h in_stock"),
        // Sold out: the price still holds.
        ("lambda/-/-/on_demand/gpu_1x_h100_sxm5".into(), "h100-80g 1 4.29 USD/h sold_out"),
        ("lambda/us-east-3/-/on_demand/gpu_1x_gh200".into(), "gh200-96g 1 1.99 USD/h in_stock"),
    ] {
        assert_eq!(told(offer(&sheet, &key)), want, "{key}");
    }
    assert_eq!(sheet.offers.len(), 5);
    let old = offer(&sheet, "lambda/-/-/on_demand/gpu_1x_rtx6000");
    assert_eq!(old.gpu_raw, "RTX 6000 (24 GB)");
    assert_ne!(old.gpu.map(|gpu| gpu.as_str()), Some("rtx-6000-ada"));
}

#[tokio::test]
async fn runpod_multiplies_per_gpu_prices_exactly() {
    let sheet = cloud("runpod").sheet().await;
    let h100 = "NVIDIA%20H100%2080GB%20HBM3";
    for (key, want) in [
        // 1.28 per GPU is 10.24 for eight (no. 8).
        (format!("runpod/-/-/spot/community.{h100}.x8"), "h100-80g 8 10.24 USD/h in_stock"),
        (format!("runpod/-/-/on_demand/community.{h100}.x1"), "h100-80g 1 1.28 USD/h in_stock"),
        // The other cloud is another offer (no. 7).
        (format!("runpod/-/-/on_demand/secure.{h100}.x1"), "h100-80g 1 2.69 USD/h in_stock"),
        // No stock status is no stock (no. 61).
        (
            "runpod/-/-/on_demand/secure.NVIDIA%20A100-SXM4-80GB.x8".into(),
            "a100-80g 8 11.92 USD/h sold_out",
        ),
        (
            "runpod/-/-/on_demand/secure.NVIDIA%20GeForce%20RTX%204090.x4".into(),
            "rtx-4090 4 2.76 USD/h low",
        ),
        // An unknown card is listed under its own name (no. 44).
        (
            "runpod/-/-/on_demand/secure.NVIDIA%20NoSuchCard%209000.x2".into(),
            "- 2 1 USD/h in_stock",
        ),
    ] {
        assert_eq!(told(offer(&sheet, &key)), want, "{key}");
    }
    assert!(!keys(&sheet).iter().any(|key| key.contains("NoSuchCard") && key.ends_with("x4")));
    assert!(!keys(&sheet).iter().any(|key| key.contains("4090.x8") && key.contains("community")));
}

#[tokio::test]
async fn vast_states_asks_not_statistics() {
    let sheet = cloud("vast").sheet().await;
    let key = "vast/Sweden%2C%20SE%2C%20EU/-/on_demand/11111111";
    let ask = offer(&sheet, key);
    // All digits of the JSON number (no. 41: the least ask, not a median).
    assert_eq!(told(ask), "rtx-4090 1 0.3004166666666667 USD/h in_stock");
    assert_eq!(ask.gpu_memory_mib, Some(24_564));
    let details = ask.details.as_ref().unwrap();
    assert_eq!(details.country.as_deref(), Some("SE"));
    // Disk is priced by what is asked for, beside the machine (no. 53).
    assert_eq!(details.disk.unwrap().per_gib_month.to_string(), "0.15");
    let bid = offer(&sheet, &key.replace("on_demand", "spot"));
    assert_eq!(told(bid), "rtx-4090 1 0.16 USD/h in_stock");
    assert!(
        bid.marks.has(runwhere_model::Mark::Floor)
            && bid.marks.has(runwhere_model::Mark::Ephemeral)
    );
    let nvl = offer(&sheet, "vast/United%20States%2C%20US%2C%20NA/-/on_demand/11111114");
    assert_eq!(told(nvl), "h100-nvl-94g 1 1.9 USD/h in_stock");
    let eight = offer(&sheet, "vast/Iceland%2C%20IS%2C%20EU/-/on_demand/22222221");
    assert_eq!(told(eight), "h200 8 18.720000000000002 USD/h in_stock");
    assert_eq!(sheet.rejected.len(), 1);
}

#[tokio::test]
async fn digitalocean_reads_every_page_and_both_meanings_of_vram() {
    let sheet = cloud("digitalocean").sheet().await;
    for (key, want, memory) in [
        ("digitalocean/nyc2/-/on_demand/gpu-h100x1-80gb", "h100-80g 1 3.39 USD/h in_stock", 81_920),
        ("digitalocean/tor1/-/on_demand/gpu-h100x1-80gb", "h100-80g 1 3.39 USD/h in_stock", 81_920),
        (
            "digitalocean/nyc2/-/on_demand/gpu-h100x8-640gb",
            "h100-80g 8 23.92 USD/h in_stock",
            81_920,
        ),
        ("digitalocean/-/-/on_demand/gpu-mi300x8-1536gb", "mi300x 8 15.92 USD/h sold_out", 196_608),
        (
            "digitalocean/tor1/-/on_demand/gpu-6000adax1-48gb",
            "rtx-6000-ada 1 1.57 USD/h in_stock",
            49_152,
        ),
    ] {
        let offer = offer(&sheet, key);
        assert_eq!((told(offer).as_str(), offer.gpu_memory_mib), (want, Some(memory)), "{key}");
    }
    assert_eq!(sheet.offers.len(), 5);
}

#[tokio::test]
async fn vultr_shares_are_fractions_and_stock_is_asked_for() {
    let sheet = cloud("vultr").sheet().await;
    for (key, want) in [
        ("vultr/ewr/-/on_demand/vcg-a100-1c-6g-4vram", "a100-80g 1/20 0.123 USD/h in_stock"),
        ("vultr/ewr/-/on_demand/vcg-a100-12c-120g-80vram", "a100-80g 1 2.397 USD/h sold_out"),
        ("vultr/sgp/-/on_demand/vcg-a16-24c-256g-64vram", "a16 4 1.883 USD/h in_stock"),
        ("vultr/-/-/on_demand/vcg-l40s-16c-180g-48vram", "l40s 1 1.671 USD/h sold_out"),
        ("vultr/ewr/-/on_demand/vbm-112c-2048gb-8-h100-gpu", "h100-80g 8 23.92 USD/h sold_out"),
        ("vultr/atl/-/on_demand/vbm-72c-480gb-gh200-gpu", "gh200-96g 1 1.99 USD/h sold_out"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    assert_eq!(rejected(&sheet), [("vcg-h100-8x-contract", "sold by contract only")]);
}

#[tokio::test]
async fn verda_divides_the_memory_of_all_gpus() {
    let sheet = cloud("verda").sheet().await;
    for (key, want, memory) in [
        // 320 GB of four GPUs are 80 each (no. 83).
        ("verda/FIN-01/-/on_demand/4A100.88V", "a100-80g 4 5.16 USD/h in_stock", 81_920),
        ("verda/FIN-02/-/on_demand/4A100.88V", "a100-80g 4 5.16 USD/h in_stock", 81_920),
        ("verda/-/-/spot/4A100.88V", "a100-80g 4 2.58 USD/h sold_out", 81_920),
        ("verda/-/-/on_demand/8V100.48V", "v100-16g 8 1.112 USD/h sold_out", 16_384),
        ("verda/FIN-03/-/spot/8V100.48V", "v100-16g 8 0.556 USD/h in_stock", 16_384),
        ("verda/FIN-02/-/on_demand/1H200.141S.44V", "h200 1 3.39 USD/h in_stock", 144_384),
    ] {
        let offer = offer(&sheet, key);
        assert_eq!((told(offer).as_str(), offer.gpu_memory_mib), (want, Some(memory)), "{key}");
    }
    assert_eq!(sheet.offers.len(), 6);
}

#[tokio::test]
async fn aliyun_joins_types_prices_and_zones() {
    let sheet = cloud("aliyun").sheet().await;
    let a10 = "ecs.gn7i-c8g1.2xlarge";
    for (key, want) in [
        (
            format!("aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/{a10}"),
            "a10 1 9.5025 CNY/h in_stock",
        ),
        (
            format!("aliyun/cn-hangzhou/cn-hangzhou-j/on_demand/{a10}"),
            "a10 1 9.5025 CNY/h sold_out",
        ),
        // The latest price of the zone, also where it is not the last row.
        (format!("aliyun/cn-hangzhou/cn-hangzhou-i/spot/{a10}"), "a10 1 2.851 CNY/h in_stock"),
        // No history: unknown, never the on-demand price (no. 34).
        (format!("aliyun/cn-hangzhou/cn-hangzhou-j/spot/{a10}"), "a10 1 unknown in_stock"),
        // A quarter of a T4; the last ones.
        (
            "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.vgn6i-m4-vws.xlarge".into(),
            "t4 1/4 3.5 CNY/h low",
        ),
        // A price by steps is no plain hourly price.
        (
            "aliyun/cn-hangzhou/cn-hangzhou-j/on_demand/ecs.gn6v-c8g1.2xlarge".into(),
            "v100-16g 1 unknown in_stock",
        ),
        // A region and a family that nobody wrote into the code (no. 82); 0 is no price.
        (format!("aliyun/cn-heyuan/cn-heyuan-a/on_demand/{a10}"), "a10 1 8.25 CNY/h in_stock"),
        (
            "aliyun/cn-heyuan/cn-heyuan-a/on_demand/ecs.gn8v-c24g1.6xlarge".into(),
            "- 1 unknown in_stock",
        ),
    ] {
        assert_eq!(told(offer(&sheet, &key)), want, "{key}");
    }
    // In the price list and in no zone: not offered, which is not unknown (no. 26).
    let four = offer(&sheet, "aliyun/cn-hangzhou/-/on_demand/ecs.gn7i-c32g1.32xlarge");
    assert_eq!(four.price.state, runwhere_model::PriceState::NotOffered);
    // 24 GiB each where the type has several (no. 83).
    assert_eq!((four.gpu_count.to_string().as_str(), four.gpu_memory_mib), ("4", Some(24_576)));
    assert_eq!(
        offer(&sheet, "aliyun/cn-heyuan/cn-heyuan-a/on_demand/ecs.gn8v-c24g1.6xlarge").gpu_raw,
        "GPU H-e"
    );
    let why = rejected(&sheet);
    assert!(
        why.iter().any(|(row, r)| row.contains("gn6v") && r.contains("plain hourly")),
        "{why:?}"
    );
}

#[tokio::test]
async fn aliyun_account_prices_are_the_machines_part() {
    let mut aliyun = cloud("aliyun");
    aliyun.settings = r#"{"kind":"aliyun","endpoint":"{base}","access_key_id":"id-of-tests",
        "access_key_secret":"{secret}","regions":["cn-hangzhou"],"account_prices":true,"spot":false}"#;
    let script = Arc::new(move |_, asked: &Asked| {
        let price = asked.header("x-acs-action") == Some("DescribePrice");
        match price && !asked.query.contains("cloud_essd") {
            true => Reply::status(403, &fixture("aliyun/offers/price-disk-refused.json")),
            false => aliyun.reply(asked),
        }
    });
    let (sheet, server, _) = aliyun.read(script).await;
    let sheet = sheet.unwrap();
    assert!(sheet.complete, "{:?}", sheet.gaps);
    // Not the total of 8.5873, which holds a disk (no. 82).
    let own = offer(&sheet, "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn7i-c8g1.2xlarge");
    assert_eq!(told(own), "a10 1 8.55225 CNY/h in_stock");
    assert_eq!(own.price.kind, runwhere_model::PriceKind::Account);
    let list = own.details.as_ref().unwrap().list_price.unwrap();
    assert_eq!(list.to_string(), "9.5025 CNY/h");
    let nonces: std::collections::BTreeSet<String> = server
        .asked()
        .iter()
        .map(|asked| asked.header("x-acs-signature-nonce").unwrap().to_owned())
        .collect();
    assert_eq!(nonces.len(), server.asked().len(), "a nonce is used once");
}

#[tokio::test]
async fn aliyun_without_an_account_reads_the_public_file() {
    let mut aliyun = cloud("aliyun");
    aliyun.settings = r#"{"kind":"aliyun","endpoint":"{base}","price_file":"2.0.421"}"#;
    let script = Arc::new(|_, asked: &Asked| {
        assert_eq!(asked.path, "/aliyun/ecs-price-info/2.0.421/price/download/instancePrice.json");
        Reply::json(fixture("aliyun/offers/price-file.json"))
    });
    let sheet = aliyun.read(script).await.0.unwrap();
    assert!(sheet.complete, "{:?}", sheet.gaps);
    for (key, want) in [
        ("aliyun/cn-hangzhou/-/on_demand/ecs.gn7i-c8g1.2xlarge", "a10 1 9.5025 CNY/h unstated"),
        (
            "aliyun/cn-hangzhou/-/on_demand/ecs.gn6v-c8g1.16xlarge",
            "v100-16g 8 211.68 CNY/h unstated",
        ),
        ("aliyun/cn-beijing/-/on_demand/ecs.gn7e-c16g1.4xlarge", "a100-80g 1 unknown unstated"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    assert_eq!((sheet.offers.len(), sheet.rejected.len()), (3, 1), "{:?}", sheet.rejected);
    // The international site's prices are not these at another rate.
    aliyun.settings =
        r#"{"kind":"aliyun","site":"intl","endpoint":"{base}","price_file":"2.0.421"}"#;
    let script = Arc::new(|_, _: &_| Reply::json(fixture("aliyun/offers/price-file.json")));
    assert!(aliyun.read(script).await.0.unwrap_err().to_string().contains("CNY"));
    // A frozen old version says so.
    aliyun.settings = r#"{"kind":"aliyun","endpoint":"{base}","price_file":"2.0.5"}"#;
    let script = Arc::new(|_, _: &_| {
        Reply::json(fixture("aliyun/offers/price-file.json").replace("2026-11-20T", "2018-11-20T"))
    });
    let old = aliyun.read(script).await.0.unwrap();
    assert!(!old.complete && old.gaps[0].reason.contains("old version"), "{:?}", old.gaps);
}

#[tokio::test]
async fn tencent_reads_price_and_stock_of_each_zone() {
    let sheet = cloud("tencent").sheet().await;
    let t4 = "GN7.2XLARGE32";
    for (key, want) in [
        (
            format!("tencent/ap-guangzhou/ap-guangzhou-6/on_demand/{t4}"),
            "t4 1 7.812 CNY/h in_stock",
        ),
        (format!("tencent/ap-guangzhou/ap-guangzhou-7/on_demand/{t4}"), "t4 1 8.68 CNY/h sold_out"),
        (format!("tencent/ap-guangzhou/ap-guangzhou-6/spot/{t4}"), "t4 1 1.736 CNY/h in_stock"),
        // A spot row's plain figure is the on-demand price.
        (format!("tencent/ap-guangzhou/ap-guangzhou-7/spot/{t4}"), "t4 1 unknown in_stock"),
        // A quarter of a card, not a card (P17).
        (
            "tencent/ap-guangzhou/ap-guangzhou-6/on_demand/GN7.LARGE20".into(),
            "t4 1/4 2.17 CNY/h low",
        ),
        (
            "tencent/ap-guangzhou/ap-guangzhou-6/on_demand/GN10Xp.2XLARGE40".into(),
            "v100-32g 1 unknown in_stock",
        ),
        (
            "tencent/ap-guangzhou/ap-guangzhou-6/on_demand/PNV5i.MEDIUM".into(),
            "- 1 5.5 CNY/h in_stock",
        ),
    ] {
        assert_eq!(told(offer(&sheet, &key)), want, "{key}");
    }
    let own = offer(&sheet, &format!("tencent/ap-guangzhou/ap-guangzhou-6/on_demand/{t4}"));
    let details = own.details.as_ref().unwrap();
    assert_eq!(details.list_price.unwrap().to_string(), "8.68 CNY/h");
    let tiers: Vec<_> =
        details.tiers.iter().map(|tier| (tier.after_hours, tier.amount.to_string())).collect();
    assert_eq!(tiers, [(96, "6.2".to_owned()), (360, "3.1".to_owned())]);
    assert_eq!(rejected(&sheet), [("ap-guangzhou-6 GN7.5XLARGE80", "charged per GB")]);
}

#[tokio::test]
async fn tencent_errors_come_with_status_200() {
    for (code, kind) in [
        ("AuthFailure.SignatureFailure", runwhere_model::ErrorKind::Auth),
        ("RequestLimitExceeded", runwhere_model::ErrorKind::Throttle),
    ] {
        let body = format!(
            r#"{{"Response":{{"Error":{{"Code":"{code}","Message":"no"}},"RequestId":"x"}}}}"#
        );
        let script = Arc::new(move |_, _: &_| Reply::json(body.clone()));
        let error = cloud("tencent").read(script).await.0.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(code));
    }
}

#[tokio::test]
async fn huawei_reads_cards_zones_and_ratings() {
    let sheet = cloud("huawei").sheet().await;
    for (key, want) in [
        ("huawei/cn-north-4/cn-north-4a/on_demand/pi2.2xlarge.4", "t4 1 7.835 CNY/h in_stock"),
        ("huawei/cn-north-4/cn-north-4b/on_demand/pi2.2xlarge.4", "t4 1 7.835 CNY/h sold_out"),
        (
            "huawei/cn-north-4/cn-north-4a/on_demand/p2v.16xlarge.8",
            "v100-16g 8 196.241 CNY/h in_stock",
        ),
        // Priced by nobody: listed, unknown.
        ("huawei/cn-north-4/-/on_demand/p1.2xlarge.8", "p100 1 unknown unstated"),
        ("huawei/cn-north-4/cn-north-4a/on_demand/ai1s.large.4", "ascend-310 1 unknown in_stock"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    assert!(!keys(&sheet).iter().any(|key| key.contains("cn-north-4c")));
    let t4 = offer(&sheet, "huawei/cn-north-4/cn-north-4a/on_demand/pi2.2xlarge.4");
    let list = t4.details.as_ref().unwrap().list_price.unwrap();
    assert_eq!(list.to_string(), "9.79 CNY/h");
    assert_eq!(rejected(&sheet), [("cn-north-4 g9.large.4", "it does not tell its accelerators")]);
}

#[tokio::test]
async fn oci_multiplies_the_gpu_hour_and_knows_who_makes_what() {
    let sheet = cloud("oci").sheet().await;
    for (key, want, memory) in [
        ("oci/-/-/on_demand/BM.GPU.H100.8", "h100-80g 8 80 USD/h unstated", 81_920),
        ("oci/-/-/on_demand/BM.GPU.A100-v2.8", "a100-80g 8 32 USD/h unstated", 81_920),
        ("oci/-/-/on_demand/BM.GPU4.8", "a100-40g 8 24.4 USD/h unstated", 40_960),
        ("oci/-/-/on_demand/VM.GPU.A10.1", "a10 1 2 USD/h unstated", 24_576),
        ("oci/-/-/spot/VM.GPU.A10.1", "a10 1 1 USD/h unstated", 24_576),
        // AMD, with the memory of one in the field for all (no. 59).
        ("oci/-/-/on_demand/BM.GPU.MI355X.8", "mi355x 8 68.8 USD/h unstated", 294_912),
        ("oci/-/-/on_demand/BM.GPU.B200.8", "b200 8 unknown unstated", 184_320),
    ] {
        let offer = offer(&sheet, key);
        assert_eq!((told(offer).as_str(), offer.gpu_memory_mib), (want, Some(memory)), "{key}");
    }
    assert_eq!(sheet.offers.len(), 7);
    assert_eq!(sheet.rejected.len(), 2, "{:?}", sheet.rejected);
}

#[tokio::test]
async fn oci_with_an_account_says_which_region_has_which_shape() {
    let mut oci = cloud("oci");
    let key = fixture("oci/signature/test-key.pem").replace('\n', "\\n");
    let settings = format!(
        r#"{{"kind":"oci","endpoint":"{{base}}","regions":["eu-frankfurt-1"],"tenancy":"t","user":"u",
            "fingerprint":"f","private_key":"{key}"}}"#
    );
    oci.settings = Box::leak(settings.into_boxed_str());
    let script = Arc::new(move |_, asked: &Asked| {
        if asked.path != "/20160918/shapes" {
            return oci.reply(asked);
        }
        assert!(asked.header("authorization").unwrap().starts_with("Signature algorithm"));
        match asked.query.contains("page=more") {
            true => Reply::json(fixture("oci/offers/region-shapes2.json")),
            false => {
                Reply::json(fixture("oci/offers/region-shapes1.json")).with("opc-next-page", "more")
            }
        }
    });
    let sheet = oci.read(script).await.0.unwrap();
    assert!(sheet.complete, "{:?}", sheet.gaps);
    for (key, want) in [
        ("oci/eu-frankfurt-1/-/on_demand/BM.GPU.H100.8", "h100-80g 8 80 USD/h unstated"),
        ("oci/eu-frankfurt-1/-/on_demand/VM.GPU.A10.1", "a10 1 2 USD/h unstated"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    let nowhere = offer(&sheet, "oci/-/-/on_demand/BM.GPU4.8");
    assert_eq!(nowhere.price.state, runwhere_model::PriceState::NotOffered);
}

#[tokio::test]
async fn crusoe_has_a_dated_table_and_live_stock() {
    let sheet = cloud("crusoe").sheet().await;
    for (key, want) in [
        ("crusoe/us-east1-a/-/on_demand/a100-80gb-sxm-ib.8x", "a100-80g 8 18.4 USD/h in_stock"),
        (
            "crusoe/us-northcentral1-a/-/on_demand/a100-80gb-sxm-ib.8x",
            "a100-80g 8 18.4 USD/h sold_out",
        ),
        ("crusoe/-/-/on_demand/a100-80gb.1x", "a100-80g 1 2 USD/h sold_out"),
        // Not in the table: unknown until the settings state it.
        ("crusoe/us-east1-a/-/on_demand/h100-80gb-sxm-ib.8x", "h100-80g 8 unknown in_stock"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    let table = offer(&sheet, "crusoe/us-east1-a/-/on_demand/a100-80gb-sxm-ib.8x");
    // Typed in by hand on a day of its own: not read now, and since when it holds nobody wrote down.
    assert!(table.marks.has(runwhere_model::Mark::Manual));
    let typed: jiff::Timestamp = "2026-11-29T00:00:00Z".parse().unwrap();
    assert_eq!((table.price.observed_at, table.price.effective_at), (Some(typed), None));
    let mut crusoe = cloud("crusoe");
    crusoe.settings = r#"{"kind":"crusoe","endpoint":"{base}","access_key":"id-of-tests","secret_key":"{secret}",
        "project":"p-1","prices":{"H100-SXM-80GB":"3.90"}}"#;
    let sheet = crusoe.sheet().await;
    let own = offer(&sheet, "crusoe/us-east1-a/-/on_demand/h100-80gb-sxm-ib.8x");
    assert_eq!(told(own), "h100-80g 8 31.2 USD/h in_stock");
    assert_eq!(own.price.kind, runwhere_model::PriceKind::Configured);
}

#[tokio::test]
async fn gcp_sums_parts_exactly() {
    let sheet = cloud("gcp").sheet().await;
    for (key, want) in [
        // 2.933908 + 12 x 0.031611 + 85 x 0.004237.
        ("gcp/us-central1/-/on_demand/a2-highgpu-1g", "a100-40g 1 3.673385 USD/h unstated"),
        // Local SSD is a part of its own (no. 19): 6000 x 0.08 / 730.
        ("gcp/us-central1/-/on_demand/a3-highgpu-8g", "h100-80g 8 89.927070246575 USD/h unstated"),
        // 0.223 + 4 x 0.01 + 16 x 0.001172.
        ("gcp/asia-northeast1/-/spot/g2-standard-4", "l4 1 0.281752 USD/h unstated"),
        // A spot SKU whose usage type says on demand is no on-demand price.
        ("gcp/us-central1/-/spot/a4-highgpu-8g", "b200 8 40.8 USD/h unstated"),
        // Its GPU has a price and its vCPUs have none: unknown (no. 22).
        ("gcp/asia-northeast1/-/on_demand/a3-megagpu-8g", "h100-80g 8 unknown unstated"),
    ] {
        assert_eq!(told(offer(&sheet, key)), want, "{key}");
    }
    // Types that are not sold on demand are not listed so.
    assert!(!keys(&sheet).iter().any(|key| key.contains("on_demand/a3-highgpu-1g")));
    assert!(!keys(&sheet).iter().any(|key| key.contains("on_demand/a4-")));
    let parts =
        &offer(&sheet, "gcp/us-central1/-/on_demand/a3-highgpu-8g").details.as_ref().unwrap().parts;
    let names: Vec<&str> = parts.iter().map(|part| part.part.as_str()).collect();
    assert_eq!(names, ["gpu", "cpu", "memory", "local_ssd"]);
    let why = rejected(&sheet);
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why[0].0.contains("R100"));
}

#[tokio::test]
async fn an_unchanged_page_is_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = FolderCache::new(folder.path());
    let server = Server::start(Arc::new(|_, asked: &Asked| match asked.header("if-none-match") {
        Some("\"v1\"") => Reply::status(304, ""),
        _ => Reply::json("{\"a\": 1}").with("etag", "\"v1\""),
    }))
    .await;
    let client = crate::http::HttpClient::loopback().unwrap();
    let id = runwhere_model::ProviderId::new("files").unwrap();
    let http = crate::http::Http::new(id, &client, Leaping::at(START)).with_cache(Arc::new(cache));
    for _ in 0..3 {
        let body = http
            .session()
            .cached("file", "file", |_| crate::http::Request::get(&format!("{}/f", server.base)))
            .await
            .unwrap();
        assert_eq!(&body[..], b"{\"a\": 1}");
    }
    let conditional: Vec<bool> =
        server.asked().iter().map(|asked| asked.header("if-none-match").is_some()).collect();
    assert_eq!(conditional, [false, true, true]);
}

#[tokio::test]
async fn an_answer_beyond_the_cap_or_without_an_end_is_given_up() {
    let server = Server::start(Arc::new(|_, asked: &Asked| {
        let reply = Reply::json(vec![b' '; 4096]);
        // The length is stated truly, or the answer is cut before it.
        if asked.path == "/cut" { reply.cut() } else { reply }
    }))
    .await;
    let client = crate::http::HttpClient::loopback().unwrap();
    let id = runwhere_model::ProviderId::new("files").unwrap();
    let policy = crate::http::Policy::default().max_body(1024);
    let http = crate::http::Http::new(id, &client, Leaping::at(START)).with_policy(policy);
    for (path, word) in [("whole", "longer than 1024 bytes"), ("cut", "longer than 1024 bytes")] {
        let url = format!("{}/{path}", server.base);
        let read = http.session().bytes("page", |_| crate::http::Request::get(&url)).await;
        let error = read.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[tokio::test]
async fn every_digit_of_a_price_survives_or_the_row_says_why_not() {
    for (sent, kept) in [
        ("0.1", Some("0.1")),
        ("1e-5", Some("0.00001")),
        ("0.39999999999999997", Some("0.39999999999999997")),
        ("98.3200000000", Some("98.32")),
        ("0.12345678901234567890123456789", None),
        ("1e40", None),
        ("-3", None),
        ("\"ask sales\"", None),
    ] {
        let azure = cloud("azure");
        let script = Arc::new(move |_, asked: &Asked| {
            let body = String::from_utf8(azure.reply(asked).body).unwrap();
            Reply::json(
                body.replace("\"retailPrice\": 98.32,", &format!("\"retailPrice\": {sent},")),
            )
        });
        let sheet = azure.read(script).await.0.unwrap();
        let key = "azure/eastus/-/on_demand/Standard_ND96isr_H100_v5";
        match kept {
            Some(kept) => {
                assert_eq!(told(offer(&sheet, key)), format!("h100-80g 8 {kept} USD/h unstated"));
            }
            None => {
                assert!(!keys(&sheet).contains(&key.to_owned()), "{sent}");
                let why = rejected(&sheet);
                assert!(why.iter().any(|(row, _)| key.ends_with(row)), "{sent}: {why:?}");
            }
        }
    }
}
