//! EnvLoop: the published `el` 1.7.0 and its SDK, unchanged, and our own `el`, on real containers and a real registry.
//! Needs root.

use runwhere_tests::{
    LONG, Runner, Site, eventually, eventually_within, our_el, published_el, text,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn envloop_published_client_runs_the_documents_request() {
    let site = Site::new("h100:8");
    let status = site.published(&["auth", "status", "--check"]).expect_code(0);
    assert!(status.stdout.contains("access_confirmed"), "{status}");
    let runners = site.published(&["runner", "list", "--json"]).expect_code(0).json();
    let row = &runners["items"][0];
    assert_eq!((text(row, "name"), text(row, "revision").len()), ("envloop/bash", 40));

    let fails = "mkdir -p outputs; echo out; echo err >&2; echo partial >outputs/a.txt; exit 3";
    let works = "mkdir -p outputs/deep; head -c 3000000 /dev/urandom >outputs/deep/x.bin; ln -s /etc/passwd outputs/link; \
                 echo 'loss: 0.5'; touch other; printf 'bad \\377 utf8\\n'";
    let request = json!({
        "request_id": "gpu-run-001",
        "trials": [
            { "name": "first", "spec": site.spec(4, fails) },
            { "name": "second", "spec": site.spec(4, works) },
        ],
    });
    let mut request = request;
    request["trials"][0]["spec"]["tags"] = json!({ "experiment": "gpu-baseline" });
    request["trials"][1]["spec"]["tags"] = json!({ "purpose": "sft" });
    let path = site.file("gpu-run.json", &request);
    let submit = ["job", "submit", "--type", "train", "--file", &path];
    let made = site.published(&submit).expect_code(0).json();
    let id = text(&made, "job_id").to_owned();
    assert_eq!(made["trials"].as_array().map(Vec::len), Some(2));
    assert_eq!(made["trials"][0]["image_digest"].as_str().map(str::len), Some(71));

    // --follow ends by itself, with both streams told apart.
    let log = site.published(&["job", "log", &id, "--follow"]).expect_code(0);
    for line in [
        "runtime stdout first] out",
        "runtime stderr first] err",
        "runtime stdout second] loss: 0.5",
    ] {
        assert!(log.stdout.contains(line), "{line} in {log}");
    }
    let job = site.wait(&id);
    assert_eq!(text(&job, "status"), "failed");
    let [first, second] = [0, 1].map(|index| job["training"]["trials"][index].clone());
    // The job's tags are the first trial's.
    assert_eq!(job["tags"], json!({ "experiment": "gpu-baseline" }));
    assert_eq!((&first["tags"], &second["tags"]), (&job["tags"], &json!({ "purpose": "sft" })));
    assert_eq!((text(&first, "status"), &first["exit_code"]), ("failed", &json!(3)));
    assert_eq!((text(&second, "status"), &second["exit_code"]), ("succeeded", &json!(0)));
    for (trial, files) in [(&first, 1), (&second, 1)] {
        assert_eq!(trial["outputs"]["files"], files, "{trial}");
        assert_eq!(
            (text(trial, "output_status"), &trial["cleanup_confirmed"]),
            ("uploaded", &json!(true))
        );
        assert_eq!(
            (text(trial, "entrypoint"), text(trial, "runner")),
            ("main.sh", site.runner().as_str())
        );
    }
    site.published(&["job", "get", &id]).expect_code(1);
    site.published(&["job", "result", &id]).expect_code(1);
    site.published(&["job", "event", &id]).expect_code(0);
    let listed =
        site.published(&["job", "list", "--type", "train", "--status", "failed"]).expect_code(0);
    assert!(listed.stdout.contains(&id), "{listed}");
    let trials = site.published(&["trail", "list", "--type", "train", "--job-id", &id, "--json"]);
    assert_eq!(trials.expect_code(0).json()["items"].as_array().map(Vec::len), Some(2));

    // The link was left behind, with a reason; what was not declared is no artifact.
    let result = site.ours(&["trial", "result", text(&second, "trial_id")]).expect_code(0).json();
    assert_eq!(result["not_collected"], json!([{ "name": "outputs/link", "reason": "symlink" }]));
    let folder = site.home.path().join("artifacts");
    let trial = text(&second, "trial_id");
    site.published(&["trail", "artifact", "list", trial]).expect_code(0);
    site.published(&["trail", "artifact", "download", trial, folder.to_str().unwrap()])
        .expect_code(0);
    let page = site.ours(&["trial", "artifact", "list", trial, "--json"]).expect_code(0).json();
    let bytes = fs::read(folder.join("outputs/deep/x.bin")).unwrap();
    assert_eq!(page["items"][0]["sha256"], hex::encode(Sha256::digest(&bytes)));
    assert_eq!((bytes.len(), page["items"].as_array().map(Vec::len)), (3_000_000, Some(1)));

    // The same again is the same job; anything else is a conflict.
    // (The job has failed, so the client says 1.)
    let again = site.published(&submit).expect_code(1).json();
    assert_eq!(text(&again, "job_id"), id);
    let mut changed = request.clone();
    changed["trials"][0]["spec"]["resources"]["gpus"] = json!(2);
    assert_eq!(site.refused(&changed), "JOB_REQUEST_CONFLICT");
    let mut fewer = request;
    fewer["trials"].as_array_mut().unwrap().pop();
    assert_eq!(site.refused(&fewer), "JOB_REQUEST_CONFLICT");
    assert_eq!(site.containers.containers().trim(), "");
}

const SDK: &str = r#"
import json, sys
from envloop import Client
request = json.load(open(sys.argv[1]))
with Client.remote() as client:
    job = client.training_jobs.submit(request)["job_id"]
    first = client.jobs.wait(job, timeout=100)
    second = client.training_jobs.wait(job, timeout=100)
    trial = client.trials.list(job_id=job)["items"][0]["trial_id"]
    third = client.trials.wait(trial, timeout=100)
    logs = client.training_jobs.logs(job, source="runtime", tail=50)
    result = client.training_jobs.result(job)
    client.trials.download_artifacts(trial, sys.argv[2])
    points = client.training_jobs.checkpoints(job_id=job)["items"]
    found = client.checkpoints.download(points[0]["tinker_path"], sys.argv[3]) if points else None
    print(json.dumps({"job": job, "states": [first["status"], second["status"], third["status"]],
        "lines": [item["content"] for item in logs["items"]], "eof": logs["eof"],
        "cleanup": result["cleanup_confirmed"], "points": points}, default=str))
"#;

#[test]
fn envloop_sdk_waits_reads_and_downloads_a_checkpoint() {
    let site = Site::new("h100:1");
    let adapter = r#"mkdir -p outputs/lora && python - <<'PY'
import json, struct
json.dump({"peft_type": "LORA", "base_model_name_or_path": "base/model", "r": 8, "target_modules": ["q_proj"]},
          open("outputs/lora/adapter_config.json", "w"))
half = lambda at: {"dtype": "F32", "shape": [2, 2], "data_offsets": [at, at + 16]}
header = json.dumps({"x.lora_A.weight": half(0), "x.lora_B.weight": half(16)}).encode()
open("outputs/lora/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + bytes(32))
PY
echo trained"#;
    let path =
        site.file("sdk.json", &json!({ "request_id": "sdk-1", "spec": site.spec(1, adapter) }));
    let folders =
        ["files", "adapter"].map(|name| site.home.path().join(name).to_string_lossy().into_owned());
    let told = site.python(SDK, &[&path, &folders[0], &folders[1]]).expect_code(0).json();
    assert_eq!(told["states"], json!(["completed", "completed", "succeeded"]), "{told}");
    assert_eq!((&told["lines"], &told["eof"]), (&json!(["trained"]), &json!(true)), "{told}");
    assert_eq!(told["points"][0]["base_model"], "base/model");
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let artifact = fs::read(Path::new(&folders[0]).join("outputs/lora").join(name)).unwrap();
        assert_eq!(fs::read(Path::new(&folders[1]).join(name)).unwrap(), artifact, "{name}");
    }
    let id = text(&told["points"][0], "checkpoint_id");
    site.published(&["checkpoint", "delete", id, "--wait"]).expect_code(0);
    let left = site
        .published(&["checkpoint", "list", "--job-id", text(&told, "job"), "--json"])
        .expect_code(0);
    assert_eq!(left.json()["items"], json!([]));
}

#[test]
fn envloop_a_stopped_job_collects_and_releases_each_trial() {
    let site = Site::new("h100:1");
    let slow = "mkdir -p outputs; echo kept >outputs/kept; echo running; sleep 1000 & wait";
    let trials: Vec<Value> = (0..3).map(|_| json!({ "spec": site.spec(1, slow) })).collect();
    let id = site.submit(&json!({ "trials": trials }));
    eventually_within(LONG, "one trial runs", || {
        let log = site.ours(&["job", "log", &id, "--source", "runtime"]).expect_code(0);
        log.stdout.contains("running").then_some(())
    });
    site.published(&["job", "stop", &id]).expect_code(0);
    site.published(&["job", "stop", &id]).expect_code(0);
    let job = site.wait(&id);
    assert_eq!(text(&job, "status"), "cancelled");
    let trials = job["training"]["trials"].as_array().unwrap();
    let collected: Vec<&Value> =
        trials.iter().filter(|trial| trial["outputs"]["files"] == 1).collect();
    assert_eq!(collected.len(), 1, "{job}");
    assert!(trials.iter().all(|trial| trial["cleanup_confirmed"] == true), "{job}");
    site.published(&["job", "log", &id, "--follow"]).expect_code(0);
    assert_eq!(site.containers.containers().trim(), "");
}

/// The documents' line; only runner and image are this site's.
fn documents_line<'a>(runner: &'a str, image: &'a str) -> Vec<&'a str> {
    let command = r#"python -c "import torch; print(torch.cuda.device_count())""#;
    vec![
        "job",
        "submit",
        "--type",
        "train",
        "--runner",
        runner,
        "--trials",
        "2",
        "--gpu-type",
        "H100",
        "--gpu",
        "4",
        "--docker",
        image,
        "--cpu",
        "8",
        "--memory",
        "64Gi",
        "--disk",
        "100Gi",
        "--shm-size",
        "16Gi",
        "--command",
        command,
        "--timeout-seconds",
        "600",
        "--request-id",
        "gpu-run-001",
    ]
}

#[test]
fn envloop_our_client_runs_the_documents_lines() {
    for (gpus, at_once) in [("h100:8", true), ("h100:4", false)] {
        let site = Site::new(gpus);
        let (runner, image) = (site.runner(), site.containers.image());
        let made = site.ours(&documents_line(&runner, &image)).expect_code(0);
        assert!(made.stderr.contains("gpu-run-001"), "{made}");
        let id = text(&made.json(), "job_id").to_owned();
        let log = site.ours(&["job", "log", &id, "--follow"]).expect_code(0);
        let counts = log.stdout.lines().filter(|line| line.ends_with("] 4")).count();
        assert_eq!(counts, 2, "{log}");
        let job = site.completed(&id);
        let spans: Vec<(String, String)> = job["training"]["trials"]
            .as_array()
            .unwrap()
            .iter()
            .map(|trial| {
                (text(trial, "started_at").to_owned(), text(trial, "finished_at").to_owned())
            })
            .collect();
        if !at_once {
            let apart = spans[0].1 <= spans[1].0 || spans[1].1 <= spans[0].0;
            assert!(apart, "{spans:?}");
        }
        let trials = site.ours(&["trial", "list", "--type", "train", "--job-id", &id, "--json"]);
        assert_eq!(trials.expect_code(0).json()["items"].as_array().map(Vec::len), Some(2));
        site.ours(&["job", "result", &id]).expect_code(0);
        site.ours(&["job", "stop", &id]).expect_code(0);
        if at_once {
            // Both together hold all eight.
            let slow = || json!({ "spec": site.spec(4, "sleep 1000 & wait") });
            let id = site.submit(&json!({ "trials": [slow(), slow()] }));
            eventually_within(LONG, "both trials run at once", || {
                let job = site.job(&id);
                let trials = job["training"]["trials"].as_array().unwrap();
                trials.iter().all(|trial| trial["status"] == "running").then_some(())
            });
            let limits = site.ours(&["limit", "get"]).expect_code(0).json();
            assert_eq!(limits["gpus"]["in_use"], 8, "{limits}");
            site.ours(&["job", "stop", &id]).expect_code(0);
            site.wait(&id);
        }
    }
}

#[test]
fn envloop_refusals_have_their_codes_and_take_nothing() {
    let site = Site::new("h100:2");
    let spec = |change: &dyn Fn(&mut Value)| {
        let mut spec = site.spec(1, "true");
        change(&mut spec);
        json!({ "spec": spec })
    };
    let unknown = format!("envloop/bash@{}", "0".repeat(40));
    let missing = site.containers.reference("none");
    let cases: Vec<(Value, &str)> = vec![
        (spec(&|s| s["runner"] = json!(unknown)), "RUNNER_NOT_FOUND"),
        (spec(&|s| s["runner"] = json!("envloop/bash@main")), "RUNNER_VERSION_AMBIGUOUS"),
        (spec(&|s| s["runner"] = json!("envloop/bash@FULL_COMMIT")), "RUNNER_VERSION_AMBIGUOUS"),
        (spec(&|s| s["image"] = json!(missing)), "INVALID_RUNNER_ENVIRONMENT"),
        (spec(&|s| s["resources"]["gpus"] = json!(3)), "UNSUPPORTED_HARDWARE"),
        (spec(&|s| s["resources"]["gpu_type"] = json!("H9000")), "UNSUPPORTED_HARDWARE"),
        (spec(&|s| s["env"] = json!({})), "INVALID_TRAIN_JOB_SPEC"),
        (spec(&|s| s["executor"] = json!("x")), "UNSUPPORTED_TRAINING_BACKEND_SELECTION"),
        (spec(&|s| s["tags"] = json!({ "a b": "c" })), "INVALID_TAG"),
        (spec(&|s| s["command"] = json!("x".repeat(65_537))), "INVALID_COMMAND"),
        (json!({ "trials": [] }), "INVALID_TRIALS"),
    ];
    for (request, code) in cases {
        assert_eq!(
            site.refused(&request),
            code,
            "{}",
            request.to_string().chars().take(300).collect::<String>()
        );
    }
    let jobs = site.published(&["job", "list", "--type", "train", "--json"]).expect_code(0).json();
    assert_eq!(jobs["items"], json!([]));
    // Ours shows the server's own words, in its language.
    for (lang, words) in [("zh", "此项目中没有这个任务"), ("en", "there is no such job")]
    {
        let told = site.ours(&["--lang", lang, "job", "get", "job-00000000"]).expect_code(1);
        assert!(told.stderr.contains(words), "{told}");
    }
    // What could be asked for instead is named.
    let (runner, image) = (site.runner(), site.containers.image());
    for (model, number, words) in [("A100", "1", "a100-80g"), ("H100", "3", "1、2")] {
        let what = ["--runner", &runner, "--docker", &image, "--gpu-type", model, "--gpu", number];
        let line = [&["--lang", "zh", "job", "submit"][..], &what].concat();
        let told = site.ours(&line).expect_code(1);
        assert!(told.stderr.contains(words), "{told}");
    }

    // Permissions come first, and a revoked key ends everything.
    let key = site.new_key(&["--scope", "job.read,runner.read"]);
    let mut other = site.client(&published_el());
    other.set("ENVLOOP_API_KEY", &key);
    let path = site.file("other.json", &json!({ "spec": { "runner": "nonsense" } }));
    let denied = other.run(&["job", "submit", "--type", "train", "--file", &path]).expect_code(1);
    assert!(denied.stderr.starts_with("PERMISSION_DENIED"), "{denied}");
    let data = site.server.data_dir().to_string_lossy().into_owned();
    let tokens =
        site.server.beside(&["--json", "token", "list", "--data-dir", &data]).expect_code(0).json();
    let newest =
        tokens["tokens"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    site.server.beside(&["token", "revoke", &newest, "--data-dir", &data]).expect_code(0);
    let gone = other.run(&["runner", "list"]).expect_code(1);
    assert!(gone.stderr.starts_with("UNAUTHENTICATED"), "{gone}");
    // A RunWhere token is no EnvLoop key.
    other.set("ENVLOOP_API_KEY", site.server.first_token());
    assert!(other.run(&["runner", "list"]).expect_code(1).stderr.starts_with("UNAUTHENTICATED"));
}

#[test]
fn envloop_budget_and_quota_come_last_and_take_nothing() {
    let site = Site::with("h100:8", "[projects.default]\nbudget = \"15 CNY\"\nmax_gpus = 4\n");
    // Ten yuan an hour for each GPU.
    assert_eq!(site.refused(&json!({ "spec": site.spec(2, "true") })), "INSUFFICIENT_BALANCE");
    assert_eq!(site.refused(&json!({ "spec": site.spec(8, "true") })), "UNSUPPORTED_HARDWARE");
    let five: Vec<Value> = (0..5).map(|_| json!({ "spec": site.spec(1, "true") })).collect();
    assert_eq!(site.refused(&json!({ "trials": five })), "TRAIN_JOB_CAPACITY_EXCEEDED");
    let id = site.submit(&json!({ "spec": site.spec(1, "true") }));
    site.completed(&id);
}

#[test]
fn envloop_commands_are_handed_over_byte_for_byte_and_images_are_checked_first() {
    let site = Site::new("h100:2");
    let begin = "mkdir -p outputs; cp \"$ENVLOOP_RUN_COMMAND_FILE\" outputs/file; printf %s \"$ENVLOOP_RUN_COMMAND\" >outputs/env\n# ";
    let rest = "'\"\\ \u{4e2d}\u{6587} $x `y`\n\ttab # ".repeat(3000);
    let mut command = format!("{begin}{}", rest.replace('\n', "\n# "));
    let mut end = 65_536;
    while !command.is_char_boundary(end) {
        end -= 1;
    }
    command.truncate(end);
    command.push_str(&"#".repeat(65_536 - command.len()));
    assert_eq!(command.len(), 65_536);
    let id = site.submit(&json!({ "spec": site.spec(1, &command) }));
    let job = site.completed(&id);
    let trial = text(&job["training"]["trials"][0], "trial_id").to_owned();
    let folder = site.home.path().join("exact");
    site.ours(&["trial", "artifact", "download", &trial, folder.to_str().unwrap()]).expect_code(0);
    for name in ["file", "env"] {
        let read = fs::read_to_string(folder.join("outputs").join(name)).unwrap();
        assert!(read == command, "{name}: {} bytes", read.len());
    }
    // An image without Python fails before user code, with its own reason.
    let mut spec = site.spec(1, "echo never");
    spec["image"] = json!(site.containers.reference("bare"));
    let job = site.wait(&site.submit(&json!({ "spec": spec })));
    let trial = &job["training"]["trials"][0];
    assert_eq!((text(trial, "status"), &trial["started_at"]), ("failed", &Value::Null), "{trial}");
    assert!(text(trial, "end_detail").contains("no Python"), "{trial}");
}

#[test]
fn envloop_every_other_command_ends_with_its_code() {
    let site = Site::new("h100:1");
    let path = site.file("cleanup.json", &json!({ "resources": [] }));
    for words in [
        &["billing", "account", "get"][..],
        &[
            "billing",
            "usage",
            "list",
            "--start",
            "2026-07-01",
            "--end",
            "2026-08-01",
            "--group-by",
            "day",
        ],
        &["billing", "ledger", "list"],
        &["billing", "price", "list"],
        &["limit", "get"],
        &["dashboard", "get"],
        &["job", "list"],
        &["job", "list", "--type", "agent"],
        &["job", "run", "list"],
        &["checkpoint", "list"],
        &["trail", "list"],
    ] {
        let done = site.published(words);
        assert_eq!(done.code, Some(0), "{done}");
    }
    for words in [
        &["job", "get", "job-00000000"][..],
        &["job", "log", "job-00000000"],
        &["job", "pause", "job-00000000"],
        &["trail", "get", "no-such-trial"],
        &["checkpoint", "delete", "ck_none"],
        &["member", "list"],
        &["setting", "get"],
        &["setting", "cleanup", "--file", &path, "--request-id", "x"],
        &["profile", "list"],
        &["job", "run", "live", "x"],
    ] {
        let done = site.published(words);
        assert!(matches!(done.code, Some(1 | 2)), "{done}");
        assert!(
            !done.stderr.contains("Traceback") && !done.stderr.contains("INTERNAL_ERROR"),
            "{done}"
        );
        assert!(!done.stderr.contains("INVALID_RESPONSE"), "{done}");
    }
}

#[test]
fn envloop_a_runner_is_published_from_a_clean_work_tree() {
    let site = Site::new("h100:1");
    let folder = site.home.path().join("repo/runners/mine");
    fs::create_dir_all(&folder).unwrap();
    let git = |words: &[&str]| {
        let mut runner = Runner::new(Path::new("/usr/bin/git"), site.home.path(), &folder);
        for (name, value) in [("NAME", "t"), ("EMAIL", "t@localhost")] {
            runner.set(format!("GIT_AUTHOR_{name}"), value);
            runner.set(format!("GIT_COMMITTER_{name}"), value);
        }
        runner.run(words).expect_code(0).stdout.trim().to_owned()
    };
    let config = format!(
        "[execution]\nentrypoint = \"main.py\"\nimage = \"{}\"\noutputs = [\"made/*.txt\"]\n\
         [resources]\ngpu_type = \"H100\"\ngpus = 1\n",
        site.containers.image()
    );
    fs::write(folder.join("runner.toml"), config).unwrap();
    fs::write(
        folder.join("main.py"),
        "import os\nos.mkdir('made')\nopen('made/a.txt', 'w').write('x')\nprint('py')\n",
    )
    .unwrap();
    git(&["init", "-q", "../.."]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "one"]);
    let commit = git(&["rev-parse", "HEAD"]);
    let path = folder.to_str().unwrap();
    let publish = ["runner", "publish", path, "--name", "team/mine"];
    let published = site.ours(&publish).expect_code(0).json();
    assert_eq!(text(&published, "revision"), commit);
    site.ours(&publish).expect_code(0);
    fs::write(folder.join("main.py"), "dirty").unwrap();
    site.ours(&publish).expect_code(1);
    git(&["checkout", "-q", "."]);

    let selector = format!("team/mine@{commit}");
    // Nothing but the runner: its image, its resources, its own logic.
    let id = site.submit(&json!({ "request_id": "own", "spec": { "runner": selector } }));
    let job = site.completed(&id);
    let trial = &job["training"]["trials"][0];
    assert_eq!((text(trial, "entrypoint"), &trial["outputs"]["files"]), ("main.py", &json!(1)));
    assert_eq!(
        site.refused(&json!({ "spec": { "runner": selector, "command": "x" } })),
        "UNSUPPORTED_COMMAND"
    );
    let shown = site.ours(&["runner", "get", &selector]).expect_code(0).json();
    assert!(text(&shown["contents"], "main.py").contains("print('py')"));
    let revisions =
        site.ours(&["runner", "revisions", "team/mine", "--json"]).expect_code(0).json();
    assert_eq!(revisions["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn envloop_login_with_the_browser_makes_a_key() {
    let site = Site::new("h100:1");
    let home: PathBuf = site.home.path().join("fresh");
    let mut client = Runner::new(&published_el(), site.home.path(), site.home.path());
    client.set("ENVLOOP_HOME", &home);
    let url = site.server.url();
    let running =
        client.start(&["auth", "login", "--base-url", &url, "--no-browser", "--timeout", "60"]);
    let (code, page) = eventually("the client shows its code", || {
        let said = running.stdout();
        let after = |word: &str| Some(said.split_once(word)?.1.lines().next()?.trim().to_owned());
        Some((after("Confirmation code: ")?, after("Open: ")?))
    });
    let grant = page.split_once("cli_login=").unwrap().1.to_owned();
    let curl = Runner::new(Path::new("/usr/bin/curl"), site.home.path(), site.home.path());
    let shown = curl.run(&["-s", "-H", "Accept-Language: en", &page]).expect_code(0);
    assert!(shown.stdout.contains("<form"), "{shown}");
    let sign_in = format!("{url}/sign-in");
    let send = |code: &str, token: &str| {
        let body = format!("cli_login={grant}&code={code}&token={token}&action=approve");
        curl.run(&["-s", "-H", "Accept-Language: en", "--data", &body, &sign_in])
            .expect_code(0)
            .stdout
    };
    let token = site.server.first_token();
    assert!(send("WRONGONE", &token).contains("confirmation code"));
    assert!(send(&code, "rw_wrong").contains("not valid"));
    assert!(send(&code, &token).contains("Approved"));
    running.finish(Duration::from_secs(30)).expect_code(0);
    client.run(&["runner", "list"]).expect_code(0);
    // Ours reads the same files.
    let mut ours = Runner::new(&our_el(), site.home.path(), site.home.path());
    ours.set("ENVLOOP_HOME", &home);
    let me = ours.run(&["auth", "status"]).expect_code(0).json();
    assert_eq!(me["project"]["project_id"], "default");
}
