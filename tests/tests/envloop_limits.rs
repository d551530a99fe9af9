//! EnvLoop's limits of a trial in a real container, what is left of one when an agent dies, and the order of a queue.
//! Needs root.

use runwhere_tests::{
    LONG, Runner, Site, eventually, eventually_within, meters, runwhere_bin, text,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::Duration;

fn limited(site: &Site, resources: Value, command: &str) -> Value {
    let mut spec = site.spec(1, command);
    for (key, value) in resources.as_object().unwrap() {
        spec["resources"][key] = value.clone();
    }
    spec
}

/// The log's lines of the program.
fn lines(site: &Site, id: &str) -> Vec<String> {
    let page = site
        .ours(&[
            "job", "log", id, "--source", "runtime", "--tail", "1000", "--limit", "1000", "--json",
        ])
        .expect_code(0)
        .json();
    let items = page["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| text(item, "content").to_owned()).collect()
}

#[test]
fn envloop_memory_cpu_shm_disk_and_time_are_limits_of_each_trial() {
    let site = Site::new("h100:6");
    // The image is pulled once, not by all at a time.
    site.wait(&site.submit(&json!({ "spec": site.spec(1, "true") })));
    // Memory: more than there may be is the end of the program, with its reason.
    let hungry = "python3 -c 'x = bytearray(200 << 20); print(len(x))'";
    let modest = "python3 -c 'x = bytearray(8 << 20); print(len(x))'";
    // What is seen of CPUs and shared memory inside.
    let shown = "df -k /dev/shm 2>/dev/null | tail -n 1; stat -f -c '%b %S' /dev/shm; \
                 cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us 2>/dev/null; \
                 python3 -c \"import os,time; t=time.monotonic(); c=os.times(); \
exec('while time.monotonic() - t < 3: pass'); d=os.times(); print('share', (d.user + d.system - c.user - c.system) / (time.monotonic() - t))\" & \
                 python3 -c \"import time; t=time.monotonic(); \
exec('while time.monotonic() - t < 3: pass')\"; wait";
    let full = "mkdir -p outputs; echo begun; i=0; while true; do head -c 4000000 /dev/zero >outputs/f$i; i=$((i+1)); sleep 0.05; done";
    let elsewhere = "echo begun; i=0; while true; do head -c 4000000 /dev/zero >/tmp/f$i; i=$((i+1)); sleep 0.05; done";
    let mut slow = limited(&site, json!({}), "echo waits; sleep 600");
    slow["timeout_seconds"] = json!(3);
    let trials = json!([
        { "name": "hungry", "spec": limited(&site, json!({ "memory_mb": 64 }), hungry) },
        { "name": "modest", "spec": limited(&site, json!({ "memory_mb": 64 }), modest) },
        { "name": "shown", "spec": limited(&site, json!({ "cpus": 1, "shm_mb": 24 }), shown) },
        { "name": "full", "spec": limited(&site, json!({ "storage_mb": 64 }), full) },
        { "name": "elsewhere", "spec": limited(&site, json!({ "storage_mb": 64 }), elsewhere) },
        { "name": "slow", "spec": slow },
    ]);
    let id = site.submit(&json!({ "trials": trials }));
    let job = site.wait(&id);
    let trial = |name: &str| {
        let trials = job["training"]["trials"].as_array().unwrap();
        trials.iter().find(|trial| trial["name"] == name).unwrap().clone()
    };
    let said = lines(&site, &id);
    for name in ["full", "elsewhere"] {
        let full = trial(name);
        assert_eq!(text(&full, "end_reason"), "limit_exceeded", "{full}");
        let detail = text(&full, "end_detail");
        assert!(detail.starts_with("disk: ") && detail.contains("limit is 64 MiB"), "{detail}");
        assert_eq!(full["exit_code"], 137, "{full}");
    }
    let slow = trial("slow");
    assert_eq!(
        (text(&slow, "state"), text(&slow, "end_reason")),
        ("timed_out", "max_duration_exceeded")
    );
    let modest = trial("modest");
    assert_eq!(text(&modest, "status"), "succeeded", "{modest}");
    // 24 MiB, in blocks.
    let shm = said.iter().filter_map(|line| {
        let (blocks, size) = line.split_once(' ')?;
        Some(blocks.parse::<u64>().ok()? * size.parse::<u64>().ok()?)
    });
    assert!(shm.clone().any(|bytes| bytes == 24 << 20), "{said:?}");
    // Of two busy processes on one CPU each gets about a half.
    let share = said.iter().find_map(|line| line.strip_prefix("share ")?.parse::<f64>().ok());
    assert!(share.is_some_and(|share| share < 0.85), "{said:?}");
    let hungry = trial("hungry");
    assert_eq!(
        (text(&hungry, "status"), &hungry["exit_code"]),
        ("failed", &json!(137)),
        "{said:?}"
    );
    // Not every engine tells of a child of the program's.
    let reason = text(&hungry, "end_reason");
    assert!(matches!(reason, "limit_exceeded" | "failed"), "{hungry}");
    assert!(!said.iter().any(|line| line == "209715200"), "{said:?}");
    assert_eq!(site.containers.containers().trim(), "");
}

#[test]
fn envloop_nothing_is_left_of_a_container_whose_agent_was_killed() {
    let site = Site::new("h100:1");
    let id = site.submit(&json!({ "spec": site.spec(1, "echo alive; sleep 1000") }));
    eventually_within(LONG, "the program runs", || {
        lines(&site, &id).contains(&"alive".to_owned()).then_some(())
    });
    assert_eq!(site.containers.containers().lines().count(), 1);
    let agents = agents(&site);
    assert_eq!(agents.len(), 1);
    kill_process(Pid::from_raw(agents[0]).unwrap(), Signal::KILL).unwrap();
    let job = site.wait(&id);
    let trial = &job["training"]["trials"][0];
    assert_eq!((text(trial, "state"), text(trial, "status")), ("lost", "failed"), "{trial}");
    assert_eq!(trial["cleanup_confirmed"], true);
    // Confirmed is only what is gone.
    assert_eq!(site.containers.containers().trim(), "");
}

/// Process ids of the site's agents.
fn agents(site: &Site) -> Vec<i32> {
    let is_agent = |id: &i32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"agent")
    };
    site.server.leftovers().0.into_iter().filter(is_agent).collect()
}

#[test]
fn envloop_an_agent_that_comes_back_takes_up_its_container() {
    let site = Site::new("h100:1");
    let command = "i=0; while [ $i -lt 80 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; mkdir -p outputs; echo kept >outputs/x; exit 7";
    let id = site.submit(&json!({ "spec": site.spec(1, command) }));
    eventually_within(LONG, "the program runs", || {
        lines(&site, &id).contains(&"line 3".to_owned()).then_some(())
    });
    let before = site.containers.containers();
    let meter = meters(site.server.data_dir()).pop().expect("the node has a meter");
    let folder = meter.path.parent().expect("a node's folder").to_owned();
    let mut runner = Runner::new(&runwhere_bin(), &folder, &folder);
    runner.set("RUNWHERE_NODE_ID", folder.file_name().expect("its name"));
    let running = agents(&site);
    assert_eq!(running.len(), 1);
    kill_process(Pid::from_raw(running[0]).unwrap(), Signal::KILL).unwrap();
    // As a service manager would; at once, before anybody gives the node up.
    let start = || runner.start(&["agent", "--node-dir", &folder.to_string_lossy()]);
    let mut agent = start();
    let job = eventually_within(LONG, "the job ends and is cleaned up", || {
        if agent.code() == Some(1) {
            agent = start();
        }
        let job = site.job(&id);
        (job["training"]["trials"][0]["cleanup_confirmed"] == true).then_some(job)
    });
    let trial = &job["training"]["trials"][0];
    // The program's own end, not one of its agent's.
    assert_eq!((text(trial, "status"), &trial["exit_code"]), ("failed", &json!(7)), "{trial}");
    assert_eq!(text(trial, "end_reason"), "failed", "{trial}");
    assert_eq!(trial["outputs"]["files"], 1, "{trial}");
    let said = lines(&site, &id);
    assert_eq!(said.first().map(String::as_str), Some("line 0"));
    assert_eq!(said.last().map(String::as_str), Some("line 79"), "{said:?}");
    let mut numbers: Vec<&str> = said.iter().map(String::as_str).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), said.len(), "no line is there twice");
    assert!(before.contains("runwhere-"), "{before}");
    assert_eq!(site.containers.containers().trim(), "");
}

#[test]
fn envloop_a_container_goes_on_while_the_server_is_away() {
    let mut site = Site::new("h100:1");
    let command = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; mkdir -p outputs; echo kept >outputs/x";
    let id = site.submit(&json!({ "spec": site.spec(1, command) }));
    eventually_within(LONG, "the program runs", || {
        lines(&site, &id).contains(&"line 3".to_owned()).then_some(())
    });
    let before = site.containers.containers();
    site.server.kill();
    std::thread::sleep(Duration::from_secs(1));
    site.server.restart();
    assert_eq!(site.containers.containers(), before, "the same container goes on");
    let job = site.completed(&id);
    let wanted: Vec<String> = (0..60).map(|number| format!("line {number}")).collect();
    assert_eq!(lines(&site, &id), wanted);
    assert_eq!(job["training"]["trials"][0]["outputs"]["files"], 1);
    assert_eq!(site.containers.containers().trim(), "");
}

#[test]
fn envloop_the_log_says_that_the_container_engine_was_away() {
    let mut site = Site::new("h100:1");
    let command = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; exit 5";
    let id = site.submit(&json!({ "spec": site.spec(1, command) }));
    eventually_within(LONG, "the program runs", || {
        lines(&site, &id).contains(&"line 3".to_owned()).then_some(())
    });
    site.containers.restart_engine(Duration::from_millis(500));
    let job = site.wait(&id);
    assert_eq!(job["training"]["trials"][0]["exit_code"], 5, "{job}");
    let log = site.ours(&["job", "log", &id, "--tail", "500"]).expect_code(0);
    assert!(log.stdout.contains("程序的输出断开了"), "{log}");
    assert_eq!(site.containers.containers().trim(), "");
}

#[test]
fn envloop_sixteen_trials_on_three_gpus_run_three_at_a_time_in_order() {
    let site = Site::new("h100:3");
    site.wait(&site.submit(&json!({ "spec": site.spec(1, "true") })));
    // The sixth fails: nothing of it matters to the others.
    let trials: Vec<Value> = (0..16)
        .map(|number| {
            let command = format!("echo begin {number}; sleep 1; exit {}", u8::from(number == 5));
            json!({ "name": format!("t{number}"), "spec": site.spec(1, &command) })
        })
        .collect();
    let id = site.submit(&json!({ "trials": trials }));
    let mut most = 0;
    let job = eventually_within(LONG * 2, "all trials have ended", || {
        let job = site.job(&id);
        let trials = job["training"]["trials"].as_array().unwrap();
        let running = trials
            .iter()
            .filter(|trial| {
                matches!(trial["lease_state"].as_str(), Some("booting" | "ready" | "releasing"))
            })
            .count();
        most = most.max(running);
        let ended = trials.iter().all(|trial| trial["cleanup_confirmed"] == true);
        ended.then_some(job)
    });
    assert!(most <= 3, "{most} at once");
    let trials = job["training"]["trials"].as_array().unwrap();
    let at = |trial: &Value, key: &str| text(trial, key).parse::<jiff::Timestamp>().unwrap();
    for (number, trial) in trials.iter().enumerate() {
        let status = if number == 5 { "failed" } else { "succeeded" };
        assert_eq!(text(trial, "status"), status, "{trial}");
        let others = trials.iter().filter(|other| {
            at(other, "started_at") <= at(trial, "started_at")
                && at(trial, "started_at") < at(other, "finished_at")
        });
        assert!(others.count() <= 3, "{number}");
    }
    // Each got its machine after all before it: what tells is the last try of each.
    let events = site.ours(&["job", "event", &id, "--json"]).expect_code(0).json();
    let events = events["items"].as_array().unwrap();
    let tries: Vec<usize> = trials
        .iter()
        .map(|trial| {
            events
                .iter()
                .rposition(|event| {
                    event["kind"] == "trial.provisioning"
                        && event["resource_id"] == trial["trial_id"]
                })
                .unwrap()
        })
        .collect();
    assert!(tries.is_sorted(), "{tries:?}");
    assert_eq!(text(&job, "status"), "failed");
    eventually("no container is left", || {
        site.containers.containers().trim().is_empty().then_some(())
    });
}
