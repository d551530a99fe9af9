//! The right value for each peculiarity of Aliyun, Tencent Cloud and Huawei Cloud.

use std::sync::Arc;

use super::told::{keys, offer, rejected, told};
use crate::testing::clouds::{Asked, Reply, cloud, fixture};

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
