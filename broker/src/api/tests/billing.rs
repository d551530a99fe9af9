use axum::body::Body;
use runwhere_engine::Permission;
use serde_json::json;

use super::Site;
use crate::store::{Row, Store, Transition, sample};

fn lease() -> runwhere_engine::Lease {
    let job = sample::job("default", 1, "llama");
    sample::lease(&sample::trial(&job, 0), "lease-1")
}

async fn with_segments(count: u32) -> Site {
    let site = Site::new().await;
    let job = sample::job("default", 1, "llama");
    let trial = sample::trial(&job, 0);
    let lease = sample::lease(&trial, "lease-1");
    let segments = (0..count).map(|number| Row::Segment(sample::segment(&lease, number)));
    let rows = [Row::Job(job), Row::Trial(trial), Row::Lease(lease.clone())];
    let rows = rows.into_iter().chain(segments).collect();
    site.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    site
}

#[tokio::test]
async fn segments_page_by_cursor_with_decimal_strings() {
    let site = with_segments(5).await;
    let (mut path, mut ids) = ("/api/v1/billing/segments?limit=2".to_owned(), Vec::new());
    loop {
        let page = site.get(&path).await.expect(200);
        for row in page["data"].as_array().unwrap() {
            assert!(row["amount"].is_string() && row["price_per_hour"].is_string(), "{row}");
            assert_eq!(row["currency"], "CNY");
            ids.push(row["id"].as_str().unwrap().to_owned());
        }
        let cursor = page["next_cursor"].as_str().unwrap();
        path = format!("/api/v1/billing/segments?limit=2&cursor={cursor}");
        if page["has_more"] == json!(false) {
            break;
        }
    }
    assert_eq!(ids.len(), 5);
    ids.dedup();
    assert_eq!(ids.len(), 5);
    assert_eq!(site.get(&path).await.expect(200)["data"], json!([]));
    for query in ["limit=0", "cursor=x", "from=yesterday", "format=xml", "job_id=%2F"] {
        site.get(&format!("/api/v1/billing/segments?{query}")).await.expect(422);
    }
    let csv = site.get("/api/v1/billing/segments?format=csv&from=2020-01-01").await;
    assert_eq!(csv.status, 200);
    assert_eq!(csv.text().lines().count(), 6);
    assert!(csv.text().starts_with("id,job_id,"));
}

#[tokio::test]
async fn usage_adds_gpu_hours_and_strangers_see_none() {
    let site = with_segments(3).await;
    let path = "/api/v1/usage?from_date=2026-09-01&to_date=2026-12-31";
    let usage = site.get(path).await.expect(200);
    assert_eq!(usage["period"]["from_date"], "2026-09-01");
    let hours = usage["summary"]["total_gpu_hours"].as_str().unwrap();
    assert!(!hours.trim_matches(['0', '.']).is_empty(), "{usage}");
    let per_hour = sample::segment(&lease(), 0).amount;
    let sum = per_hour.amount * rust_decimal::Decimal::from(3);
    let cost = json!([{ "currency": "CNY", "amount": sum.normalize().to_string() }]);
    assert_eq!(usage["cost"], cost);
    let before = site.get("/api/v1/usage?from_date=2020-01-01&to_date=2020-01-02").await;
    assert_eq!(before.expect(200)["cost"], json!([]));
    assert_eq!(usage["quota"][0]["current"], 3);
    let token = format!("Bearer {}", site.stranger(Permission::BillingRead).await);
    let headers = [("authorization", token.as_str())];
    let theirs = site.call("GET", path, &headers, Body::empty()).await.expect(200);
    assert_eq!(theirs["summary"]["total_gpu_hours"], "0.0000");
    assert_eq!(theirs["gpu_usage"], json!([]));
    assert_eq!(theirs["cost"], json!([]));
    let segments = site.call("GET", "/api/v1/billing/segments", &headers, Body::empty()).await;
    assert_eq!(segments.expect(200)["data"], json!([]));
    for query in ["from_date=x", "from_date=2026-02-30", "from_date=2026-02-02&to_date=2026-01-01"]
    {
        site.get(&format!("/api/v1/usage?{query}")).await.expect(422);
    }
}
