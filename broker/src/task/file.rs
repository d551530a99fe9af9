//! A task file after all checks: typed, complete, and what the server freezes in a job.

use std::collections::BTreeMap;
use std::fmt;

use runwhere_model::{OfferCode, OfferKey};
use serde::{Deserialize, Serialize};

use super::build;
use super::command::Command;
use super::node;
use super::place::{FieldPath, Position};
use super::problem::{Problem, Problems, TaskError, TaskErrors};
use super::rules::MAX_FILE_BYTES;

/// What a task is. Parsed without regard to case; `compute` and `batch` are read as Training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskKind {
    /// Runs to its end.
    Training,
    /// Serves a model until stopped.
    Inference,
    /// An interactive notebook until stopped.
    Notebook,
}

impl TaskKind {
    /// The kind as documents and clients spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Training => "Training",
            Self::Inference => "Inference",
            Self::Notebook => "Notebook",
        }
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who decided a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingSource {
    /// The file says nothing; the platform's default counts.
    PlatformDefault,
    /// The file says so.
    UserYaml,
}

impl SettingSource {
    /// Stable word for machines: `platform_default` or `user_yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlatformDefault => "platform_default",
            Self::UserYaml => "user_yaml",
        }
    }
}

/// A value and who decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting<T> {
    /// The value that counts.
    pub value: T,
    /// Who decided it.
    pub source: SettingSource,
}

impl<T> Setting<T> {
    /// The file's value, else the platform's default.
    pub(super) fn or_default(value: Option<T>, default: T) -> Self {
        match value {
            Some(value) => Self { value, source: SettingSource::UserYaml },
            None => Self { value: default, source: SettingSource::PlatformDefault },
        }
    }
}

/// The longest time a task may run after its program has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxDuration {
    /// No limit (`-1`, the default).
    Unlimited,
    /// So many seconds, at least 1.
    Seconds(u64),
}

/// `job`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSection {
    /// The task's name: `[A-Za-z0-9][A-Za-z0-9._-]{0,62}`.
    pub name: String,
    /// What the task is for.
    pub description: Option<String>,
    /// When it is stopped at the latest.
    pub max_duration: Setting<MaxDuration>,
}

/// `environment`. Its `Debug` shows the names of the variables only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Container image reference.
    pub image: Option<String>,
    /// Name of a conda environment, or a declaration file.
    pub conda: Option<String>,
    /// Path of a pip requirements file.
    pub requirements: Option<String>,
    /// What the file says to start; see [`TaskFile::argv`].
    pub command: Option<Command>,
    /// Arguments appended to the command.
    pub args: Vec<String>,
    /// Environment variables of the task. Values may be secrets.
    pub env: BTreeMap<String, String>,
    /// Whether the task brings its own W&B settings.
    pub wandb_external: bool,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("image", &self.image)
            .field("conda", &self.conda)
            .field("requirements", &self.requirements)
            .field("command", &self.command)
            .field("args", &self.args)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("wandb_external", &self.wandb_external)
            .finish()
    }
}

/// `resources.gpuSkuKey`: which offer exactly. Whether it exists is the catalogue's to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuSku {
    /// The 8 upper-case letters of an offer.
    OfferCode(OfferCode),
    /// `provider/region/zone/billing_model/instance_type`.
    OfferKey(OfferKey),
}

impl fmt::Display for GpuSku {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfferCode(code) => code.fmt(f),
            Self::OfferKey(key) => key.fmt(f),
        }
    }
}

/// `resources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// GPUs of the task, 1 to 16.
    pub gpu_num: Setting<u32>,
    /// GPU model as written; resolved by the price catalogue.
    pub gpu_type: Option<String>,
    /// Exact offer; decides when both are given.
    pub gpu_sku_key: Option<GpuSku>,
}

/// Where a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelSource {
    /// `huggingface://` or `hf://`.
    HuggingFace,
    /// `modelscope://`.
    ModelScope,
}

/// One of `storage.models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMount {
    /// The source as written, trimmed (model keys are made from it); `None` where only a path is declared.
    pub source: Option<String>,
    /// The hub and `org/model` of the source.
    pub model: Option<(ModelSource, String)>,
    /// Where the program finds the model: absolute, or relative to the work directory.
    pub path: String,
}

/// `storage`. Paths are normalised: no `.` or empty components, no trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storage {
    /// Declared work directories below the sync root; see [`TaskFile::sync_folders`].
    pub workdirs: Vec<String>,
    /// Models to prepare.
    pub models: Vec<ModelMount>,
    /// Checkpoint folder: relative to the work directory unless absolute.
    pub checkpoint: Option<String>,
}

/// A task file that passed all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFile {
    /// What the task is.
    pub kind: Setting<TaskKind>,
    /// `job`.
    pub job: JobSection,
    /// `environment`.
    pub environment: Environment,
    /// `resources`.
    pub resources: Resources,
    /// `storage`.
    pub storage: Storage,
}

impl TaskFile {
    /// Reads a task file.
    ///
    /// # Errors
    /// All problems of the text at once, in its order; a text that is no YAML has one.
    pub fn parse(text: &str) -> Result<Self, TaskErrors> {
        let mut problems = Problems::default();
        let root = node::read(text, &mut problems)?;
        let file = build::build(&root, &mut problems);
        match (file, problems.finish()) {
            (Some(file), None) => Ok(file),
            (_, Some(errors)) => Err(errors),
            // A file without a name is a problem already reported; this keeps the match total.
            (None, None) => Err(Problems::single(Position::START, Problem::Required)),
        }
    }

    /// Reads a task file from the bytes of a file, which must be UTF-8 (a byte order mark is accepted).
    ///
    /// # Errors
    /// As [`TaskFile::parse`].
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, TaskErrors> {
        if bytes.len() > MAX_FILE_BYTES {
            return Err(Problems::single(
                Position::START,
                Problem::FileTooLarge { max_bytes: MAX_FILE_BYTES },
            ));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => {
                let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                Err(Problems::single(node::end_of(&valid), Problem::NotUtf8))
            }
        }
    }

    /// Whether the file names a GPU at all. A submit needs one, a sync does not.
    ///
    /// # Errors
    /// `gpu_missing` when neither `gpuType` nor `gpuSkuKey` is given.
    pub fn require_gpu(&self) -> Result<(), TaskError> {
        if self.resources.gpu_type.is_some() || self.resources.gpu_sku_key.is_some() {
            return Ok(());
        }
        Err(TaskError {
            problem: Problem::GpuMissing,
            path: FieldPath::root().key("resources"),
            position: None,
        })
    }

    /// The folders to synchronise, relative to the sync root: the declared work directories, or the whole root (`.`)
    /// where none is declared.
    pub fn sync_folders(&self) -> Vec<&str> {
        if self.storage.workdirs.is_empty() {
            vec!["."]
        } else {
            self.storage.workdirs.iter().map(String::as_str).collect()
        }
    }
}
