//! Following: resume, end, exit codes.

use serde_json::{Value, json};

use crate::client::User;
use crate::server::{Reply, Server, ok};

fn log(n: usize) -> Value {
    json!({"type": "log", "payload": {"line": format!("line {n}"), "cursor": n}})
}

fn lines(range: std::ops::RangeInclusive<usize>) -> String {
    range.map(|n| format!("line {n}\n")).collect()
}

fn job(status: &str) -> Value {
    json!({"job_id": "job-1", "name": "llama", "status": status, "exit_code": if status == "failed" { 7 } else { 0 }})
}

#[test]
fn a_lost_connection_is_resumed_without_gaps_or_duplicates() {
    let server = Server::with_live(
        |request| ok(job(if request.before < 2 { "running" } else { "succeeded" })),
        |target, before| match before {
            0 => (1..=3).map(log).collect(),
            1 => {
                assert_eq!(target, "/ws/jobs?job_id=llama&after=3");
                vec![log(4)]
            }
            _ => {
                assert_eq!(target, "/ws/jobs?job_id=llama&after=4");
                vec![log(5), json!({"type": "completed", "payload": {"total_cost": 1.5}})]
            }
        },
    );
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f"]).expect(0);
    assert_eq!(done.stdout, format!("{}✓ 任务 llama 成功\n", lines(1..=5)));
    assert_eq!(server.sockets().len(), 3);
}

#[test]
fn a_failed_job_ends_with_ten_and_its_own_code_in_the_text() {
    let server = Server::with_live(
        |_| ok(job("failed")),
        |_, _| vec![log(1), json!({"type": "failed", "payload": {"error": "exit 7"}})],
    );
    let user = User::new(Some(&server.url));
    let done = user.run(&["logs", "llama", "-f"]).expect(10);
    assert_eq!(done.stdout, "line 1\n");
    assert!(done.stderr.contains("程序退出码 7"), "{}", done.stderr);
    let done = user.run(&["--json", "logs", "llama", "-f"]).expect(10);
    let lines: Vec<Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["line"], "line 1");
    assert_eq!(lines[1]["end"], true);
    assert_eq!(lines[1]["status"], "failed");
    assert_eq!(done.error()["program_exit_code"], 7);
}

#[test]
fn a_job_that_ended_while_nobody_listened_is_read_to_its_end() {
    let server = Server::with_live(
        |_| ok(job("succeeded")),
        |_, before| match before {
            0 => vec![log(1)],
            _ => vec![log(2), json!({"type": "completed", "payload": {}})],
        },
    );
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f"]).expect(0);
    assert!(done.stdout.starts_with(&lines(1..=2)));
}

#[test]
fn without_a_websocket_the_history_does() {
    let server = Server::start(|request| match request.target.as_str() {
        // Looked at before it is followed, then with each look at the history.
        "/api/v1/jobs/llama" => ok(job(if request.before < 2 { "running" } else { "succeeded" })),
        "/api/v1/jobs/llama/logs?tail=5000" if request.before == 0 => {
            ok(json!({"lines": ["line 1", "line 2"]}))
        }
        "/api/v1/jobs/llama/logs?tail=5000" => ok(json!({"lines": ["line 1", "line 2", "line 3"]})),
        _ => Reply::Json(404, json!({"code": 404})),
    });
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f"]).expect(0);
    assert!(done.stdout.starts_with(&lines(1..=3)), "{}", done.stdout);
    assert_eq!(done.stdout.matches("line 1").count(), 1);
}

#[test]
fn a_server_without_cursors_costs_no_duplicates() {
    let plain = |n: usize| json!({"type": "log", "payload": {"line": format!("line {n}")}});
    let server = Server::with_live(
        |request| match request.target.as_str() {
            "/api/v1/jobs/llama" => {
                ok(job(if request.before == 0 { "running" } else { "succeeded" }))
            }
            _ => ok(json!({"lines": ["line 1", "line 2", "line 3"]})),
        },
        move |_, _| vec![plain(1), plain(2)],
    );
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f"]).expect(0);
    assert!(done.stdout.starts_with(&lines(1..=3)), "{}", done.stdout);
    assert_eq!(done.stdout.matches("line 2").count(), 1);
}

#[test]
fn an_unknown_job_is_told_and_not_waited_for() {
    let server = Server::with_live(
        |_| Reply::Json(404, json!({"code": 404, "message": "任务不存在或无权访问"})),
        |_, _| vec![json!({"type": "failed", "payload": {"error": "任务不存在或无权访问"}})],
    );
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f"]).expect(3);
    assert_eq!(done.stderr, "✗ 任务不存在或无权访问\n");
}

#[test]
fn following_can_begin_with_the_last_lines() {
    let server = Server::with_live(
        |request| match request.target.as_str() {
            "/api/v1/jobs/llama/logs?tail=2" => {
                ok(json!({"lines": ["line 8", "line 9"], "cursor": "c:9"}))
            }
            _ => ok(job("succeeded")),
        },
        |target, _| {
            assert_eq!(target, "/ws/jobs?job_id=llama&after=c%3A9");
            vec![log(10), json!({"type": "completed", "payload": {}})]
        },
    );
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f", "--tail", "2"]).expect(0);
    assert!(done.stdout.starts_with(&lines(8..=10)), "{}", done.stdout);
}

#[test]
fn hostile_frames_change_nothing() {
    let server = Server::with_live(
        |_| ok(job("succeeded")),
        |_, _| {
            vec![
                json!([1]),
                json!({"type": "log", "payload": null}),
                json!({"type": "log", "payload": {"line": 5}}),
                json!({"type": "snapshot", "payload": {"recent_logs": null}}),
                log(1),
                json!({"type": "completed", "payload": null}),
            ]
        },
    );
    let done = User::new(Some(&server.url)).run(&["logs", "llama", "-f"]).expect(0);
    assert_eq!(done.stdout, "line 1\n✓ 任务 llama 成功\n");
}

#[test]
fn a_server_that_was_never_there_is_not_waited_for() {
    let user = User::new(Some("http://127.0.0.1:1"));
    let done = user.run(&["--json", "logs", "llama", "-f"]).expect(4);
    assert!(done.error()["message"].is_string(), "{}", done.stderr);
    User::new(Some("http://127.0.0.1:1")).run(&["logs", "llama", "-f", "--tail", "3"]).expect(4);
}
