//! The task file, read and checked by the broker's own rules.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use runwhere_broker::runners::parse_strict;
use runwhere_broker::task::{
    ExplainedField, GpuSku, MAX_FILE_BYTES, TaskError, TaskErrors, TaskFile,
};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::sync::SyncTask;
use crate::texts::{self, Lang, Text};

/// A task file that passed all checks.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where it came from.
    pub path: PathBuf,
    /// Its text, as it is sent.
    pub yaml: String,
    file: TaskFile,
}

/// The content of a request file, read as strictly as the server does: of a key that is there twice
/// it would see one.
///
/// # Errors
/// What is wrong with it, and where.
pub fn request_file(path: &Path, text: &[u8]) -> Result<Value, Text> {
    parse_strict(text).map_err(|fault| {
        let (words, path) = (fault.words(), path.display());
        Text::new(
            format!("{path}：{}", words.say(Lang::Zh)),
            format!("{path}: {}", words.say(Lang::En)),
        )
    })
}

/// Which offer a task asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// This offer key.
    Key(String),
    /// This offer code.
    Code(String),
    /// Any offer of this GPU type.
    GpuType(&'a str),
    /// Any offer at all.
    Anything,
}

impl Task {
    /// Reads and checks a task file.
    ///
    /// # Errors
    /// Exit code 2 with every problem of the file.
    pub fn read(path: &Path) -> Outcome<Self> {
        let mut bytes = Vec::new();
        // One byte more than is allowed, and no more of what has no end.
        let most = MAX_FILE_BYTES as u64 + 1;
        let read = fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::usage("yaml_missing", texts::yaml_missing(path.display()))
                    .hint(texts::yaml_missing_hint())
            }
            _ => Failure::usage("yaml_unreadable", texts::file_unreadable(path.display(), error))
                .hint(texts::yaml_missing_hint()),
        })?;
        let file = TaskFile::parse_bytes(&bytes).map_err(|errors| refused(path, &errors))?;
        let yaml = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Self { path: path.to_owned(), yaml, file })
    }

    /// Demands that a GPU is named, as a submit needs.
    ///
    /// # Errors
    /// Exit code 2 with the advice to look at prices.
    pub fn require_gpu(&self) -> Outcome {
        self.file.require_gpu().map_err(|error| {
            let message = Text::new(error.message(Lang::Zh), error.message(Lang::En));
            Failure::usage(error.code(), message).hint(texts::gpu_missing_hint(self.path.display()))
        })
    }

    /// Demands that everything the file declares is served: refused before anything is asked or uploaded.
    ///
    /// # Errors
    /// Exit code 2 with the first declaration that is not served.
    pub fn require_served(&self) -> Outcome {
        let Some(missing) = self.file.not_served().first().copied() else { return Ok(()) };
        let message = Text::new(missing.message(Lang::Zh), missing.message(Lang::En));
        Err(Failure::usage(missing.code(), message)
            .hint(Text::new(missing.remedy(Lang::Zh), missing.remedy(Lang::En)))
            .detail("field", missing.path()))
    }

    /// Name of the job.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.file.job.name
    }

    /// `training`, `inference` or `notebook`, as quotes want it.
    #[must_use]
    pub fn kind(&self) -> String {
        self.file.kind.value.as_str().to_ascii_lowercase()
    }

    /// Number of GPUs.
    #[must_use]
    pub fn gpu_count(&self) -> u32 {
        self.file.resources.gpu_num.value
    }

    /// The GPU type, if the file names one.
    #[must_use]
    pub fn gpu_type(&self) -> Option<&str> {
        self.file.resources.gpu_type.as_deref()
    }

    /// What is to be rented. An offer decides where both are given.
    #[must_use]
    pub fn wanted(&self) -> Wanted<'_> {
        match (&self.file.resources.gpu_sku_key, self.gpu_type()) {
            (Some(GpuSku::OfferKey(key)), _) => Wanted::Key(key.to_string()),
            (Some(GpuSku::OfferCode(code)), _) => Wanted::Code(code.to_string()),
            (None, Some(gpu)) => Wanted::GpuType(gpu),
            (None, None) => Wanted::Anything,
        }
    }

    /// What `--explain` shows.
    #[must_use]
    pub fn explained(&self, lang: Lang) -> Vec<ExplainedField> {
        self.file.defaults(lang)
    }

    /// What a sync needs.
    #[must_use]
    pub fn sync_task(&self) -> SyncTask {
        let storage = &self.file.storage;
        let mut declarations = serde_json::Map::new();
        declarations.insert("workdirs".to_owned(), json!(self.file.sync_folders()));
        if let Some(checkpoint) = &storage.checkpoint {
            declarations.insert("checkpoint_path".to_owned(), json!(checkpoint));
        }
        if !storage.models.is_empty() {
            let model = |model: &runwhere_broker::task::ModelMount| json!({"source": model.source, "path": model.path});
            declarations.insert("models".to_owned(), storage.models.iter().map(model).collect());
        }
        SyncTask {
            job_name: self.name().to_owned(),
            yaml: self.yaml.clone(),
            folders: self.file.sync_folders().into_iter().map(str::to_owned).collect(),
            declarations: Value::Object(declarations),
        }
    }
}

fn refused(path: &Path, errors: &TaskErrors) -> Failure {
    let several = errors.errors.len() > 1;
    let all = |lang| {
        let line = |error: &TaskError| {
            let said = format!("{}: {}", path.display(), error.message(lang));
            match several {
                true => format!("{said} → {}", error.remedy(lang)),
                false => said,
            }
        };
        errors.errors.iter().map(line).collect::<Vec<_>>().join("\n  ")
    };
    let code = errors.errors.first().map_or("yaml_invalid", |error| error.code());
    Failure::usage(code, Text::new(all(Lang::Zh), all(Lang::En)))
        .hint(match several {
            // Each problem has its own.
            true => texts::yaml_problems(errors.errors.len() + errors.more),
            false => Text::new(errors.remedy(Lang::Zh), errors.remedy(Lang::En)),
        })
        .detail("problems", serde_json::to_value(&errors.errors).unwrap_or_default())
}
