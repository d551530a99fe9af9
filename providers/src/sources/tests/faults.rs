//! What a bad day of each cloud does to its sheet: an error or a gap that names it, never a panic,
//! never a sheet that claims to be complete and is smaller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use runwhere_model::{ErrorKind, OfferSheet};
use serde_json::Value;

use crate::provider::Result;
use crate::testing::clouds::{Asked, CLOUDS, Cloud, Reply, SECRET, START};

fn keys(sheet: &OfferSheet) -> BTreeSet<String> {
    sheet.offers.iter().map(|offer| offer.key.to_string()).collect()
}

fn prices(sheet: &OfferSheet) -> BTreeSet<String> {
    sheet.offers.iter().filter_map(|o| o.price.state.known()).map(|p| p.to_string()).collect()
}

/// An error, or a sheet that says that something is missing.
fn assert_told(cloud: Cloud, what: &str, read: &Result<OfferSheet>) {
    match read {
        Ok(sheet) => {
            assert!(!sheet.complete && !sheet.gaps.is_empty(), "{}: {what}: no gap", cloud.name);
            assert_no_secret(cloud, &format!("{sheet:?}"));
        }
        Err(error) => assert_no_secret(cloud, &format!("{error} {error:?}")),
    }
}

fn assert_no_secret(cloud: Cloud, text: &str) {
    assert!(!text.contains(SECRET), "{}: a secret in {text}", cloud.name);
}

#[tokio::test]
async fn a_good_day_is_complete() {
    for cloud in CLOUDS {
        let (sheet, server, _) = cloud.read(cloud.good()).await;
        let sheet = sheet.unwrap_or_else(|error| panic!("{}: {error}", cloud.name));
        assert!(sheet.complete, "{}: {:?}", cloud.name, sheet.gaps);
        assert!(!sheet.offers.is_empty(), "{}: {:?}", cloud.name, sheet.rejected);
        assert!(
            sheet.offers.iter().all(|o| o.key.provider.as_str() == cloud.name && !o.launchable)
        );
        assert!(server.asked().iter().all(|asked| !asked.query.contains(SECRET)));
    }
}

#[tokio::test]
async fn throttling_and_short_outages_are_waited_out() {
    for cloud in CLOUDS {
        let right = keys(&cloud.sheet().await);
        for (reply, least) in [
            (Reply::status(429, "slow down").with("retry-after", "7"), 7),
            (Reply::html(503), 0),
            (Reply::json("{\"half\": \"of it\"}").cut(), 0),
        ] {
            // Every other request fails.
            let cloud = *cloud;
            let bad = reply.clone();
            let script = Arc::new(move |n: usize, asked: &_| match n % 2 {
                0 => bad.clone(),
                _ => cloud.reply(asked),
            });
            let (sheet, _, clock) = cloud.read(script).await;
            let sheet = sheet.unwrap_or_else(|error| panic!("{}: {error}", cloud.name));
            assert!(sheet.complete, "{}: {:?}", cloud.name, sheet.gaps);
            assert_eq!(keys(&sheet), right, "{}", cloud.name);
            assert!(clock.since(START) >= Duration::from_secs(least), "{}", cloud.name);
        }
    }
}

#[tokio::test]
async fn whatever_request_fails_for_good_is_told() {
    for cloud in CLOUDS {
        let (_, server, _) = cloud.read(cloud.good()).await;
        let calls = server.asked().len();
        for bad in [
            Reply::html(502),
            Reply::html(200),
            Reply::json("{\"data\": {\"offers\": [").cut(),
            Reply::json("{\"data\": {\"offers\": ["),
            Reply::json(""),
            Reply::json("[]").with("x", "y"),
            Reply::json("\"text\""),
            Reply::status(403, &format!("{{\"message\": \"the key {SECRET} may not\"}}")),
            Reply::status(302, "").with("location", "http://127.0.0.1:1/elsewhere"),
        ] {
            for call in 0..calls {
                let cloud = *cloud;
                let reply = bad.clone();
                // The address of the failing call stays bad: repetitions do not help.
                let target = server.asked()[call].clone();
                let script = Arc::new(move |_, asked: &Asked| {
                    let same = asked.path == target.path
                        && asked.query == target.query
                        && asked.body == target.body;
                    if same { reply.clone() } else { cloud.reply(asked) }
                });
                let (read, ..) = cloud.read(script).await;
                // An empty list is the right form of some answers.
                if bad.body != b"[]" || read.is_err() {
                    assert_told(cloud, &format!("call {call}: {bad:?}"), &read);
                } else if let Ok(sheet) = &read {
                    assert_no_secret(cloud, &format!("{sheet:?}"));
                }
            }
        }
    }
}

#[tokio::test]
async fn kinds_of_failures_are_told_apart() {
    for cloud in CLOUDS {
        for (reply, kind) in [
            (Reply::html(503), ErrorKind::Transient),
            (Reply::status(429, "{}"), ErrorKind::Throttle),
            (Reply::status(401, "{}"), ErrorKind::Auth),
            (Reply::html(200), ErrorKind::Malformed),
            (Reply::status(429, "{}").with("retry-after", "86400"), ErrorKind::Throttle),
        ] {
            let (read, _, clock) = cloud.read(Arc::new(move |_, _: &_| reply.clone())).await;
            let error = read.expect_err(cloud.name);
            assert_eq!(error.kind, kind, "{}: {error}", cloud.name);
            assert!(clock.since(START) < Duration::from_secs(3600), "{}", cloud.name);
            if kind == ErrorKind::Throttle && error.retry_after.is_some() {
                assert_eq!(error.retry_after, Some(Duration::from_secs(86_400)));
            }
        }
    }
}

#[tokio::test]
async fn another_currency_is_never_taken_for_the_asked_one() {
    for cloud in CLOUDS.iter().filter(|cloud| cloud.currency.is_some()) {
        let (is, instead) = cloud.currency.unwrap();
        let cloud = *cloud;
        let script = Arc::new(move |_, asked: &_| {
            let mut reply = cloud.reply(asked);
            let text = String::from_utf8(reply.body).unwrap();
            reply.body = text.replace(is, instead).into_bytes();
            reply
        });
        let (read, ..) = cloud.read(script).await;
        if let Ok(sheet) = read {
            assert_eq!(prices(&sheet), BTreeSet::new(), "{}", cloud.name);
            assert!(!sheet.rejected.is_empty(), "{}", cloud.name);
        }
    }
}

#[tokio::test]
async fn three_times_as_many_rows_are_read() {
    for cloud in CLOUDS {
        let right = cloud.sheet().await;
        let cloud = *cloud;
        let script = Arc::new(move |_, asked: &_| {
            let mut reply = cloud.reply(asked);
            if let Ok(mut value) = serde_json::from_slice::<Value>(&reply.body) {
                triple(&mut value);
                reply.body = value.to_string().into_bytes();
            }
            reply
        });
        let (read, ..) = cloud.read(script).await;
        let sheet = read.unwrap_or_else(|error| panic!("{}: {error}", cloud.name));
        assert_eq!(keys(&sheet), keys(&right), "{}", cloud.name);
        assert!(sheet.rejected.len() >= right.rejected.len(), "{}", cloud.name);
    }
}

fn triple(value: &mut Value) {
    match value {
        Value::Array(rows) => {
            rows.iter_mut().for_each(triple);
            *rows = [rows.as_slice(), rows, rows].concat();
        }
        Value::Object(fields) => fields.values_mut().for_each(triple),
        _ => {}
    }
}

/// A field of a JSON document, by its way from the root.
fn ways(value: &Value, way: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                way.push(name.clone());
                all.push(way.clone());
                ways(field, way, all);
                way.pop();
            }
        }
        Value::Array(rows) => {
            // Rows of a list have one form: the first and the third will do.
            for (at, row) in rows.iter().enumerate().filter(|(at, _)| [0, 2].contains(at)) {
                way.push(at.to_string());
                ways(row, way, all);
                way.pop();
            }
        }
        _ => {}
    }
}

/// Removes (`None`) or replaces a field.
fn change(value: &mut Value, way: &[String], new: Option<&Value>) {
    let (last, before) = way.split_last().unwrap();
    let holder = before.iter().fold(value, |value, step| match value {
        Value::Array(rows) => &mut rows[step.parse::<usize>().unwrap()],
        value => &mut value[step.as_str()],
    });
    if let Value::Object(fields) = holder {
        match new {
            None => {
                fields.remove(last);
            }
            Some(new) => {
                fields.insert(last.clone(), new.clone());
            }
        }
    }
}

/// Fields whose absence is a statement of its own, by cloud: the last page, a price or a place that is
/// not there, a row of something else.
const ABSENT: &[(&str, &str)] = &[
    ("aliyun", "AvailableResources"),
    ("aliyun", "InstanceTypeId"),
    ("aliyun", "NextToken"),
    ("aliyun", "SkuFactorMap.instance_type"),
    ("azure", "NextPageLink"),
    ("crusoe", "product_name"),
    ("gcp", "description"),
    ("gcp", "nextPageToken"),
    ("huawei", "cond:operation:az"),
    ("lambda", "data."),
    ("runpod", "SpotPrice"),
    ("vast", "min_bid"),
    ("verda", "spot_price"),
];

#[tokio::test]
async fn missing_and_odd_fields_cost_their_row_and_invent_nothing() {
    let odd = [
        Some(serde_json::json!({"odd": []})),
        Some(serde_json::json!("odd")),
        Some(serde_json::json!(-1)),
    ];
    let mut silent = Vec::new();
    for cloud in CLOUDS {
        let (right, server, _) = cloud.read(cloud.good()).await;
        let right = right.unwrap();
        let known = prices(&right);
        let stated: String =
            server.asked().iter().filter_map(|asked| (cloud.answer)(asked)).collect();
        let mut tried = BTreeSet::new();
        for asked in server.asked() {
            let Some(text) = (cloud.answer)(&asked) else { continue };
            if !tried.insert(text.clone()) {
                continue;
            }
            let Ok(whole) = serde_json::from_str::<Value>(&text) else { continue };
            let mut all = Vec::new();
            ways(&whole, &mut Vec::new(), &mut all);
            for (turn, way) in all.into_iter().enumerate() {
                // Each field is missing once, and odd in one of the ways.
                for new in [&None, &odd[turn % odd.len()]] {
                    let mut body = whole.clone();
                    change(&mut body, &way, new.as_ref());
                    let cloud = *cloud;
                    let target = asked.clone();
                    let script = Arc::new(move |_, asked: &Asked| {
                        let same = asked.path == target.path
                            && asked.query == target.query
                            && asked.body == target.body;
                        if same { Reply::json(body.to_string()) } else { cloud.reply(asked) }
                    });
                    let (read, ..) = cloud.read(script).await;
                    if let Ok(sheet) = read {
                        let made_up: Vec<_> = prices(&sheet)
                            .into_iter()
                            .filter(|price| !known.contains(price))
                            // A row may count that did not before, with a price that stands somewhere.
                            .filter(|price| !stated.contains(price.split(' ').next().unwrap()))
                            .collect();
                        assert!(made_up.is_empty(), "{} {way:?} {new:?}: {made_up:?}", cloud.name);
                        // What is not there any more has been told of.
                        let more = |row| !right.rejected.contains(row);
                        let told = !sheet.complete || sheet.rejected.iter().any(more);
                        let field = format!("{} {}", cloud.name, way.join("."));
                        let says =
                            |(of, end): &(&str, &str)| *of == cloud.name && field.contains(end);
                        let fewer = sheet.offers.len() < right.offers.len();
                        if fewer && !told && !ABSENT.iter().any(says) {
                            silent.push(format!("{field}: {new:?}"));
                        }
                    }
                }
            }
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}
