//! The server of this machine, inside the commands.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

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
fn the_output_of_a_run_may_go_into_the_synced_folder() {
    let user = User::new(None);
    user.write("train.yaml", &TASK.replace("python train.py", "true"));
    let mut command = user.command(&["run", "-f", "train.yaml", "--try-locally"]);
    let log = std::fs::File::create(command.get_current_dir().unwrap().join("run.log")).unwrap();
    let output = command.stdout(log).output().unwrap();
    crate::client::Done::of(output).expect(0);
}

#[test]
fn a_killed_run_is_told_to_the_next_one_and_can_be_stopped() {
    let user = User::new(None);
    user.write(
        "one.yaml",
        &TASK.replace("llama-finetune", "one").replace("python train.py", "sleep 300"),
    );
    user.write(
        "two.yaml",
        &TASK.replace("llama-finetune", "two").replace("python train.py", "true"),
    );
    let mut command = user.command(&["run", "-f", "one.yaml", "--try-locally"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let started = lines.map_while(Result::ok).any(|line| line.contains("任务运行中"));
    assert!(started, "the program was started");
    run.kill().unwrap();
    run.wait().unwrap();
    let next = user.run(&["run", "-f", "two.yaml", "--try-locally"]).expect(0);
    assert!(next.stderr.contains("（one）仍未结束"), "{}", next.stderr);
    let stopped = user.run(&["stop", "job", "one"]).expect(0);
    assert!(stopped.stdout.contains("GPU 已释放，计费停止"), "{}", stopped.stdout);
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
