//! Jobs of published runners: submits, status requests, artifacts.

use crate::figure::{Report, Row, Sample, Target};
use crate::machine::process_cpu;
use crate::shared::{folder, fresh_folder, plain, runs, timed};
use runwhere_tests::{Api, Server, ServerOptions, eventually_within, gpu_driver};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Submits that are measured, of sixteen trials each.
const SUBMITS: usize = 100;
const TRIALS: usize = 16;
/// Status requests a second, and for how long.
const RATE: u64 = 10_000;
const SPAN: Duration = Duration::from_secs(10);
/// Connections at a time; each serves one request, as the SDK's do.
const WORKERS: u64 = 8;
/// Bytes of the artifact.
const ARTIFACT: u64 = 1 << 30;
const LONG: Duration = Duration::from_secs(120);

pub(crate) fn measure(report: &mut Report) {
    let folder = fresh_folder("runners-");
    let image = registry();
    let site = Site::start(folder.path(), &image);
    // Holds the only GPU, so that nothing but the submits is done meanwhile.
    let running = site.job(1, "echo up; sleep 1000");
    let api = site.api();
    eventually_within(LONG, "the first job runs", || {
        (api.get(&format!("/v1/job/{running}")).expect(200)["status"] == "running").then_some(())
    });
    let mut submit = Row::new("submit of 16 trials");
    for _ in 0..SUBMITS {
        let request = site.request(TRIALS, "true");
        let start = Instant::now();
        api.post("/v1/job", &request).expect(201);
        submit.add(start.elapsed());
    }
    submit.print();
    report.add(
        "submit of 16 trials, 95th percentile",
        submit.quantile(0.95),
        "ms",
        Target::AtMost(50.0),
    );
    site.rest();
    site.load(&running, report);
    drop(site);
    let site = Site::start(&folder.path().join("artifacts"), &image);
    artifact(&site, folder.path(), report);
}

struct Site {
    server: Server,
    key: String,
    runner: String,
    image: String,
}

impl Site {
    fn start(folder: &Path, image: &str) -> Self {
        fs::create_dir_all(folder).expect("a folder");
        let server = Server::start_with(ServerOptions {
            try_locally: false,
            data_dir: Some(folder.join("data")),
            config: Some("[local]\ngpus = \"h100:1\"\nprice_per_hour = \"10 CNY\"\n".to_owned()),
            env: gpu_driver(&folder.join("bin")),
            ..ServerOptions::default()
        });
        let data = server.data_dir().to_string_lossy().into_owned();
        let made = server.beside(&["token", "create", "--envloop", "--data-dir", &data]);
        let key = made.expect_code(0).stdout.trim().to_owned();
        let page = Api::new(&server.url(), &key).get("/v1/runners").expect(200);
        let runners = page["items"].as_array().expect("a page");
        let runner = runners.iter().find(|item| item["name"] == "envloop/bash").expect("it ships");
        let runner = format!("envloop/bash@{}", runner["revision"].as_str().expect("a commit"));
        Site { server, key, runner, image: image.to_owned() }
    }

    fn api(&self) -> Api {
        Api::new(&self.server.url(), &self.key)
    }

    fn request(&self, trials: usize, command: &str) -> Value {
        let spec = json!({
            "runner": self.runner, "image": self.image, "command": command,
            "resources": { "gpu_type": "H100", "gpus": 1 }, "timeout_seconds": 3600,
        });
        json!({ "type": "train", "trials": vec![json!({ "spec": spec }); trials] })
    }

    fn job(&self, trials: usize, command: &str) -> String {
        let made = self.api().post("/v1/job", &self.request(trials, command)).expect(201);
        made["job_id"].as_str().expect("an id").to_owned()
    }

    /// Returns once the trials that were submitted stand in line: until then the server has them to look at.
    fn rest(&self) {
        let spent = || process_cpu(self.server.pid()).expect("the server runs");
        eventually_within(LONG, "the trials stand in line", || {
            let before = spent();
            std::thread::sleep(Duration::from_secs(1));
            (spent() - before < Duration::from_millis(50)).then_some(())
        });
    }

    /// The SDK's status requests, byte for byte, at a rate; each over a connection of its own.
    fn load(&self, job: &str, report: &mut Report) {
        let address = self.server.url().trim_start_matches("http://").to_owned();
        let request = format!(
            "GET /v1/job/{job} HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: {address}\r\n\
             User-Agent: Python-urllib/3.11\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {}\r\nX-workspace-id: default\r\nX-project-id: default\r\n\
             Connection: close\r\n\r\n",
            self.key
        );
        let before = process_cpu(self.server.pid()).expect("the server runs");
        let (sent, failed, start) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (sent, failed, request, address) = (&sent, &failed, &request, &address);
                scope.spawn(move || {
                    let mut reply = Vec::new();
                    for number in (worker..).step_by(WORKERS as usize) {
                        let due = Duration::from_nanos(number * 1_000_000_000 / RATE);
                        if due >= SPAN || start.elapsed() >= SPAN {
                            return;
                        }
                        if let Some(early) = due.checked_sub(start.elapsed()) {
                            std::thread::sleep(early);
                        }
                        reply.clear();
                        let good = ask(address, request, &mut reply).is_ok()
                            && reply.starts_with(b"HTTP/1.1 200")
                            && reply.ends_with(b"}");
                        sent.fetch_add(1, Ordering::Relaxed);
                        failed.fetch_add(u64::from(!good), Ordering::Relaxed);
                    }
                });
            }
        });
        let wall = start.elapsed().as_secs_f64();
        let spent = process_cpu(self.server.pid()).expect("the server runs") - before;
        let (sent, failed) = (sent.into_inner() as f64, failed.into_inner() as f64);
        let rate = sent / wall;
        let wanted = RATE as f64 * 0.99;
        report.add("status requests answered", rate, "1/s", Target::AtLeast(wanted));
        report.add("status requests without an answer", failed, "", Target::AtMost(0.0));
        let cores = spent.as_secs_f64() / wall;
        report.add("status requests: the server's processors", cores, "", Target::AtMost(1.0));
        let each = spent.as_secs_f64() * 1e6 / sent;
        report.add("status request: the server's processor time", each, "us", Target::Recorded);
    }
}

fn ask(address: &str, request: &str, reply: &mut Vec<u8>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    stream.read_to_end(reply)?;
    Ok(())
}

/// An artifact from the end of its program to the end of its job, against a copy and its hash.
fn artifact(site: &Site, within: &Path, report: &mut Report) {
    let source = folder().join("artifact.bin");
    if fs::metadata(&source).is_ok_and(|data| data.len() == ARTIFACT) {
        println!("  the artifact of an earlier run");
    } else {
        write_noise(&source);
    }
    let (mut theirs, mut ours) =
        (Row::new("cp, openssl dgst -sha256"), Row::new("collect, upload, read back"));
    for _ in 0..runs(5) {
        let copy = within.join("copy.bin");
        let script = format!(
            "cp '{0}' '{1}' && sync '{1}' && openssl dgst -sha256 '{1}'",
            source.display(),
            copy.display()
        );
        timed(plain("sync", &[], Path::new("/")));
        theirs.add(timed(plain("sh", &["-c", &script], within)).0);
        fs::remove_file(&copy).expect("the copy");
        timed(plain("sync", &[], Path::new("/")));
        ours.add(collected(site, &source));
    }
    theirs.print();
    ours.print();
    let ratio = theirs.median() / ours.median();
    report.add("artifact: cp and openssl / ours", ratio, "x", Target::AtLeast(0.6));
}

fn collected(site: &Site, source: &Path) -> Sample {
    // Bytes of its own in front, or the server would have it already.
    let command = format!(
        "mkdir -p outputs && {{ date +%s%N; cat '{}'; }} >outputs/large.bin && sync outputs/large.bin",
        source.display()
    );
    let job = site.job(1, &command);
    let api = site.api();
    let ended = eventually_within(LONG, "the artifact is there", || {
        std::thread::sleep(Duration::from_millis(10));
        let found = api.get(&format!("/v1/job/{job}")).expect(200);
        matches!(found["status"].as_str(), Some("completed" | "failed" | "cancelled"))
            .then_some(found)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    let events = api.get(&format!("/v1/job/{job}/events")).expect(200);
    let at = |status: &str| {
        let events = events["items"].as_array().into_iter().flatten();
        let mut found =
            events.filter(|event| event["source"] == "trial" && event["status"] == status);
        let at = found.next().and_then(|event| event["at"].as_str()).expect("the event");
        at.parse::<jiff::Timestamp>().expect("a time")
    };
    let spent = at("succeeded").duration_since(at("collecting"));
    Sample::from(Duration::try_from(spent).expect("forward in time"))
}

fn write_noise(path: &Path) {
    let unfinished = path.with_extension("new");
    let mut file = fs::File::create(&unfinished).expect("a file");
    let (mut block, mut state) = (vec![0_u8; 1 << 20], 88_172_645_463_325_252_u64);
    for _ in 0..ARTIFACT >> 20 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&block).expect("the disk has room");
    }
    fs::rename(unfinished, path).expect("a file");
}

/// A registry with one image, on a thread that lives as long as the program; gives the image's name.
fn registry() -> String {
    let config = r#"{"os":"linux","architecture":"amd64"}"#.to_owned();
    let digest = |text: &str| format!("sha256:{}", hex::encode(Sha256::digest(text)));
    let manifest = format!(r#"{{"schemaVersion":2,"config":{{"digest":"{}"}}}}"#, digest(&config));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = vec![0; 8192];
            let Ok(length) = stream.read(&mut request) else { continue };
            let manifests = request[..length].windows(11).any(|part| part == b"/manifests/");
            let body = if manifests { &manifest } else { &config };
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    format!("{address}/bench/image:1")
}
