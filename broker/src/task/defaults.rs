//! What counts for a task and who decided it, for `--explain`.

use runwhere_model::Lang;
use serde::Serialize;

use super::command::DEFAULT_TRAINING;
use super::file::{MaxDuration, SettingSource, TaskFile, TaskKind};
use super::texts;

/// One explained field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedField {
    /// The field's path.
    pub name: &'static str,
    /// The value that counts, as the file would spell it.
    pub value: String,
    /// Who decided it.
    pub source: SettingSource,
    /// Why, in the chosen language.
    pub reason: String,
}

impl TaskFile {
    /// The fields that have a default, with what counts for this task.
    ///
    /// `environment.command` is left out for an Inference or Notebook without one: the image decides.
    pub fn defaults(&self, lang: Lang) -> Vec<ExplainedField> {
        let field = |name, value, source| ExplainedField {
            name,
            value,
            source,
            reason: texts::reason(name, source, lang),
        };
        let duration = match self.job.max_duration.value {
            MaxDuration::Unlimited => "-1".to_owned(),
            MaxDuration::Seconds(seconds) => seconds.to_string(),
        };
        let mut fields = vec![
            field("kind", self.kind.value.to_string(), self.kind.source),
            field("job.maxDuration", duration, self.job.max_duration.source),
            field(
                "resources.gpuNum",
                self.resources.gpu_num.value.to_string(),
                self.resources.gpu_num.source,
            ),
        ];
        match &self.environment.command {
            Some(command) => fields.push(field(
                "environment.command",
                command.summary(),
                SettingSource::UserYaml,
            )),
            None if self.kind.value == TaskKind::Training => {
                fields.push(field(
                    "environment.command",
                    DEFAULT_TRAINING.join(" "),
                    SettingSource::PlatformDefault,
                ));
            }
            None => {}
        }
        let (folders, source) = if self.storage.workdirs.is_empty() {
            (".".to_owned(), SettingSource::PlatformDefault)
        } else {
            (self.storage.workdirs.join(", "), SettingSource::UserYaml)
        };
        fields.push(field("storage.workdirs", folders, source));
        fields
    }
}
