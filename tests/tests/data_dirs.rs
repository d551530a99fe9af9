//! A data folder that an earlier version left: the server opens it, finds the same, and goes on.

use runwhere_tests::{OurClient, Project, STEADY_PROGRAM, Server, ServerOptions, eventually};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Copies a stored folder, with the rights that the server gave its files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// A server on a copy of a stored folder.
fn server_on(folder: &str) -> (tempfile::TempDir, Server) {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/data-dirs").join(folder);
    let home = tempfile::Builder::new().prefix("runwhere-test-").tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = home.path().join("data");
    copy(&stored, &data);
    let options = ServerOptions { data_dir: Some(data), ..ServerOptions::default() };
    (home, Server::start_with(options))
}

#[test]
fn data_dirs_of_a_real_server_are_found_again_and_go_on() {
    let (_home, mut server) = server_on("v3");
    let project = Project::new("data-dirs", STEADY_PROGRAM);
    for _ in 0..2 {
        // Its token still opens it.
        let client = OurClient::logged_in(project.folder(), &server);
        let api = server.api();
        let jobs = api.get("/api/v1/jobs").expect(200);
        let jobs = jobs["data"].as_array().or_else(|| jobs.as_array()).unwrap();
        let shown: Vec<_> = jobs
            .iter()
            .map(|job| (job["name"].as_str().unwrap(), job["status"].as_str().unwrap()))
            .filter(|(name, _)| name.starts_with("llama"))
            .collect();
        assert_eq!(
            shown,
            [("llama-stopped", "stopped"), ("llama-bad", "failed"), ("llama-ok", "succeeded")]
        );
        let ended = api.job("llama-ok");
        assert_eq!((&ended["cleanup_confirmed"], &ended["exit_code"]), (&true.into(), &0.into()));
        assert_eq!(api.job("llama-bad")["exit_code"], 3);
        let bill = api.get("/api/v1/billing/segments").expect(200).to_string();
        for amount in ["0.020244444444", "0.010122222222", "0.050611111111"] {
            assert!(bill.contains(amount), "{amount} in {bill}");
        }
        let log = client.ok(&["logs", "llama-ok"]).stdout;
        assert!(log.contains("step 1 loss=2.341") && log.contains("a warning"), "{log}");
        let leases = client.ok(&["--json", "admin", "leases", "--all"]).json();
        assert_eq!(leases["restored"], serde_json::Value::Null);
        assert_eq!(leases["strays"], serde_json::json!([]));
        server.restart();
    }
    // And new work goes on beside it.
    let api = server.api();
    let yaml = project.yaml();
    let files: [(&str, &[u8]); 2] =
        [("train.sh", STEADY_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())];
    api.sync(project.name(), &yaml, &files);
    let id = api.submit(&yaml);
    project.control().wait_started();
    project.control().go(0);
    let job = api.wait_released(&id);
    assert_eq!(job["status"], "succeeded");
}

#[test]
fn data_dirs_of_the_first_format_start_a_server() {
    let (_home, mut server) = server_on("v1");
    server.restart();
    eventually("what waited in it is looked at", || {
        server.stderr();
        Some(())
    });
    let made = server.beside(&[
        "token",
        "create",
        "--data-dir",
        server.data_dir().to_str().unwrap(),
        "--name",
        "later",
        "--scope",
        "admin",
    ]);
    made.expect_code(0);
}
