//! What one trial of a job runs where the trials have requests of their own: a published runner
//! in a frozen image.

use std::collections::BTreeMap;

use runwhere_model::{GpuCount, GpuModelId, HourlyPrice, OfferKey};
use serde::{Deserialize, Serialize};

use crate::job::{Job, SyncedFile};

/// One trial's own frozen request.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// The user's name for it, unique in its job.
    pub name: String,
    /// What to rent.
    pub offer: OfferKey,
    /// How many GPUs.
    pub gpu_count: GpuCount,
    /// Which model.
    pub gpu_model: Option<GpuModelId>,
    /// The machine only pretends to have them.
    pub gpu_pretended: bool,
    /// The highest price per hour it may be launched at.
    pub ceiling: HourlyPrice,
    /// Wall-clock limit of the user's program in seconds; `None` = none.
    pub max_duration_seconds: Option<u64>,
    /// What runs.
    pub run: RunnerRun,
}

/// A revision of a published runner with its parameters, frozen at submit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct RunnerRun {
    /// `namespace/name`.
    pub runner: String,
    /// The full Git commit.
    pub revision: String,
    /// SHA-256 of the revision's manifest.
    pub manifest_sha256: String,
    /// The published entry, `main.sh` or `main.py`.
    pub entrypoint: String,
    /// The revision's files.
    pub files: Vec<SyncedFile>,
    /// The declared `run_command` parameter, byte for byte.
    pub command: Option<String>,
    /// The image, frozen.
    pub image: FrozenImage,
    /// What the node gives it besides GPUs.
    pub limits: RunLimits,
    /// Patterns of the files that are collected.
    pub outputs: Vec<String>,
    /// The user's labels.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The frozen profile with validated parameters and defaults.
    #[serde(default)]
    pub profile: Option<serde_json::Value>,
    /// Files of the profile's recipe and inputs, below the profile's folder.
    #[serde(default)]
    pub inputs: Vec<SyncedFile>,
}

/// An image reference and the content it stood for at submit.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FrozenImage {
    /// As the user or the runner wrote it.
    pub requested: String,
    /// Registry and repository, such as `docker.io/library/python`.
    pub repository: String,
    /// `sha256:` and 64 hexadecimal digits, of the manifest for linux/amd64.
    pub digest: String,
}

impl FrozenImage {
    /// What a node pulls.
    pub fn pull_reference(&self) -> String {
        format!("{}@{}", self.repository, self.digest)
    }
}

/// Limits of a trial's container; absent ones are the node's own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct RunLimits {
    /// CPUs.
    pub cpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Disk in MiB.
    pub storage_mib: Option<u64>,
    /// Shared memory in MiB.
    pub shm_mib: Option<u64>,
}

/// The part of a request that decides about resources, whichever form the job has.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// What to rent.
    pub offer: &'a OfferKey,
    /// How many GPUs.
    pub gpu_count: GpuCount,
    /// Which model.
    pub gpu_model: Option<GpuModelId>,
    /// The machine only pretends to have them.
    pub gpu_pretended: bool,
    /// The highest price per hour it may be launched at.
    pub ceiling: HourlyPrice,
    /// Wall-clock limit in seconds.
    pub max_duration_seconds: Option<u64>,
}

impl Job {
    /// The own request of the trial at a place, where the job's trials have such.
    pub fn trial_spec(&self, index: u32) -> Option<&TrialSpec> {
        self.trial_specs.get(usize::try_from(index).ok()?)
    }

    /// What the trial at a place needs and may cost.
    pub fn terms(&self, index: u32) -> Terms<'_> {
        match self.trial_spec(index) {
            Some(own) => Terms {
                offer: &own.offer,
                gpu_count: own.gpu_count,
                gpu_model: own.gpu_model,
                gpu_pretended: own.gpu_pretended,
                ceiling: own.ceiling,
                max_duration_seconds: own.max_duration_seconds,
            },
            None => Terms {
                offer: &self.spec.offer,
                gpu_count: self.spec.gpu_count,
                gpu_model: self.spec.gpu_model,
                gpu_pretended: self.spec.gpu_pretended,
                ceiling: self.spec.ceiling,
                max_duration_seconds: self.spec.max_duration_seconds,
            },
        }
    }
}
