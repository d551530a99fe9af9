//! Prices by whole programs: AWS as a source (EC2 by moto, price files from fixtures on loopback), and a program
//! without it; the published client's price commands; quotes that are answered again; ceilings that hold at the launch.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use runwhere_tests::{
    Project, PublishedClient, STEADY_PROGRAM, Server, ServerOptions, failpoint_bin, runwhere_bin,
    table_cells,
};
use serde_json::{Value, json};

/// Ends what was started here.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// EC2 by moto; `None` where the test command did not name one.
fn moto() -> Option<(Ended, String)> {
    let program = std::env::var_os("RUNWHERE_MOTO").or_else(|| {
        assert!(std::env::var_os("CI").is_none(), "RUNWHERE_MOTO is not set");
        eprintln!("skipped: RUNWHERE_MOTO names no moto_server");
        None
    })?;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new(program)
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let moto = Ended(child);
    let deadline = Instant::now() + Duration::from_secs(120);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "moto does not listen");
        thread::sleep(Duration::from_millis(100));
    }
    Some((moto, format!("http://127.0.0.1:{port}")))
}

/// A host of price files that has one for us-east-1.
fn files() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/aws/offers/us-east-1.csv");
    let body = std::fs::read(path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream, &body);
        }
    });
    base
}

fn answer(mut stream: TcpStream, body: &[u8]) {
    let (mut head, mut byte) = (Vec::new(), [0u8; 1]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let found = String::from_utf8_lossy(&head).contains("/us-east-1/");
    let (status, body) = if found { (200, body) } else { (404, &b""[..]) };
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let _ = stream.write_all(body);
}

fn settings(ec2: &str) -> String {
    format!(
        "[providers.aws]\nkind = \"aws\"\nregions = [\"us-east-1\"]\naccount = true\naccess_key_id = \"testing\"\n\
         secret_access_key = \"hush-hush-testing\"\nendpoint = \"{ec2}\"\nprice_endpoint = \"{}\"\n",
        files()
    )
}

struct Machine {
    home: tempfile::TempDir,
    program: PathBuf,
}

impl Machine {
    fn new(program: PathBuf) -> Self {
        Self { home: tempfile::tempdir().unwrap(), program }
    }

    fn config(&self, text: &str) -> String {
        let path = self.home.path().join("settings.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("RUNWHERE_HOME", self.home.path())
            .env("RUNWHERE_LANG", "en")
            .stdin(Stdio::null());
        command
    }

    /// Exit code, output, errors.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (code, output, errors) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {errors}");
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    }
}

/// The offers that the fixture and moto give together.
fn has_offers(items: &Value) {
    let items = items.as_array().unwrap();
    let find = |key: &str| items.iter().find(|item| item["offer_key"] == key);
    let p5 = find("aws/us-east-1/-/on_demand/p5.48xlarge").expect("the list price");
    assert_eq!((&p5["price"], &p5["currency"]), (&"55.04".into(), &"USD".into()));
    assert_eq!(p5["gpu_type"], "h100-80g");
    assert!(items.iter().any(|item| item["billing_model"] == "spot"), "spot comes from EC2");
}

#[test]
fn prices_aws_is_refreshed_listed_and_served_without_a_server() {
    let Some((_moto, ec2)) = moto() else { return };
    let machine = Machine::new(failpoint_bin());
    let config = machine.config(&settings(&ec2));
    let answer = machine.json(&["price", "refresh", "aws", "--config", &config, "--json"]);
    assert_eq!(answer["items"][0]["outcome"]["code"], "taken", "{answer}");
    let sources = answer["sources"].as_array().unwrap();
    let aws = sources.iter().find(|source| source["provider"] == "aws").unwrap();
    assert_eq!(aws["status"], "ok", "{aws}");
    assert!(aws["rows"].as_u64() > Some(60), "{aws}");
    assert!(!answer.to_string().contains("hush-hush"));

    let list = machine.json(&["price", "list", "--provider", "aws", "--all", "--json"]);
    has_offers(&list["items"]);

    let mut serving = machine.command(&[
        "price",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--config",
        &config,
        "--json",
    ]);
    let mut child = serving.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _child = Ended(child);
    let serving: Value = serde_json::from_str(&line).unwrap();
    let address = serving["endpoint"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let page = fetch(&address, "/metrics");
    let rows =
        page.lines().find_map(|line| line.strip_prefix("runwhere_price_rows{provider=\"aws\"} "));
    assert!(rows.and_then(|rows| rows.parse().ok()) > Some(60), "{page}");
    assert!(page.contains("runwhere_price_source_ok{provider=\"aws\"} 1"), "{page}");
}

fn fetch(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn prices_aws_is_a_source_of_the_server() {
    let Some((_moto, ec2)) = moto() else { return };
    let options = ServerOptions {
        config: Some(settings(&ec2)),
        program: Some(failpoint_bin()),
        ..ServerOptions::default()
    };
    let server = Server::start_with(options);
    let api = server.api();
    let deadline = Instant::now() + Duration::from_secs(120);
    let aws = loop {
        let sources = api.get("/api/v1/prices/sources").expect(200);
        let items = sources["items"].as_array().unwrap().clone();
        let aws = items.into_iter().find(|source| source["provider"] == "aws").unwrap();
        if aws["observed_at"].is_string() {
            break aws;
        }
        assert!(Instant::now() < deadline, "{aws}");
        thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(aws["status"], "ok", "{aws}");
    let offers = "/api/v1/offers?provider=aws&gpu_model=h100-80g&limit=500";
    has_offers(&api.get(offers).expect(200)["items"]);
}

/// Whoever has a program without AWS and settings with it learns what is missing, not that there are no
/// prices.
#[test]
fn prices_aws_is_named_by_a_program_that_was_built_without_it() {
    let machine = Machine::new(runwhere_bin());
    let config = machine.config(&settings("http://127.0.0.1:1"));
    let (code, output, errors) = machine.run(&["price", "refresh", "--config", &config]);
    assert_eq!((code, output.as_str()), (2, ""), "{errors}");
    for word in ["providers.aws.kind", "built without AWS", "feature aws", "settings.toml"] {
        assert!(errors.contains(word), "{word}: {errors}");
    }
    let data = machine.home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::copy(&config, data.join("config.toml")).unwrap();
    let (data, listen) = (data.display().to_string(), "127.0.0.1:0");
    let (code, _, errors) = machine.run(&["serve", "--data-dir", &data, "--listen", listen]);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("built without AWS"), "{errors}");
    assert!(!errors.contains("hush-hush"), "{errors}");
}

/// The body of an answer, byte for byte.
fn body(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}\n{body}");
    body.to_owned()
}

fn address(server: &Server) -> String {
    server.url().trim_start_matches("http://").to_owned()
}

#[test]
fn prices_quotes_replay_after_a_restart_and_on_another_replica() {
    let mut server = Server::start();
    let asked = r#"{"gpu_model":"a100-80g","gpu_count":1,"top_n":5,"max_hourly_price":"36.44"}"#;
    let post = format!(
        "POST /api/v1/comparison/quote HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{asked}",
        asked.len()
    );
    let first = body(&address(&server), &post);
    let quote: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(quote["recommendations"].as_array().map(Vec::len), Some(5), "{quote}");
    let id = quote["quote_id"].as_str().unwrap();
    let again = format!(
        "GET /api/v1/prices/quotes/{id} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(body(&address(&server), &again), first);

    // Killed, not ended: what a quote rests on was on the disk before it was given.
    server.restart();
    assert_eq!(body(&address(&server), &again), first);
    let state = &id[..32];
    let now = server.api().get("/api/v1/prices/sources").expect(200);
    assert_ne!(now["state_id"], state, "the machine was read again since");

    // Another replica has the folder of prices, and prices of its own.
    let other = tempfile::tempdir().unwrap();
    let data = other.path().join("data");
    copy(&server.data_dir().join("prices"), &data.join("prices"));
    let replica = Server::start_with(ServerOptions {
        data_dir: Some(data),
        config: Some("[local]\ngpus = \"t4:2\"\nprice_per_hour = \"1 CNY\"\n".to_owned()),
        ..ServerOptions::default()
    });
    assert_eq!(body(&address(&replica), &again), first);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn prices_a_ceiling_is_held_against_the_present_price_after_queueing() {
    // What is given at the submit is the ceiling; without it, what was seen.
    let config =
        |price: &str| format!("[local]\ngpus = \"a100-80g:1\"\nprice_per_hour = \"{price} CNY\"\n");
    let mut server = Server::start_with(ServerOptions {
        config: Some(config("36.44")),
        ..ServerOptions::default()
    });
    let api = server.api();
    let submit = |project: &Project, most: Option<&str>| {
        let yaml = project.yaml();
        let files = [("train.sh", STEADY_PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())];
        api.sync(project.name(), &yaml, &files);
        let body = json!({"yaml_content": yaml, "offer_key": "local/-/-/on_demand/a100-80g.x1",
                          "max_price_per_hour": most});
        api.post("/api/v1/jobs/submit", &body)
    };
    let [running, exact, below, seen, room] =
        ["holds-it", "to-the-digit", "below", "as-seen", "with-room"]
            .map(|name| Project::new(name, STEADY_PROGRAM));
    let id =
        |reply: runwhere_tests::Reply| reply.expect(200)["job_id"].as_str().unwrap().to_owned();
    // The least bit below is refused at once; equal fits.
    assert_eq!(submit(&below, Some("36.439999999999 CNY")).status, 422);
    let first = id(submit(&running, Some("36.44 CNY")));
    running.control().wait_started();
    let exact_id = id(submit(&exact, Some("36.44 CNY")));
    let seen_id = id(submit(&seen, None));
    let room_id = id(submit(&room, Some("36.440000000001 CNY")));
    assert_eq!(api.job(&exact_id)["status"], "pending", "one has the only GPU");
    // The price rises by the least bit while it waits.
    std::fs::write(server.data_dir().join("config.toml"), config("36.440000000001")).unwrap();
    server.restart();
    running.control().go(0);
    assert_eq!(api.wait_end(&first)["status"], "succeeded");
    for (refused, project) in [(&exact_id, &exact), (&seen_id, &seen)] {
        let refused = api.wait_end(refused);
        assert_eq!(
            (&refused["status"], &refused["end_reason"]),
            (&json!("failed"), &json!("price_changed"))
        );
        assert_eq!(project.control().read("starts"), None, "nothing ran");
    }
    // The limit leaves room for the present price, so it is launched, and billed at that.
    room.control().wait_started();
    room.control().go(0);
    let launched = api.wait_end(&room_id);
    assert_eq!(launched["status"], "succeeded", "{launched}");
    assert_eq!(launched["price"], "36.440000000001", "{launched}");
}

#[test]
fn the_published_clients_price_commands_need_no_token() {
    let server = Server::start();
    let project = Project::new("prices", STEADY_PROGRAM);
    let client = PublishedClient::logged_in(project.folder(), &server);

    let summary = table_cells(&client.ok(&["price", "summary"]).stdout);
    assert_eq!(summary[0], ["GPU 型号", "显存", "最低价", "最高价", "厂商", "SKU", "竞价"]);
    let a100 = summary
        .iter()
        .find(|row| row[0] == "NVIDIA A100-80GB")
        .unwrap_or_else(|| panic!("{summary:?}"));
    assert_eq!(a100[1], "80 GB");
    for price in &a100[2..4] {
        let amount = price.strip_prefix('¥').unwrap_or_else(|| panic!("{price}"));
        assert!(
            amount.parse::<rust_decimal::Decimal>().is_ok_and(|amount| amount >= 0.into()),
            "{price}"
        );
    }
    let json = client.ok(&["--json", "price", "summary"]).json();
    assert!(json["staleness_seconds"].is_number(), "{json}");

    let list = table_cells(&client.ok(&["price", "list", "--gpu-type", "a100-80g"]).stdout);
    assert_eq!(list[0], ["SKU 编码", "SKU Key", "厂商", "区域", "价格/h", "计费"]);
    for row in &list[1..] {
        let code = &row[0];
        assert!(code.len() == 8 && code.bytes().all(|byte| byte.is_ascii_uppercase()), "{row:?}");
    }
    let filtered = [
        "--json",
        "price",
        "list",
        "--gpu-type",
        "a100-80g",
        "--provider",
        "local",
        "--billing-model",
        "on_demand",
    ];
    let filtered = client.ok(&filtered).json();
    let rows = filtered["data"].as_array().expect("rows");
    assert!(
        !rows.is_empty()
            && rows
                .iter()
                .all(|row| row["provider"] == "local" && row["billing_model"] == "on_demand"),
        "{filtered}"
    );

    let recommended = client.ok(&["price", "recommend", "-f", "train.yaml", "--top", "3"]);
    assert!(recommended.stderr.starts_with("✓ 推荐 #1 "), "{recommended}");
    let best =
        client.ok(&["--json", "price", "recommend", "-f", "train.yaml", "--top", "3"]).json();
    let best = best["recommendations"].as_array().expect("a list").clone();
    assert!((1..=3).contains(&best.len()), "{best:?}");
    // What can be launched comes first, whatever the bundled prices of clouds without an account say.
    assert_eq!(best[0]["provider"], "local", "{best:?}");
    client.ok(&["price", "recommend", "-f", "train.yaml", "--no-spot", "--max-price", "50"]);

    // Without any login the same calls work.
    let stranger = PublishedClient::new(project.folder());
    let mut runner = stranger.runner().clone();
    runner.set("RUNW_ENDPOINT", server.url());
    assert_eq!(table_cells(&runner.run(&["price", "summary"]).expect_code(0).stdout), summary);
}
