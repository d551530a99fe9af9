//! Commands that need no server.

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
