//! Quotes over HTTP against `/healthz` of the same server, by the same loader.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use runwhere_pricing::{Query, standalone};
use tower::ServiceExt as _;

use crate::figures::{Processor, quantile};
use crate::offers::refresher;
use crate::questions::{question, wide_question};

/// Connections, each with one request under way.
const CONNECTIONS: usize = 8;
const TURNS: usize = 7;
/// How long one of them takes.
const TURN: Duration = Duration::from_secs(2);
/// Questions to the routes without a network.
const ROUTED: usize = 150_000;

/// The server: `price serve` with these prices.
pub(crate) fn child(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let prices = refresher(&folder.join("prices"), Vec::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        axum::serve(listener, standalone(prices)).await.expect("served");
    });
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("serve-child")
            .arg(folder)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("an address");
        Self { child, address: line.trim().parse().expect("an address") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn measure(folder: &Path) {
    // Another server, such as a whole `runwhere serve`, can be measured too.
    let (server, address) = match std::env::var("RUNWHERE_BENCH_SERVER") {
        Ok(address) => (None, address.parse().expect("host:port")),
        Err(_) => {
            let server = Server::start(folder);
            let address = server.address;
            (Some(server), address)
        }
    };
    let health = Requests::new([b"GET /healthz HTTP/1.1\r\nhost: bench\r\n\r\n".to_vec()]);
    let few = Requests::new((0..64).map(|n| quote(&question(n))));
    let many = Requests::new((0..200_000).map(|n| quote(&question(n))));
    let wide = Requests::new((0..200_000).map(|n| quote(&wide_question(n))));
    let (turn, _) = load(address, &few, Duration::from_millis(500));
    println!("{} requests to warm up", turn.len());
    let mut rates = [const { Vec::new() }; 4];
    let mut ratios = [const { Vec::new() }; 4];
    let mut last = [Duration::ZERO; 4];
    let mut spent = [(Duration::ZERO, 0u32); 4];
    let mut bytes = [0; 4];
    let processes = server.iter().map(|server| server.child.id()).chain([std::process::id()]);
    let processes: Vec<u32> = processes.collect();
    let processor = || -> Duration { processes.iter().map(|id| processor_of(*id)).sum() };
    // What is asked about everything pushes out what is held for the others: it comes after them.
    let turns = (0..TURNS).flat_map(|_| [(0, &health), (1, &few), (2, &many)]);
    let turns: Vec<_> = turns.chain((0..TURNS).flat_map(|_| [(0, &health), (3, &wide)])).collect();
    let mut health = 0.0;
    for (at, requests) in turns {
        let before = processor();
        let (mut times, size) = load(address, requests, TURN);
        bytes[at] = size;
        spent[at].0 += processor().saturating_sub(before);
        spent[at].1 += u32::try_from(times.len()).unwrap_or(u32::MAX);
        last[at] = quantile(&mut times, 990);
        let rate = times.len() as f64 / TURN.as_secs_f64();
        // A machine that others use is faster at one time than at another: each turn has its own measure.
        health = if at == 0 { rate } else { health };
        rates[at].push(rate);
        ratios[at].push(rate / health);
    }
    let [health, few, many, wide] = rates.each_mut().map(|rates| middle(rates));
    let each = spent.map(|(spent, count)| spent / count.max(1));
    println!("/healthz: {health:.0}/s, p99 {:.2?}, {:.2?} of a processor each", last[0], each[0]);
    let kinds = [
        ("64 questions", few, 1),
        ("200,000 questions", many, 2),
        ("200,000 questions about everything", wide, 3),
    ];
    for (what, rate, at) in kinds {
        let ratio = middle(&mut ratios[at]);
        // Nobody asks about everything in turn: that one is written down.
        let target = match (at, ratio < 0.6) {
            (3, _) => "",
            (_, true) => " (at least 0.6)  MISSED",
            (_, false) => " (at least 0.6)",
        };
        println!(
            "quotes, {what}: {rate:.0}/s, {} bytes each, p99 {:.2?}: {ratio:.2} of /healthz{target}",
            bytes[at], last[at]
        );
        // Where other programs take their share, this says more than the rates.
        let by_work = each[0].as_secs_f64() / each[at].as_secs_f64().max(1e-12);
        println!("  {:.2?} of a processor each, server and loader: {by_work:.2}", each[at]);
    }
}

/// The one in the middle.
fn middle(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// What a process took of the processors so far.
fn processor_of(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in brackets may hold anything; user and system time are the 12th and 13th fields behind it.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(ticks * 10)
}

/// The same questions to the routes themselves, on one thread: what an answer takes without a network.
pub(crate) fn routed(folder: &Path) {
    let routes = standalone(refresher(&folder.join("prices"), Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let ask = async |n: usize| {
            let request = Request::post("/api/v1/comparison/quote")
                .header("content-type", "application/json")
                .body(Body::from(body(&question(n))))
                .expect("a request");
            let reply = routes.clone().oneshot(request).await.expect("an answer");
            reply.into_body().collect().await.expect("a body").to_bytes().len()
        };
        for n in 0..2000 {
            ask(n).await;
        }
        let processor = Processor::of_thread();
        let (before, _) = processor.read();
        let mut bytes = 0;
        for n in 0..ROUTED {
            bytes += ask(n).await;
        }
        let each = (processor.read().0 - before) / u32::try_from(ROUTED).unwrap_or(1);
        println!("question to the routes: {each:.2?} of a processor, {} bytes", bytes / ROUTED);
    });
}

/// Requests side by side: many of them must not cost the loader more than few.
struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Requests {
    fn new(requests: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for request in requests {
            bytes.extend(request);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// One of them; after the last comes the first.
    fn get(&self, at: usize) -> &[u8] {
        let at = at % self.len();
        &self.bytes[self.ends[at]..self.ends[at + 1]]
    }
}

fn quote(query: &Query) -> Vec<u8> {
    let body = body(query);
    let head =
        "POST /api/v1/comparison/quote HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn body(query: &Query) -> String {
    let body = serde_json::json!({
        "gpu_model": query.gpu, "gpu_count": query.gpu_count, "region": query.region,
        "max_hourly_price": query.max_hourly_price.map(|price| price.to_string()), "top_n": 5,
    });
    body.to_string()
}

/// Asks for a while, over all connections; how long each answer took, and how large they were on average.
fn load(address: SocketAddr, requests: &Requests, span: Duration) -> (Vec<Duration>, usize) {
    let until = Instant::now() + span;
    let times = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|at| scope.spawn(move || connection(address, requests, at, until)))
            .collect();
        let done = threads.into_iter().map(|thread| thread.join().expect("joined"));
        done.collect::<Vec<_>>()
    });
    let bytes: usize = times.iter().map(|(_, bytes)| bytes).sum();
    let times: Vec<_> = times.into_iter().flat_map(|(times, _)| times).collect();
    let each = bytes / times.len().max(1);
    (times, each)
}

fn connection(
    address: SocketAddr,
    requests: &Requests,
    first: usize,
    until: Instant,
) -> (Vec<Duration>, usize) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_nodelay(true).expect("set");
    let (mut times, mut buffer, mut bytes) = (Vec::new(), vec![0; 256 * 1024], 0);
    let mut at = first * requests.len() / CONNECTIONS;
    while Instant::now() < until {
        let begun = Instant::now();
        stream.write_all(requests.get(at)).expect("sent");
        bytes += answer(&mut stream, &mut buffer);
        times.push(begun.elapsed());
        at += 1;
    }
    (times, bytes)
}

/// Reads one answer with a stated length; its size.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> usize {
    let (mut have, mut whole) = (0, None);
    loop {
        let got = stream.read(&mut buffer[have..]).expect("an answer");
        assert!(got > 0, "the server hung up");
        have += got;
        if whole.is_none()
            && let Some(end) = buffer[..have].windows(4).position(|four| four == b"\r\n\r\n")
        {
            let head = std::str::from_utf8(&buffer[..end]).expect("a head").to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 200"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
            whole = Some(end + 4 + length);
        }
        if whole.is_some_and(|whole| have >= whole) {
            return have;
        }
    }
}
