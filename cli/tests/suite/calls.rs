//! Calls: exit codes, errors, retries, and the documents' texts.

use std::process::Stdio;

use serde_json::json;

use crate::client::User;
use crate::server::{Reply, Server, ok};

fn against(server: &Server) -> User {
    User::new(Some(&server.url))
}

#[test]
fn each_kind_of_failure_has_its_exit_code() {
    let server = Server::start(|request| match request.target.as_str() {
        "/api/v1/jobs/unknown" => {
            Reply::Json(404, json!({"code": 404, "message": "任务不存在或无权访问", "detail": {}}))
        }
        "/api/v1/jobs/denied" => Reply::Json(401, json!({"code": 401, "message": "no"})),
        "/api/v1/jobs/moved" => {
            Reply::Raw(302, vec![("location", "http://127.0.0.1:1/x".into())], String::new())
        }
        "/api/v1/jobs/html" => Reply::Raw(200, vec![], "<html>".into()),
        _ => Reply::Raw(422, vec![], "[]".into()),
    });
    let user = against(&server);
    let done = user.run(&["describe", "job", "unknown"]).expect(3);
    assert_eq!(done.stderr, "✗ 任务不存在或无权访问\n");
    assert_eq!(done.stdout, "");
    let done = user.run(&["describe", "job", "denied"]).expect(3);
    assert!(done.stderr.contains("runwhere login --endpoint <url>"));
    let done = user.run(&["describe", "job", "moved"]).expect(3);
    assert!(done.stderr.contains("http://127.0.0.1:1/x"));
    user.run(&["describe", "job", "html"]).expect(3);
    user.run(&["describe", "job", "other"]).expect(3);
    user.run(&["describe", "job"]).expect(2);
    user.run(&["nonsense"]).expect(2);
    User::new(None).run(&["get", "jobs"]).expect(3);
    User::new(Some("nonsense")).run(&["get", "jobs"]).expect(2);
    let done = User::new(Some("http://127.0.0.1:1")).run(&["stop", "job", "a"]).expect(4);
    assert!(done.stderr.contains("http://127.0.0.1:1"), "{}", done.stderr);
}

#[test]
fn errors_are_one_json_object_when_json_is_wanted() {
    let server = Server::start(|_| {
        Reply::Json(404, json!({"code": 404, "message": "gone", "detail": {"suggestion": "look"}}))
    });
    let done = against(&server).run(&["--json", "describe", "job", "a"]).expect(3);
    let error = done.error();
    assert_eq!(done.stdout, "");
    assert_eq!(error["code"], "not_found");
    assert_eq!(error["message"], "gone");
    assert_eq!(error["hint"], "look");
    assert_eq!(error["status"], 404);
    let done = User::new(None).run(&["get", "jobs", "--json"]).expect(3);
    assert_eq!(done.error()["code"], "not_logged_in");
    let done = User::new(None).run(&["--json", "get", "nothing"]).expect(2);
    let error = done.error();
    assert_eq!((&error["code"], &error["argument"]), (&"usage".into(), &"nothing".into()));
    let done = User::new(None).run(&["--json", "price", "list", "--provder", "x"]).expect(2);
    let error = done.error();
    assert_eq!(error["argument"], "--provder");
    assert_eq!(error["suggestion"], "--provider");
}

#[test]
fn wrong_arguments_are_told_in_the_users_language() {
    let user = User::new(None);
    let done = user.run(&["sumbit", "-f", "a.yaml"]).expect(2);
    assert_eq!(done.stderr, "✗ 没有命令 'sumbit'\n→ 您是不是想用 'submit'？\n");
    let done = user.run(&["submit"]).expect(2);
    assert_eq!(done.stderr, "✗ 缺少参数 --file <YAML>\n→ 用法：runwhere submit --file <YAML>\n");
    let done = user.run(&["--lang", "en", "submit"]).expect(2);
    assert!(done.stderr.starts_with("✗ Missing: --file <YAML>\n"), "{}", done.stderr);
    let done = user.run(&["--lang", "fr", "version"]).expect(2);
    assert!(done.stderr.contains("--lang 的值 'fr' 无效"), "{}", done.stderr);
    let mut command = user.command(&["version"]);
    let done = crate::client::Done::of(command.env("RUNWHERE_LANG", "fr").output().unwrap());
    assert!(done.expect(0).stderr.contains("RUNWHERE_LANG 的值 'fr' 无效"));
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let server = Server::start(|_| ok(json!({"data": [{"name": "a"}]})));
    let user = against(&server);
    for arguments in [&["get", "jobs"][..], &["--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = user.command(arguments).stdout(full).output().unwrap();
        let done = crate::client::Done::of(output).expect(1);
        assert!(done.stderr.contains("无法写入标准输出"), "{}", done.stderr);
    }
}

#[test]
fn a_failed_job_is_marked_and_says_what_ended_it() {
    let server = Server::start(|_| {
        ok(json!({"job_id": "job-1", "name": "llama", "status": "failed", "signal": 15,
            "end_reason": "max_duration_exceeded", "cost_exact": "1", "gpu_pretended": true}))
    });
    let done = against(&server).run(&["describe", "job", "llama"]).expect(0);
    assert!(done.stdout.starts_with("✗ 作业: llama\n"), "{}", done.stdout);
    assert!(done.stdout.contains("模拟"), "{}", done.stdout);
    let done = against(&server).run(&["logs", "llama", "-f"]).expect(10);
    assert!(done.stderr.contains("达到 maxDuration"), "{}", done.stderr);
    assert!(!done.stderr.contains("信号"), "{}", done.stderr);
}

#[test]
fn deleting_several_runs_says_how_many_and_an_open_release_is_told() {
    let server = Server::start(|request| match request.target.as_str() {
        "/api/v1/jobs/llama" => ok(json!({"job_id": "job-2", "deleted": ["job-2", "job-1"]})),
        _ => ok(json!({"job_id": "job-3", "deleted": ["job-3"], "stopping": true})),
    });
    let user = against(&server);
    let done = user.run(&["delete", "job", "llama"]).expect(0);
    assert_eq!(done.stdout, "✓ 作业 job-2 已删除\n→ 名为 llama 的 2 次运行都已删除\n");
    let done = user.run(&["delete", "job", "job-3", "--force"]).expect(0);
    assert!(done.stdout.contains("仍在释放"), "{}", done.stdout);
}

#[test]
fn hostile_names_are_refused_before_any_request() {
    let server = Server::start(|_| ok(json!({})));
    let user = against(&server);
    for name in ["../jobs", "a b", "a#b", "a?b", "a[/x]", "\u{1b}[2J"] {
        let done = user.run(&["describe", "job", name]).expect(2);
        assert!(!done.stderr.contains('\u{1b}'));
        user.run(&["logs", name, "-f"]).expect(2);
        user.run(&["delete", "job", name]).expect(2);
    }
    assert!(server.seen().is_empty());
}

#[test]
fn reading_is_retried_and_retry_after_is_honoured() {
    let server = Server::start(|request| match request.before {
        0 => Reply::Raw(503, vec![("retry-after", "1".into())], "{}".into()),
        1 => Reply::Hang,
        _ => ok(json!({"data": []})),
    });
    let started = std::time::Instant::now();
    let done = against(&server).run(&["get", "jobs"]).expect(0);
    assert_eq!(done.stdout, "暂无作业\n");
    assert!(started.elapsed().as_millis() >= 1000);
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn a_delete_whose_answer_was_lost_counts_as_done() {
    let server = Server::start(|request| match request.before {
        0 => Reply::Hang,
        _ => Reply::Json(404, json!({"code": 404})),
    });
    let done = against(&server).run(&["delete", "job", "llama", "--force"]).expect(0);
    assert_eq!(done.stdout, "✓ 作业 llama 已删除\n");
    assert_eq!(server.requests("DELETE", "/api/v1/jobs/llama?force=true").len(), 2);
}

#[test]
fn the_job_table_is_the_documents() {
    let server = Server::start(|_| {
        ok(
            json!({"data": [{"name": "claude-cli-docs-verify", "job_type": "training", "status": "running",
            "gpu_count": 1, "url": null, "elapsed_seconds": null, "new_field": {}}]}),
        )
    });
    let user = against(&server);
    let done = user.run(&["get", "jobs", "--status", "running", "--kind", "Training"]).expect(0);
    assert_eq!(
        done.stdout,
        "\
┌────────────────────────┬──────────┬─────────┬─────┬──────────┬─────┐
│ 名称                   │ 类型     │ 状态    │ GPU │ 运行时长 │ URL │
├────────────────────────┼──────────┼─────────┼─────┼──────────┼─────┤
│ claude-cli-docs-verify │ training │ running │ 1×? │ -        │ -   │
└────────────────────────┴──────────┴─────────┴─────┴──────────┴─────┘
"
    );
    assert_eq!(server.seen()[0].target, "/api/v1/jobs?status=running&job_type=Training");
    assert_eq!(server.seen()[0].header("authorization"), Some("Bearer rw-token-1"));
}

#[test]
fn all_jobs_are_collected_page_by_page() {
    let server = Server::start(|request| {
        let page = |name: &str, next: Option<&str>| {
            ok(json!({"data": [{"name": name}], "next_cursor": next}))
        };
        match request.target.as_str() {
            "/api/v1/jobs?limit=200" => page("a", Some("x y")),
            "/api/v1/jobs?limit=200&cursor=x%20y" => page("b", None),
            _ => Reply::Hang,
        }
    });
    let done = against(&server).run(&["--json", "get", "jobs", "--all"]).expect(0);
    let names: Vec<_> =
        done.json()["data"].as_array().unwrap().iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn details_go_to_standard_output() {
    let job = json!({"id": "job-efa79e36", "job_id": "job-efa79e36", "name": "claude-cli-docs-verify",
        "job_type": "training", "status": "running", "gpu_metrics": null, "url": null});
    let server = Server::start(move |_| ok(job.clone()));
    let user = against(&server);
    let done = user.run(&["describe", "job", "claude-cli-docs-verify"]).expect(0);
    assert_eq!(
        done.stdout,
        "✓ 作业: claude-cli-docs-verify\n  ID: job-efa79e36\n  类型: training\n  状态: running\n"
    );
    let done = user.run(&["--lang", "en", "describe", "job", "claude-cli-docs-verify"]).expect(0);
    assert!(done.stdout.contains("Status: running"));
}

#[test]
fn stop_waits_for_the_confirmed_release() {
    let server = Server::start(|request| match (request.method.as_str(), request.before) {
        ("POST", _) => ok(json!({"job_id": "job-efa79e36", "status": "stopped"})),
        (_, 0 | 1) => ok(json!({"status": "stopped", "cleanup_confirmed": false})),
        _ => ok(json!({"status": "stopped", "cleanup_confirmed": true})),
    });
    let done = against(&server).run(&["stop", "job", "llama"]).expect(0);
    assert_eq!(done.stdout, "✓ 作业 job-efa79e36 已停止，GPU 已释放，计费停止\n");
    assert_eq!(server.requests("GET", "/api/v1/jobs/job-efa79e36").len(), 3);
    assert!(server.requests("POST", "/api/v1/jobs/llama/stop")[0].body.is_empty());
}

#[test]
fn resume_hands_the_step_on_under_a_key() {
    let server = Server::start(|_| ok(json!({"new_job_id": "job-00000001"})));
    let done = against(&server).run(&["resume", "llama", "--from-step", "12000"]).expect(0);
    assert!(
        done.stdout.contains("job-00000001") && done.stdout.contains("RUNW_RESUME_FROM_STEP=12000")
    );
    let request = &server.requests("POST", "/api/v1/jobs/llama/resume")[0];
    assert_eq!(request.json(), json!({"from_step": 12000}));
    assert!(request.header("idempotency-key").is_some());
}

#[test]
fn an_empty_log_is_explained() {
    let server = Server::start(|_| ok(json!({"lines": null})));
    let done = against(&server).run(&["logs", "llama", "--tail", "500"]).expect(0);
    assert_eq!(done.stdout, "");
    assert!(done.stderr.starts_with("暂无日志（任务尚未产生输出，或日志已过期）\n"));
    assert_eq!(server.seen()[0].target, "/api/v1/jobs/llama/logs?tail=500");
    against(&server).run(&["logs", "llama", "--tail", "5001"]).expect(2);
}

#[test]
fn login_stores_only_a_token_that_works() {
    let server = Server::start(|request| match request.header("authorization") {
        Some("Bearer good") => ok(json!({"username": "ada", "current_org_id": 7})),
        _ => Reply::Json(401, json!({"code": 401, "message": "no"})),
    });
    let user = User::new(None);
    let login = ["login", "--endpoint", &format!("{}/", server.url)];
    let done = user.run_with_stdin(&login, "bad\n").expect(2);
    assert!(!done.stderr.contains("bad"));
    assert!(!user.home().join(".runwhere/config.toml").exists());
    let done = user.run_with_stdin(&login, "  good\n").expect(0);
    assert!(done.stdout.contains("ada") && !done.stdout.contains("good"));
    let stored = std::fs::read_to_string(user.home().join(".runwhere/config.toml")).unwrap();
    assert!(
        stored.contains(&format!("endpoint = \"{}\"", server.url))
            && stored.contains("token = \"good\"")
    );
    let done = user.run(&["--json", "whoami"]).expect(0);
    assert_eq!(done.json(), json!({"user": "ada", "org_id": 7, "workspace": server.url}));
    user.run(&["logout"]).expect(0);
    let stored = std::fs::read_to_string(user.home().join(".runwhere/config.toml")).unwrap();
    assert!(!stored.contains("endpoint") && !stored.contains("token"), "{stored}");
    user.run(&["whoami"]).expect(3);
    user.run(&["price", "summary"]).expect(0);
}

#[test]
fn quota_warnings_of_any_shape_are_shown() {
    for (header, shown) in
        [("{\"message\":\"\\u914d\\u989d\"}", "配额"), ("plain words", "plain words"), ("[1]", "")]
    {
        let server = Server::start(move |_| {
            let headers = vec![("x-runw-quota-warning", header.to_owned())];
            Reply::Raw(200, headers, json!({"data": []}).to_string())
        });
        let done = against(&server).run(&["get", "jobs"]).expect(0);
        assert!(done.stderr.contains(shown));
        assert_eq!(done.stderr.is_empty(), shown.is_empty());
    }
}

#[test]
fn a_closed_pipe_is_no_crash() {
    let server = Server::start(|_| ok(json!({"data": [{"name": "a"}]})));
    let user = against(&server);
    let mut command = user.command(&["get", "jobs"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    assert_eq!(output.status.code(), Some(0));
}
