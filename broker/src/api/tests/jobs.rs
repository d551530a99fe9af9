use axum::body::Body;
use bytes::Bytes;
use runwhere_agent::protocol::{LogFrame, LogStream};
use runwhere_engine::{EndReason, Evidence, Exit, ExitCause, TrialState};
use runwhere_model::{Currency, Money, parse_decimal};
use serde_json::{Value, json};

use super::Site;
use crate::api::runwhere::{QuotaState, Refusal};
use crate::store::sample;

const YAML: &str = "kind: Training\njob: {name: a}\n";

#[tokio::test]
async fn a_submit_reply_has_the_numbers_that_clients_crash_without() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Queued);
    let body = json!({ "yaml_content": YAML, "offer_key": "a/b/c/spot/d" });
    let answer = site.post("/api/v1/jobs/submit", &body).await;
    let reply = answer.expect(200);
    // The digits of the text, not of a float.
    assert!(answer.text().contains("\"price_per_hour\":36.4400,"), "{}", answer.text());
    assert_eq!(reply["estimated_start_seconds"], 180);
    assert_eq!(reply["job_id"], "job-00000001");
    assert_eq!(reply["account_type"], "byoa");
    assert_eq!(reply["warnings"], json!(["注意 (x)"]));
    let warning = answer.headers["x-runw-quota-warning"].to_str().unwrap();
    assert!(warning.is_ascii());
    assert_eq!(serde_json::from_str::<Value>(warning).unwrap()["message"], "配额将满");
    site.jobs.change(|report| report.view.job.spec.ceiling.currency = Currency::USD);
    let dollars = site.post("/api/v1/jobs/submit", &body).await;
    assert!(dollars.text().contains("\"price_per_hour\":255.0800,"));
    let dollars = dollars.expect(200);
    assert_eq!((&dollars["price"], &dollars["currency"]), (&json!("36.44"), &json!("USD")));
    assert_eq!((&dollars["fx_rate"], &dollars["fx_date"]), (&json!("7"), &json!("2026-11-20")));
    site.jobs.change(|report| report.view.job.spec.ceiling.currency = Currency::EUR);
    assert!(site.post("/api/v1/jobs/submit", &body).await.expect(200)["price_per_hour"].is_null());
}

#[tokio::test]
async fn wrong_submits_name_the_field_and_never_the_value() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Queued);
    for (body, word) in [
        ("", "yaml_content"),
        ("[]", "JSON"),
        ("{", "JSON"),
        (r#"{"yaml_content": 7531}"#, "yaml_content"),
        (r#"{"yaml_content": "a", "overage_confirmed": "7531"}"#, "overage_confirmed"),
        (r#"{"yaml_content": "a", "offer_key": "7531", "gpu_offer": "7531"}"#, "gpu_offer"),
        (r#"{"yaml_content": "a", "max_price_per_hour": "-7531"}"#, "max_price_per_hour"),
        (r#"{"yaml_content": "a", "sync_id": "7531/"}"#, "sync_id"),
    ] {
        let token = format!("Bearer {}", site.token);
        let headers = [("authorization", token.as_str())];
        let answer = site.call("POST", "/api/v1/jobs/submit", &headers, body).await;
        let message = answer.expect(422)["message"].to_string();
        assert!(message.contains(word) && !message.contains("7531"), "{body}: {message}");
    }
    let large = json!({ "yaml_content": "x".repeat(3 << 20) });
    site.post("/api/v1/jobs/submit", &large).await.expect(413);
    assert!(site.jobs.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn quota_questions_and_conflicts_have_the_fields_clients_read() {
    let site = Site::new().await;
    let state = QuotaState { current: 6, wanted: 4, limit: 8, overage_unit_price: None };
    let body = json!({ "yaml_content": YAML });
    let refused = |refusal| {
        *site.jobs.refusal.lock().unwrap() = Some(refusal);
        site.post("/api/v1/jobs/submit", &body)
    };
    let question = refused(Refusal::QuotaConfirmation(state.clone())).await.expect(403);
    assert_eq!(question["code"], 4030);
    assert_eq!(question["detail"]["requires_confirmation"], true);
    assert_eq!(question["detail"]["current_usage"], 6);
    assert_eq!(question["detail"]["quota_limit"], 8);
    assert!(question["detail"]["message"].is_string());
    let wall = refused(Refusal::QuotaExceeded(state)).await.expect(403);
    assert_eq!(wall["code"], 4030);
    assert!(wall["detail"].get("requires_confirmation").is_none());
    let taken = refused(Refusal::NameTaken { existing: sample::job_id(9) }).await.expect(409);
    assert_eq!(taken["detail"]["existing_job_id"], "job-00000009");
    let full = refused(Refusal::StorageFull).await.expect(507);
    assert_eq!(full["detail"]["error"], "storage_full");
    let fault = refused(Refusal::Internal("secret cause".into())).await;
    assert!(!fault.text().contains("secret"));
    fault.expect(500);
}

#[tokio::test]
async fn describe_has_every_field_of_the_document_in_its_form() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Queued);
    let queued = site.get("/api/v1/jobs/llama").await.expect(200);
    for (field, value) in [
        ("id", json!("job-00000001")),
        ("job_id", json!("job-00000001")),
        ("name", json!("llama")),
        ("job_type", json!("training")),
        ("platform", json!("local")),
        ("status", json!("pending")),
        ("url", Value::Null),
        ("gpu_count", json!(8)),
        ("sku_key", json!("host")),
        ("offer_key", json!("local/-/-/on_demand/host")),
        ("node_id", Value::Null),
        ("price_per_hour", json!("36.4400")),
        ("estimated_cost", json!("0.0000")),
        ("final_cost", Value::Null),
        ("billed_seconds", json!(0)),
        ("started_at", Value::Null),
        ("ended_at", Value::Null),
        ("gpu_metrics", Value::Null),
        ("elapsed_seconds", json!(0)),
    ] {
        assert_eq!(queued[field], value, "{field}");
    }
    assert_eq!(queued["created_at"], "2026-09-21T14:13:21+00:00");
    site.jobs.change(|report| {
        let (trial, lease) = &mut report.view.trials[0];
        trial.state = TrialState::Failed;
        trial.started_at = Some(sample::at(10));
        trial.ended_at = Some(sample::at(85));
        trial.end_reason = Some(EndReason::ProgramFailed);
        trial.exit = Some(Exit { code: Some(3), signal: None, cause: ExitCause::Program });
        trial.cleanup_confirmed = true;
        trial.evidence = vec![Evidence::NothingLaunched { at: sample::at(1) }];
        let mut made = sample::lease(trial, "lease-1");
        made.node = Some(runwhere_model::NodeId::new("i-0abc").unwrap());
        *lease = Some(made);
        report.cost.settled = true;
        report.cost.billed_micros = 187_000_000;
        let amount = parse_decimal("1.892855555556").unwrap();
        report.cost.amounts = vec![Money::new(amount, Currency::CNY)];
    });
    let failed = site.get("/api/v1/jobs/job-00000001").await.expect(200);
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["final_cost"], "1.8929");
    assert_eq!(failed["cost_exact"], "1.892855555556");
    assert_eq!((&failed["billed_seconds"], &failed["elapsed_seconds"]), (&json!(187), &json!(75)));
    assert_eq!((&failed["exit_code"], &failed["end_reason"]), (&json!(3), &json!("failed")));
    let node = failed["node_id"].as_str().unwrap();
    assert!(node.starts_with("node-") && node.len() == 13);
    assert_eq!(failed["cleanup_evidence"], json!(["未创建过节点"]));
}

#[tokio::test]
async fn lists_filter_in_any_case_and_refuse_what_they_do_not_know() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Running);
    let path = "/api/v1/jobs?status=running&job_type=Training&limit=5&cursor=job-00000002";
    let page = site.get(path).await.expect(200);
    assert_eq!(page["data"][0]["id"], "job-00000001");
    assert_eq!(page["next_cursor"], "job-00000007");
    let asked = site.jobs.asked.lock().unwrap().pop().unwrap();
    assert!(asked.contains("Some(Running)") && asked.contains("Some(Training)"), "{asked}");
    for query in ["status=[x]", "job_type=x", "limit=0", "limit=501", "limit=x", "cursor=%2F"] {
        site.get(&format!("/api/v1/jobs?{query}")).await.expect(422);
    }
    site.get("/api/v1/jobs?status=&job_type=").await.expect(200);
}

#[tokio::test]
async fn stop_resume_delete_and_what_is_not_served() {
    let site = Site::new().await;
    site.jobs.add(1, "llama", TrialState::Cancelled);
    assert_eq!(
        site.post("/api/v1/jobs/llama/stop", &json!({})).await.expect(200)["id"],
        "job-00000001"
    );
    let token = format!("Bearer {}", site.token);
    let headers = [("authorization", token.as_str())];
    site.call("POST", "/api/v1/jobs/llama/stop", &headers, Body::empty()).await.expect(200);
    let resumed = site.post("/api/v1/jobs/llama/resume", &json!({ "from_step": 12000 })).await;
    assert_eq!(resumed.expect(200)["new_job_id"], "job-00000001");
    site.post("/api/v1/jobs/llama/resume", &json!({ "from_step": -1 })).await.expect(422);
    let deleted =
        site.call("DELETE", "/api/v1/jobs/llama?force=true", &headers, Body::empty()).await;
    assert_eq!(deleted.expect(200)["deleted"], json!(["job-00000001"]));
    let odd = site.call("DELETE", "/api/v1/jobs/llama?force=maybe", &headers, Body::empty());
    odd.await.expect(422);
    let asked = site.jobs.asked.lock().unwrap().join("\n");
    assert_eq!(asked, "stop llama\nstop llama\nresume llama Some(12000)\ndelete llama true");
    for path in ["/api/v1/inference/deploy", "/api/v1/notebooks/start"] {
        let refused = site.post(path, &json!({ "name": "x" })).await.expect(422);
        assert_eq!(refused["detail"]["error"], "not_served");
    }
}

#[tokio::test]
async fn logs_by_lines_by_cursor_and_by_bytes() {
    let site = Site::new().await;
    let report = site.jobs.add(1, "llama", TrialState::Running);
    let trial = report.view.trials[0].0.id.clone();
    let empty = site.get("/api/v1/jobs/llama/logs").await.expect(200);
    assert_eq!(empty["lines"], json!([]));
    let bytes = Bytes::from_static(b"one\ntwo\xff\nthree");
    let frame = LogFrame { seq: 1, stream: LogStream::Stdout, time_us: 0, offset: 0, bytes };
    let lease = sample::lease_id("lease-1");
    site.logs.append(&trial, &lease, vec![frame]).await.unwrap();
    let tail = site.get("/api/v1/jobs/llama/logs?tail=1").await.expect(200);
    assert_eq!(tail["lines"], json!(["two\u{fffd}"]));
    assert_eq!(tail["truncated"], true);
    let beginning = crate::logs::Cursor::default();
    let page = site.get(&format!("/api/v1/jobs/llama/logs?tail=1&after={beginning}")).await;
    let page = page.expect(200);
    assert_eq!((&page["lines"], &page["truncated"]), (&json!(["one"]), &json!(true)));
    let after = page["cursor"].as_str().unwrap();
    let rest = site.get(&format!("/api/v1/jobs/llama/logs?after={after}")).await.expect(200);
    assert_eq!(rest["lines"], json!(["two\u{fffd}"]));
    site.logs.seal(&trial).await.unwrap();
    let sealed = site.get("/api/v1/jobs/llama/logs").await.expect(200);
    assert_eq!(sealed["lines"], json!(["one", "two\u{fffd}", "three"]));
    let raw = site.get("/api/v1/jobs/llama/logs/raw?stream=stdout").await;
    assert_eq!(raw.bytes, b"one\ntwo\xff\nthree");
    for query in ["tail=0", "tail=5001", "tail=x", "after=x"] {
        site.get(&format!("/api/v1/jobs/llama/logs?{query}")).await.expect(422);
    }
    // An empty cursor is the beginning.
    let whole = site.get("/api/v1/jobs/llama/logs?after=").await.expect(200);
    assert_eq!(whole["lines"], sealed["lines"]);
    site.get("/api/v1/jobs/llama/logs/raw?stream=x").await.expect(422);
    site.get("/api/v1/jobs/other/logs").await.expect(404);
}
