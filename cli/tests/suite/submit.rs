//! Submits: what is sent, what is printed, what a lost answer does.

use serde_json::{Value, json};

use crate::client::{TASK, User};
use crate::server::{Reply, Request, Server, ok};

const KEY: &str = "aliyun/cn-hangzhou/cn-hangzhou-i/on_demand/ecs.gn7i.2xlarge";

fn quote(request: &Request) -> Option<Reply> {
    request.is("POST", "/api/v1/comparison/quote").then(|| {
        ok(json!({"recommendations": [{"rank": 1, "offer": {"offer_key": KEY, "hourly_price": "36.44"}}]}))
    })
}

fn submitted() -> Value {
    json!({"job_id": "job-efa79e36", "name": "llama-finetune", "status": "pending", "account_type": "byoa",
        "price_per_hour": 36.44, "estimated_start_seconds": 180})
}

fn user(server: &Server) -> User {
    let user = User::new(Some(&server.url));
    user.write("train.yaml", TASK);
    user
}

#[test]
fn a_submit_prints_the_documents_lines() {
    let server = Server::start(|request| quote(request).unwrap_or_else(|| ok(submitted())));
    let user = user(&server);
    let done = user.run(&["submit", "-f", "train.yaml"]).expect(0);
    assert_eq!(
        done.stdout,
        "✓ 任务 job-efa79e36 已提交（BYOA）\n→ ¥36.44/hr\n→ 预计 ~3 分钟后开始运行（含节点创建）\n"
    );
    assert!(done.stderr.contains("runwhere sync -f train.yaml"), "{}", done.stderr);
    let sent = &server.requests("POST", "/api/v1/jobs/submit")[0];
    assert_eq!(sent.json(), json!({"yaml_content": TASK, "offer_key": KEY}));
    let done = user.run(&["--json", "submit", "-f", "train.yaml"]).expect(0);
    assert_eq!(done.json()["job"]["id"], "job-efa79e36");
    assert_eq!(done.json()["job"]["kind"], "training");
}

#[test]
fn code_that_was_never_synced_is_told_once() {
    let server = Server::start(|request| {
        let mut reply = submitted();
        reply["warnings"] = json!(["该任务名没有同步过代码"]);
        quote(request).unwrap_or_else(|| ok(reply))
    });
    let done = user(&server).run(&["submit", "-f", "train.yaml"]).expect(0);
    assert_eq!(done.stderr, "⚠ 该任务名没有同步过代码\n");
}

#[test]
fn a_start_within_a_minute_is_not_in_no_minutes() {
    let server = Server::start(|request| {
        let mut reply = submitted();
        reply["estimated_start_seconds"] = json!(5);
        quote(request).unwrap_or_else(|| ok(reply))
    });
    let done = user(&server).run(&["submit", "-f", "train.yaml"]).expect(0);
    assert!(done.stdout.contains("预计 ~1 分钟后开始运行（含节点创建）"), "{}", done.stdout);
}

#[test]
fn run_refuses_what_cannot_run_before_it_asks_or_uploads() {
    let server = Server::start(|request| {
        assert!(request.is("POST", "/api/v1/comparison/quote"), "{}", request.target);
        ok(json!({"recommendations": [], "suggestions": ["a100-80g"]}))
    });
    let user = user(&server);
    user.write("gpu.yaml", &TASK.replace("a100-80g", "a100-80x"));
    let done = user.run(&["run", "-f", "gpu.yaml"]).expect(2);
    assert!(
        done.stderr.contains("a100-80x") && done.stderr.contains("a100-80g"),
        "{}",
        done.stderr
    );
    let before = server.seen().len();
    user.write("kind.yaml", &TASK.replace("kind: Training", "kind: Notebook"));
    user.write("conda.yaml", &TASK.replace("environment:\n", "environment:\n  conda: torch\n"));
    for (file, said) in [("kind.yaml", "Notebook"), ("conda.yaml", "conda")] {
        let done = user.run(&["run", "-f", file]).expect(2);
        assert!(done.stderr.contains(said), "{}", done.stderr);
    }
    assert_eq!(server.seen().len(), before);
}

#[test]
fn a_wrong_folder_is_told_before_the_table() {
    let server = Server::start(|request| quote(request).unwrap());
    let user = user(&server);
    user.write("sub.yaml", &TASK.replace("path: \".\"", "path: \"src\""));
    let done = user.run(&["run", "-f", "sub.yaml"]).expect(2);
    assert_eq!(done.stdout, "");
    assert!(done.stderr.contains("src"), "{}", done.stderr);
}

#[test]
fn a_lost_answer_is_asked_for_again_under_the_same_key() {
    let server = Server::start(|request| match (quote(request), request.before) {
        (Some(quote), _) => quote,
        (None, 0 | 1) => Reply::Hang,
        _ => ok(submitted()),
    });
    user(&server).run(&["submit", "-f", "train.yaml", "--max-price", "50"]).expect(0);
    let sent = server.requests("POST", "/api/v1/jobs/submit");
    assert_eq!(sent.len(), 3);
    let key = sent[0].header("idempotency-key").unwrap();
    assert!(sent.iter().all(|request| request.header("idempotency-key") == Some(key)));
    assert!(sent.iter().all(|request| request.body == sent[0].body));
}

#[test]
fn an_answer_that_never_comes_leaves_the_key() {
    let server = Server::start(|request| quote(request).unwrap_or(Reply::Hang));
    let arguments = ["submit", "-f", "train.yaml", "--idempotency-key", "my-key"];
    let done = user(&server).run(&arguments).expect(4);
    assert!(done.stderr.contains("--idempotency-key my-key"), "{}", done.stderr);
}

#[test]
fn a_type_without_offers_gives_the_documents_two_lines() {
    let server = Server::start(|_| ok(json!({"recommendations": []})));
    let user = user(&server);
    user.write("t4.yaml", &TASK.replace("a100-80g", "t4"));
    let done = user.run(&["submit", "-f", "t4.yaml"]).expect(2);
    let lines = "\
✗ 无法为 gpuType='t4' 自动选机（未知型号或比价服务暂不可达）
→ 检查 GPU 型号拼写，或在 YAML 填 resources.gpuSkuKey 指定具体 Offer（runwhere price list 查 SKU KEY）
";
    assert!(done.stderr.ends_with(lines), "{}", done.stderr);
    assert!(server.requests("POST", "/api/v1/jobs/submit").is_empty());
}

#[test]
fn an_offer_in_the_file_decides() {
    let server = Server::start(|_| ok(submitted()));
    let user = user(&server);
    user.write(
        "key.yaml",
        &TASK.replace("gpuType: a100-80g", &format!("gpuType: t4\n  gpuSkuKey: {KEY}")),
    );
    user.run(&["submit", "-f", "key.yaml"]).expect(0);
    user.write("code.yaml", &TASK.replace("gpuType: a100-80g", "gpuSkuKey: ABCDEFGH"));
    user.run(&["submit", "-f", "code.yaml"]).expect(0);
    let sent: Vec<_> = server.seen().iter().map(Request::json).collect();
    assert_eq!(sent[0]["offer_key"], KEY);
    assert_eq!(sent[1]["gpu_offer"], "ABCDEFGH");
    assert_eq!(sent.len(), 2, "no quote is needed");
}

#[test]
fn going_beyond_the_quota_needs_a_word() {
    let server = Server::start(|request| match request.json()["overage_confirmed"] {
        Value::Bool(true) => ok(submitted()),
        _ => quote(request).unwrap_or_else(|| {
            let detail =
                json!({"requires_confirmation": true, "message": "over", "quota_limit": 8});
            Reply::Json(403, json!({"code": 4030, "message": "x", "detail": detail}))
        }),
    });
    let user = user(&server);
    let done = user.run(&["--json", "submit", "-f", "train.yaml"]).expect(3);
    let error: Value = serde_json::from_str(done.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "requires_confirmation");
    assert_eq!(error["error"]["quota"]["quota_limit"], 8);
    user.run(&["submit", "-f", "train.yaml", "--accept-overage"]).expect(0);
}

#[test]
fn a_taken_name_is_told_with_the_job_that_has_it() {
    let server = Server::start(|request| {
        quote(request).unwrap_or_else(|| {
            let detail = json!({"job_id": "job-00000001"});
            Reply::Json(
                409,
                json!({"code": 409, "message": "任务名已被 job-00000001 使用", "detail": detail}),
            )
        })
    });
    let done = user(&server).run(&["submit", "-f", "train.yaml"]).expect(3);
    assert!(done.stderr.contains("job-00000001"));
    assert_eq!(server.requests("POST", "/api/v1/jobs/submit").len(), 1);
}
