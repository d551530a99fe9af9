//! The folder of one allocation.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use runwhere_failpoint::failpoint;
use runwhere_model::{
    DeploymentId, GpuCount, GpuModelId, HourlyPrice, LaunchRequest, LeaseId, NodeId, OfferKey,
    ProjectId, TrialId,
};
use serde::{Deserialize, Serialize};

use super::config::DockerRuntime;
use super::meter::{self, METER_FILE, Meter, Reading};
use super::process::{AgentProcess, Belongings};
use super::tree::remove_tree;

const RECORD_FILE: &str = "request.json";
const AGENT_FILE: &str = "agent.json";
const ENDING_FILE: &str = "ending";
/// What the agent is told; the one file that holds a secret.
const BOOTSTRAP_FILE: &str = "bootstrap.json";
/// What the agent prints.
pub(super) const AGENT_LOG: &str = "agent.log";

/// Files that are removed while others wait.
const SMALL: usize = 64;

const RECORD_VERSION: u32 = 1;
const PROTOCOL_VERSION: u32 = 1;

/// What was launched: all labels, no secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) node: NodeId,
    pub(super) deployment: DeploymentId,
    pub(super) lease: LeaseId,
    pub(super) project: ProjectId,
    pub(super) trial: TrialId,
    pub(super) token: String,
    pub(super) offer: OfferKey,
    pub(super) gpus: GpuCount,
    pub(super) gpu_model: Option<GpuModelId>,
    pub(super) price: HourlyPrice,
    /// Slots of the machine's GPUs that it holds.
    pub(super) slots: Vec<u32>,
    /// It holds none: its GPUs are pretended.
    pub(super) pretended: bool,
    /// User id of its programs.
    pub(super) uid: Option<u32>,
    /// Where that user works; without it, below the allocation's folder.
    #[serde(default)]
    pub(super) work_dir: Option<PathBuf>,
    pub(super) created_at: Timestamp,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
}

/// What an allocation gets of the machine.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) node: NodeId,
    pub(super) price: HourlyPrice,
    pub(super) slots: Vec<u32>,
    pub(super) devices: Vec<String>,
    pub(super) stated: bool,
    pub(super) pretended: bool,
    pub(super) uid: Option<u32>,
    pub(super) work_dir: Option<PathBuf>,
    /// Where containers are run, and the folder for what is known of images.
    pub(super) docker: Option<(DockerRuntime, PathBuf)>,
    pub(super) at: Timestamp,
}

impl Record {
    pub(super) fn new(request: &LaunchRequest, grant: &Grant) -> Self {
        Self {
            version: RECORD_VERSION,
            node: grant.node.clone(),
            deployment: request.deployment.clone(),
            lease: request.lease.clone(),
            project: request.project.clone(),
            trial: request.trial.clone(),
            token: request.token.clone(),
            offer: request.offer.clone(),
            gpus: request.gpus,
            gpu_model: request.gpu_model,
            price: grant.price,
            slots: grant.slots.clone(),
            pretended: grant.pretended,
            uid: grant.uid,
            work_dir: grant.work_dir.clone(),
            created_at: grant.at,
            labels: request.labels.clone(),
        }
    }

    /// Whether a repeated launch asks for the same thing.
    pub(super) fn answers(&self, request: &LaunchRequest) -> bool {
        self.token == request.token
            && self.lease == request.lease
            && self.offer == request.offer
            && self.gpus == request.gpus
            && self.project == request.project
            && self.trial == request.trial
    }
}

#[derive(Serialize)]
struct BootstrapFile<'a> {
    protocol: u32,
    lease_id: &'a str,
    node_id: &'a str,
    broker_url: &'a str,
    lease_token: &'a str,
    agent_ttl_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_pem: Option<&'a str>,
    runtime: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    docker: Option<Docker<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drop_to: Option<DropTo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    work_dir: Option<&'a Path>,
    gpu_devices: &'a [String],
    /// Which models these are is the operator's word.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gpus_stated: bool,
}

#[derive(Serialize)]
struct Docker<'a> {
    socket: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a str>,
    verdicts: &'a Path,
}

#[derive(Serialize)]
struct DropTo {
    uid: u32,
    gid: u32,
}

/// An allocation as its folder shows it.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    pub(super) record: Record,
    pub(super) meter: Meter,
    pub(super) agent: Option<AgentProcess>,
    pub(super) ending: bool,
}

impl Allocation {
    /// Ended: it holds nothing of the machine any more.
    pub(super) fn ended(&self) -> bool {
        self.meter.stopped_at.is_some()
    }

    pub(super) fn belongings(&self) -> Belongings {
        Belongings {
            agent: self.agent.clone(),
            lease: self.record.lease.to_string(),
            node: self.record.node.to_string(),
            uid: self.record.uid,
        }
    }

    /// Whether an agent runs: the one that was noted, or another that carries the mark. One that was
    /// started twice, or again by somebody else, is not the one that was noted.
    pub(super) fn agent_alive(&self) -> io::Result<bool> {
        if self.agent.as_ref().is_some_and(AgentProcess::alive) {
            return Ok(true);
        }
        Ok(self.belongings().unrecorded_agent()?.is_some())
    }
}

/// The record's file in an allocation's folder.
pub(super) fn record_of(folder: &Path) -> PathBuf {
    folder.join(RECORD_FILE)
}

/// Reads a record's file; `None` where there is none or it was torn by a crash.
pub(super) fn read_record(path: &Path) -> io::Result<Option<Record>> {
    match read_json::<Record>(path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => Ok(read?.filter(|record| record.version == RECORD_VERSION)),
    }
}

/// Writes again what must stay of an allocation while it lives: its record and its meter's start.
pub(super) fn restore(folder: &Path, record: &Record) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Ok(found) if found.is_dir() => {}
        // Something else was put in its place.
        Ok(_) => fs::remove_file(folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    write_json(folder, RECORD_FILE, record)?;
    if meter::read(folder)?.started_at.is_none() {
        meter::append(folder, Reading::Start, record.created_at)?;
    }
    Ok(())
}

/// Reads an allocation; `None` where there is no such folder.
pub(super) fn read(folder: &Path) -> io::Result<Option<Allocation>> {
    let record: Record = match read_json(&folder.join(RECORD_FILE)) {
        Ok(Some(record)) => record,
        Ok(None) if !folder.try_exists()? => return Ok(None),
        Ok(None) => return Err(damaged("it has no request.json")),
        Err(error) => return Err(error),
    };
    if record.version != RECORD_VERSION {
        return Err(damaged("its request.json has a version that this program does not know"));
    }
    if folder.file_name().and_then(|name| name.to_str()) != Some(record.node.as_str()) {
        return Err(damaged("its request.json names another node"));
    }
    Ok(Some(Allocation {
        record,
        meter: meter::read(folder)?,
        // A note torn by a crash is no note: the agent is then found by its mark.
        agent: read_json(&folder.join(AGENT_FILE)).unwrap_or_default(),
        ending: folder.join(ENDING_FILE).try_exists()?,
    }))
}

/// Fills a new folder with everything but the agent: record, running meter, bootstrap.
pub(super) fn fill(folder: &Path, request: &LaunchRequest, grant: &Grant) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    failpoint!("local.fill.folder_made");
    let bootstrap = BootstrapFile {
        protocol: PROTOCOL_VERSION,
        lease_id: request.lease.as_str(),
        node_id: grant.node.as_str(),
        broker_url: request.bootstrap.broker_url.trim_end_matches('/'),
        lease_token: request.bootstrap.lease_token.expose(),
        agent_ttl_seconds: request.bootstrap.agent_ttl_seconds,
        ca_pem: request.bootstrap.ca_pem.as_deref(),
        runtime: if grant.docker.is_some() { "docker" } else { "process" },
        docker: grant.docker.as_ref().map(|(runtime, verdicts)| Docker {
            socket: &runtime.socket,
            network: runtime.network.as_deref(),
            verdicts,
        }),
        drop_to: grant.uid.map(|uid| DropTo { uid, gid: uid }),
        work_dir: grant.work_dir.as_deref(),
        gpu_devices: &grant.devices,
        gpus_stated: grant.stated,
    };
    write_json(folder, BOOTSTRAP_FILE, &bootstrap)?;
    failpoint!("local.fill.bootstrap_written");
    write_json(folder, RECORD_FILE, &Record::new(request, grant))?;
    failpoint!("local.fill.record_written");
    meter::append(folder, Reading::Start, grant.at)?;
    failpoint!("local.fill.meter_started");
    Ok(())
}

/// Whether an agent could be started here.
pub(super) fn has_bootstrap(folder: &Path) -> bool {
    folder.join(BOOTSTRAP_FILE).is_file()
}

/// Writes another URL of the broker into the bootstrap; false where it says so already.
pub(super) fn rewrite_url(folder: &Path, broker_url: &str) -> io::Result<bool> {
    type Fields = serde_json::Map<String, serde_json::Value>;
    let mut fields: Fields = read_json(&folder.join(BOOTSTRAP_FILE))?
        .ok_or_else(|| damaged("it has no bootstrap.json"))?;
    let url = broker_url.trim_end_matches('/');
    let earlier = fields.insert("broker_url".to_owned(), url.into());
    if earlier.is_some_and(|earlier| earlier == url) {
        return Ok(false);
    }
    write_json(folder, BOOTSTRAP_FILE, &fields)?;
    Ok(true)
}

/// Notes the agent's process.
pub(super) fn note_agent(folder: &Path, agent: &AgentProcess) -> io::Result<()> {
    write_json(folder, AGENT_FILE, agent)
}

/// Notes that the end was asked for.
pub(super) fn note_ending(folder: &Path) -> io::Result<()> {
    File::create(folder.join(ENDING_FILE)).map(drop)
}

/// Removes everything but the record and the meter. What user code left behind may resist; that
/// must not stop the end, so the first failure comes back after everything was tried.
pub(super) fn strip(folder: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if [RECORD_FILE, METER_FILE].iter().any(|kept| entry.file_name() == *kept) {
            continue;
        }
        let removed = match entry.file_type()?.is_dir() {
            true => remove_tree(&entry.path()),
            false => fs::remove_file(entry.path()),
        };
        result = result.and(removed);
    }
    result
}

/// Whether there is nothing but the record and the meter.
pub(super) fn is_stripped(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if ![RECORD_FILE, METER_FILE].iter().any(|kept| name == *kept) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a folder without folders; false where that did not work.
pub(super) fn remove_small(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    for entry in entries.take(SMALL) {
        if !entry.is_ok_and(|entry| fs::remove_file(entry.path()).is_ok()) {
            return false;
        }
    }
    fs::remove_dir(folder).is_ok()
}

fn damaged(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file that is either there as a whole or not at all; on return it is on disk.
fn write_json<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<()> {
    let temporary = folder.join(format!(".{name}.new"));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    File::open(folder)?.sync_all()
}
