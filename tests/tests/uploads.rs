//! Uploads that come late, and files that change while they are synced.

use runwhere_tests::{
    Finished, OurClient, Project, Server, ServerOptions, eventually, eventually_within,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn hex_hash(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

#[test]
fn uploads_with_an_expired_address() {
    let options = ServerOptions {
        config: Some("[uploads]\nvalid_seconds = 1\n".to_owned()),
        ..ServerOptions::default()
    };
    let server = Server::start_with(options);
    let api = server.api();
    let project = Project::new("late", "cat data.txt");
    let yaml = project.yaml();
    let content = b"what is sent too late\n";
    let hash = format!("sha256:{}", hex_hash(content));
    let files = json!([{"path": "data.txt", "hash": hash, "size": content.len()}]);
    let address = || {
        let diff = json!({"job_name": "late", "files": files, "yaml_content": yaml});
        let diff = api.post("/api/v1/sync/diff", &diff).expect(200);
        diff["files_to_upload"][0]["presigned_url"].as_str().map(str::to_owned)
    };
    let kind = [("Content-Type", "application/octet-stream")];
    let put = |url: &str, body: &[u8]| api.send("PUT", url, &kind, Some(body.to_vec()));
    let complete = || {
        let complete = json!({"job_name": "late", "files": files, "files_count": 1});
        api.post("/api/v1/sync/complete", &complete)
    };

    let url = address().expect("the file is wanted");
    // Until it expires, other content is refused for being other content.
    let refused = eventually("the address expires", || {
        let reply = put(&url, b"other content, as long");
        assert!((400..500).contains(&reply.status), "{}", reply.body);
        (reply.status == 403).then_some(reply)
    });
    assert!(refused.message().contains("上传地址已过期"), "{}", refused.body);
    assert!(refused.body.to_string().contains("runwhere sync"), "{}", refused.body);
    let refused = put(&url, content);
    assert_eq!(refused.status, 403, "the right content comes too late as well: {}", refused.body);
    assert_eq!(complete().status, 409, "nothing was stored");
    // A longer life cannot be written into it: it is signed as a whole.
    let (path, ticket) = url.rsplit_once('/').expect("a path");
    for index in 0..12 {
        let mut changed = ticket.to_owned();
        let other = if changed.as_bytes()[index] == b'B' { "C" } else { "B" };
        changed.replace_range(index..=index, other);
        let reply = put(&format!("{path}/{changed}"), content);
        assert!((400..500).contains(&reply.status), "{index}: {}", reply.body);
    }
    assert_eq!(complete().status, 409, "nothing was stored");

    // Another comparison, another address.
    let stored = eventually("an upload in time", || {
        let reply = put(&address()?, content);
        (reply.status != 403).then_some(reply)
    });
    assert_eq!(stored.status, 200, "{}", stored.body);
    complete().expect(200);
}

/// Fills a file again and again, each time with another letter: whoever reads meanwhile sees two letters, or a part.
fn rewrite(path: &Path, size: usize, stop: &AtomicBool) {
    for letter in (b'a'..=b'z').cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut file = fs::File::create(path).expect("a file");
        let piece = vec![letter; size / 16];
        for _ in 0..16 {
            file.write_all(&piece).expect("a piece");
        }
        drop(file);
        // At times it stands still for as long as a sync takes.
        if letter % 5 == 0 {
            std::thread::sleep(Duration::from_millis(150));
        }
    }
}

/// Path and hash of each file of the newest sync.
fn newest_manifest(server: &Server) -> BTreeMap<String, String> {
    let database = Connection::open(server.data_dir().join("broker.db")).expect("it is there");
    let newest = "SELECT doc FROM syncs ORDER BY rowid DESC LIMIT 1";
    let doc: String = database.query_row(newest, [], |row| row.get(0)).expect("a sync");
    let sync: Value = serde_json::from_str(&doc).expect("rows are JSON");
    let text = |file: &Value, key: &str| file[key].as_str().expect("a text").to_owned();
    let files = sync["files"].as_array().expect("files").iter();
    files.map(|file| (text(file, "path"), text(file, "sha256"))).collect()
}

/// Every stored content is what its name says; how many there are.
fn check_blobs(server: &Server) -> usize {
    let mut checked = 0;
    let mut folders = vec![server.data_dir().join("blobs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if folder.ends_with("unfinished") {
                continue;
            }
            assert_eq!(hex_hash(&fs::read(entry.path()).expect("a blob")), name);
            checked += 1;
        }
    }
    checked
}

#[test]
fn uploads_of_files_that_change_meanwhile() {
    let server = Server::start();
    // Read whole and in pieces: what is above 8 MiB is sent as it is read.
    let program = "sha256sum small.bin large.bin";
    let project = Project::new("changing", program);
    let client = OurClient::logged_in(project.folder(), &server);
    let stop = AtomicBool::new(false);
    let (small, large) = (project.folder().join("small.bin"), project.folder().join("large.bin"));
    let results: Vec<Finished> = std::thread::scope(|scope| {
        scope.spawn(|| rewrite(&small, 64 << 10, &stop));
        scope.spawn(|| rewrite(&large, 12 << 20, &stop));
        let results = (0..12).map(|_| client.run(&["sync", "-f", "train.yaml"])).collect();
        stop.store(true, Ordering::Relaxed);
        results
    });
    for result in &results {
        let refused = result.code == Some(1) && result.stderr.contains(".bin");
        assert!(result.code == Some(0) || refused, "neither done nor refused by name: {result}");
    }
    let refused = results.iter().filter(|result| result.code != Some(0)).count();
    eprintln!("{refused} of {} syncs were refused; {} blobs", results.len(), check_blobs(&server));

    // Whatever it is that was accepted last is what a job gets.
    client.ok(&["sync", "-f", "train.yaml"]);
    check_blobs(&server);
    let api = server.api();
    let id = api.submit(&project.yaml());
    assert_eq!(api.wait_end(&id)["status"], "succeeded");
    let lines = eventually_within(Duration::from_secs(30), "both lines are stored", || {
        Some(api.program_lines(&id)).filter(|lines| lines.len() == 2)
    });
    let manifest = newest_manifest(&server);
    for (line, name) in lines.iter().zip(["small.bin", "large.bin"]) {
        assert_eq!(*line, format!("{}  {name}", manifest[name]));
        let own = fs::read(project.folder().join(name)).expect("the file");
        assert_eq!(manifest[name], hex_hash(&own), "{name} at rest");
    }
}
