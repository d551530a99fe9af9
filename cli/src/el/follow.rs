//! Reading a job's log page by page.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::args::Log;
use super::client::{Client, encoded, query};
use super::failure::{ElFailure, Outcome};
use crate::terminal;
use crate::texts::{Lang, el as texts};

const PAUSE: Duration = Duration::from_secs(1);
const REMEMBERED: usize = 10_000;

pub(super) async fn log(client: &Client, args: &Log, lang: Lang) -> Outcome {
    let mut cursor = args.cursor.clone();
    let mut tail = if cursor.is_none() { Some(args.tail.unwrap_or(200)) } else { None };
    let mut seen: VecDeque<String> = VecDeque::new();
    let mut hint = String::new();
    loop {
        let query = query(&[
            ("source", Some(args.source.clone())),
            ("limit", Some(args.limit.to_string())),
            ("tail", tail.map(|tail| tail.to_string())),
            ("cursor", cursor.clone()),
        ]);
        let path = format!("/v1/jobs/{}/logs{query}", encoded(&args.id));
        let read = client.get(&path);
        let page = tokio::select! {
            page = read => page?,
            _ = tokio::signal::ctrl_c() => return Ok(130),
        };
        let items = page["items"].as_array().cloned().unwrap_or_default();
        if args.json {
            print_line(&page.to_string());
        } else {
            for item in &items {
                let id = item["id"].as_str().unwrap_or_default().to_owned();
                if args.follow && !id.is_empty() && seen.contains(&id) {
                    continue;
                }
                seen.push_back(id);
                if seen.len() > REMEMBERED {
                    seen.pop_front();
                }
                print_line(&shown(item));
            }
        }
        let now = hint_of(&page, lang);
        if !now.is_empty() && now != hint {
            eprintln!("{now}");
        }
        hint = now;
        let more = page["has_more"].as_bool().unwrap_or(false);
        let eof = page["eof"].as_bool().unwrap_or(false);
        if !args.follow || (eof && !more) {
            return Ok(0);
        }
        cursor = page["next_cursor"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if cursor.is_none() {
            return Err(ElFailure::local("INVALID_LOG_PAGE", texts::log_without_cursor()));
        }
        tail = None;
        if !more {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                _ = tokio::signal::ctrl_c() => return Ok(130),
            }
        }
    }
}

fn shown(item: &Value) -> String {
    let field = |name: &str| item[name].as_str().filter(|text| !text.is_empty());
    let prefix: Vec<&str> =
        ["at", "source", "stream", "phase"].into_iter().filter_map(field).collect();
    let content = item["content"].as_str().unwrap_or_default();
    format!("[{}] {}", prefix.join(" "), terminal::lines(content))
}

fn hint_of(page: &Value, lang: Lang) -> String {
    let mut parts = Vec::new();
    if let Some(status @ ("partial" | "failed" | "unavailable")) =
        page["collection_status"].as_str()
    {
        parts.push(texts::log_collection(status).get(lang).to_owned());
    }
    if page["truncated"] == true {
        let bytes = page["dropped_bytes"].as_u64().unwrap_or_default();
        parts.push(texts::log_truncated(bytes).get(lang).to_owned());
    }
    if let Some(reason) = page["missing_reason"].as_str() {
        parts.push(terminal::one_line(reason).into_owned());
    }
    parts.join("; ")
}

/// A reader who left early has what was wanted.
pub(super) fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
