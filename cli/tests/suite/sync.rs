//! Syncs against a scripted server.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::{TASK, User};
use crate::server::{Reply, Request, Server, ok};

type Blobs = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server that keeps blobs by hash.
fn store() -> (Server, Blobs) {
    let blobs = Blobs::default();
    let kept = blobs.clone();
    let server = Server::start(move |request| {
        let mut kept = kept.lock().unwrap();
        if request.method == "PUT" {
            let mut bytes = request.body.clone();
            if request.header("content-encoding") == Some("gzip") {
                bytes.clear();
                flate2::read::GzDecoder::new(&request.body[..]).read_to_end(&mut bytes).unwrap();
            }
            kept.insert(request.target.rsplit('/').next().unwrap().to_owned(), bytes);
            return Reply::Raw(200, vec![], String::new());
        }
        match request.target.as_str() {
            "/api/v1/sync/diff" => ok(diff(request, |hash| !kept.contains_key(hash))),
            "/api/v1/sync/complete" => ok(json!({"sync_id": "sync-1"})),
            _ => ok(json!({"sync_id": "sync-1", "env_build_status": null, "model_downloads": []})),
        }
    });
    (server, blobs)
}

fn diff(request: &Request, wanted: impl Fn(&str) -> bool) -> Value {
    let host = request.header("host").unwrap();
    let body = request.json();
    let files = body["files"].as_array().unwrap().iter();
    let missing: Vec<_> = files
        .filter(|file| wanted(&file["hash"].as_str().unwrap()[7..]))
        .map(|file| {
            let hash = &file["hash"].as_str().unwrap()[7..];
            json!({"path": file["path"], "presigned_url": format!("http://{host}/put/{hash}")})
        })
        .collect();
    json!({"files_to_upload": missing, "skipped": 0, "env_status": null, "model_downloads": [],
        "workspace_dirs_created": ["."]})
}

fn project(server: &Server) -> User {
    let user = User::new(Some(&server.url));
    user.write("train.yaml", TASK);
    user.write("train.py", &"print('x')\n".repeat(100));
    user
}

#[test]
fn the_first_sync_uploads_and_the_second_does_not() {
    let (server, blobs) = store();
    let user = project(&server);
    let done = user.run(&["sync", "-f", "train.yaml"]).expect(0);
    assert_eq!(
        done.stdout,
        "✓ 上传 2 个文件（0.0 MB），跳过 0 个未变化文件\n✓ 存储路径已就绪：.\n"
    );
    assert_eq!(done.stderr, "Uploading ---------------------------------------- 2/2 files\n");
    assert_eq!(blobs.lock().unwrap().len(), 2);
    for put in server.seen().iter().filter(|request| request.method == "PUT") {
        assert_eq!(put.header("authorization"), None);
    }
    let done = user.run(&["sync", "-f", "train.yaml"]).expect(0);
    assert!(
        done.stdout.starts_with("✓ 上传 0 个文件（0.0 MB），跳过 2 个未变化文件\n"),
        "{}",
        done.stdout
    );
    let done = user.run(&["sync", "-f", "train.yaml", "--status"]).expect(0);
    assert!(done.stdout.contains("sync-1"));
    let done = user.run(&["--json", "sync", "-f", "train.yaml"]).expect(0);
    assert_eq!(done.json()["sync"]["files"]["skipped"], 2);
    assert_eq!(
        std::fs::read_to_string(user.home().join(".runwhere/last-sync-id")).unwrap(),
        "sync-1"
    );
}

#[test]
fn the_manifest_goes_with_declarations_and_text() {
    let (server, _) = store();
    project(&server).run(&["sync", "-f", "train.yaml"]).expect(0);
    let body = server.requests("POST", "/api/v1/sync/diff")[0].json();
    assert_eq!(body["job_name"], "llama-finetune");
    assert_eq!(body["yaml_content"], TASK);
    assert_eq!(body["storage_declarations"]["workdirs"], json!(["."]));
    let files = body["files"].as_array().unwrap();
    assert_eq!(files[0]["path"], "train.py");
    assert_eq!(files[0]["size"], 1100);
    let complete = server.requests("POST", "/api/v1/sync/complete")[0].json();
    assert_eq!((&complete["files"], &complete["files_count"]), (&body["files"], &json!(2)));
}

#[test]
fn a_path_outside_the_manifest_is_never_uploaded() {
    for path in ["../../etc/passwd", "/etc/passwd", "other.txt", "./train.py"] {
        let server = Server::start(move |request| {
            let url = format!("http://{}/put", request.header("host").unwrap());
            let file = |path: &str| json!({"path": path, "presigned_url": url});
            ok(json!({"files_to_upload": [file("train.py"), file(path)]}))
        });
        let user = project(&server);
        user.write("../outside.txt", "x");
        let done = user.run(&["--json", "sync", "-f", "train.yaml"]).expect(3);
        assert_eq!(done.error()["code"], "foreign_path");
        assert!(server.seen().iter().all(|request| request.method != "PUT"), "{path}");
    }
}

#[test]
fn a_server_that_misses_files_at_the_end_is_asked_again() {
    let server = Server::start(|request| match request.target.as_str() {
        "/api/v1/sync/diff" => ok(diff(request, |_| true)),
        "/api/v1/sync/complete" if request.before == 0 => Reply::Json(409, json!({"code": 409})),
        "/api/v1/sync/complete" => ok(json!({"sync_id": "sync-2"})),
        _ => Reply::Raw(200, vec![], String::new()),
    });
    project(&server).run(&["sync", "-f", "train.yaml"]).expect(0);
    assert_eq!(server.requests("POST", "/api/v1/sync/diff").len(), 2);
}

#[test]
fn a_refused_upload_says_why_and_completes_nothing() {
    let server = Server::start(|request| match request.target.as_str() {
        "/api/v1/sync/diff" => ok(diff(request, |_| true)),
        _ => Reply::Raw(403, vec![], "<Error><Code>SignatureDoesNotMatch</Code></Error>".into()),
    });
    let done = project(&server).run(&["sync", "-f", "train.yaml"]).expect(3);
    assert!(done.stderr.contains("SignatureDoesNotMatch"), "{}", done.stderr);
    assert!(server.requests("POST", "/api/v1/sync/complete").is_empty());
}

#[test]
fn uploads_survive_broken_connections() {
    let server = Server::start(|request| match request.target.as_str() {
        "/api/v1/sync/diff" => ok(diff(request, |_| true)),
        "/api/v1/sync/complete" => ok(json!({"sync_id": "sync-3"})),
        _ if request.before == 0 => Reply::Hang,
        _ => Reply::Raw(200, vec![], String::new()),
    });
    let done = project(&server).run(&["sync", "-f", "train.yaml"]).expect(0);
    assert!(done.stdout.starts_with("✓ 上传 2 个文件"));
}

#[test]
fn a_dry_run_talks_to_nobody() {
    let user = User::new(None);
    user.write("train.yaml", TASK);
    user.write("wandb/x", "x");
    let done = user.run(&["sync", "-f", "train.yaml", "--dry-run"]).expect(0);
    assert!(done.stdout.contains("train.yaml") && !done.stdout.contains("wandb"));
}

#[test]
fn local_changes_are_told_at_submit() {
    let (server, _) = store();
    let user = project(&server);
    user.run(&["sync", "-f", "train.yaml"]).expect(0);
    user.write("train.py", "print('changed')\n");
    user.write("new.py", "");
    let done = user.run(&["submit", "-f", "train.yaml"]);
    assert!(done.stderr.contains("新增 1，修改 1，删除 0"), "{}", done.stderr);
    assert!(done.stderr.contains("runwhere sync -f train.yaml"));
    user.write("key.yaml", &TASK.replace("gpuType: a100-80g", "gpuSkuKey: ABCDEFGH"));
    user.run(&["submit", "-f", "key.yaml", "--max-price", "$7"]);
    let sent = server.requests("POST", "/api/v1/jobs/submit")[0].json();
    assert_eq!(
        (&sent["sync_id"], &sent["max_price_per_hour"]),
        (&json!("sync-1"), &json!("7 USD"))
    );
}
