//! The right value for each peculiarity of each cloud.

use std::sync::Arc;

use runwhere_model::{Offer, OfferSheet};

use super::clouds::{START, cloud};
use super::server::{Leaping, Reply, Server};
use crate::http::FolderCache;

fn offer<'a>(sheet: &'a OfferSheet, key: &str) -> &'a Offer {
    sheet
        .offers
        .iter()
        .find(|offer| offer.key.to_string() == key)
        .unwrap_or_else(|| panic!("no {key} among {:#?}", keys(sheet)))
}

fn keys(sheet: &OfferSheet) -> Vec<String> {
    sheet.offers.iter().map(|offer| offer.key.to_string()).collect()
}

/// `model count price stock`.
fn told(offer: &Offer) -> String {
    let model = offer.gpu.map_or("-", |gpu| gpu.as_str());
    let price = offer.price.state.known().map_or("unknown".to_owned(), |p| p.to_string());
    let stock = serde_json::to_value(offer.stock).unwrap();
    format!("{model} {} {price} {}", offer.gpu_count, stock.as_str().unwrap())
}

fn rejected(sheet: &OfferSheet) -> Vec<(&str, &str)> {
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
    let script = Arc::new(move |_, asked: &super::server::Asked| {
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
async fn an_unchanged_page_is_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = FolderCache::new(folder.path());
    let server = Server::start(Arc::new(|_, asked: &super::server::Asked| {
        match asked.header("if-none-match") {
            Some("\"v1\"") => Reply::status(304, ""),
            _ => Reply::json("{\"a\": 1}").with("etag", "\"v1\""),
        }
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
