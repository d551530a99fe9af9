//! What can be wrong with a task file.

use std::fmt;

use runwhere_model::Lang;
use serde::Serialize;
use serde::ser::SerializeStruct as _;

use super::place::{FieldPath, Position};
use super::texts;

/// Most problems reported for one file; the rest is counted.
pub(super) const MAX_PROBLEMS: usize = 50;

/// What a YAML value is, as a word for a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`, or an unquoted word that YAML 1.1 reads so (`yes`, `on`, `n`, ...).
    Bool,
    /// A whole number, in any notation that a YAML reader knows.
    Integer,
    /// A number with a fraction or exponent, infinity or not-a-number.
    Float,
    /// A date or a time.
    Date,
    /// Text.
    Text,
    /// A list.
    List,
    /// A mapping.
    Mapping,
}

impl Found {
    /// Stable word for machines.
    pub fn code(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "boolean",
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Date => "date",
            Self::Text => "string",
            Self::List => "list",
            Self::Mapping => "mapping",
        }
    }
}

/// What a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A mapping.
    Mapping,
    /// A list.
    List,
    /// A string.
    Text,
    /// A string or a list of strings.
    TextOrList,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Bool,
}

impl Wanted {
    /// Stable word for machines.
    pub fn code(self) -> &'static str {
        match self {
            Self::Mapping => "mapping",
            Self::List => "list",
            Self::Text => "string",
            Self::TextOrList => "string_or_list",
            Self::Integer => "integer",
            Self::Bool => "boolean",
        }
    }
}

/// What a length limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthUnit {
    /// Unicode code points.
    Characters,
    /// Bytes of UTF-8.
    Bytes,
}

impl LengthUnit {
    /// Stable word for machines.
    pub fn code(self) -> &'static str {
        match self {
            Self::Characters => "characters",
            Self::Bytes => "bytes",
        }
    }
}

/// One kind of problem with its parameters. Text parameters are safe to show (see [`TaskError::message`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the parameters of the sentence in `texts`")]
pub enum Problem {
    /// The file is larger than the limit.
    FileTooLarge { max_bytes: usize },
    /// The bytes are not UTF-8.
    NotUtf8,
    /// A control character stands in the text of the file.
    ControlCharacter { code_point: u32 },
    /// The text is not YAML. `detail` is the parser's own, English.
    Syntax { detail: String },
    /// Too many levels of nesting.
    TooDeep { max: usize },
    /// Too many values, counted with aliases expanded.
    TooComplex,
    /// More than one YAML document.
    SeveralDocuments,
    /// An alias inside the value that it names.
    RecursiveAlias,
    /// A tag such as `!!python/object`.
    TagRefused { tag: String },
    /// The top level is no mapping.
    TopLevel { found: Found },
    /// A key stands twice in one mapping.
    DuplicateKey { key: String, first_line: u32 },
    /// A key is no string.
    KeyNotText { found: Found },
    /// A merge key (`<<`).
    MergeKey,
    /// A key that no task file has here.
    UnknownKey { key: String, nearest: Option<String> },
    /// A value of another type.
    WrongType { wanted: Wanted, found: Found },
    /// A string is wanted and an unquoted word stands there that YAML reads as something else.
    NeedsQuotes { found: Found },
    /// A string with nothing in it, or only blanks.
    Empty,
    /// An empty list where at least one element is needed.
    EmptyList,
    /// A required field is missing.
    Required,
    /// `kind` is none of the three.
    UnsupportedKind { value: String },
    /// `version` is not `v1`.
    UnsupportedVersion { value: String },
    /// A name that breaks the grammar of job names.
    BadName { value: String },
    /// A name that looks like a job id.
    NameLikeJobId { value: String },
    /// A name that is a word of the command line.
    NameReserved { value: String },
    /// Text longer than the limit.
    TooLong { max: usize, unit: LengthUnit },
    /// A character that may not stand in this field.
    ForbiddenCharacter { code_point: u32 },
    /// `maxDuration` in none of the known forms.
    BadDuration { value: String },
    /// `maxDuration` beyond the limit.
    DurationTooLong { max_days: u64 },
    /// `environment.conda` and `environment.requirements` together.
    CondaAndRequirements,
    /// `environment.args` with a `command` to which no arguments can be appended.
    ArgsAfterScript,
    /// A name that no environment variable can have.
    BadEnvName { name: String },
    /// An environment variable that the platform sets.
    ReservedEnvName { name: String },
    /// Text that is no image reference.
    BadImage,
    /// A number outside the limits.
    OutOfRange { min: u64, max: u64 },
    /// Text that is neither an offer code nor an offer key.
    BadSkuKey { value: String },
    /// A path that is absolute and must be relative.
    PathAbsolute,
    /// A path with `..` in it.
    PathOutside,
    /// A path with a backslash in it.
    PathBackslash,
    /// A path that is the root of the file system.
    PathRoot,
    /// A path that an earlier element already uses.
    PathTwice { first_index: usize },
    /// A model source of an unknown scheme.
    ModelScheme,
    /// A model source without a proper `org/model`.
    ModelName,
    /// Neither `gpuType` nor `gpuSkuKey`.
    GpuMissing,
}

impl Problem {
    /// The stable code of the problem.
    pub fn code(&self) -> &'static str {
        match self {
            Self::FileTooLarge { .. } => "file_too_large",
            Self::NotUtf8 => "not_utf8",
            Self::ControlCharacter { .. } => "control_character",
            Self::Syntax { .. } => "syntax",
            Self::TooDeep { .. } => "too_deep",
            Self::TooComplex => "too_complex",
            Self::SeveralDocuments => "several_documents",
            Self::RecursiveAlias => "recursive_alias",
            Self::TagRefused { .. } => "tag_refused",
            Self::TopLevel { .. } => "top_level",
            Self::DuplicateKey { .. } => "duplicate_key",
            Self::KeyNotText { .. } => "key_not_string",
            Self::MergeKey => "merge_key",
            Self::UnknownKey { .. } => "unknown_key",
            Self::WrongType { .. } => "wrong_type",
            Self::NeedsQuotes { .. } => "needs_quotes",
            Self::Empty => "empty",
            Self::EmptyList => "empty_list",
            Self::Required => "required",
            Self::UnsupportedKind { .. } => "unsupported_kind",
            Self::UnsupportedVersion { .. } => "unsupported_version",
            Self::BadName { .. } => "bad_name",
            Self::NameLikeJobId { .. } => "name_like_job_id",
            Self::NameReserved { .. } => "name_reserved",
            Self::TooLong { .. } => "too_long",
            Self::ForbiddenCharacter { .. } => "forbidden_character",
            Self::BadDuration { .. } => "bad_duration",
            Self::DurationTooLong { .. } => "duration_too_long",
            Self::CondaAndRequirements => "conda_and_requirements",
            Self::ArgsAfterScript => "args_after_script",
            Self::BadEnvName { .. } => "bad_env_name",
            Self::ReservedEnvName { .. } => "reserved_env_name",
            Self::BadImage => "bad_image",
            Self::OutOfRange { .. } => "out_of_range",
            Self::BadSkuKey { .. } => "bad_sku_key",
            Self::PathAbsolute => "path_absolute",
            Self::PathOutside => "path_outside",
            Self::PathBackslash => "path_backslash",
            Self::PathRoot => "path_root",
            Self::PathTwice { .. } => "path_twice",
            Self::ModelScheme => "model_scheme",
            Self::ModelName => "model_name",
            Self::GpuMissing => "gpu_missing",
        }
    }

    /// The parameters by name, for machines.
    pub fn params(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::FileTooLarge { max_bytes } => vec![("max_bytes", max_bytes.to_string())],
            Self::ControlCharacter { code_point } | Self::ForbiddenCharacter { code_point } => {
                vec![("code_point", format!("U+{code_point:04X}"))]
            }
            Self::Syntax { detail } => vec![("detail", detail.clone())],
            Self::TooDeep { max } => vec![("max", max.to_string())],
            Self::TooLong { max, unit } => {
                vec![("max", max.to_string()), ("unit", unit.code().to_owned())]
            }
            Self::TagRefused { tag } => vec![("tag", tag.clone())],
            Self::TopLevel { found } | Self::KeyNotText { found } | Self::NeedsQuotes { found } => {
                vec![("found", found.code().to_owned())]
            }
            Self::DuplicateKey { key, first_line } => {
                vec![("key", key.clone()), ("first_line", first_line.to_string())]
            }
            Self::UnknownKey { key, nearest } => {
                let mut params = vec![("key", key.clone())];
                params.extend(nearest.clone().map(|nearest| ("nearest", nearest)));
                params
            }
            Self::WrongType { wanted, found } => {
                vec![("wanted", wanted.code().to_owned()), ("found", found.code().to_owned())]
            }
            Self::UnsupportedKind { value }
            | Self::UnsupportedVersion { value }
            | Self::BadName { value }
            | Self::NameLikeJobId { value }
            | Self::NameReserved { value }
            | Self::BadDuration { value }
            | Self::BadSkuKey { value } => vec![("value", value.clone())],
            Self::DurationTooLong { max_days } => vec![("max_days", max_days.to_string())],
            Self::BadEnvName { name } | Self::ReservedEnvName { name } => {
                vec![("name", name.clone())]
            }
            Self::OutOfRange { min, max } => {
                vec![("min", min.to_string()), ("max", max.to_string())]
            }
            Self::PathTwice { first_index } => vec![("first_index", first_index.to_string())],
            Self::NotUtf8
            | Self::TooComplex
            | Self::SeveralDocuments
            | Self::RecursiveAlias
            | Self::MergeKey
            | Self::Empty
            | Self::EmptyList
            | Self::Required
            | Self::CondaAndRequirements
            | Self::ArgsAfterScript
            | Self::BadImage
            | Self::PathAbsolute
            | Self::PathOutside
            | Self::PathBackslash
            | Self::PathRoot
            | Self::ModelScheme
            | Self::ModelName
            | Self::GpuMissing => Vec::new(),
        }
    }
}

/// One problem at one place of a task file.
///
/// Serialises to `{code, path, line, column, params}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    /// What is wrong.
    pub problem: Problem,
    /// Which field; empty for the whole file.
    pub path: FieldPath,
    /// Where; `None` when the field is judged apart from a text.
    pub position: Option<Position>,
}

impl TaskError {
    /// The stable code of the problem.
    pub fn code(&self) -> &'static str {
        self.problem.code()
    }

    /// One sentence: field, place and what is wrong. Holds no control characters and no square brackets, whatever
    /// the file holds, and never the value of an environment variable.
    pub fn message(&self, lang: Lang) -> String {
        texts::message(self, lang)
    }

    /// One sentence: what to do about it. As safe to show as the message.
    pub fn remedy(&self, lang: Lang) -> String {
        texts::remedy(&self.problem, lang)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(Lang::En))
    }
}

impl std::error::Error for TaskError {}

impl Serialize for TaskError {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("TaskError", 5)?;
        out.serialize_field("code", self.code())?;
        out.serialize_field("path", &self.path)?;
        out.serialize_field("line", &self.position.map(|at| at.line))?;
        out.serialize_field("column", &self.position.map(|at| at.column))?;
        let params: std::collections::BTreeMap<_, _> = self.problem.params().into_iter().collect();
        out.serialize_field("params", &params)?;
        out.end()
    }
}

/// All problems of a task file, in the order of the text. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskErrors {
    /// The problems, at most 50.
    pub errors: Vec<TaskError>,
    /// How many more there are.
    pub more: usize,
}

impl TaskErrors {
    /// All problems in one line, for an answer that has room for one sentence.
    pub fn message(&self, lang: Lang) -> String {
        texts::summary(self, lang)
    }

    /// What to do about the first problem.
    pub fn remedy(&self, lang: Lang) -> String {
        self.errors.first().map(|error| error.remedy(lang)).unwrap_or_default()
    }
}

impl fmt::Display for TaskErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(Lang::En))
    }
}

impl std::error::Error for TaskErrors {}

/// Collects problems while a file is read.
#[derive(Debug, Default)]
pub(super) struct Problems {
    errors: Vec<TaskError>,
    more: usize,
}

impl Problems {
    pub(super) fn report(&mut self, path: &FieldPath, position: Position, problem: Problem) {
        if self.errors.len() < MAX_PROBLEMS {
            self.errors.push(TaskError { problem, path: path.clone(), position: Some(position) });
        } else {
            self.more += 1;
        }
    }

    /// The problems in the order of the text; `None` when there are none.
    pub(super) fn finish(mut self) -> Option<TaskErrors> {
        if self.errors.is_empty() {
            return None;
        }
        self.errors.sort_by_key(|error| error.position);
        Some(TaskErrors { errors: self.errors, more: self.more })
    }

    /// Ends with this one problem.
    pub(super) fn single(position: Position, problem: Problem) -> TaskErrors {
        let error = TaskError { problem, path: FieldPath::root(), position: Some(position) };
        TaskErrors { errors: vec![error], more: 0 }
    }
}
