//! Commands that need no server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{TASK, User};

#[test]
fn prices_need_no_server_and_no_login() {
    let user = User::new(None);
    let done = user.run(&["price", "summary"]).expect(0);
    assert!(done.stdout.starts_with('┌') && done.stdout.contains("A100"));
    let done = user.run(&["--json", "price", "list", "--gpu-type", "a100-80g", "--all"]).expect(0);
    let list = done.json();
    assert_eq!(list["items"].as_array().unwrap().len() as u64, list["total"].as_u64().unwrap());
    assert!(list["total"].as_u64().unwrap() > 20);
    user.write("train.yaml", TASK);
    let done =
        user.run(&["price", "recommend", "-f", "train.yaml", "--top", "3", "--no-spot"]).expect(0);
    assert!(done.stdout.contains("resources.gpuSkuKey: "));
    assert!(!done.stdout.contains("/spot/"));
}

#[test]
fn a_recommended_offer_can_be_written_back() {
    let user = User::new(None);
    user.write("train.yaml", TASK);
    let done = user.run(&["--json", "price", "recommend", "-f", "train.yaml"]).expect(0);
    let key = done.json()["recommendations"][0]["offer"]["offer_key"].as_str().unwrap().to_owned();
    user.write("back.yaml", &TASK.replace("gpuType: a100-80g", &format!("gpuSkuKey: {key}")));
    user.run(&["sync", "-f", "back.yaml", "--dry-run"]).expect(0);
}

#[test]
fn an_unknown_model_gets_similar_ones() {
    let user = User::new(None);
    user.write("train.yaml", &TASK.replace("a100-80g", "a100-80x"));
    let done = user.run(&["--json", "price", "recommend", "-f", "train.yaml"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("a100-80g"), "{}", done.stderr);
}

#[test]
fn a_ceiling_below_everything_is_told() {
    let user = User::new(None);
    user.write("train.yaml", TASK);
    let done =
        user.run(&["price", "recommend", "-f", "train.yaml", "--max-price", "0.01"]).expect(1);
    assert!(done.stderr.contains("0.01 CNY"));
    user.run(&["price", "recommend", "-f", "train.yaml", "--max-price", "cheap"]).expect(2);
    for hours in ["0", "-1", "87601", "1e20"] {
        let hours = format!("--hours={hours}");
        user.run(&["price", "recommend", "-f", "train.yaml", &hours]).expect(2);
    }
}

#[test]
fn what_is_listed_can_be_imported_and_what_is_of_no_use_says_so() {
    let user = User::new(None);
    let listed = user.run(&["price", "list", "--gpu-type", "a10", "--all", "--csv"]).expect(0);
    user.write("own.csv", &listed.stdout);
    let rows = listed.stdout.lines().count() - 1;
    let done = user.run(&["--json", "price", "import", "own.csv", "--provider", "mine"]).expect(0);
    assert_eq!(done.json()["items"][0]["offers"].as_u64(), u64::try_from(rows).ok());
    // A folder whose file was cut off is whole after the same import.
    let shards = user.home().join(".runwhere/prices/shards");
    for entry in std::fs::read_dir(shards).unwrap() {
        std::fs::write(entry.unwrap().path(), "cut").unwrap();
    }
    let done = user.run(&["price", "list", "--provider", "mine"]).expect(0);
    assert!(done.stderr.contains("保存的价格无法读取，未列出：mine"), "{}", done.stderr);
    user.run(&["price", "import", "own.csv", "--provider", "mine"]).expect(0);
    let list = || user.run(&["--json", "price", "list", "--provider", "mine"]).expect(0).json();
    assert_eq!(list()["total"].as_u64(), u64::try_from(rows).ok());
    user.write("dearer.csv", &listed.stdout.replacen(",USD,known,", "9,USD,known,", 1));
    user.run(&["price", "import", "dearer.csv", "--provider", "mine"]).expect(0);
    let key = listed.stdout.lines().nth(1).unwrap().split_once('/').unwrap().1;
    let key = format!("mine/{}", key.split_once(',').unwrap().0);
    let history = user.run(&["--json", "price", "history", &key]).expect(0);
    assert_eq!(history.json()["total"], 1, "an import changes prices as a reading does");
    user.write("empty.csv", listed.stdout.lines().next().unwrap());
    let done = user.run(&["--json", "price", "import", "empty.csv"]).expect(2);
    assert_eq!(done.error()["code"], "import_nothing");
    let done = user.run(&["--json", "price", "import", "/dev/zero"]).expect(2);
    assert_eq!(done.error()["code"], "import_large");
    let current = user.home().join(".runwhere/prices/current.json");
    std::fs::write(&current, "{").unwrap();
    let done = user.run(&["price", "summary"]).expect(0);
    assert!(done.stderr.contains("current.json"), "{}", done.stderr);
    // Where nothing can be kept, nothing is said to be.
    std::fs::remove_file(&current).unwrap();
    std::fs::create_dir(&current).unwrap();
    let done = user.run(&["--json", "price", "import", "own.csv", "--provider", "mine"]).expect(1);
    assert!(done.stderr.contains(r#""code":"prices_folder""#), "{}", done.stderr);
}

#[test]
fn every_problem_of_a_task_file_is_told_at_once() {
    let user = User::new(None);
    user.run(&["submit", "-f", "missing.yaml"]).expect(2);
    user.write("bad.yaml", "kind: Training\njob:\n  nmae: x\nresources:\n  gpuNum: 0\n");
    let done = user.run(&["--json", "submit", "-f", "bad.yaml"]).expect(2);
    let error = done.error();
    assert!(error["problems"].as_array().unwrap().len() >= 2, "{error}");
    user.write("nogpu.yaml", "kind: Training\njob:\n  name: x\n");
    let done = user.run(&["submit", "-f", "nogpu.yaml"]).expect(2);
    assert!(done.stderr.contains("runwhere price recommend -f nogpu.yaml"), "{}", done.stderr);
}

#[test]
fn a_damaged_configuration_does_not_break_the_version() {
    let user = User::new(None);
    std::fs::create_dir(user.home().join(".runwhere")).unwrap();
    std::fs::write(user.home().join(".runwhere/config.toml"), "token = s3cret").unwrap();
    user.run(&["version"]).expect(0);
    let done = user.run(&["get", "jobs"]).expect(2);
    assert!(!done.stderr.contains("s3cret"));
}

#[test]
fn completions_exist_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let done = User::new(None).run(&["completions", shell]).expect(0);
        assert!(done.stdout.contains("runwhere"));
    }
}

#[test]
fn a_price_that_waits_for_a_decision_is_named() {
    let user = User::new(None);
    user.write("a.csv", "provider,billing_model,instance_type,gpu_name,gpu_count,currency,price_per_hour\nvast,spot,t,H100,1,USD,2\n");
    user.run(&["price", "import", "a.csv"]).expect(0);
    let current = user.home().join(".runwhere/prices/current.json");
    let mut kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&current).unwrap()).unwrap();
    let price = |amount: &str| serde_json::json!({"amount": amount, "currency": "USD"});
    kept["sources"]["vast"] = serde_json::json!({"quarantine": {"vast/-/-/spot/t": {
        "last": price("2"), "new": price("0.02"), "since": "2026-11-30T10:00:00Z", "readings": 3,
    }}});
    std::fs::write(&current, kept.to_string()).unwrap();
    let done = user.run(&["--json", "price", "sources"]).expect(0).json();
    assert_eq!(done["quarantine"][0]["offer_key"], "vast/-/-/spot/t");
    let vast = done["items"].as_array().unwrap().iter().find(|item| item["provider"] == "vast");
    assert_eq!(vast.unwrap()["quarantined"], 1);
    let said = user.run(&["price", "sources"]).expect(0).stderr;
    assert!(said.contains("vast/-/-/spot/t 现用 2 USD，来源改为 0.02 USD"), "{said}");
    user.run(&["price", "refresh", "--accept", "vast/-/-/spot/t"]).expect(0);
    let done = user.run(&["--json", "price", "sources"]).expect(0).json();
    assert_eq!(done["quarantine"], serde_json::json!([]));
}

#[test]
fn a_price_service_ends_though_a_caller_never_finishes_its_request() {
    let user = User::new(None);
    let arguments = ["--json", "price", "serve", "--listen", "127.0.0.1:0", "--offline"];
    let mut serving = user.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = told["endpoint"].as_str().unwrap().trim_start_matches("http://").to_owned();
    assert!(user.home().join(".runwhere/prices").exists(), "its quotes can be answered again");
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"GET /healthz HT").unwrap();
    let deadline = Instant::now() + Duration::from_secs(15);
    let ended = loop {
        let pid = serving.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        match serving.try_wait().unwrap() {
            None if Instant::now() < deadline => {}
            ended => break ended,
        }
    };
    if ended.is_none() {
        serving.kill().unwrap();
        serving.wait().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}
