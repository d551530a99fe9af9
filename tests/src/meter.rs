//! The meter that the provider `local` writes itself, outside broker and agent.

use jiff::Timestamp;
use std::fs;
use std::path::{Path, PathBuf};

/// One node's meter file, `local/<node-id>/meter.jsonl` in the data folder.
#[derive(Debug, Clone)]
pub struct LocalMeter {
    /// The file.
    pub path: PathBuf,
    /// The first start.
    pub start: Option<Timestamp>,
    /// The last stop.
    pub stop: Option<Timestamp>,
    /// How many starts were written; more than one would be a node that ran twice.
    pub starts: usize,
}

impl LocalMeter {
    /// Microseconds from start to stop, once the node has stopped.
    pub fn microseconds(&self) -> Option<i64> {
        Some(self.stop?.as_microsecond() - self.start?.as_microsecond())
    }
}

/// The meters of all nodes that a data folder's provider ever started.
pub fn meters(data_dir: &Path) -> Vec<LocalMeter> {
    let nodes = fs::read_dir(data_dir.join("local")).into_iter().flatten().flatten();
    let mut found: Vec<_> =
        nodes.filter_map(|node| read(node.path().join("meter.jsonl"))).collect();
    found.sort_by_key(|meter| meter.start);
    found
}

fn read(path: PathBuf) -> Option<LocalMeter> {
    let text = fs::read_to_string(&path).ok()?;
    let mut meter = LocalMeter { path, start: None, stop: None, starts: 0 };
    // A line that is being written has no end yet.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let value: serde_json::Value =
            serde_json::from_str(line).expect("the meter's lines are JSON");
        let at: Timestamp =
            value["at"].as_str().expect("a time").parse().expect("an RFC 3339 time");
        match value["event"].as_str() {
            Some("start") => {
                meter.starts += 1;
                meter.start.get_or_insert(at);
            }
            Some("stop") => meter.stop = Some(at),
            other => panic!("{}: unknown event {other:?}", meter.path.display()),
        }
    }
    Some(meter)
}
