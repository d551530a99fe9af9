//! The right value for each peculiarity of each cloud.

use std::sync::Arc;

use super::told::{keys, offer, rejected, told};
use crate::testing::clouds::{Asked, Reply, cloud, fixture};

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
