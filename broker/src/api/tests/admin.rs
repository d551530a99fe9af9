//! What operators see, and who is one.

use axum::body::Body;
use runwhere_engine::{Lease, LeaseState, Permission, PriceSnapshot};
use serde_json::{Value, json};

use super::{Answer, Site};
use crate::accounts::NewKey;
use crate::serve::Restored;
use crate::store::sample::{self, at};
use crate::store::{Row, Store, Transition};

async fn get_as(site: &Site, path: &str, token: &str) -> Answer {
    site.call("GET", path, &[("authorization", token)], Body::empty()).await
}

async fn post_as(site: &Site, path: &str, body: &Value, token: &str) -> Answer {
    site.call("POST", path, &[("authorization", token)], body.to_string()).await
}

async fn lease_of(site: &Site, project: &str, number: u32, state: LeaseState) -> Lease {
    let job = sample::job(project, number, &format!("train-{number}"));
    let trial = sample::trial(&job, 0);
    let lease = Lease {
        state,
        since: at(10),
        node: Some(runwhere_model::NodeId::new(format!("node-{number}")).unwrap()),
        price: PriceSnapshot {
            price: "36.44 CNY".parse::<runwhere_model::Money>().unwrap().into(),
            ..sample::lease(&trial, "x").price
        },
        ..sample::lease(&trial, &format!("lease-{number}"))
    };
    let rows = vec![Row::Job(job), Row::Trial(trial), Row::Lease(lease.clone())];
    site.store.commit(Transition { rows, events: Vec::new() }).await.unwrap();
    lease
}

async fn token(site: &Site, permission: Permission) -> String {
    let new = NewKey { name: "x".into(), permissions: vec![permission], expires_in: None };
    let (_, token) = site.accounts.create(new, None).await.unwrap();
    format!("Bearer {}", token.expose())
}

#[tokio::test]
async fn operators_see_every_lease_and_tenants_their_own() {
    let site = Site::new().await;
    lease_of(&site, "default", 1, LeaseState::Releasing).await;
    lease_of(&site, "other", 2, LeaseState::Unknown).await;
    lease_of(&site, "other", 3, LeaseState::Released).await;
    let ids = |answer: &Value| -> Vec<String> {
        let rows = answer["data"].as_array().unwrap();
        rows.iter().map(|row| row["lease_id"].as_str().unwrap().to_owned()).collect()
    };
    let answer = site.get("/api/v1/admin/leases").await.expect(200);
    assert_eq!(ids(&answer), ["lease-1", "lease-2"]);
    assert_eq!(answer["price_per_hour"]["CNY"], "72.88");
    let row = &answer["data"][0];
    assert_eq!((&row["state"], &row["node_id"]), (&"releasing".into(), &"node-1".into()));
    // Its provider is not connected here: held, and said so.
    assert_eq!(row["cleanup_blocked"], "provider_not_connected");
    assert_eq!(answer["providers"][0]["provider"], "sim");
    let answer = site.get("/api/v1/admin/leases?all=true").await.expect(200);
    assert_eq!(ids(&answer), ["lease-1", "lease-2", "lease-3"]);

    let stranger = format!("Bearer {}", site.stranger(Permission::Admin).await);
    let answer = get_as(&site, "/api/v1/admin/leases?all=true", &stranger).await.expect(200);
    assert_eq!(ids(&answer), ["lease-2", "lease-3"]);
    assert!(answer.get("providers").is_none());
    let weaker = token(&site, Permission::BillingRead).await;
    get_as(&site, "/api/v1/admin/leases", &weaker).await.expect(403);
}

#[tokio::test]
async fn only_operators_sweep_and_only_a_confirmed_database_lets_them_end_anything() {
    let site = Site::new().await;
    let stranger = format!("Bearer {}", site.stranger(Permission::Admin).await);
    let (path, confirm) = ("/api/v1/admin/sweep", "/api/v1/admin/restore/confirm");
    let (dry, apply) = (json!({}), json!({ "apply": true }));
    post_as(&site, path, &dry, &stranger).await.expect(403);
    post_as(&site, confirm, &dry, &stranger).await.expect(403);
    let answer = site.post(path, &dry).await.expect(200);
    assert_eq!(answer["data"][0]["foreign"], 3);
    assert_eq!(answer["applied"], false);
    let refused = site.post(path, &json!({ "provider": "a ws" })).await.expect(422).to_string();
    assert!(refused.contains("a ws") && refused.contains("sim"), "what is connected: {refused}");

    let restored = Restored { found: 3, expected: Some(9), noticed_at: at(1) };
    *site.admin.restored.lock().unwrap() = Some(restored);
    let refused = site.post(path, &apply).await.expect(409);
    assert_eq!(refused["detail"]["error"], "restore_not_confirmed");
    assert_eq!(*site.admin.applied.lock().unwrap(), 0);
    assert_eq!(site.post(path, &dry).await.expect(200)["restored"]["expected"], 9);
    let answer = site.post(confirm, &dry).await.expect(200);
    assert_eq!(answer["confirmed"], true);
    site.post(path, &apply).await.expect(200);
    assert_eq!(*site.admin.applied.lock().unwrap(), 1);
}

#[tokio::test]
async fn prices_are_everyones_so_only_operators_decide_about_them() {
    let site = Site::new().await;
    let decides = async |token: &str| get_as(&site, "/decides", token).await.text().to_owned();
    assert_eq!(site.get("/decides").await.text(), "true");
    let stranger = format!("Bearer {}", site.stranger(Permission::Admin).await);
    assert_eq!(decides(&stranger).await, "false", "another project's admin");
    assert_eq!(decides(&token(&site, Permission::BillingRead).await).await, "false");
    assert_eq!(decides("Bearer rw_nobody").await, "false");
}

#[tokio::test]
async fn numbers_need_the_permission_and_name_every_state() {
    let site = Site::new().await;
    lease_of(&site, "default", 1, LeaseState::Releasing).await;
    let reader = token(&site, Permission::MetricsRead).await;
    let answer = get_as(&site, "/metrics", &reader).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for line in [
        "runwhere_leases{state=\"releasing\"} 1",
        "runwhere_leases{state=\"unknown\"} 0",
        "runwhere_trials{state=\"queued\"} 1",
        "runwhere_quarantined_trials 1",
        "runwhere_price_rows{provider=\"local\"} 0",
        "runwhere_price_age_seconds{provider=\"local\"} 0",
        "runwhere_price_source_ok{provider=\"local\"} 1",
        "runwhere_provider_calls_total{provider=\"sim\",operation=\"launch\",outcome=\"ok\"} 2",
    ] {
        assert!(answer.text().lines().any(|one| one == line), "{line} in {}", answer.text());
    }
    assert!(!answer.text().contains("runwhere_oldest_release_seconds 0\n"));
    let weaker = token(&site, Permission::JobRead).await;
    get_as(&site, "/metrics", &weaker).await.expect(403);
    get_as(&site, "/metrics", "Bearer rw_x").await.expect(401);
}
