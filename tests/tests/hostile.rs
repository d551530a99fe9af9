//! Bad input loses nothing and leaks nothing.

use flate2::Compression;
use flate2::write::GzEncoder;
use runwhere_tests::{
    Api, Project, PublishedClient, Server, ServerOptions, eventually, eventually_within,
};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

const FILE: &[u8] = b"print('hello')\n";
/// The hash of [`FILE`].
const HASH: &str = "sha256:03e693d9f2f687e0f40e36a8df7fcb4d1c22974012b7c2a55c000eb30f305824";

fn yaml(name: &str) -> String {
    // As JSON, which YAML includes: every character of the name arrives.
    let name = json!(name);
    format!(
        "kind: Training\njob: {{name: {name}}}\nenvironment: {{command: [\"true\"]}}\nresources: {{gpuType: a100-80g}}\n"
    )
}

fn refused(reply: &runwhere_tests::Reply, what: &str) {
    assert!((400..500).contains(&reply.status), "{what}: {} {}", reply.status, reply.body);
    assert!(reply.body["code"].is_i64(), "{what}: {}", reply.body);
    let message = reply.message();
    assert!(!message.is_empty(), "{what}: {}", reply.body);
    // The published client reads brackets as markup, and prints what it gets on a terminal.
    assert!(!message.contains(['[', ']', '\u{1b}']), "{what}: {message:?}");
}

#[test]
fn names_that_are_no_names() {
    let server = Server::start();
    let api = server.api();
    let offer = api.offer();
    let long = "n".repeat(64);
    let names = [
        "../x",
        "a b",
        " ",
        "",
        "a#b",
        "a?b",
        "a/b",
        "a%2fb",
        &long,
        "\u{1b}[31mred",
        "x[/x]",
        "[bold]",
        "-dash",
        ".dot",
        "_low",
        "任务",
        "a\nb",
        "a\u{0}b",
        "job-0123abcd",
        "submit",
        "a;b",
        "$(id)",
        "é",
    ];
    for name in names {
        let body = json!({"yaml_content": yaml(name), "offer_key": offer});
        refused(&api.post("/api/v1/jobs/submit", &body), &format!("name {name:?}"));
        let diff = json!({"job_name": name, "files": [], "yaml_content": yaml("fine")});
        refused(&api.post("/api/v1/sync/diff", &diff), &format!("sync name {name:?}"));
    }
    // Not `%2e%2e`: that is resolved before it is sent.
    for path in
        ["..%2fx", "%2e%2e%2fx", "a%20b", "a%00b", "%1b%5b31m", &long, "%5b%2fx%5d", "job-%30"]
    {
        for rest in ["", "/logs"] {
            let reply = api.get(&format!("/api/v1/jobs/{path}{rest}"));
            assert_eq!(
                (reply.status, reply.message()),
                (404, "任务不存在或无权访问"),
                "{path}{rest}"
            );
        }
    }
    // The longest and the strangest name that is one.
    for name in ["A", &"n".repeat(63), "0.a_b-C"] {
        api.try_submit(&yaml(name), &[]).expect(200);
    }
}

#[test]
fn task_files_that_are_none() {
    let server = Server::start();
    let api = server.api();
    let offer = api.offer();
    let deep = "[".repeat(100_000);
    let aliases = format!("a: &a [x,x,x,x,x,x,x,x,x]\n{}", (0..9).fold(String::new(), |text, level| {
        let (name, from) = (char::from(b'b' + level), char::from(b'a' + level));
        text + &format!("{name}: &{name} [*{from},*{from},*{from},*{from},*{from},*{from},*{from},*{from},*{from}]\n")
    }));
    let good = yaml("fine");
    let cases = [
        "",
        "null",
        "- a list",
        "just text",
        "\u{0}",
        "{",
        &deep,
        &aliases,
        "%YAML 9.9\n---\na: b",
        &good.replace("gpuType", "gpuTyp"),
        &format!("{good}extra: 1\n"),
        &format!("{good}kind: Training\n"),
        &good.replace("a100-80g", "[a100-80g]"),
        &good.replace("job: {name: \"fine\"}", "job: {name: yes}"),
        &good.replace("job: {name: \"fine\"}", "job: {name: fine, maxDuration: true}"),
        &good.replace("{gpuType: a100-80g}", "{gpuType: a100-80g, gpuNum: 0}"),
        &good.replace("{gpuType: a100-80g}", "{}"),
        &good.replace("{command: [\"true\"]}", "{command: [\"true\"], env: {A: 1}}"),
        &good.replace("kind: Training", "kind: !!python/object:os.system Training"),
    ];
    for text in cases {
        let shown: String = text.chars().take(60).collect();
        let body = json!({"yaml_content": text, "offer_key": offer});
        refused(&api.post("/api/v1/jobs/submit", &body), &format!("YAML {shown:?}"));
    }
    let typo = json!({"yaml_content": good.replace("gpuType", "gpuTyp"), "offer_key": offer});
    let typo = api.post("/api/v1/jobs/submit", &typo);
    assert!(
        typo.message().contains("gpuTyp") && typo.message().contains("gpuType"),
        "{}",
        typo.body
    );

    for (method, path, body) in [
        ("POST", "/api/v1/jobs/submit", "not json"),
        ("POST", "/api/v1/jobs/submit", "[]"),
        ("POST", "/api/v1/jobs/submit", "{}"),
        ("POST", "/api/v1/sync/diff", "{\"files\": {}}"),
        ("POST", "/api/v1/comparison/quote", "{\"gpu_count\": -1}"),
        ("PUT", "/api/v1/jobs/submit", "{}"),
    ] {
        let reply = api.send(
            method,
            path,
            &[("Content-Type", "application/json")],
            Some(body.as_bytes().to_vec()),
        );
        refused(&reply, &format!("{method} {path} {body}"));
    }
    for path in [
        "/api/v1/nothing",
        "/",
        "/api/v1/jobs?status=%ff",
        "/api/v1/usage?from_date=yesterday",
        "/api/v1/offers?limit=-1",
    ] {
        let reply = api.get(path);
        assert!(reply.status < 500, "{path}: {} {}", reply.status, reply.body);
    }
    api.with_token("wrong").get("/api/v1/jobs").expect(401);
    api.with_token("").get("/api/v1/jobs").expect(401);
    assert_eq!(api.get("/api/v1/jobs").expect(200)["data"], json!([]));
}

#[test]
fn manifests_that_reach_outside() {
    let server = Server::start();
    let api = server.api();
    let entry = |path: &str| json!({"path": path, "hash": HASH, "size": FILE.len()});
    let long = format!("{}/f", "d".repeat(5000));
    let bad_paths = [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "",
        ".",
        "..",
        "a//b",
        "a/./b",
        "a/",
        "./a",
        "a\\b",
        "C:\\x",
        "a\0b",
        "a\nb",
        &long,
    ];
    for path in bad_paths {
        let diff = json!({"job_name": "manifests", "files": [entry(path)], "yaml_content": yaml("manifests")});
        refused(&api.post("/api/v1/sync/diff", &diff), &format!("path {path:?}"));
        let complete = json!({"job_name": "manifests", "files": [entry(path)], "files_count": 1, "bytes_total": 0});
        refused(
            &api.post("/api/v1/sync/complete", &complete),
            &format!("complete of path {path:?}"),
        );
    }
    for pair in
        [["a.txt", "a.txt"], ["a.txt", "A.TXT"], ["a", "a/b"], ["a/b", "A/c"], ["é", "e\u{301}"]]
    {
        let files: Vec<Value> = pair.iter().map(|path| entry(path)).collect();
        let diff =
            json!({"job_name": "manifests", "files": files, "yaml_content": yaml("manifests")});
        refused(&api.post("/api/v1/sync/diff", &diff), &format!("paths {pair:?}"));
    }
    for (hash, size) in [
        ("sha256:12", json!(1)),
        ("md5:00", json!(1)),
        ("", json!(1)),
        (HASH, json!(-1)),
        (HASH, json!(1.5)),
        (HASH, json!("1")),
    ] {
        let files = [json!({"path": "a", "hash": hash, "size": size})];
        let diff =
            json!({"job_name": "manifests", "files": files, "yaml_content": yaml("manifests")});
        refused(&api.post("/api/v1/sync/diff", &diff), &format!("{hash} {size}"));
    }
    // A listed file that was never sent.
    let complete = json!({"job_name": "manifests", "files": [entry("never-sent.txt")], "files_count": 1, "bytes_total": 0});
    let reply = api.post("/api/v1/sync/complete", &complete);
    assert_eq!(reply.status, 409, "{}", reply.body);
    assert!(reply.body.to_string().contains("never-sent.txt"), "{}", reply.body);
}

/// Asks for the upload address of one file of `content`, as the manifest states it.
fn upload_address(api: &Api, path: &str, hash: &str, size: usize) -> String {
    let files = [json!({"path": path, "hash": hash, "size": size})];
    let diff = json!({"job_name": "uploads", "files": files, "yaml_content": yaml("uploads")});
    let diff = api.post("/api/v1/sync/diff", &diff).expect(200);
    diff["files_to_upload"][0]["presigned_url"]
        .as_str()
        .unwrap_or_else(|| panic!("no address in {diff}"))
        .to_owned()
}

fn put(api: &Api, url: &str, body: Vec<u8>, gzip: bool) -> u16 {
    let plain = [("Content-Type", "application/octet-stream")];
    let encoded = [("Content-Type", "application/octet-stream"), ("Content-Encoding", "gzip")];
    let headers: &[_] = if gzip { &encoded } else { &plain };
    api.send("PUT", url, headers, Some(body)).status
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("into memory");
    encoder.finish().expect("into memory")
}

fn hash_of(content: &[u8]) -> String {
    use sha2::Digest;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(content)))
}

#[test]
fn uploads_are_what_the_manifest_says() {
    let server = Server::start();
    let api = server.api();
    let (hash, size) = (hash_of(FILE), FILE.len());
    let url = upload_address(&api, "a.py", &hash, size);

    assert!(
        put(&api, &url, b"print('other')\n".to_vec(), false) >= 400,
        "another content of the same size"
    );
    assert!(put(&api, &url, FILE[..size - 1].to_vec(), false) >= 400, "too short");
    assert!(put(&api, &url, [FILE, b"x"].concat(), false) >= 400, "too long");
    assert!(put(&api, &url, FILE.to_vec(), true) >= 400, "no gzip");
    let mut cut = gzipped(FILE);
    cut.truncate(cut.len() - 9);
    assert!(put(&api, &url, cut, true) >= 400, "gzip cut short");

    // A bomb: 2 GB of zeros in 2 MB. It ends at the stated size, and the server stays small.
    let zeros = gzipped(&vec![0; 64 << 20]);
    let bomb: Vec<u8> = std::iter::repeat_n(zeros, 32).flatten().collect();
    assert!(put(&api, &url, bomb, true) >= 400, "a bomb");
    assert!(
        peak_memory(server.pid()) < 400 << 20,
        "the server grew to {} bytes",
        peak_memory(server.pid())
    );

    // Tampered addresses: each character of the last part, which is the signed permission; cut and extended ones.
    let (path, ticket) = url.rsplit_once('/').unwrap_or_else(|| panic!("no ticket in {url}"));
    assert!(ticket.len() > 64, "too short to be signed: {url}");
    for (index, known) in ticket.char_indices() {
        for other in ['A', 'z'].into_iter().filter(|other| *other != known) {
            let mut changed = ticket.to_owned();
            changed.replace_range(index..=index, &other.to_string());
            let status = put(&api, &format!("{path}/{changed}"), FILE.to_vec(), false);
            assert!(matches!(status, 400..500), "{changed}: {status}");
        }
    }
    for changed in
        ["", &ticket[1..], &ticket[..ticket.len() - 1], &format!("{ticket}A"), &ticket.repeat(2)]
    {
        assert!(put(&api, &format!("{path}/{changed}"), FILE.to_vec(), false) >= 400, "{changed}");
    }
    // What is signed for one content takes no other.
    assert!(put(&api, &url, b"print('OTHER')\n".to_vec(), false) >= 400, "another content");

    // After all that the honest upload works, in both encodings, eight times at once.
    std::thread::scope(|scope| {
        for index in 0..8 {
            let (api, url) = (&api, &url);
            scope.spawn(move || {
                let (body, gzip) =
                    if index % 2 == 0 { (FILE.to_vec(), false) } else { (gzipped(FILE), true) };
                assert_eq!(put(api, url, body, gzip), 200);
            });
        }
    });
    let complete = json!({"job_name": "uploads", "files": [{"path": "a.py", "hash": hash, "size": size}], "files_count": 1, "bytes_total": size});
    api.post("/api/v1/sync/complete", &complete).expect(200);
}

/// The most memory that a process ever used.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}

/// Runs a program to its end and gives the job's id.
fn ran(server: &Server, project: &Project, program: &str) -> String {
    let api = server.api();
    let yaml = project.yaml();
    api.sync(
        project.name(),
        &yaml,
        &[("train.sh", program.as_bytes()), ("train.yaml", yaml.as_bytes())],
    );
    let id = api.submit(&yaml);
    api.wait_end(&id);
    id
}

#[test]
fn a_line_of_fifty_megabytes() {
    let server = Server::start();
    let api = server.api();
    let program = "echo before; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo after";
    let project = Project::new("long-line", program);
    let id = ran(&server, &project, program);
    let lines = eventually("the line after is stored", || {
        let body = api.get(&format!("/api/v1/jobs/{id}/logs?tail=1")).expect(200);
        (body["lines"] == json!(["after"])).then_some(body)
    });
    assert_eq!(lines["lines"].as_array().map(Vec::len), Some(1));
    // The published client takes at most 1 MiB in one frame and reconnects for ever after a larger one.
    let client = PublishedClient::logged_in(project.folder(), &server);
    let follow = client.ok(&["logs", "long-line", "-f"]);
    let length = follow.stdout.matches('x').count();
    assert!(length == 50_000_000, "{length} characters of the long line were shown");
    assert!(
        follow.stdout.ends_with("\nafter\n") && follow.stderr.ends_with("任务完成\n"),
        "{}",
        follow.stderr
    );
    assert!(
        peak_memory(server.pid()) < 600 << 20,
        "the server grew to {} bytes",
        peak_memory(server.pid())
    );
}

#[test]
fn bytes_that_are_no_text() {
    let server = Server::start();
    let api = server.api();
    let program = r"printf 'one \377\376 two\n'; printf '\033[31mred\033[0m [/x] [bold]\n'; printf 'a\0b\n'; printf '\r\n'; printf 'no end'";
    let project = Project::new("not-text", program);
    let id = ran(&server, &project, program);
    let lines = eventually("all lines are stored", || {
        let lines = api.program_lines(&id);
        (lines.len() >= 5).then_some(lines)
    });
    assert_eq!(lines[0], "one \u{fffd}\u{fffd} two");
    assert!(lines[1].contains("red") && lines[1].contains("[/x] [bold]"), "{lines:?}");
    assert_eq!(lines.last().map(String::as_str), Some("no end"));
    let client = PublishedClient::logged_in(project.folder(), &server);
    let follow = client.ok(&["logs", "not-text", "-f"]);
    assert!(
        follow.stdout.contains("[/x] [bold]") && follow.stdout.ends_with("no end\n"),
        "{follow}"
    );
}

/// 10 million lines of 100 bytes each.
#[test]
fn a_gigabyte_of_log() {
    let server = Server::start();
    let api = server.api();
    let filler = "0123456789".repeat(8) + "012345";
    let program = format!("seq -f '%012.0f {filler}' 10000000");
    let project = Project::new("talkative", &program);
    let yaml = project.yaml();
    let files = [("train.sh", program.as_bytes()), ("train.yaml", yaml.as_bytes())];
    api.sync(project.name(), &yaml, &files);
    let since = std::time::Instant::now();
    let id = api.submit(&yaml);
    let end = eventually_within(Duration::from_secs(400), "a gigabyte is stored", || {
        std::thread::sleep(Duration::from_millis(50));
        let job = api.job(&id);
        (job["status"] != "pending" && job["status"] != "running").then_some(job)
    });
    assert_eq!(end["status"], "succeeded", "{end}");
    eprintln!("1 GB of log in {:.1} s", since.elapsed().as_secs_f32());
    // The very last lines, all of them whole.
    let lines = api.program_lines(&id);
    assert!(lines.len() > 4000, "{}", lines.len());
    for (line, number) in lines.iter().rev().zip((1..=10_000_000).rev()) {
        assert_eq!(*line, format!("{number:012} {filler}"));
    }
    let bytes = stored_bytes(&server);
    assert_eq!(bytes, Some(1_000_000_000), "bytes of output in the sealed log");
    assert!(
        peak_memory(server.pid()) < 300 << 20,
        "the server grew to {} bytes",
        peak_memory(server.pid())
    );
}

/// Bytes of output as the only job's log was sealed with them.
fn stored_bytes(server: &Server) -> Option<u64> {
    let database =
        rusqlite::Connection::open(server.data_dir().join("broker.db")).expect("is there");
    let doc: String =
        database.query_row("SELECT doc FROM trials", [], |row| row.get(0)).expect("one trial");
    let trial: Value = serde_json::from_str(&doc).expect("rows are JSON");
    trial["log"]["bytes"].as_u64()
}

#[test]
fn a_program_that_will_not_die() {
    let server = Server::start();
    let api = server.api();
    let program = r#"
trap '' TERM INT HUP
(trap '' TERM INT HUP; while :; do sleep 1; done) &
setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' &
nohup sleep 1000 >/dev/null 2>&1 &
: >"$CONTROL/started"
while :; do sleep 1; done
"#;
    let project = Project::new("stubborn", program);
    let yaml = project.yaml();
    api.sync(
        "stubborn",
        &yaml,
        &[("train.sh", program.as_bytes()), ("train.yaml", yaml.as_bytes())],
    );
    let id = api.submit(&yaml);
    project.control().wait_started();
    api.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None).expect(200);
    assert_eq!(api.wait_end(&id)["status"], "stopped");
    api.wait_released(&id);
    eventually("no process of the task is left", || server.leftovers().is_empty().then_some(()));
    let control = project.control().path();
    let left = runwhere_tests::Processes::of(control);
    assert!(left.is_empty(), "{:?}", left.describe());
}

#[test]
fn a_program_with_a_user_of_its_own_cannot_read_the_data_folder() {
    let server = Server::start_with(ServerOptions {
        config: Some("[local]\nrun_as_uids = [61000, 61010]\n".to_owned()),
        ..ServerOptions::default()
    });
    let program = format!(
        "id -u; cd {0}; for f in * blobs/* logs/* local/*; do cat \"$f\"; ls \"$f\"; done; \
         for f in first-token server.key broker.db broker.db-wal local/lock; do cat $f; done; \
         for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/environ; done; cat {0}/local/*/bootstrap.json {0}/local/*/session.key",
        server.data_dir().display()
    );
    let project = Project::new("curious", &program);
    let id = ran(&server, &project, &program);
    let api = server.api();
    api.wait_released(&id);
    let lines = api.program_lines(&id);
    let user = lines.iter().filter_map(|line| line.parse::<u32>().ok());
    assert!(user.into_iter().any(|user| (61_000..=61_010).contains(&user)), "{lines:?}");
    let (token, key) =
        (server.first_token(), std::fs::read_to_string(server.data_dir().join("server.key")));
    let key = key.expect("the server's key");
    for secret in [token.as_str(), key.as_str(), "lease_token"] {
        assert!(!lines.iter().any(|line| line.contains(secret)), "a program read a secret");
    }
    assert!(lines.iter().any(|line| line.contains("Permission denied")), "{lines:?}");
}

#[test]
fn tenants_never_see_each_other() {
    let server = Server::start_with(ServerOptions {
        config: Some("[projects.other]\nworkspace = \"other-company\"\n".to_owned()),
        ..ServerOptions::default()
    });
    let api = server.api();
    let data_dir = server.data_dir().to_string_lossy().into_owned();
    let created = server
        .beside(&["token", "create", "--project", "other", "--data-dir", &data_dir, "--json"])
        .expect_code(0);
    let token = created.json()["token"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
    let other = api.with_token(&token);
    let project = Project::new("mine", runwhere_tests::STEADY_PROGRAM);
    let yaml = project.yaml();
    let files: [(&str, &[u8]); 2] =
        [("train.sh", runwhere_tests::STEADY_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())];
    let sync = api.sync("mine", &yaml, &files);
    let id = api.submit(&yaml);
    project.control().wait_started();

    for job in ["mine", id.as_str()] {
        for reply in [
            other.get(&format!("/api/v1/jobs/{job}")),
            other.get(&format!("/api/v1/jobs/{job}/logs")),
            other.send("POST", &format!("/api/v1/jobs/{job}/stop"), &[], None),
            other.post(&format!("/api/v1/jobs/{job}/resume"), &json!({})),
            other.delete(&format!("/api/v1/jobs/{job}?force=true")),
        ] {
            assert_eq!((reply.status, reply.message()), (404, "任务不存在或无权访问"));
        }
    }
    other.get(&format!("/api/v1/sync/{sync}/status")).expect(404);
    assert_eq!(other.get("/api/v1/jobs").expect(200)["data"], json!([]));
    assert_eq!(other.get("/api/v1/billing/segments").expect(200)["data"], json!([]));
    // What one tenant has uploaded the other must upload too: whether a content is known is itself a secret.
    let manifest: Vec<Value> =
        files.iter().map(|(path, content)| json!({"path": path, "hash": hash_of(content), "size": content.len()})).collect();
    let diff = other
        .post(
            "/api/v1/sync/diff",
            &json!({"job_name": "mine", "files": manifest, "yaml_content": yaml}),
        )
        .expect(200);
    assert_eq!(diff["files_to_upload"].as_array().map(Vec::len), Some(2), "{diff}");
    // The same name is free for each.
    assert_eq!(api.job("mine")["status"], "running");
    project.control().go(0);
    api.wait_end(&id);
    other.sync("mine", &yaml, &files);
    let theirs = other.submit(&yaml);
    assert_ne!(theirs, id);
    assert_eq!(api.job("mine")["id"], id.as_str());
    assert_eq!(other.job("mine")["id"], theirs.as_str());
    other.wait_end(&theirs);

    // A revoked key is nobody.
    let listed =
        server.beside(&["token", "list", "--data-dir", &data_dir, "--json"]).expect_code(0);
    assert!(!listed.stdout.contains(&token), "a list shows no tokens: {listed}");
}
