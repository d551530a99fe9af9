//! The server of this machine, inside the commands.

use std::net::TcpListener;

use crate::client::{TASK, User};

#[test]
fn what_a_local_run_left_can_be_looked_at_without_a_server() {
    let user = User::new(None);
    user.write("train.yaml", &TASK.replace("python train.py", "exit 7"));
    let ran = user.run(&["run", "-f", "train.yaml", "--try-locally"]).expect(10);
    assert!(ran.stdout.contains("模拟"), "{}", ran.stdout);
    let done = user.run(&["describe", "job", "llama-finetune"]).expect(0);
    assert!(done.stdout.starts_with("✗ 作业: llama-finetune\n"), "{}", done.stdout);
    assert!(done.stderr.contains("未配置服务器"), "{}", done.stderr);
    let done = user.run(&["--json", "get", "jobs"]).expect(0);
    assert_eq!(done.json()["data"][0]["status"], "failed");
    user.run(&["logs", "llama-finetune"]).expect(0);
    user.run(&["get", "usage"]).expect(0);
    user.run(&["delete", "job", "llama-finetune"]).expect(0);
    user.run(&["describe", "job", "llama-finetune"]).expect(3);
}

#[test]
fn a_local_run_says_that_it_leaves_the_configured_server_aside() {
    let user = User::new(Some("http://127.0.0.1:1"));
    user.write("train.yaml", &TASK.replace("python train.py", "true"));
    let done = user.run(&["run", "-f", "train.yaml", "--try-locally"]).expect(0);
    let text = "--try-locally：不使用已配置的服务器 http://127.0.0.1:1";
    assert!(done.stderr.contains(text), "{}", done.stderr);
}

#[test]
fn a_taken_address_is_told_with_the_option_that_changes_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = User::new(None).run(&["serve", "--listen", &address]).expect(1);
    assert!(done.stderr.contains(&format!("地址 {address} 已被占用")), "{}", done.stderr);
    assert!(done.stderr.contains("--listen"), "{}", done.stderr);
}
