//! What operators see and do on a real server: leases, a lost database, and nodes that nobody owns.

use runwhere_tests::{
    OurClient, Processes, Project, STEADY_PROGRAM, Server, eventually, meters, table_cells,
};
use std::fs;
use std::path::Path;

/// A job's node that runs.
fn running(server: &Server, project: &Project) -> String {
    let api = server.api();
    let yaml = project.yaml();
    api.sync(
        project.name(),
        &yaml,
        &[("train.sh", STEADY_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())],
    );
    let id = api.submit(&yaml);
    eventually("the program runs", || project.control().read("started"));
    eventually("the node is known", || api.job(&id)["node_id"].as_str().map(str::to_owned))
}

/// Makes an allocation look as if it had been made an hour ago.
fn age(data: &Path, node: &str) {
    let local = data.join("local");
    let mut aged = 0;
    for path in [local.join(node).join("request.json"), local.join("records").join(node)] {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        let at: jiff::Timestamp = record["created_at"].as_str().unwrap().parse().unwrap();
        let earlier = at - jiff::SignedDuration::from_hours(1);
        record["created_at"] = earlier.to_string().into();
        fs::write(&path, record.to_string()).unwrap();
        aged += 1;
    }
    assert!(aged > 0, "no record of {node} in {}", local.display());
}

#[test]
fn operators_leases_show_what_runs_and_what_it_costs() {
    let server = Server::start();
    let project = Project::new("operators-leases", STEADY_PROGRAM);
    let node = running(&server, &project);
    let client = OurClient::logged_in(project.folder(), &server);
    let shown = client.ok(&["--lang", "en", "admin", "leases"]);
    let cells = table_cells(&shown.stdout);
    let row = cells.iter().find(|row| row.contains(&node)).expect("the node's row");
    assert!(row.contains(&"ready".to_owned()) && row.contains(&"local".to_owned()), "{row:?}");
    assert!(shown.stdout.contains("1 open leases"), "{}", shown.stdout);
    let json = client.ok(&["--json", "admin", "leases"]).json();
    assert_eq!(json["data"][0]["state"], "ready");
    assert_eq!(json["providers"][0]["provider"], "local");
    // Nothing is without an owner.
    let swept = client.ok(&["--json", "admin", "sweep"]).json();
    assert_eq!(swept["data"][0]["owned"], 1);
    assert_eq!(swept["data"][0]["suspected"], 0);
    client.ok(&["admin", "sweep", "--apply", "--yes"]);
    assert!(meters(server.data_dir())[0].stop.is_none(), "an owned node is left alone");
    fs::write(project.control().file("go"), "0").unwrap();
    eventually("the lease has ended", || {
        let json = client.ok(&["--json", "admin", "leases", "--all"]).json();
        let row = &json["data"][0];
        (row["state"] == "released" && row["evidence"]["kind"] == "terminal_read").then_some(())
    });
}

#[test]
fn operators_end_what_a_lost_database_left_running() {
    let mut server = Server::start();
    let project = Project::new("operators-orphan", STEADY_PROGRAM);
    let node = running(&server, &project);
    server.kill();
    // The database is lost; the deployment's name, and what runs under it, are not.
    for entry in fs::read_dir(server.data_dir()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("broker.db") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    age(server.data_dir(), &node);
    server.restart();
    let client = OurClient::logged_in(project.folder(), &server);

    // It is noticed, and nothing is ended before an operator says so.
    let dry = client.ok(&["--json", "admin", "sweep", "--dry-run"]).json();
    assert!(dry["restored"]["expected"].as_u64().unwrap() > 0, "{dry}");
    let found = &dry["data"][0]["findings"][0];
    assert_eq!(found["node_id"].as_str(), Some(node.as_str()));
    assert_eq!(found["cause"], "unknown_lease");
    let said = client.run(&["--lang", "en", "admin", "sweep", "--apply", "--yes"]).expect_code(3);
    assert!(said.stderr.contains("--confirm-restore"), "{}", said.stderr);
    assert!(server.stderr().contains("older copy"), "{}", server.stderr());
    assert!(meters(server.data_dir())[0].stop.is_none());
    client.ok(&["admin", "sweep", "--confirm-restore"]);

    // Without a terminal it must be said twice.
    client.run(&["admin", "sweep", "--apply"]).expect_code(2);
    let swept = client.ok(&["--lang", "en", "admin", "sweep", "--apply", "--yes"]);
    assert!(swept.stdout.contains("confirmed gone"), "{}", swept.stdout);
    let meter = &meters(server.data_dir())[0];
    assert!(meter.stop.is_some(), "{meter:?}");
    eventually("its processes have ended", || {
        let left = Processes::of(&server.data_dir().join("local").join(&node));
        left.is_empty().then_some(())
    });
    let json = client.ok(&["--json", "admin", "leases", "--all"]).json();
    let stray = &json["strays"][0];
    assert_eq!((&stray["state"], &stray["attribution"]), (&"ended".into(), &"unattributed".into()));
    assert_eq!(stray["evidence"]["kind"], "terminal_read");
    assert!(stray["billed_seconds"].as_u64().is_some());
    assert_eq!(
        client.ok(&["--json", "admin", "sweep"]).json()["data"][0]["findings"],
        serde_json::json!([])
    );
}

#[test]
fn operators_a_provider_taken_out_of_the_settings_is_held() {
    let mut server = Server::start();
    let project = Project::new("operators-removed", STEADY_PROGRAM);
    let node = running(&server, &project);
    let client = OurClient::logged_in(project.folder(), &server);
    // A name that is not connected is told with those that are.
    let said = client.run(&["--lang", "en", "admin", "sweep", "--provider", "lokal"]);
    let said = said.expect_code(3).stderr;
    assert!(said.contains("lokal") && said.contains("connected: local"), "{said}");
    client.run(&["admin", "sweep", "--yes"]).expect_code(2);

    let settings = server.data_dir().join("config.toml");
    fs::write(&settings, "[local]\nenabled = false\n").unwrap();
    server.restart();
    assert!(server.stderr().contains("provider is not connected"), "{}", server.stderr());
    // The job goes on, its lease is held, and every door says why.
    let shown = client.ok(&["--lang", "en", "admin", "leases"]);
    assert!(shown.stdout.contains("local is not connected"), "{}", shown.stdout);
    assert!(shown.stdout.contains(&node), "{}", shown.stdout);
    let swept = client.ok(&["--lang", "en", "admin", "sweep", "--apply", "--yes"]);
    assert!(swept.stdout.contains("nothing to sweep"), "{}", swept.stdout);
    let begun = std::time::Instant::now();
    let stopped = client.ok(&["--lang", "en", "stop", "job", project.name()]);
    assert!(stopped.stderr.contains("blocked"), "{} {}", stopped.stdout, stopped.stderr);
    assert!(begun.elapsed().as_secs() < 60, "it is not waited for in vain");
    let described = client.ok(&["--lang", "en", "describe", "job", project.name()]).stdout;
    assert!(described.contains("clean-up is blocked"), "{described}");
    let json = client.ok(&["--json", "admin", "leases"]).json();
    let row = &json["data"][0];
    assert_eq!(
        (&row["state"], &row["cleanup_blocked"]),
        (&"releasing".into(), &"provider_not_connected".into())
    );
    assert!(meters(server.data_dir())[0].stop.is_none(), "nothing was taken for gone");

    // Connected again, it is released and proven.
    fs::remove_file(&settings).unwrap();
    server.restart();
    eventually("the lease has ended", || {
        let json = client.ok(&["--json", "admin", "leases", "--all"]).json();
        let row = &json["data"][0];
        (row["state"] == "released" && row["evidence"]["kind"] == "terminal_read").then_some(())
    });
    assert!(meters(server.data_dir())[0].stop.is_some());
}

#[test]
fn operators_a_sweep_that_is_cut_off_goes_on_and_leaves_others_alone() {
    let mut server = Server::start();
    let projects: Vec<_> = ["operators-cut-a", "operators-cut-b", "operators-theirs"]
        .iter()
        .map(|name| Project::new(name, STEADY_PROGRAM))
        .collect();
    let nodes: Vec<_> = projects.iter().map(|project| running(&server, project)).collect();
    server.kill();
    for entry in fs::read_dir(server.data_dir()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("broker.db") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for node in &nodes {
        age(server.data_dir(), node);
    }
    // The last one belongs to another installation on the same machine.
    let local = server.data_dir().join("local");
    for path in [local.join(&nodes[2]).join("request.json"), local.join("records").join(&nodes[2])]
    {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        record["deployment"] = "rw-theirs".into();
        fs::write(&path, record.to_string()).unwrap();
    }
    server.restart();
    let client = OurClient::logged_in(projects[0].folder(), &server);
    client.ok(&["admin", "sweep", "--confirm-restore"]);
    // Two operators at once, and the server dies under them.
    let (one, two) = (
        client.runner.start(&["admin", "sweep", "--apply", "--yes"]),
        client.runner.start(&["admin", "sweep", "--apply", "--yes"]),
    );
    let stops = || meters(server.data_dir()).iter().filter(|meter| meter.stop.is_some()).count();
    eventually("one of them has ended", || (stops() >= 1).then_some(()));
    server.kill();
    drop((one, two));
    server.restart();
    client.ok(&["admin", "sweep", "--apply", "--yes"]);
    let json = eventually("both are confirmed", || {
        let json = client.ok(&["--json", "admin", "leases", "--all"]).json();
        let strays = json["strays"].as_array().unwrap();
        let ended = strays.iter().filter(|one| one["state"] == "ended").count();
        (ended == 2).then_some(json)
    });
    for stray in json["strays"].as_array().unwrap() {
        assert_eq!(stray["evidence"]["kind"], "terminal_read");
        assert_ne!(stray["node_id"].as_str(), Some(nodes[2].as_str()));
    }
    let swept = client.ok(&["--json", "admin", "sweep"]).json();
    assert_eq!(swept["data"][0]["foreign"], 1, "{swept}");
    let theirs = meters(server.data_dir()).into_iter().filter(|meter| meter.stop.is_none()).count();
    assert_eq!(theirs, 1, "the other installation's goes on");
}
