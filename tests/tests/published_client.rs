//! The published RunWhere client 0.2.9, unchanged, against our server: the documents' whole life cycle.
//!
//! Every output block of the documents "运行任务" and "任务 YAML" is compared literally. What may differ is what the
//! placeholders of [`Template`] stand for: `{id}`, `{price}`, `{count}`, `{minutes}`, `{time}` (and `{node}`, `{seconds}`,
//! `{word}` outside the documents' blocks), the file count and the task's name where the document's is another one, the
//! weight of a table's frame (the terminal's business), and the bar and the speed of the progress line.
//! In the documents' table the GPU is `1×?`; we name it, so its cell is `{count}×{word}`.

use runwhere_tests::{
    Project, PublishedClient, STEADY_PROGRAM, Server, ServerOptions, Template, eventually, meters,
    table_cells, without_pretence,
};
use serde_json::Value;
use std::time::Duration;

/// The documents' name for a task.
const NAME: &str = "claude-cli-docs-verify";

const SUBMITTED: &str =
    "✓ 任务 {id} 已提交（BYOA）\n→ ¥{price}/hr\n→ 预计 ~{count} 分钟后开始运行（含节点创建）";
const PLATFORM_LINES: &str = "[runwhere] 正在创建 GPU 节点...\n[runwhere] 节点启动中，加入集群...\n\
                              [runwhere] GPU 就绪，部署任务...\n[runwhere] 任务运行中\nEpoch 1/10, step 100, loss=2.341";
const NO_LOG_YET: &str = "暂无日志（任务尚未产生输出，或日志已过期）";
const NO_JOBS: &str = "暂无作业";
const GONE: &str = "✗ 任务不存在或无权访问";
const UNRESOLVED: &str = "✗ 无法为 gpuType='t4' 自动选机（未知型号或比价服务暂不可达）\n\
                          → 检查 GPU 型号拼写，或在 YAML 填 resources.gpuSkuKey 指定具体 Offer（runwhere price list 查 SKU KEY）";
const COLUMNS: [&str; 6] = ["名称", "类型", "状态", "GPU", "运行时长", "URL"];

struct Stage {
    server: Server,
    project: Project,
    client: PublishedClient,
}

impl Stage {
    fn new() -> Self {
        Self::with_program(STEADY_PROGRAM)
    }

    fn with_program(program: &str) -> Self {
        // The pretended GPUs' price is the documents' own figure.
        let server = Server::start();
        let project = Project::new(NAME, program);
        let client = PublishedClient::logged_in(project.folder(), &server);
        Stage { server, project, client }
    }

    /// Syncs and submits; gives the job's id.
    fn submitted(&self) -> String {
        self.client.ok(&["sync", "-f", "train.yaml"]);
        let result = self.client.ok(&["--json", "submit", "-f", "train.yaml"]).json();
        result["job"]["id"].as_str().unwrap_or_else(|| panic!("no id in {result}")).to_owned()
    }

    /// Syncs and submits a program that runs until it is let go.
    fn running(&self) -> String {
        let id = self.submitted();
        self.project.control().wait_started();
        self.server.api().wait_status(&id, "running");
        id
    }

    fn wait_status(&self, job: &str, status: &str) -> Value {
        self.server.api().wait_status(job, status)
    }
}

#[test]
fn login_and_whoami() {
    let server = Server::start();
    let project = Project::new(NAME, STEADY_PROGRAM);
    let client = PublishedClient::new(project.folder());
    let refused = client
        .runner()
        .run_with_input(&["login", "--endpoint", &server.url()], b"not-a-token")
        .expect_code(2);
    Template(
        "✗ Token 无效（服务端 401/403 拒绝）——未保存\n→ 到控制台重新生成 API Token 后再 login",
    )
    .check(&refused.stderr);
    client.run(&["whoami"]).expect_code(3);

    let token = server.first_token();
    let login = client
        .runner()
        .run_with_input(&["login", "--endpoint", &server.url()], token.as_bytes())
        .expect_code(0);
    Template(&format!("✓ 登录成功（endpoint: {}）", server.url())).check(&login.stderr);
    let whoami = client.ok(&["whoami"]);
    Template(&format!("user: {{word}}\norg_id: {{word}}\nworkspace: {}", server.url()))
        .check(&whoami.stdout);
    let whoami = client.ok(&["--json", "whoami"]).json();
    assert_eq!(whoami["workspace"], server.url());
}

#[test]
fn sync_uploads_what_changed() {
    let stage = Stage::new();
    let none = stage.client.ok(&["sync", "--status"]);
    Template("暂无同步记录，请先执行 runwhere sync -f <yaml>").check(&none.stderr);

    let first = stage.client.ok(&["sync", "-f", "train.yaml"]);
    Template("✓ 上传 2 个文件（0.0 MB），跳过 0 个未变化文件\n✓ 存储路径已就绪：.")
        .check(&first.stderr);
    let progress = first.screen();
    assert!(progress.contains("Uploading ") && progress.contains(" 2/2 files "), "{progress}");

    let second = stage.client.ok(&["sync", "-f", "train.yaml"]);
    Template("✓ 无文件变化，跳过 2 个文件\n✓ 存储路径已就绪：.").check(&second.stderr);
    let json = stage.client.ok(&["--json", "sync", "-f", "train.yaml"]).json();
    assert_eq!(json["sync"]["files"]["uploaded"], 0, "{json}");
    assert_eq!(json["sync"]["files"]["skipped"], 2, "{json}");

    for arguments in [&["sync", "--status"][..], &["sync", "-f", "train.yaml", "--status"]] {
        let status = stage.client.ok(arguments);
        Template("✓ 同步记录: {word}\n  环境状态: None\n  时间: {time}").check(&status.stderr);
    }
    assert_eq!(
        stage.client.ok(&["--json", "sync", "--status"]).json()["env_build_status"],
        Value::Null
    );

    stage.project.write("more.txt", "one more\n");
    let third = stage.client.ok(&["sync", "-f", "train.yaml"]);
    Template("✓ 上传 1 个文件（0.0 MB），跳过 2 个未变化文件\n✓ 存储路径已就绪：.")
        .check(&third.stderr);
}

#[test]
fn submit_then_look_at_it() {
    let stage = Stage::new();
    let client = &stage.client;
    Template(NO_JOBS).check(&client.ok(&["get", "jobs"]).stderr);

    client.ok(&["sync", "-f", "train.yaml"]);
    let submitted = client.ok(&["submit", "-f", "train.yaml"]);
    Template(SUBMITTED).check_within(&submitted.stderr);
    assert!(submitted.stderr.contains("→ ¥36.44/hr"), "{submitted}");
    stage.project.control().wait_started();
    stage.wait_status(NAME, "running");

    eventually("the program's line is in the log", || {
        let log = client.ok(&["logs", NAME]);
        log.stdout.contains("Epoch 1/10").then_some(log)
    });
    Template(PLATFORM_LINES)
        .check_within(&without_pretence(&client.ok(&["logs", NAME, "--tail", "500"]).stdout));
    Template("Epoch 1/10, step 100, loss=2.341")
        .check(&client.ok(&["logs", NAME, "--tail", "1"]).stdout);

    for filter in [
        &["get", "jobs"][..],
        &["get", "jobs", "--status", "running"],
        &["get", "jobs", "--kind", "Training"],
    ] {
        let table = table_cells(&client.ok(filter).stdout);
        assert_eq!(table.len(), 2, "{table:?}");
        assert_eq!(table[0], COLUMNS);
        assert_eq!(table[1][..3], [NAME, "training", "running"]);
        Template("{count}×{word}").check(&table[1][3]);
        Template("{minutes}").check(&table[1][4]);
        assert_eq!(table[1][5], "-");
    }
    for filter in
        [&["get", "jobs", "--status", "stopped"][..], &["get", "jobs", "--kind", "Inference"]]
    {
        Template(NO_JOBS).check(&client.ok(filter).stderr);
    }

    let described = client.ok(&["describe", "job", NAME]);
    Template(&format!("✓ 作业: {NAME}\n  ID: {{id}}\n  类型: training\n  状态: running"))
        .check(&described.stderr);
    check_description(&client.ok(&["--json", "describe", "job", NAME]).json());

    Template("✓ {word} ~ {word} 用量").check_within(&client.ok(&["get", "usage"]).stderr);
    let usage =
        client.ok(&["--json", "get", "usage", "--from", "2026-07-01", "--to", "2026-07-31"]).json();
    assert_eq!(usage["period"]["from_date"], "2026-07-01");
    assert_eq!(usage["period"]["to_date"], "2026-07-31");

    // The same name again while it runs.
    let again = client.run(&["--json", "submit", "-f", "train.yaml"]).expect_code(2);
    assert!(again.stderr.contains("仍在运行"), "{again}");

    stage.project.control().go(0);
    stage.wait_status(NAME, "succeeded");
    let ended = client.ok(&["--json", "describe", "job", NAME]).json();
    assert_eq!(ended["end_reason"], "succeeded", "{ended}");
    for field in ["started_at", "ended_at"] {
        Template("{time}").check(ended[field].as_str().unwrap_or_default());
    }
    let human = client.ok(&["describe", "job", NAME]);
    Template(&format!(
        "✓ 作业: {NAME}\n  ID: {{id}}\n  类型: training\n  状态: succeeded\n  结束原因: 成功完成"
    ))
    .check(&human.stderr);
}

/// The fields that the document shows for a running task (R179-R183).
fn check_description(job: &Value) {
    let fields = [
        "id",
        "job_id",
        "name",
        "job_type",
        "platform",
        "status",
        "url",
        "gpu_count",
        "sku_key",
        "offer_key",
        "node_id",
        "price_per_hour",
        "estimated_cost",
        "final_cost",
        "billed_seconds",
        "created_at",
        "started_at",
        "ended_at",
        "gpu_metrics",
    ];
    for field in fields {
        assert!(job.get(field).is_some(), "no {field} in {job}");
    }
    let text =
        |field: &str| job[field].as_str().unwrap_or_else(|| panic!("{field} of {job} is no text"));
    Template("{id}").check(text("id"));
    assert_eq!(job["job_id"], job["id"]);
    assert_eq!(text("name"), NAME);
    assert_eq!(text("job_type"), "training");
    assert_eq!(text("status"), "running");
    Template("{node}").check(text("node_id"));
    Template("{time}").check(text("created_at"));
    assert_eq!(text("price_per_hour"), "36.4400");
    let (whole, places) = text("estimated_cost").split_once('.').expect("a decimal point");
    assert!(
        whole.parse::<u64>().is_ok() && places.len() == 4 && places.parse::<u64>().is_ok(),
        "{job}"
    );
    assert!(job["gpu_count"].is_u64() && job["billed_seconds"].is_u64(), "{job}");
    for unknown in ["url", "final_cost", "ended_at", "gpu_metrics"] {
        assert_eq!(job[unknown], Value::Null, "{unknown} of {job}");
    }
    let parts: Vec<&str> = text("offer_key").split('/').collect();
    assert_eq!(parts.len(), 5, "{job}");
    assert_eq!((parts[0], parts[4]), (text("platform"), text("sku_key")));
}

#[test]
fn submit_as_json_for_scripts() {
    let stage = Stage::new();
    stage.client.ok(&["sync", "-f", "train.yaml"]);
    let result = stage.client.ok(&["--json", "submit", "-f", "train.yaml"]).json();
    assert_eq!(result["status"], "ok");
    let id = result["job"]["id"].as_str().expect("an id");
    Template("{id}").check(id);
    assert_eq!(
        (&result["job"]["name"], &result["job"]["kind"]),
        (&NAME.into(), &"Training".into())
    );
    assert_eq!(result["pricing"]["price_per_hour"].to_string(), "36.44");
    assert!(result["pricing"]["estimated_start_seconds"].is_u64(), "{result}");
    let described = stage.client.ok(&["--json", "describe", "job", id]).json();
    assert_eq!(described["offer_key"], result["pricing"]["offer_key"]);
}

#[test]
fn submit_in_a_terminal_shows_the_live_view() {
    let stage = Stage::new();
    stage.client.ok(&["sync", "-f", "train.yaml"]);
    let view = stage.client.runner().start_in_terminal(&["submit", "-f", "train.yaml"]);
    stage.project.control().wait_started();
    eventually("the program's line is shown while it runs", || {
        view.stdout().contains("Epoch 1/10").then_some(())
    });
    stage.project.control().go(0);
    let view = view.finish(Duration::from_secs(30)).expect_code(0);
    let screen = view.screen();
    Template(SUBMITTED).check_within(&screen);
    // Between the log's lines this view also shows the node's progress and the states, which the documents' block, a log,
    // has not.
    let shown: Vec<&str> = screen
        .lines()
        .filter(|line| {
            !line.starts_with("⏳ ") && !["pending", "running", "succeeded"].contains(line)
        })
        .collect();
    Template(PLATFORM_LINES).check_within(&without_pretence(&shown.join("\n")));
    Template("✓ 任务完成（耗时 {seconds}s，费用 ¥{price}）").check_within(&screen);
    assert_eq!(screen.matches("Epoch 1/10").count(), 1, "{screen}");
}

#[test]
fn a_failed_program_is_told_in_the_live_view() {
    let stage = Stage::new();
    stage.client.ok(&["sync", "-f", "train.yaml"]);
    stage.project.control().go(7);
    let view =
        stage.client.runner().run_in_terminal(&["submit", "-f", "train.yaml"]).expect_code(0);
    let screen = view.screen();
    let last = screen.lines().rfind(|line| !line.trim().is_empty()).expect("a last line");
    assert!(last.starts_with("✗ ") && last.contains('7'), "{screen}");
    assert_eq!(stage.wait_status(NAME, "failed")["end_reason"], "failed");
}

#[test]
fn follow_by_name() {
    let stage = Stage::new();
    let waiting = stage.running();
    let follow = stage.client.start(&["logs", NAME, "-f"]);
    eventually("the backlog is shown", || follow.stdout().contains("Epoch 1/10").then_some(()));
    stage.project.control().go(0);
    let follow = follow.finish(Duration::from_secs(30)).expect_code(0);
    Template(PLATFORM_LINES).check_within(&without_pretence(&follow.stdout));
    assert_eq!(follow.stdout.matches("Epoch 1/10").count(), 1, "{follow}");
    assert!(follow.stderr.ends_with("任务完成\n"), "{follow}");

    // An ended task: at once, with the whole log; by id as well.
    stage.wait_status(&waiting, "succeeded");
    for job in [NAME, &waiting] {
        let late = stage.client.ok(&["logs", job, "-f"]);
        Template(PLATFORM_LINES).check_within(&without_pretence(&late.stdout));
    }
    let json = stage.client.ok(&["--json", "logs", NAME, "-f"]);
    let lines: Vec<Value> =
        json.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect();
    assert!(
        lines.iter().any(|payload| payload["line"] == "Epoch 1/10, step 100, loss=2.341"),
        "{json}"
    );
}

#[test]
fn a_task_without_output_says_so() {
    // No capacity is left for the second task, so it stays in the queue and has said nothing.
    let server = Server::start_with(ServerOptions {
        config: Some("[local]\ngpus = \"a100-80g:1\"\nprice_per_hour = \"36.44 CNY\"\n".to_owned()),
        ..ServerOptions::default()
    });
    let first = Project::new("holds-the-gpu", STEADY_PROGRAM);
    let client = PublishedClient::logged_in(first.folder(), &server);
    client.ok(&["sync", "-f", "train.yaml"]);
    client.ok(&["submit", "-f", "train.yaml"]);
    first.control().wait_started();

    let second = Project::new(NAME, STEADY_PROGRAM);
    let client = PublishedClient::logged_in(second.folder(), &server);
    client.ok(&["sync", "-f", "train.yaml"]);
    client.ok(&["submit", "-f", "train.yaml"]);
    Template(NO_LOG_YET).check(&client.ok(&["logs", NAME]).stderr);
    assert_eq!(server.api().job(NAME)["status"], "pending");

    first.control().go(0);
    second.control().wait_started();
    second.control().go(0);
    server.api().wait_status(NAME, "succeeded");
}

#[test]
fn stop_resume_delete() {
    let stage = Stage::with_program(
        r#"
echo "resume=${RUNW_RESUME_FROM_STEP:-none} saved=$(cat checkpoints/step 2>/dev/null || echo none)"
mkdir -p checkpoints
echo 12000 >checkpoints/step.new && mv checkpoints/step.new checkpoints/step
: >"$CONTROL/started"
while [ ! -e "$CONTROL/go" ]; do sleep 0.05; done
"#,
    );
    let client = &stage.client;
    let first = stage.running();

    // Stop: the GPU is released, the bill stops, the checkpoint is kept.
    Template(&format!("✓ 作业 {NAME} 已停止，GPU 已释放，计费停止"))
        .check(&client.ok(&["stop", "job", NAME]).stderr);
    let stopped = stage.wait_status(&first, "stopped");
    assert_eq!(stopped["end_reason"], "stopped");
    let released = stage.server.api().wait_released(&first);
    let billed = released["billed_seconds"].as_u64().expect("whole seconds");
    assert!(meters(stage.server.data_dir()).iter().all(|meter| meter.stop.is_some()));
    eventually("nothing of the task runs on", || stage.server.leftovers().is_empty().then_some(()));
    let log = client.ok(&["logs", NAME, "-f"]);
    assert!(
        log.stderr.contains("任务已停止，无实时流——显示历史尾部")
            && log.stdout.contains("resume=none saved=none"),
        "{log}"
    );

    // Resume: a new task of the same name with the step and the checkpoint.
    stage.project.control().clear();
    let resumed = client.ok(&["resume", NAME, "--from-step", "12000"]);
    Template(&format!(
        "--from-step 12000 将以 RUNW_RESUME_FROM_STEP=12000 注入作业环境，由训练代码消费\n✓ 已恢复 {NAME}，新任务 {{id}}"
    ))
    .check(&resumed.stderr);
    stage.project.control().wait_started();
    let second = stage.wait_status(NAME, "running");
    assert_ne!(second["id"], first.as_str());
    eventually("the program saw its step and its checkpoint", || {
        client.ok(&["logs", NAME]).stdout.contains("resume=12000 saved=12000").then_some(())
    });
    assert_eq!(
        stage.server.api().job(&first)["billed_seconds"],
        billed,
        "an ended task's bill does not grow"
    );

    // Delete: refused while it runs, then by force; the whole lineage is gone.
    let refused = client.run(&["delete", "job", NAME]).expect_code(3);
    assert!(refused.stderr.starts_with("✗ "), "{refused}");
    stage.wait_status(NAME, "running");
    Template(&format!("✓ 作业 {NAME} 已删除"))
        .check(&client.ok(&["delete", "job", NAME, "--force"]).stderr);
    gone(client, NAME);
    gone(client, &first);
    eventually("the node is released", || {
        let meters = meters(stage.server.data_dir());
        (meters.len() == 2 && meters.iter().all(|meter| meter.stop.is_some())).then_some(())
    });
    eventually("nothing of the task runs on", || stage.server.leftovers().is_empty().then_some(()));
    Template(NO_JOBS).check(&client.ok(&["get", "jobs"]).stderr);
}

#[test]
fn delete_what_has_ended() {
    let stage = Stage::new();
    let id = stage.submitted();
    stage.project.control().go(0);
    stage.wait_status(&id, "succeeded");
    Template(&format!("✓ 作业 {id} 已删除"))
        .check(&stage.client.ok(&["delete", "job", &id]).stderr);
    gone(&stage.client, NAME);
    gone(&stage.client, &id);
}

fn gone(client: &PublishedClient, job: &str) {
    Template(GONE).check(&client.run(&["describe", "job", job]).expect_code(3).stderr);
    // The published client ends `logs` with success whatever the server says.
    let log = client.ok(&["logs", job]);
    Template(GONE).check(&log.stderr);
    assert_eq!(log.stdout, "");
}

#[test]
fn stop_takes_an_id() {
    let stage = Stage::new();
    let id = stage.running();
    Template("✓ 作业 {id} 已停止，GPU 已释放，计费停止")
        .check(&stage.client.ok(&["stop", "job", &id]).stderr);
    stage.wait_status(&id, "stopped");
}

#[test]
fn an_unknown_gpu_is_refused_at_once() {
    let stage = Stage::new();
    // No offer has that many, so the type cannot be resolved; the document's text is for exactly this.
    let yaml = stage.project.yaml().replace("a100-80g", "t4").replace("gpuNum: 1", "gpuNum: 4096");
    stage.project.write("train.yaml", &yaml);
    Template(UNRESOLVED)
        .check(&stage.client.run(&["submit", "-f", "train.yaml"]).expect_code(2).stderr);
    assert_eq!(stage.server.api().get("/api/v1/jobs").expect(200)["data"], serde_json::json!([]));
}

#[test]
fn an_offer_key_can_be_written_back() {
    let stage = Stage::new();
    let best = stage.client.ok(&["price", "recommend", "-f", "train.yaml", "--top", "1"]).stderr;
    let key = best
        .lines()
        .find_map(|line| line.trim().strip_prefix("OFFER KEY: "))
        .unwrap_or_else(|| panic!("{best}"));
    let code = best
        .lines()
        .find_map(|line| line.trim().strip_prefix("SKU 编码: "))
        .unwrap_or_else(|| panic!("{best}"));
    for written in [key, code] {
        let yaml = stage
            .project
            .yaml()
            .replace("gpuType: a100-80g", &format!("gpuType: a100-80g\n  gpuSkuKey: {written}"));
        stage.project.write("train.yaml", &yaml);
        stage.project.control().clear();
        let id = stage.submitted();
        assert_eq!(stage.server.api().job(&id)["offer_key"], key);
        stage.project.control().go(0);
        stage.wait_status(&id, "succeeded");
    }
}

#[test]
fn what_is_not_served_yet_is_refused_by_name() {
    let stage = Stage::new();
    let head = |kind: &str| format!("kind: {kind}\nversion: v1\njob:\n  name: not-served\n");
    let gpu = "resources:\n  gpuNum: 1\n  gpuType: a100-80g\n";
    let cases = [
        (
            "Inference",
            head("Inference")
                + "environment:\n  image: vllm/vllm-openai:v0.12.0\n  command:\n    - python\n    - -m\n    - vllm.entrypoints.openai.api_server\n  env:\n    MODEL: Qwen/Qwen2.5-7B-Instruct\n"
                + gpu,
        ),
        (
            "Notebook",
            head("Notebook") + "environment:\n  image: jupyter/tensorflow-notebook:latest\n" + gpu,
        ),
        (
            "environment.requirements",
            head("Training")
                + "environment:\n  requirements: requirements.txt\n  command: python train.py\n"
                + gpu,
        ),
        (
            "environment.conda",
            head("Training") + "environment:\n  conda: myenv\n  command: python train.py\n" + gpu,
        ),
        (
            "storage.models",
            head("Training")
                + "environment:\n  command: python train.py\n"
                + gpu
                + "storage:\n  models:\n    - source: huggingface://Qwen/Qwen2.5-7B\n      path: /models/qwen2.5-7b\n",
        ),
    ];
    for (named, yaml) in cases {
        stage.project.write("other.yaml", &yaml);
        let refused = stage.client.run(&["--json", "submit", "-f", "other.yaml"]).expect_code(3);
        assert!(refused.stderr.contains(named), "{named}: {refused}");
    }
    assert_eq!(stage.server.api().get("/api/v1/jobs").expect(200)["data"], serde_json::json!([]));
}

#[test]
fn the_documents_smallest_task_is_accepted() {
    let stage = Stage::new();
    stage.project.write(
        "train.yaml",
        "version: v1\nkind: Training\njob:\n  name: llama-finetune\nenvironment:\n  image: pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime\n  command: \"python train.py --config configs/sft.yaml\"\nresources:\n  gpuNum: 1\n  gpuType: a100-80g\nstorage:\n  workdirs:\n    - path: \".\"\n  checkpoint:\n    path: \"checkpoints/\"\n",
    );
    stage.client.ok(&["sync", "-f", "train.yaml"]);
    Template(SUBMITTED).check_within(&stage.client.ok(&["submit", "-f", "train.yaml"]).stderr);
    // There is no such program here: the task fails with the shell's own code, and says so.
    let ended = stage.server.api().wait_end("llama-finetune");
    assert_eq!(ended["status"], "failed", "{ended}");
}

#[test]
fn a_bare_server_launches_nothing_and_names_the_account() {
    let server =
        Server::start_with(ServerOptions { try_locally: false, ..ServerOptions::default() });
    let project = Project::new(NAME, STEADY_PROGRAM);
    let client = PublishedClient::logged_in(project.folder(), &server);
    client.ok(&["sync", "-f", "train.yaml"]);
    let best =
        client.ok(&["--json", "price", "recommend", "-f", "train.yaml", "--top", "1"]).json();
    let offer = &best["recommendations"][0];
    let provider = offer["provider"].as_str().unwrap_or_else(|| panic!("{best}"));

    let refused = client.run(&["submit", "-f", "train.yaml"]).expect_code(3);
    assert!(refused.stderr.contains("✗ ") && refused.stderr.contains(provider), "{refused}");
    let body = serde_json::json!({"yaml_content": project.yaml(), "offer_key": offer["offer_key"]});
    let reply = server.api().post("/api/v1/jobs/submit", &body);
    assert!(reply.message().contains(provider), "{}", reply.body);
    reply.expect(422);
    Template(NO_JOBS).check(&client.ok(&["get", "jobs"]).stderr);
}
