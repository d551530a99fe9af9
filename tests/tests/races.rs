//! Two at once, and everything at every moment.

use runwhere_tests::{Api, Phase, Project, STEADY_PROGRAM, Server, eventually, meters};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Syncs a project's two files and gives its task file.
fn synced(api: &Api, project: &Project) -> String {
    let yaml = project.yaml();
    let files = [("train.sh", STEADY_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())];
    api.sync(project.name(), &yaml, &files);
    yaml
}

/// Runs `act` in `count` threads at once.
fn at_once<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let gate = std::sync::Barrier::new(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|index| {
                let (gate, act) = (&gate, &act);
                scope.spawn(move || {
                    gate.wait();
                    act(index)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

/// Every node that was ever started has stopped, nothing runs any more.
fn nothing_left(server: &Server) {
    eventually("every node has stopped and nothing runs", || {
        let stopped =
            meters(server.data_dir()).iter().all(|meter| meter.starts == 1 && meter.stop.is_some());
        (stopped && server.leftovers().is_empty()).then_some(())
    });
}

#[test]
fn fifty_submits_of_one_name_make_one_job() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("only-one", STEADY_PROGRAM);
    let yaml = synced(&api, &project);
    let body = json!({"yaml_content": yaml, "offer_key": api.offer()});
    let replies = at_once(50, |_| api.post("/api/v1/jobs/submit", &body));

    let (made, refused): (Vec<_>, Vec<_>) =
        replies.into_iter().partition(|reply| reply.status == 200);
    assert_eq!(made.len(), 1, "{made:?}");
    let id = made[0].body["job_id"].as_str().expect("an id");
    for reply in &refused {
        assert_eq!(reply.status, 409, "{}", reply.body);
        assert!(reply.message().contains(id), "{} does not name {id}", reply.body);
    }
    assert_eq!(api.get("/api/v1/jobs").expect(200)["data"].as_array().map(Vec::len), Some(1));

    project.control().wait_started();
    project.control().go(0);
    api.wait_end(id);
    api.wait_released(id);
    assert_eq!(meters(server.data_dir()).len(), 1);
    // The name is free again.
    project.control().clear();
    let second = api.submit(&yaml);
    assert_ne!(second, id);
}

#[test]
fn one_key_is_one_job() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("keyed", STEADY_PROGRAM);
    let yaml = synced(&api, &project);
    let body = json!({"yaml_content": yaml, "offer_key": api.offer()});
    let key = [("Idempotency-Key", "2f1c0c2e-7f5e-4f6e-9f0d-2f6d0a7c0001")];
    let replies = at_once(20, |_| api.post_with("/api/v1/jobs/submit", &key, &body));
    let ids: BTreeSet<String> = replies
        .into_iter()
        .map(|reply| reply.expect(200)["job_id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let id = ids.first().expect("one");

    // Also after the end, and for nothing else than the same request.
    project.control().wait_started();
    project.control().go(0);
    api.wait_end(id);
    let later = api.post_with("/api/v1/jobs/submit", &key, &body).expect(200);
    assert_eq!(later["job_id"], id.as_str());
    let other =
        json!({"yaml_content": yaml.replace("keyed", "other"), "offer_key": body["offer_key"]});
    let refused = api.post_with("/api/v1/jobs/submit", &key, &other);
    assert!(matches!(refused.status, 409 | 422), "{}", refused.body);
    assert_eq!(meters(server.data_dir()).len(), 1);
}

#[test]
fn stop_twice_at_once() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("stopped-twice", STEADY_PROGRAM);
    let id = api.submit(&synced(&api, &project));
    project.control().wait_started();
    for reply in at_once(8, |_| api.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None)) {
        reply.expect(200);
    }
    assert_eq!(api.wait_end(&id)["status"], "stopped");
    api.wait_released(&id);
    // And once more, long after.
    api.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None).expect(200);
    assert_eq!(api.job(&id)["status"], "stopped");
    nothing_left(&server);
}

#[test]
fn stop_against_a_natural_end() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("photo-finish", STEADY_PROGRAM);
    let yaml = synced(&api, &project);
    for _ in 0..6 {
        project.control().clear();
        let id = api.submit(&yaml);
        project.control().wait_started();
        at_once(2, |index| {
            if index == 0 {
                project.control().go(0);
            } else {
                api.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None).expect(200);
            }
        });
        let end = api.wait_end(&id);
        assert!(matches!(end["status"].as_str(), Some("stopped" | "succeeded")), "{end}");
        let later = api.wait_released(&id);
        for field in ["status", "end_reason", "ended_at"] {
            assert_eq!(later[field], end[field], "an end does not change");
        }
        assert_eq!(api.program_lines(&id), ["Epoch 1/10, step 100, loss=2.341"]);
    }
    nothing_left(&server);
}

#[test]
fn stop_in_every_phase() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("stopped", STEADY_PROGRAM);
    let yaml = synced(&api, &project);
    for phase in Phase::ALL {
        project.control().clear();
        let earlier = meters(server.data_dir()).len();
        let id = api.submit(&yaml);
        phase.wait(&server, &api, &id, project.control(), earlier);
        api.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None).expect(200);
        let end = api.wait_end(&id);
        if phase.is_over() {
            assert!(
                matches!(end["status"].as_str(), Some("stopped" | "succeeded")),
                "{phase:?}: {end}"
            );
        } else {
            assert_eq!(end["status"], "stopped", "{phase:?}: {end}");
        }
        let released = api.wait_released(&id);
        assert_eq!(released["status"], end["status"], "{phase:?}");
        nothing_left(&server);
    }
}

#[test]
fn delete_in_every_phase() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("deleted", STEADY_PROGRAM);
    let yaml = synced(&api, &project);
    for phase in Phase::ALL {
        project.control().clear();
        let earlier = meters(server.data_dir()).len();
        let id = api.submit(&yaml);
        phase.wait(&server, &api, &id, project.control(), earlier);
        let plain = api.delete(&format!("/api/v1/jobs/{id}"));
        if !phase.is_over() {
            assert!(
                (400..500).contains(&plain.status),
                "{phase:?}: a living task was deleted: {}",
                plain.body
            );
        }
        if plain.status != 200 {
            api.delete(&format!("/api/v1/jobs/{id}?force=true")).expect(200);
        }
        for job in [id.as_str(), "deleted"] {
            let reply = api.get(&format!("/api/v1/jobs/{job}"));
            assert_eq!((reply.status, reply.message()), (404, "任务不存在或无权访问"), "{phase:?}");
            assert_eq!(api.get(&format!("/api/v1/jobs/{job}/logs")).status, 404, "{phase:?}");
        }
        assert_eq!(api.get("/api/v1/jobs").expect(200)["data"], json!([]), "{phase:?}");
        // A client whose answer was lost asks again, by id.
        api.delete(&format!("/api/v1/jobs/{id}")).expect(200);
        nothing_left(&server);
    }
}

#[test]
fn a_stop_in_the_queue_launches_nothing() {
    let server = Server::start_with(runwhere_tests::ServerOptions {
        config: Some("[local]\ngpus = \"a100-80g:1\"\nprice_per_hour = \"36.44 CNY\"\n".to_owned()),
        ..runwhere_tests::ServerOptions::default()
    });
    let api = server.api();
    let first = Project::new("holds-the-gpu", STEADY_PROGRAM);
    let first_id = api.submit(&synced(&api, &first));
    first.control().wait_started();
    let second = Project::new("waits", STEADY_PROGRAM);
    let second_id = api.submit(&synced(&api, &second));
    assert_eq!(api.job(&second_id)["status"], "pending");
    api.send("POST", &format!("/api/v1/jobs/{second_id}/stop"), &[], None).expect(200);
    let end = api.wait_status(&second_id, "stopped");
    assert_eq!((&end["billed_seconds"], &end["node_id"]), (&json!(0), &Value::Null), "{end}");
    api.wait_released(&second_id);
    assert_eq!(meters(server.data_dir()).len(), 1);
    assert_eq!(api.job(&first_id)["status"], "running");
    first.control().go(0);
    api.wait_released(&first_id);
    nothing_left(&server);
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start();
    let data_dir = server.data_dir().to_string_lossy().into_owned();
    let second = server.beside(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &data_dir]);
    assert_ne!(second.code, Some(0), "{second}");
    assert!(second.stderr.contains(&server.pid().to_string()), "{second}");
    server.api().get("/api/v1/auth/me").expect(200);
}
