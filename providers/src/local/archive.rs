//! Meters of allocations whose folders are gone: one line each, in one file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use jiff::Timestamp;
use runwhere_model::{DeploymentId, HourlyPrice, LeaseId, NodeId, NodePhase, NodeState};
use serde::{Deserialize, Serialize};

use super::folder::Allocation;

const ARCHIVE_FILE: &str = "meters.jsonl";

/// What stays of an ended allocation.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct Remains {
    pub(super) node: NodeId,
    pub(super) deployment: DeploymentId,
    pub(super) lease: LeaseId,
    pub(super) price: HourlyPrice,
    pub(super) started_at: Option<Timestamp>,
    pub(super) stopped_at: Timestamp,
}

impl Remains {
    /// `None` while it has not ended.
    pub(super) fn of(allocation: &Allocation) -> Option<Self> {
        let record = &allocation.record;
        Some(Self {
            node: record.node.clone(),
            deployment: record.deployment.clone(),
            lease: record.lease.clone(),
            price: record.price,
            started_at: allocation.meter.started_at,
            stopped_at: allocation.meter.stopped_at?,
        })
    }

    pub(super) fn state(self) -> NodeState {
        NodeState {
            node: self.node,
            phase: NodePhase::Gone,
            started_at: self.started_at,
            stopped_at: Some(self.stopped_at),
            reason: None,
            cause: None,
            billed_price: Some(self.price),
            region: None,
            zone: None,
        }
    }
}

/// Appends; on return it is on disk. A repeated line (after a crash) is harmless.
pub(super) fn append(root: &Path, remains: &[Remains]) -> io::Result<()> {
    let path = root.join(ARCHIVE_FILE);
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
    let mut text = Vec::new();
    // A line torn by a crash must not swallow the next one; an empty line is skipped when reading.
    if fs::metadata(&path)?.len() > 0 {
        text.push(b'\n');
    }
    for one in remains {
        serde_json::to_writer(&mut text, one)?;
        text.push(b'\n');
    }
    file.write_all(&text)?;
    file.sync_all()?;
    File::open(root)?.sync_all()
}

/// Calls `each` with every line that can be read; a node may come twice.
pub(super) fn each(root: &Path, mut each: impl FnMut(Remains)) -> io::Result<()> {
    let file = match File::open(root.join(ARCHIVE_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for line in BufReader::new(file).split(b'\n') {
        if let Ok(remains) = serde_json::from_slice(&line?) {
            each(remains);
        }
    }
    Ok(())
}

/// The last line that is about an id and satisfies `wanted`.
fn last(root: &Path, id: &str, wanted: impl Fn(&Remains) -> bool) -> io::Result<Option<Remains>> {
    let file = match File::open(root.join(ARCHIVE_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut found = None;
    for line in BufReader::new(file).split(b'\n') {
        let line = line?;
        // Few lines are worth being parsed.
        if !std::str::from_utf8(&line).is_ok_and(|line| line.contains(id)) {
            continue;
        }
        if let Some(remains) = serde_json::from_slice(&line).ok().filter(&wanted) {
            found = Some(remains);
        }
    }
    Ok(found)
}

/// What is known of a node.
pub(super) fn of_node(root: &Path, node: &NodeId) -> io::Result<Option<Remains>> {
    last(root, node.as_str(), |remains| remains.node == *node)
}

/// What is known of a lease's node.
pub(super) fn of_lease(
    root: &Path,
    deployment: &DeploymentId,
    lease: &LeaseId,
) -> io::Result<Option<Remains>> {
    let wanted = |remains: &Remains| remains.lease == *lease && remains.deployment == *deployment;
    last(root, lease.as_str(), wanted)
}
