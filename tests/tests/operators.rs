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
