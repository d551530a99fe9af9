//! What to run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Digest, Gpu};

/// Reply of `GET /agent/v1/assignment`. It does not change during a lease.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// [`super::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Id of the job.
    pub job_id: String,
    /// Id of the trial.
    pub trial_id: String,
    /// Name of the job, for texts.
    pub job_name: String,
    /// The program.
    pub command: Exec,
    /// The whole environment of platform and user. The agent adds only `PATH`, `HOME`, `LANG` and
    /// `TMPDIR` where they are absent, and the lease marker.
    pub env: BTreeMap<String, String>,
    /// Files of the work folder.
    pub sync: Vec<SyncFile>,
    /// Outputs of the earlier job of the lineage, written over the sync.
    #[serde(default)]
    pub restore: Vec<SyncFile>,
    /// Folder to start in, relative to the work folder; usually `.`.
    pub workdir: String,
    /// Where the program leaves its checkpoints, relative to `workdir`; collected first.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// GPUs that must be there.
    pub gpus: Gpus,
    /// Bytes of stdout and stderr together that are kept; what is beyond is counted only.
    pub max_log_bytes: u64,
    /// Seconds between the polite and the hard stop.
    pub stop_grace_seconds: u64,
    /// Bounds of the collection of outputs.
    pub collect: CollectLimits,
    /// Image of the job, where it has one.
    #[serde(default)]
    pub image: Option<String>,
    /// A published runner to run instead of `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerTask>,
}

/// A published runner with its parameters. In a container its folder is `/envloop` and the work
/// folder `/workspace`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerTask {
    /// The entry among `files`; one that ends with `.py` is started with Python, else with Bash.
    pub entrypoint: String,
    /// The runner's files, read-only below `runner/` of its folder.
    pub files: Vec<SyncFile>,
    /// A profile's files, read-only below `profile/` of its folder.
    #[serde(default)]
    pub inputs: Vec<SyncFile>,
    /// The profile itself, as JSON.
    #[serde(default)]
    pub profile: Option<String>,
    /// The job's command, byte for byte.
    #[serde(default)]
    pub command: Option<String>,
    /// Patterns of the files that are collected.
    pub outputs: Vec<String>,
    /// What a container runtime pulls, by digest.
    pub image: String,
    /// CPUs.
    #[serde(default)]
    pub cpus: Option<u32>,
    /// Memory in MiB.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Shared memory in MiB.
    #[serde(default)]
    pub shm_mib: Option<u64>,
    /// Disk in MiB: work folder, home, temporary files and what is changed of the image.
    #[serde(default)]
    pub storage_mib: Option<u64>,
}

impl fmt::Debug for RunnerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerTask")
            .field("entrypoint", &self.entrypoint)
            .field("image", &self.image)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Assignment {
    // Values of the environment and of the command may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("job_id", &self.job_id)
            .field("trial_id", &self.trial_id)
            .field("sync", &self.sync.len())
            .field("restore", &self.restore.len())
            .field("gpus", &self.gpus)
            .finish_non_exhaustive()
    }
}

/// The program to start. Shell texts arrive as `["/bin/sh", "-c", text]`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments; at least one.
    pub argv: Vec<String>,
}

/// One file of the work folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncFile {
    /// Relative path with `/` between its parts; no `..`, no empty part, not absolute.
    pub path: String,
    /// Of the content.
    pub sha256: Digest,
    /// Bytes.
    pub size: u64,
    /// Unix permission bits; only the lowest nine count. Absent means 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// GPUs of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gpus {
    /// How many; 0 needs no check.
    pub count: u32,
    /// Canonical model name, for texts.
    pub model: String,
    /// Act as if they were there.
    #[serde(default)]
    pub pretend: bool,
    /// Memory of one in GiB as people name it. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib: Option<u32>,
    /// Words of which the driver's name of the model holds all, one of these entries at least, e.g.
    /// `RTX 4090`. Empty: any name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

// Words that make another model of the one whose words surround them.
const VARIANTS: [&str; 5] = ["ti", "super", "d", "laptop", "mobile"];

impl Gpus {
    /// Whether a GPU is of the wanted model, as far as name and memory tell. Words are whole (an
    /// L40S is no L40), their case does not count, and memory may differ by a tenth: that much a
    /// driver keeps to itself on small cards.
    #[must_use]
    pub fn accepts(&self, gpu: &Gpu) -> bool {
        let memory = self.memory_gib.is_none_or(|gib| {
            let nominal = u64::from(gib) << 10;
            gpu.memory_mib.abs_diff(nominal).saturating_mul(10) <= nominal
        });
        let shown = words(&gpu.name);
        let named = |name: &String| {
            let wanted = words(name);
            wanted.iter().all(|word| shown.contains(word))
                && VARIANTS.iter().all(|variant| {
                    let has = |words: &[String]| words.iter().any(|word| word == variant);
                    has(&wanted) == has(&shown)
                })
        };
        memory && (self.names.is_empty() || self.names.iter().any(named))
    }
}

fn words(name: &str) -> Vec<String> {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Bounds of the collection of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectLimits {
    /// Bytes of all outputs together.
    pub max_bytes: u64,
    /// Seconds for all of it.
    pub max_seconds: u64,
}
