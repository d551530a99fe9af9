//! Our own client: the documents' life cycle in Chinese and English, `run`, exit codes and errors.

use runwhere_tests::{
    Control, Finished, OurClient, Processes, Project, STEADY_PROGRAM, Server, ServerOptions,
    Template, eventually, table_cells, without_pretence,
};
use std::fs;
use std::time::Duration;

const NAME: &str = "claude-cli-docs-verify";

/// All that a command said, on either stream.
fn said(finished: &Finished) -> String {
    format!("{}\n{}", finished.stdout, finished.stderr)
}

fn has_chinese(text: &str) -> bool {
    text.chars().any(|one| ('\u{4e00}'..='\u{9fff}').contains(&one))
}

#[test]
fn the_documents_life_cycle_in_chinese() {
    let server = Server::start();
    let project = Project::new(NAME, STEADY_PROGRAM);
    let client = OurClient::logged_in(project.folder(), &server);
    client.ok(&["whoami"]);
    assert!(said(&client.ok(&["get", "jobs"])).contains("暂无作业"));
    let synced = said(&client.ok(&["sync", "-f", "train.yaml"]));
    Template("✓ 上传 2 个文件（0.0 MB），跳过 0 个未变化文件\n✓ 存储路径已就绪：.")
        .check_within(&synced);
    let synced = said(&client.ok(&["sync", "-f", "train.yaml"]));
    assert!(synced.contains("跳过 2 个"), "{synced}");
    client.ok(&["sync", "--status"]);

    let submitted = said(&client.ok(&["submit", "-f", "train.yaml"]));
    Template("✓ 任务 {id} 已提交（BYOA）").check_within(&submitted);
    Template("→ 预计 ~{count} 分钟后开始运行（含节点创建）").check_within(&submitted);
    project.control().wait_started();
    server.api().wait_status(NAME, "running");

    let table = client.ok(&["get", "jobs"]).stdout;
    assert!(table.starts_with('┌'), "the documents' frame is a light one:\n{table}");
    let cells = table_cells(&table);
    assert_eq!(cells[0], ["名称", "类型", "状态", "GPU", "运行时长", "URL"]);
    assert_eq!(cells[1][..3], [NAME, "training", "running"]);
    let described = said(&client.ok(&["describe", "job", NAME]));
    Template(&format!("✓ 作业: {NAME}\n  ID: {{id}}\n  类型: training\n  状态: running"))
        .check_within(&described);
    eventually("the log is there", || {
        client.ok(&["logs", NAME]).stdout.contains("Epoch 1/10").then_some(())
    });
    Template(
        "[runwhere] 正在创建 GPU 节点...\n[runwhere] 节点启动中，加入集群...\n[runwhere] GPU 就绪，部署任务...\n\
         [runwhere] 任务运行中\nEpoch 1/10, step 100, loss=2.341",
    )
    .check_within(&without_pretence(&client.ok(&["logs", NAME]).stdout));
    client.ok(&["get", "usage"]);

    let stopped = said(&client.ok(&["stop", "job", NAME]));
    Template("✓ 作业 {word} 已停止，GPU 已释放，计费停止").check_within(&stopped);
    server.api().wait_status(NAME, "stopped");
    project.control().clear();
    let resumed = said(&client.ok(&["resume", NAME, "--from-step", "12000"]));
    Template(&format!("✓ 作业 {NAME} 已恢复，新任务 {{id}}")).check_within(&resumed);
    project.control().wait_started();
    project.control().go(0);
    server.api().wait_status(NAME, "succeeded");
    Template("✓ 作业 {id} 已删除").check_within(&said(&client.ok(&["delete", "job", NAME])));
    let gone = client.run(&["describe", "job", NAME]).expect_code(3);
    Template("✗ 任务不存在或无权访问").check_within(&gone.stderr);
}

#[test]
fn the_life_cycle_in_english() {
    let server = Server::start();
    let project = Project::new("english", STEADY_PROGRAM);
    let mut client = OurClient::logged_in(project.folder(), &server);
    client.runner.set("LANG", "en_US.UTF-8");
    let quick: [&[&str]; 9] = [
        &["whoami"],
        &["price", "summary"],
        &["price", "list", "--gpu-type", "a100-80g"],
        &["price", "recommend", "-f", "train.yaml"],
        &["get", "jobs"],
        &["get", "usage"],
        &["sync", "-f", "train.yaml"],
        &["sync", "--status"],
        &["submit", "-f", "train.yaml"],
    ];
    for arguments in quick {
        let said = said(&client.ok(arguments));
        assert!(!has_chinese(&said), "{arguments:?}: {said}");
    }
    project.control().wait_started();
    server.api().wait_status("english", "running");
    let running: [&[&str]; 4] = [
        &["get", "jobs"],
        &["describe", "job", "english"],
        &["logs", "english"],
        &["stop", "job", "english"],
    ];
    for arguments in running {
        let said = said(&client.ok(arguments));
        assert!(!has_chinese(&said), "{arguments:?}: {said}");
    }
    server.api().wait_status("english", "stopped");
    client.ok(&["delete", "job", "english"]);
    let gone = client.run(&["describe", "job", "english"]).expect_code(3);
    assert!(!has_chinese(&said(&gone)), "{gone}");
    // `--lang` decides over the locale.
    let gone = client.run(&["--lang", "zh", "describe", "job", "english"]).expect_code(3);
    assert!(gone.stderr.contains("任务不存在或无权访问"), "{gone}");
}

#[test]
fn exit_codes_and_errors() {
    let server = Server::start();
    let project = Project::new("errors", STEADY_PROGRAM);
    let client = OurClient::logged_in(project.folder(), &server);
    client.run(&["describe", "job", "nothing"]).expect_code(3);
    client.run(&["describe"]).expect_code(2);
    client.run(&["no-such-command"]).expect_code(2);
    let missing = client.run(&["submit", "-f", "missing.yaml"]).expect_code(2);
    assert!(missing.stderr.contains("missing.yaml"), "{missing}");
    project.write("typo.yaml", &project.yaml().replace("gpuType", "gpuTyp"));
    let typo = client.run(&["submit", "-f", "typo.yaml"]).expect_code(2);
    assert!(typo.stderr.contains("gpuTyp") && typo.stderr.contains("gpuType"), "{typo}");

    let json = client.run(&["--json", "describe", "job", "nothing"]).expect_code(3);
    let error: serde_json::Value =
        serde_json::from_str(&json.stderr).unwrap_or_else(|_| panic!("{json}"));
    assert!(error.to_string().contains("任务不存在或无权访问"), "{error}");
    assert_eq!(json.stdout, "");

    // What the server would refuse anyway is not asked.
    client.run(&["get", "jobs", "--status", "bogus"]).expect_code(2);
    client.run(&["get", "usage", "--from", "2026-12-01", "--to", "2026-11-01"]).expect_code(2);
    let elsewhere = client.run(&["--endpoint", &server.url(), "token", "list"]).expect_code(2);
    assert!(elsewhere.stderr.contains("--data-dir"), "{elsewhere}");
    server.api().get("/api/v1/jobs?limit=1&cursor=job-00000000").expect(422);

    let stranger = OurClient::new(project.folder());
    let resumed = stranger.run(&["resume", "nothing"]).expect_code(3);
    assert!(resumed.stderr.contains("runwhere serve"), "{resumed}");
    let refused = stranger.run(&["get", "jobs"]).expect_code(3);
    assert!(refused.stderr.contains("runwhere login --endpoint"), "{refused}");
    let mut nowhere = OurClient::new(project.folder());
    nowhere.runner.set("RUNW_ENDPOINT", "http://127.0.0.1:1").set("RUNW_TOKEN", "x");
    nowhere.run(&["get", "jobs"]).expect_code(4);
}

#[test]
fn a_resume_keeps_the_price_limit_and_may_raise_it() {
    let config = |price: &str| {
        Some(format!("[local]\ngpus = \"a100-80g:1\"\nprice_per_hour = \"{price} CNY\"\n"))
    };
    let options = ServerOptions { config: config("36.44"), ..ServerOptions::default() };
    let mut server = Server::start_with(options);
    let project = Project::new("limited", STEADY_PROGRAM);
    let client = OurClient::logged_in(project.folder(), &server);
    client.ok(&["sync", "-f", "train.yaml"]);
    client.ok(&["--json", "submit", "-f", "train.yaml", "--max-price", "37 CNY"]);
    project.control().wait_started();
    client.ok(&["stop", "job", "limited"]);
    fs::write(server.data_dir().join("config.toml"), config("37.01").unwrap()).expect("a file");
    server.restart();

    // Nobody agreed to more than 37.
    let refused = client.run(&["--lang", "en", "resume", "limited"]).expect_code(3);
    assert!(refused.stderr.contains("37"), "{refused}");
    project.control().clear();
    client.ok(&["resume", "limited", "--max-price", "37.01 CNY"]);
    project.control().wait_started();
    project.control().go(0);
    server.api().wait_status("limited", "succeeded");
    assert_eq!(server.api().job("limited")["price"], "37.01");
}

#[test]
fn a_task_file_without_an_end_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let client = OurClient::new(folder.path());
    for command in ["submit", "sync", "run"] {
        let refused = client.run(&[command, "-f", "/dev/zero"]).expect_code(2);
        assert!(refused.stderr.contains("/dev/zero"), "{refused}");
    }
}

#[test]
fn a_run_beside_another_run_says_what_to_do() {
    let project = Project::new("beside", STEADY_PROGRAM);
    let client = OurClient::new(project.folder());
    let first = client.runner.start(&["run", "-f", "train.yaml", "--try-locally"]);
    project.control().wait_started();
    let second = client.run(&["--lang", "en", "run", "-f", "train.yaml", "--try-locally"]);
    let second = second.expect_code(1).stderr;
    assert!(second.contains("wait for its end") && second.contains("--data-dir"), "{second}");
    project.control().go(0);
    first.finish(Duration::from_secs(60)).expect_code(0);
    nothing_left(&client, project.control());
}

#[test]
fn a_program_gets_no_descriptor_of_whoever_started_the_server() {
    let program = "ls -l /proc/self/fd >\"$CONTROL/open\"; (cat <&9) >\"$CONTROL/read\" 2>/dev/null; umask >\"$CONTROL/umask\"; readlink /proc/self/ns/ipc >\"$CONTROL/ipc\"; true";
    let project = Project::new("closed", program);
    let home = tempfile::tempdir().expect("a folder");
    let secret = home.path().join("secret");
    fs::write(&secret, "the operator's own").expect("a file");
    let line = "exec 9<\"$1\"; cat <&9 >/dev/null; exec 9<\"$1\"; exec \"$0\" run -f train.yaml --try-locally";
    let ended = std::process::Command::new("sh")
        .args(["-c", line])
        .arg(runwhere_tests::runwhere_bin())
        .arg(&secret)
        .current_dir(project.folder())
        .env("HOME", home.path())
        .env_remove("RUNW_ENDPOINT")
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    let control = project.control();
    let open = control.read("open").expect("the program has looked");
    assert!(!open.contains("secret") && !open.contains(" 9 -> "), "{open}");
    assert_eq!(control.read("read").unwrap_or_default(), "");
    if rustix::process::geteuid().is_root() {
        assert_eq!(control.read("umask").expect("a mask").trim(), "0077");
        // Its queues and shared memory end with it.
        let ours = fs::read_link("/proc/self/ns/ipc").expect("a namespace");
        let own = control.read("ipc").expect("a namespace");
        assert_ne!(own.trim(), ours.to_string_lossy());
    }
}

#[test]
fn tokens_beside_a_running_server() {
    let server = Server::start();
    let data_dir = server.data_dir().to_string_lossy().into_owned();
    let created = server
        .beside(&["token", "create", "--data-dir", &data_dir, "--json"])
        .expect_code(0)
        .json();
    let token = created["token"].as_str().expect("a token").to_owned();
    server.api().with_token(&token).get("/api/v1/auth/me").expect(200);
    let listed =
        server.beside(&["token", "list", "--data-dir", &data_dir, "--json"]).expect_code(0);
    assert!(!listed.stdout.contains(&token), "{listed}");
    let id = created["id"].as_str().unwrap_or_else(|| panic!("no id in {created}"));
    server.beside(&["token", "revoke", id, "--data-dir", &data_dir]).expect_code(0);
    server.api().with_token(&token).get("/api/v1/auth/me").expect(401);
    assert_eq!(server.api().get("/api/v1/auth/me").status, 200);
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(server.data_dir().join("first-token"))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        !server.stderr().contains(&server.first_token()),
        "the token is shown to a terminal only"
    );
}

#[test]
fn outputs_are_listed_and_downloaded() {
    let server = Server::start();
    let program = "mkdir -p checkpoints && head -c 3000000 /dev/urandom >checkpoints/w.bin && printf 结果 >'模型 final.txt' \
                   && cp checkpoints/w.bin \"$CONTROL/w\"";
    let project = Project::new("leaves", program);
    let client = OurClient::logged_in(project.folder(), &server);
    client.ok(&["sync", "-f", "train.yaml"]);
    client.ok(&["--json", "submit", "-f", "train.yaml", "--no-follow"]);
    server.api().wait_status("leaves", "succeeded");
    let listed = client.ok(&["--json", "outputs", "leaves"]).json();
    let paths: Vec<_> =
        listed["data"].as_array().expect("a list").iter().map(|row| &row["path"]).collect();
    assert_eq!(paths, ["checkpoints/w.bin", "模型 final.txt"]);
    assert_eq!(listed["data"][0]["checkpoint"], true);

    let folder = project.folder().join("got 结果");
    let target = folder.to_string_lossy().into_owned();
    client.ok(&["outputs", "leaves", "checkpoints/", "--download", &target]);
    assert!(!folder.join("模型 final.txt").exists(), "only what was named");
    client.ok(&["outputs", "leaves", "--download", &target]);
    let weights = fs::read(project.control().file("w")).expect("the program's own copy");
    assert_eq!(fs::read(folder.join("checkpoints/w.bin")).expect("downloaded"), weights);
    assert_eq!(fs::read_to_string(folder.join("模型 final.txt")).expect("downloaded"), "结果");

    // What is there is not fetched again; what differs is not overwritten unless asked for.
    let again = client.ok(&["--json", "outputs", "leaves", "--download", &target]).json();
    assert_eq!(again["downloaded"], serde_json::json!([]), "{again}");
    fs::write(folder.join("checkpoints/w.bin"), "mine").expect("a file");
    let differs = client.run(&["outputs", "leaves", "--download", &target]).expect_code(1);
    assert!(differs.stderr.contains("--force"), "{differs}");
    assert_eq!(fs::read_to_string(folder.join("checkpoints/w.bin")).expect("mine"), "mine");
    client.ok(&["outputs", "leaves", "--download", &target, "--force"]);
    assert_eq!(fs::read(folder.join("checkpoints/w.bin")).expect("downloaded"), weights);
    let unknown = client.run(&["outputs", "leaves", "none.bin"]).expect_code(2);
    assert!(unknown.stderr.contains("none.bin"), "{unknown}");

    // A list goes on behind a job that was deleted meanwhile.
    let id = server.api().job("leaves")["job_id"].as_str().expect("an id").to_owned();

    // Its money is marked as nobody's, here and in the ledger.
    let usage = client.ok(&["--json", "get", "usage"]).json();
    assert_eq!(usage["cost"], serde_json::json!([]), "{usage}");
    assert_eq!(usage["pretended_cost"][0]["currency"], "CNY", "{usage}");
    let segments = server.api().get("/api/v1/billing/segments").expect(200);
    assert_eq!(segments["data"][0]["pretended"], true, "{segments}");
    client.ok(&["delete", "job", "leaves"]);
    server.api().get(&format!("/api/v1/jobs?limit=1&cursor={id}")).expect(200);
}

/// `run` with an embedded server: what it started must be gone when it has ended.
fn nothing_left(client: &OurClient, control: &Control) {
    for folder in [client.home(), control.path()] {
        eventually("nothing runs on", || Processes::of(folder).is_empty().then_some(()));
    }
}

#[test]
fn run_from_quote_to_confirmed_release() {
    let project = Project::new("first-run", STEADY_PROGRAM);
    let client = OurClient::new(project.folder());
    project.control().go(0);
    let ran = client.ok(&["run", "-f", "train.yaml", "--try-locally"]);
    let all = said(&ran);
    for part in [
        "CNY",
        "a100-80g",
        "[runwhere] 任务运行中",
        "Epoch 1/10, step 100, loss=2.341",
        "cleanup_confirmed",
    ] {
        assert!(all.contains(part), "no {part:?} in {ran}");
    }
    nothing_left(&client, project.control());
}

#[test]
fn run_of_a_failing_program() {
    let project = Project::new("fails", STEADY_PROGRAM);
    let client = OurClient::new(project.folder());
    project.control().go(42);
    let ran = client.run(&["run", "-f", "train.yaml", "--try-locally"]).expect_code(10);
    assert!(said(&ran).contains("42"), "{ran}");
    assert!(said(&ran).contains("cleanup_confirmed"), "{ran}");
    nothing_left(&client, project.control());
}

#[test]
fn follow_has_neither_gaps_nor_duplicates_over_a_restart() {
    let mut server = Server::start();
    let program = r#"
: >"$CONTROL/started"
i=0
while [ $i -lt 150 ]; do
    i=$((i + 1))
    printf 'line %s\n' "$i" | tee -a "$CONTROL/copy"
    sleep 0.02
done
"#;
    let project = Project::new("followed", program);
    let client = OurClient::logged_in(project.folder(), &server);
    client.ok(&["sync", "-f", "train.yaml"]);
    client.ok(&["submit", "-f", "train.yaml"]);
    project.control().wait_started();
    let follow = client.runner.start(&["logs", "followed", "-f"]);
    eventually("the first lines are shown", || follow.stdout().contains("line 10\n").then_some(()));
    server.restart();
    let follow = follow.finish(Duration::from_secs(60)).expect_code(0);
    let lines: Vec<&str> = follow.stdout.lines().filter(|line| line.starts_with("line ")).collect();
    let copy = project.control().read("copy").expect("the program's own copy");
    assert_eq!(lines, copy.lines().collect::<Vec<_>>());
}
