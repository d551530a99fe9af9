use std::io::Write as _;
use std::time::Duration;

use axum::body::Body;
use runwhere_agent::protocol::Digest;
use runwhere_engine::Permission;
use serde_json::{Value, json};

use super::{Answer, Site};
use crate::api::runwhere::Refusal;
use crate::api::text::Words;

fn file(path: &str, content: &[u8]) -> Value {
    let hash = format!("sha256:{}", Digest::of(content));
    json!({ "path": path, "hash": hash, "size": content.len() })
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

async fn diff(site: &Site, files: &[Value]) -> Value {
    let body = json!({
        "job_name": "llama", "files": files, "yaml_content": "x",
        "storage_declarations": { "workdirs": ["."] },
    });
    site.post("/api/v1/sync/diff", &body).await.expect(200)
}

async fn complete(site: &Site, files: &[Value]) -> Answer {
    let body = json!({ "job_name": "llama", "files": files, "files_count": files.len() });
    site.post("/api/v1/sync/complete", &body).await
}

fn path_of(wanted: &Value) -> String {
    let url = wanted["presigned_url"].as_str().unwrap();
    url.strip_prefix("http://site:1").unwrap().to_owned()
}

#[tokio::test]
async fn two_files_then_none() {
    let site = Site::new().await;
    let files = [file("a.py", b"print(1)"), file("b.bin", b"\0\x01"), file("c.py", b"print(1)")];
    let first = diff(&site, &files).await;
    assert_eq!(first["skipped"], 1);
    assert_eq!(first["workspace_dirs_created"], json!(["."]));
    assert_eq!((&first["env_status"], &first["model_downloads"]), (&Value::Null, &json!([])));
    let wanted = first["files_to_upload"].as_array().unwrap();
    assert_eq!(wanted.len(), 2);
    let missing = complete(&site, &files).await.expect(409);
    assert_eq!(missing["detail"]["missing"], json!(["a.py", "b.bin", "c.py"]));
    let gzipped = [("content-encoding", "gzip")];
    site.call("PUT", &path_of(&wanted[0]), &gzipped, gzip(b"print(1)")).await.expect(200);
    site.call("PUT", &path_of(&wanted[1]), &[], b"\0\x01".to_vec()).await.expect(200);
    let done = complete(&site, &files).await.expect(200);
    let id = done["sync_id"].as_str().unwrap();
    let status = site.get(&format!("/api/v1/sync/{id}/status")).await.expect(200);
    assert_eq!(status.get("env_build_status"), Some(&Value::Null));
    assert_eq!(status["files_count"], 3);
    let second = diff(&site, &files).await;
    assert_eq!((&second["files_to_upload"], &second["skipped"]), (&json!([]), &json!(3)));
    let token = format!("Bearer {}", site.stranger(Permission::Admin).await);
    let headers = [("authorization", token.as_str())];
    let body = json!({ "job_name": "llama", "files": files }).to_string();
    let theirs = site.call("POST", "/api/v1/sync/diff", &headers, body).await.expect(200);
    assert_eq!(theirs["files_to_upload"].as_array().unwrap().len(), 2);
    let path = format!("/api/v1/sync/{id}/status");
    site.call("GET", &path, &headers, Body::empty()).await.expect(404);
}

#[tokio::test]
async fn uploads_that_are_not_as_listed_store_nothing() {
    let site = Site::new().await;
    let files = [file("a.py", b"print(1)")];
    let path = path_of(&diff(&site, &files).await["files_to_upload"][0]);
    let bomb = gzip(&vec![0; 32 << 20]);
    let gzipped: &[(&str, &str)] = &[("content-encoding", "gzip")];
    for (headers, body) in [
        (gzipped, bomb),
        (gzipped, b"print(1)".to_vec()),
        (gzipped, gzip(b"print(1)").split_at(15).0.to_vec()),
        (&[], b"print(2)".to_vec()),
        (&[], b"print(1)!".to_vec()),
        (&[], b"print".to_vec()),
        (&[], Vec::new()),
    ] {
        site.call("PUT", &path, headers, body).await.expect(400);
    }
    let brotli = [("content-encoding", "br")];
    site.call("PUT", &path, &brotli, Vec::new()).await.expect(415);
    complete(&site, &files).await.expect(409);
    let mut tampered = path.clone();
    let last = tampered.pop().unwrap();
    tampered.push(if last == 'A' { 'B' } else { 'A' });
    let refused = site.call("PUT", &tampered, &[], b"print(1)".to_vec()).await;
    // The last digit may hold unused bits: then it is no base64 of ours either.
    refused.expect(403);
    *site.clock.0.lock().unwrap() += Duration::from_secs(25 * 3600);
    site.call("PUT", &path, &[], b"print(1)".to_vec()).await.expect(403);
    assert!(
        site.blobs
            .size(&crate::store::sample::project_id("default"), &Digest::of(b"print(1)"))
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn hostile_manifests_are_refused_before_anything_else() {
    let site = Site::new().await;
    for path in ["../x", "/etc/passwd", "a\0b", "[/x]/..", "\u{1b}[31m", "a\\b"] {
        let body = json!({ "job_name": "llama", "files": [file(path, b"x")] });
        site.post("/api/v1/sync/diff", &body).await.expect(422);
        site.post("/api/v1/sync/complete", &body).await.expect(422);
    }
    let collide = json!({ "job_name": "l", "files": [file("A", b"x"), file("a", b"x")] });
    site.post("/api/v1/sync/diff", &collide).await.expect(422);
    for body in
        [json!([]), json!({}), json!({ "job_name": 1 }), json!({ "job_name": "", "files": [] })]
    {
        site.post("/api/v1/sync/diff", &body).await.expect(422);
    }
    *site.jobs.refusal.lock().unwrap() = Some(Refusal::NotServed {
        message: Words::new("暂不支持 environment.conda", "environment.conda is not served yet"),
        suggestion: None,
    });
    let conda = json!({ "job_name": "l", "files": [], "yaml_content": "x" });
    let refused = site.post("/api/v1/sync/diff", &conda).await.expect(422);
    assert_eq!(refused["message"], "暂不支持 environment.conda");
}
