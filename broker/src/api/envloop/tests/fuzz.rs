//! Whatever is sent, the answer is one of the documented ones: no panic, no fault of ours.
//!
//! `RUNWHERE_FUZZ_CASES` says how many cases there are of each kind, 10,000 without.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use runwhere_agent::protocol::LogStream;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::site::{Site, Talk};
use crate::api::text::is_chinese;

fn run<S: Strategy>(strategy: &S, mut check: impl FnMut(S::Value) -> Result<(), TestCaseError>) {
    let cases = std::env::var("RUNWHERE_FUZZ_CASES").ok();
    let cases = cases.and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let check = std::cell::RefCell::new(&mut check);
    let mut runner = TestRunner::new(config);
    if let Err(error) = runner.run(strategy, |value| (check.borrow_mut())(value)) {
        panic!("{error}");
    }
}

/// A pattern that is read once: as a plain text it would be read for every case.
fn text(pattern: &str) -> impl Strategy<Value = String> {
    proptest::string::string_regex(pattern).unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        9 => Just(Value::Null),
        9 => any::<bool>().prop_map(Value::from),
        9 => any::<i64>().prop_map(Value::from),
        9 => any::<u64>().prop_map(Value::from),
        9 => any::<f64>().prop_map(Value::from),
        9 => text("\\PC{0,20}").prop_map(Value::from),
        9 => text("(\\x00|\\n|\\[|\\]|@|/|é|😀|\u{301}|\u{202e}|a){0,12}").prop_map(Value::from),
        1 => Just(json!("x".repeat(70_000))),
        9 => Just(json!(1e308)),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "type",
            "request_id",
            "trials",
            "spec",
            "name",
            "runner",
            "image",
            "command",
            "resources",
            "gpu_type",
            "gpus",
            "cpus",
            "memory_mb",
            "storage_mb",
            "shm_mb",
            "timeout_seconds",
            "timeout_sec",
            "tags",
            "profile",
            "schema",
            "inputs",
            "recipe",
            "plugins",
            "env",
            "executor",
            "metadata",
        ])
        .prop_map(str::to_owned),
        text("\\PC{0,8}"),
    ]
}

/// A change of a good request.
#[derive(Clone, Debug)]
enum Change {
    /// A member of the root, of the spec, of the resources, or of the tags.
    Set(usize, String, Value),
    /// Bytes of its text: where, how many go, what comes.
    Splice(usize, usize, Vec<u8>),
    /// Something else altogether.
    Bytes(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..4_usize, key(), value()).prop_map(|(place, key, value)| Change::Set(place, key, value)),
        3 => (any::<usize>(), 0..6_usize, prop::collection::vec(any::<u8>(), 0..6))
            .prop_map(|(at, gone, come)| Change::Splice(at, gone, come)),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Change::Bytes),
    ]
}

fn changed(spec: &Value, changes: &[Change]) -> Vec<u8> {
    let mut body = json!({ "type": "train", "request_id": "r", "spec": spec });
    for change in changes {
        let Change::Set(place, key, value) = change else { continue };
        let target = match place {
            0 => &mut body,
            1 => &mut body["spec"],
            2 => &mut body["spec"]["resources"],
            _ => &mut body["spec"]["tags"],
        };
        if let Value::Object(map) = target {
            map.insert(key.clone(), value.clone());
        }
        if !body["spec"]["resources"].is_object() || !body["spec"]["tags"].is_object() {
            break;
        }
    }
    let mut bytes = body.to_string().into_bytes();
    for change in changes {
        match change {
            Change::Set(..) => {}
            Change::Splice(at, gone, come) => {
                let at = at % (bytes.len() + 1);
                let end = (at + gone).min(bytes.len());
                bytes.splice(at..end, come.iter().copied());
            }
            Change::Bytes(other) => bytes.clone_from(other),
        }
    }
    bytes
}

/// A refusal with a known status, a code and a sentence.
fn refused(status: u16, body: &Value) -> Result<(), TestCaseError> {
    prop_assert!(matches!(status, 400..=499 | 503), "{status}: {body}");
    prop_assert!(body["code"].as_str().is_some_and(|code| !code.is_empty()), "{body}");
    prop_assert!(body["message"].as_str().is_some_and(is_chinese), "{body}");
    prop_assert!(body.to_string().len() < 8192, "the client loses the code");
    Ok(())
}

#[test]
fn fuzz_submission_bodies() {
    let runtime = runtime();
    let site = runtime.block_on(async {
        let site = Site::new().await;
        site.without_money().await;
        site
    });
    let spec = site.spec();
    // As it is, all checks pass but the last one.
    let send = |bytes: Vec<u8>| runtime.block_on(site.call("POST", "/v1/jobs", bytes));
    let (status, body) = send(changed(&spec, &[]));
    assert_eq!((status, body["code"].as_str()), (402, Some("INSUFFICIENT_BALANCE")), "{body}");
    for deep in ["[", "{\"a\":", "{\"spec\":[", "[[{\"x\":"] {
        let (status, body) = send(deep.repeat(200_000).into_bytes());
        assert_eq!(status, 400, "{body}");
    }
    run(&prop::collection::vec(change(), 1..4), |changes| {
        let (status, body) = send(changed(&spec, &changes));
        refused(status, &body)
    });
}

#[test]
fn fuzz_log_cursors() {
    let runtime = runtime();
    let (site, path, good) = runtime.block_on(async {
        let site = Site::new().await;
        let (job, trials) = site.job(2).await;
        for (index, trial) in trials.iter().enumerate() {
            let mut talk = Talk::default();
            for number in 0..20 {
                let text = format!("{index} {number} é\r\nun");
                talk.say(site.logs(), trial, LogStream::Stdout, &text).await;
                talk.say(site.logs(), trial, LogStream::Stderr, "\r\rx\n").await;
            }
        }
        let path = format!("/v1/job/{job}/logs");
        let mut good = Vec::new();
        let mut cursor = String::new();
        for _ in 0..10 {
            let page = site.get(&format!("{path}?limit=3{cursor}")).await;
            let next = page["next_cursor"].as_str().unwrap().to_owned();
            cursor = format!("&cursor={next}");
            good.push(String::from_utf8(URL_SAFE_NO_PAD.decode(&next).unwrap()).unwrap());
        }
        (site, path, good)
    });
    // A cursor's text, or the bytes of one of the positions in it, changed.
    let edit = (any::<prop::sample::Index>(), any::<usize>(), any::<u8>(), any::<u64>(), 0..5_u8);
    let strategy = prop_oneof![
        1 => text("\\PC{0,80}").prop_map(Err),
        1 => prop::collection::vec(any::<u8>(), 0..120).prop_map(|bytes| Err(URL_SAFE_NO_PAD.encode(bytes))),
        8 => prop::collection::vec(edit, 1..4).prop_map(Ok),
    ];
    run(&strategy, |given| {
        let cursor = match given {
            Err(text) => text,
            Ok(edits) => {
                let mut text = good[edits[0].0.index(good.len())].clone();
                for (_, at, byte, number, kind) in edits {
                    let mut parts: Vec<String> = text.split('~').map(str::to_owned).collect();
                    let part = at % parts.len();
                    match URL_SAFE_NO_PAD.decode(&parts[part]) {
                        // A number in a position: anything, nearly nothing, nearly too much.
                        Ok(mut bytes) if part >= 2 && bytes.len() == 41 && kind < 4 => {
                            let field = 1 + usize::from(byte % 5) * 8;
                            let number = match kind {
                                0 => number,
                                1 => number % 4096,
                                2 => u64::MAX - number % 64,
                                _ => number % 8,
                            };
                            bytes[field..field + 8].copy_from_slice(&number.to_be_bytes());
                            parts[part] = URL_SAFE_NO_PAD.encode(bytes);
                        }
                        _ => parts[part].push(char::from(byte % 128)),
                    }
                    text = parts.join("~");
                }
                URL_SAFE_NO_PAD.encode(text)
            }
        };
        let cursor: String = cursor.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for source in ["all", "runtime"] {
            let path = format!("{path}?limit=5&source={source}&cursor={cursor}");
            let (status, body) = runtime.block_on(site.call("GET", &path, Vec::new()));
            if status != 200 {
                prop_assert_eq!(body["code"].as_str(), Some("LOG_CURSOR_INVALID"), "{}", body);
                refused(status, &body)?;
            }
        }
        Ok(())
    });
}

#[test]
fn fuzz_names_in_addresses() {
    let runtime = runtime();
    let (site, trial) = runtime.block_on(async {
        let site = Site::new().await;
        let (_, trials) = site.job(1).await;
        (site, trials[0].clone())
    });
    let name = prop_oneof![
        text("(\\.\\.|/|\\\\|%|a|\\x00|~|\\.|é){0,10}"),
        text("\\PC{0,60}"),
        Just("x".repeat(5000)),
        (any::<u32>(), text("[0-9a-f]{0,70}"), text("[A-Za-z0-9_-]{0,9}"), text("[0-9a-f]{0,64}"))
            .prop_map(|(until, hash, project, mark)| format!("{until}.{hash}.{project}.{mark}")),
    ];
    run(&(name, 0..8_usize), |(name, place)| {
        let name: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (method, path) = match place {
            0 => ("GET", format!("/v1/trials/{trial}/artifacts/{name}/content")),
            1 => ("GET", format!("/v1/trials/{name}/artifacts")),
            2 => ("GET", format!("/v1/checkpoint-files/{name}")),
            3 => ("GET", format!("/v1/job/checkpoints/download?path={name}")),
            4 => ("GET", format!("/v1/trials/{trial}/artifacts?cursor={name}")),
            5 => ("GET", format!("/v1/jobs/{name}/logs")),
            6 => ("DELETE", format!("/v1/job/checkpoints/{name}")),
            _ => ("GET", format!("/v1/runners/envloop/{name}")),
        };
        let (status, body) = runtime.block_on(site.call(method, &path, Vec::new()));
        // Some names mean something: an empty cursor is the beginning.
        if status == 200 {
            prop_assert!(body.is_object(), "{path}: {body}");
            return Ok(());
        }
        refused(status, &body)
    });
}
