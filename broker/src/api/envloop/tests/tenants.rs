use axum::body::Body;
use runwhere_engine::Permission;
use serde_json::{Value, json};

use super::Bench;

const SECRET: &str = "only-of-the-first-tenant";

/// Everything that a tenant can have: a runner of its own, content of all kinds, a job.
async fn furnished(bench: &Bench) -> (Value, Value) {
    let runner = bench.runner("team/runner", "profiles = [\"envloop.job-profile/v1\"]").await;
    let files = [("dataset.toml", "[configs.default]\ntrain = [\"*.txt\"]\n"), ("a.txt", SECRET)];
    let dataset = bench.publish(&format!("datasets/team/{SECRET}"), Some("1"), &files).await;
    let files = [("plugin.toml", "[plugin]\n"), ("p.txt", SECRET)];
    bench.publish(&format!("plugins/team/{SECRET}"), Some("1"), &files).await;
    let spec =
        json!({ "runner": runner, "command": format!("echo {SECRET}"), "tags": { "k": SECRET } });
    let job = bench.post("/v1/jobs", &json!({ "request_id": SECRET, "spec": spec })).await;
    (job.expect(201), dataset)
}

#[tokio::test]
async fn nothing_of_a_tenant_is_seen_by_another() {
    let bench = Bench::new().await;
    let (job, dataset) = furnished(&bench).await;
    let job_id = job["job_id"].as_str().unwrap();
    let trial = job["training"]["trials"][0]["trial_id"].as_str().unwrap();
    let digest = dataset["manifest_sha256"].as_str().unwrap();
    let blob = dataset["manifest"]["files"][0]["sha256"].as_str().unwrap();
    let stranger = bench.new_key("other", &[Permission::Admin]).await;
    let neither = "job-00000000";
    // What exists for another is answered exactly as what does not exist at all.
    let paths = |job: &str, trial: &str, name: &str, digest: &str, blob: &str| {
        [
            ("GET", format!("/v1/jobs/{job}")),
            ("GET", format!("/v1/jobs/{job}/result")),
            ("GET", format!("/v1/jobs/{job}/events")),
            ("GET", format!("/v1/jobs/{job}/logs")),
            ("POST", format!("/v1/jobs/{job}/stop")),
            ("POST", format!("/v1/jobs/{job}/pause")),
            ("GET", format!("/v1/trials?job_id={job}")),
            ("GET", format!("/v1/trials/{trial}")),
            ("GET", format!("/v1/trials/{trial}/result")),
            ("GET", format!("/v1/trials/{trial}/detail")),
            ("GET", format!("/v1/trials/{trial}/snapshot")),
            ("GET", format!("/v1/trials/{trial}/artifacts")),
            ("GET", format!("/v1/trials/{trial}/artifacts/x/content")),
            ("GET", format!("/v1/trials/{trial}/checkpoints")),
            ("POST", format!("/v1/trials/{trial}/stop")),
            ("GET", format!("/v1/jobs/checkpoints?job_id={job}")),
            ("GET", format!("/v1/content/datasets/team/{name}")),
            ("GET", format!("/v1/content/datasets/team/{name}/versions/1")),
            ("GET", format!("/v1/content/datasets/team/{name}/versions/{digest}")),
            ("POST", format!("/v1/content/plugins/team/{name}/versions/1/approval")),
            ("GET", format!("/v1/content/files/{blob}")),
        ]
    };
    let real = paths(job_id, trial, SECRET, digest, blob);
    let none =
        paths(neither, &format!("{neither}.0"), "nobodys", &"0b".repeat(32), &"0c".repeat(32));
    for ((method, real), (_, none)) in real.into_iter().zip(none) {
        let one = bench.call(&stranger, method, &real, Body::empty()).await;
        let other = bench.call(&stranger, method, &none, Body::empty()).await;
        assert_eq!(one.status, other.status, "{method} {real}");
        assert_eq!(one.body["code"], other.body["code"], "{method} {real}");
        let said = String::from_utf8_lossy(&one.bytes).into_owned();
        assert!(!said.contains(trial), "{method} {real}: {said}");
        // The owner does see it.
        let mine = bench.call(&bench.key, "GET", &real, Body::empty()).await;
        let shown = method == "POST" || mine.status == 200 || real.contains("/x/content");
        assert!(shown, "{real}: {} {}", mine.status, mine.body);
    }
    // No list of another tenant names it, whatever is asked for.
    for path in [
        "/v1/jobs",
        "/v1/jobs?type=train&limit=100",
        &format!("/v1/jobs?request_id={SECRET}"),
        "/v1/trials",
        "/v1/content/datasets",
        "/v1/content/plugins",
        &format!("/v1/content/datasets?name=team%2F{SECRET}"),
        &format!("/v1/content/datasets/team/{SECRET}/versions"),
        "/v1/jobs/checkpoints",
        "/v1/workspaces",
        "/v1/workspaces/acme/projects",
        "/v1/me",
        "/v1/billing/account",
        "/v1/billing/ledger",
        "/v1/billing/usage?start=2026-01-01T00:00:00Z&end=2027-01-01T00:00:00Z",
    ] {
        let reply = bench.call(&stranger, "GET", path, Body::empty()).await;
        let said = String::from_utf8_lossy(&reply.bytes).into_owned();
        assert_eq!(reply.status, 200, "{path}: {said}");
        assert!(!said.contains(SECRET) && !said.contains(job_id), "{path}: {said}");
    }
    // The first tenant's request id, namespace and blobs are not the second one's.
    let body = json!({ "request_id": SECRET, "spec": { "runner": job["runner"] } });
    let theirs = bench.call(&stranger, "POST", "/v1/jobs", body.to_string()).await.expect(201);
    assert_ne!(theirs["job_id"], job["job_id"]);
    let files = [("dataset.toml", "[configs.default]\ntrain = [\"*.txt\"]\n"), ("a.txt", "x")];
    let reply = bench.publish_as(&stranger, "datasets/team/mine", Some("1"), &files, "workspace");
    reply.await.refused(403, "PERMISSION_DENIED");
    let listed = json!([
        { "path": "dataset.toml", "sha256": dataset["manifest"]["files"][1]["sha256"], "size": dataset["manifest"]["files"][1]["size"] },
        { "path": "a.txt", "sha256": blob, "size": SECRET.len() },
    ]);
    let body = json!({ "version": "1", "files": listed });
    let path = "/v1/content/datasets/theirs/data/versions";
    let reply = bench.call(&stranger, "POST", path, body.to_string()).await;
    assert!(reply.refused(400, "BAD_REQUEST").contains("not uploaded"));
    // Headers that name the other tenant are refused.
    for (header, value) in [("x-workspace-id", "default"), ("x-project-id", "default")] {
        let request = axum::http::Request::get("/v1/jobs")
            .header("authorization", format!("Bearer {stranger}"))
            .header(header, value)
            .body(Body::empty())
            .unwrap();
        let reply: axum::response::Response =
            tower::ServiceExt::oneshot(bench.app.clone(), request).await.unwrap();
        assert_eq!(reply.status(), 403);
    }
    // The first tenant's job is as it was.
    let still = bench.get(&format!("/v1/jobs/{job_id}")).await.expect(200);
    assert_eq!(still["status"], "pending");
}
