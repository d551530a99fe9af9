//! The task file: what a user declares in YAML, checked strictly and resolved.
//!
//! Pure: text in, [`TaskFile`] or every problem of the text out. The command line and the server use the same
//! rules; neither trusts the other to have applied them. Problems are codes with parameters and places; sentences
//! in Chinese and English are made from them on demand.

mod build;
mod command;
mod defaults;
mod file;
mod node;
mod place;
mod problem;
mod reader;
mod rules;
mod scalar;
mod served;
mod shown;
mod texts;

#[cfg(test)]
mod tests;

/// Whether a text can be a task's name; the rule of `job.name`.
///
/// # Errors
/// What is wrong with it, at the path `job_name`.
pub fn check_job_name(text: &str) -> Result<(), TaskError> {
    rules::name(text).map(|_| ()).map_err(|problem| TaskError {
        problem,
        path: FieldPath::root().key("job_name"),
        position: None,
    })
}

pub use command::Command;
pub use defaults::ExplainedField;
pub use file::{
    Environment, GpuSku, JobSection, MaxDuration, ModelMount, ModelSource, Resources, Setting,
    SettingSource, Storage, TaskFile, TaskKind,
};
pub use place::{FieldPath, Position, Segment};
pub use problem::{Found, LengthUnit, Problem, TaskError, TaskErrors, Wanted};
pub use rules::{MAX_DURATION_SECONDS, MAX_FILE_BYTES, MAX_GPUS};
pub use served::NotServed;
