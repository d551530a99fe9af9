use runwhere_engine::Permission;
use serde_json::json;

use super::Bench;
use crate::api::runwhere::{JobService as _, Refusal, SubmitRequest};

fn yaml(number: usize) -> SubmitRequest {
    SubmitRequest {
        yaml: format!(
            "job:\n  name: job-of-{number}\nresources:\n  gpuType: H100\n  gpuNum: 1\nenvironment:\n  command: [\"true\"]\n"
        ),
        offer_key: None,
        offer_code: None,
        overage_confirmed: false,
        idempotency_key: None,
        sync: None,
        max_price: None,
        request_sha256: format!("{number:064}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_holds_where_both_doors_are_used_at_once() {
    for _ in 0..20 {
        let bench = Bench::new().await;
        bench.limit_gpus("default", 3).await;
        let runner = bench.runner("team/runner", "").await;
        let caller = bench.caller(&bench.key).await;
        let mut submits = tokio::task::JoinSet::new();
        for number in 0..6 {
            let (jobs, caller) = (bench.jobs.clone(), caller.clone());
            submits.spawn(async move {
                match jobs.submit(&caller, yaml(number)).await {
                    Ok(_) => true,
                    Err(Refusal::QuotaExceeded(_)) => false,
                    Err(other) => panic!("{other:?}"),
                }
            });
            let (app, key, runner) = (bench.app.clone(), bench.key.clone(), runner.clone());
            submits.spawn(async move {
                let request = axum::http::Request::post("/v1/jobs")
                    .header("authorization", format!("Bearer {key}"))
                    .body(axum::body::Body::from(
                        json!({ "spec": { "runner": runner } }).to_string(),
                    ))
                    .unwrap();
                let reply: axum::response::Response =
                    tower::ServiceExt::oneshot(app, request).await.unwrap();
                match reply.status().as_u16() {
                    201 => true,
                    503 => false,
                    other => panic!("{other}"),
                }
            });
        }
        let accepted = submits.join_all().await.into_iter().filter(|accepted| *accepted).count();
        assert_eq!(accepted, 3);
    }
}

#[tokio::test]
async fn a_whole_job_counts_against_the_quota() {
    let bench = Bench::new().await;
    bench.limit_gpus("default", 3).await;
    let runner = bench.runner("team/runner", "").await;
    let trials = |count: usize| {
        let trials: Vec<_> = (0..count).map(|_| json!({ "spec": { "runner": runner } })).collect();
        json!({ "trials": trials })
    };
    bench.post("/v1/jobs", &trials(4)).await.refused(503, "TRAIN_JOB_CAPACITY_EXCEEDED");
    bench.post("/v1/jobs", &trials(2)).await.expect(201);
    bench.post("/v1/jobs", &trials(2)).await.refused(503, "TRAIN_JOB_CAPACITY_EXCEEDED");
    bench.post("/v1/jobs", &trials(1)).await.expect(201);
    // Another project has a quota of its own.
    let other = bench.new_key("other", &[Permission::Admin]).await;
    bench.call(&other, "POST", "/v1/jobs", trials(2).to_string()).await.expect(201);
}
