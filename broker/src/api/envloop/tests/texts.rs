use std::path::Path;

use runwhere_engine::Permission;
use serde_json::{Value, json};

use super::Bench;
use super::site::Site;
use crate::api::text::is_chinese;

/// What is asked, what it is refused with, and what both languages say of it.
struct Case {
    key: String,
    method: &'static str,
    path: String,
    body: String,
    code: &'static str,
    shown: &'static str,
}

async fn both(bench: &Bench, case: &Case) -> [Value; 2] {
    let mut said = Vec::new();
    // Chinese is for who asks for nothing that there is.
    for language in [None, Some("zh-CN,zh;q=0.9,en;q=0.5"), Some("fr"), Some("en-US,en;q=0.9")] {
        let (path, body) = (case.path.as_str(), case.body.clone());
        let reply = bench.call_in(language, &case.key, case.method, path, body).await;
        let message = reply.body["message"].as_str().unwrap_or_default();
        assert_eq!(reply.body["code"], case.code, "{path}: {message}");
        assert_eq!(is_chinese(message), language != Some("en-US,en;q=0.9"), "{path}: {message}");
        assert!(message.contains(case.shown), "{}: {message}", case.shown);
        said.push((reply.status, reply.body));
    }
    let (english, chinese) = said.pop().zip(said.pop()).unwrap();
    assert_eq!(english.0, chinese.0);
    assert_eq!(english.1["field"], chinese.1["field"]);
    assert!(said.iter().all(|one| *one == chinese), "{said:?}");
    [chinese.1, english.1]
}

#[tokio::test]
async fn every_kind_of_refusal_is_in_the_callers_language() {
    let site = Site::new().await;
    let bench = &site.bench;
    let blind = bench.new_key("default", &[Permission::BillingRead]).await;
    let (job, trials) = site.job(1).await;
    let used = json!({ "request_id": "r-1", "spec": site.spec() });
    bench.post("/v1/jobs", &used).await.expect(201);
    let with = |key: &str, value: Value| {
        let mut spec = site.spec();
        spec[key] = value;
        json!({ "spec": spec }).to_string()
    };
    let commit = "0".repeat(40);
    let case = |method, path: &str, body: String, code, shown| Case {
        key: bench.key.clone(),
        method,
        path: path.to_owned(),
        body,
        code,
        shown,
    };
    let submit = |body: String, code, shown| case("POST", "/v1/jobs", body, code, shown);
    let get = |path: &str, code, shown| case("GET", path, String::new(), code, shown);
    let mut cases = vec![
        // Form.
        submit("{".to_owned(), "BAD_REQUEST", "1"),
        submit(r#"{"spec":{},"spec":{}}"#.to_owned(), "INVALID_TRAIN_JOB_SPEC", "`spec`"),
        submit(with("timeout_seconds", json!(0)), "INVALID_TRAIN_JOB_SPEC", "spec.timeout_seconds"),
        submit(with("env", json!({})), "INVALID_TRAIN_JOB_SPEC", "spec.env"),
        submit(with("command", json!(" ")), "INVALID_COMMAND", "command"),
        submit(with("tags", json!({ "a b": "c" })), "INVALID_TAG", "`a b`"),
        submit(
            with("profile", json!({ "schema": "x" })),
            "INVALID_PROFILE",
            "envloop.job-profile/v2",
        ),
        submit(json!({ "trials": [] }).to_string(), "INVALID_TRIALS", "16"),
        // Runner, image, hardware, conflict.
        submit(with("runner", json!("a/b@main")), "RUNNER_VERSION_AMBIGUOUS", "40"),
        submit(with("runner", json!(format!("a/b@{commit}"))), "RUNNER_NOT_FOUND", "a/b@0000"),
        submit(with("image", json!(" ")), "INVALID_TRAIN_JOB_SPEC", "image"),
        submit(
            with("image", json!("private.example/x")),
            "INVALID_RUNNER_ENVIRONMENT",
            "private.example/x",
        ),
        submit(with("image", json!("busy.example/x")), "PROVIDER_UNAVAILABLE", "503"),
        submit(with("resources", json!({ "gpu_type": "Z80" })), "UNSUPPORTED_HARDWARE", "Z80"),
        submit(
            json!({ "request_id": "r-1", "spec": { "runner": site.spec()["runner"] } }).to_string(),
            "JOB_REQUEST_CONFLICT",
            "job-",
        ),
        // Reading.
        get("/v1/jobs/job-none", "JOB_NOT_FOUND", ""),
        get("/v1/trials/job-none.0", "TRIAL_NOT_FOUND", "Trial".split_at(1).1),
        get("/v1/jobs?limit=0", "INVALID_LIMIT", "100"),
        get("/v1/jobs?status=done", "INVALID_JOB_STATUS", "completed"),
        get("/v1/jobs?cursor=%21", "INVALID_CURSOR", "cursor"),
        get(&format!("/v1/jobs/{job}/logs?source=x"), "INVALID_LOG_SOURCE", "runtime"),
        get(&format!("/v1/jobs/{job}/logs?tail=0"), "INVALID_LOG_QUERY", "1000"),
        get(&format!("/v1/jobs/{job}/logs?cursor=x"), "LOG_CURSOR_INVALID", "cursor"),
        get(&format!("/v1/trials/{}/artifacts/x/content", trials[0]), "ARTIFACT_NOT_READY", ""),
        get("/v1/job/checkpoints/download?path=x", "CHECKPOINT_NOT_FOUND", "checkpoint"),
        get("/v1/checkpoint-files/x", "ACCESS_DENIED", ""),
        get("/v1/runners/no/runner", "RUNNER_NOT_FOUND", ""),
        get("/v1/content/models", "NOT_FOUND", "datasets"),
        get("/v1/content/recipes/a/b/versions/1", "BAD_REQUEST", "SHA-256"),
        get("/v1/billing/usage?start=x", "INVALID_BILLING_WINDOW", "start"),
        get("/v1/workspaces/other/projects", "WORKSPACE_ACCESS_DENIED", ""),
        get("/v1/profiles", "PROFILE_NOT_FOUND", "/v1/profiles"),
        get("/v1/jobs/%ff", "BAD_REQUEST", ""),
        case("PUT", "/v1/jobs", String::new(), "METHOD_NOT_ALLOWED", "PUT"),
        case("POST", &format!("/v1/jobs/{job}/pause"), String::new(), "JOB_ACTION_UNSUPPORTED", ""),
        // Publishing and logging in.
        case("POST", "/v1/content/datasets/a/b/versions", "{}".to_owned(), "BAD_REQUEST", "1"),
        case("POST", "/v1/runners/a/b/revisions", "{}".to_owned(), "BAD_REQUEST", "1"),
        case("POST", "/v1/auth/cli/start", "{}".to_owned(), "BAD_REQUEST", "key_hash"),
        case("POST", "/v1/auth/cli/poll", "{}".to_owned(), "AUTH_LOGIN_EXPIRED", ""),
    ];
    let unknown = "epk_none".to_owned();
    cases.push(Case { key: String::new(), ..get("/v1/me", "UNAUTHENTICATED", "API key") });
    cases.push(Case { key: unknown, ..get("/v1/me", "UNAUTHENTICATED", "API key") });
    cases.push(Case { key: blind, ..get("/v1/runners", "PERMISSION_DENIED", "runner.read") });
    for case in &cases {
        both(bench, case).await;
    }
    // Whoever would be accepted finds no money or no place.
    let spec = json!({ "spec": site.spec() }).to_string();
    bench.limit_gpus("default", 2).await;
    let full = submit(spec.clone(), "TRAIN_JOB_CAPACITY_EXCEEDED", "3");
    both(bench, &full).await;
    bench.limit_gpus("default", 1000).await;
    site.without_money().await;
    let [zh, en] = both(bench, &submit(spec, "INSUFFICIENT_BALANCE", "0.01 CNY")).await;
    assert!(zh["message"].as_str().unwrap().starts_with("预算 0.01 CNY 不足"), "{zh}");
    assert!(en["message"].as_str().unwrap().starts_with("the budget of 0.01 CNY"), "{en}");
}

/// Sentences of this API are made by `words!` alone, which takes none that is not in both languages.
#[test]
fn no_sentence_is_made_in_another_way() {
    fn walk(folder: &Path, seen: &mut usize) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    walk(&path, seen);
                }
                continue;
            }
            if path.extension().is_none_or(|kind| kind != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let shipped = text.split("\n#[cfg(test)]").next().unwrap_or_default();
            for other in ["Words::new(", "Words::from_fn(", "Words::default()", "Words {"] {
                let made = shipped.lines().find(|line| {
                    line.contains(other) && !line.contains("-> Words {") && !line.contains("let ")
                });
                assert_eq!(made, None, "{}", path.display());
            }
            *seen += shipped.matches("words!(").count();
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for folder in ["api/envloop", "runners"] {
        walk(&source.join(folder), &mut seen);
    }
    assert!(seen > 150, "{seen}");
}
