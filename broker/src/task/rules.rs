//! The rules for single values: text in, checked value or problem out.

use super::file::{GpuSku, MaxDuration, ModelSource, TaskKind};
use super::problem::{LengthUnit, Problem};
use super::shown::shown;

/// Largest task file, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// Most GPUs of one task.
pub const MAX_GPUS: u32 = 16;
/// Longest `maxDuration` but "never": 365 days.
pub const MAX_DURATION_SECONDS: u64 = 365 * DAY;

const DAY: u64 = 86_400;
/// Longest description, in characters.
pub(super) const MAX_DESCRIPTION: usize = 1024;
/// Longest command, argument or variable, in bytes. The kernel takes at most 128 KiB in one argument.
pub(super) const MAX_ARGUMENT_BYTES: usize = 65_536;
const MAX_PATH_BYTES: usize = 1024;
const MAX_IMAGE_BYTES: usize = 512;
const MAX_GPU_TYPE: usize = 64;
const MAX_MODEL_PART: usize = 96;
const MAX_ENV_NAME: usize = 255;

/// Words of the command line and of the API's addresses, which a name must not shadow.
const RESERVED_NAMES: &[&str] = &[
    "agent",
    "all",
    "completions",
    "delete",
    "describe",
    "get",
    "help",
    "job",
    "jobs",
    "list",
    "login",
    "logout",
    "logs",
    "new",
    "price",
    "resume",
    "run",
    "serve",
    "status",
    "stop",
    "submit",
    "sync",
    "token",
    "usage",
    "version",
    "whoami",
];

/// `kind`, whatever its case.
pub(super) fn kind(text: &str) -> Result<TaskKind, Problem> {
    match text.trim().to_lowercase().as_str() {
        "training" | "compute" | "batch" => Ok(TaskKind::Training),
        "inference" => Ok(TaskKind::Inference),
        "notebook" => Ok(TaskKind::Notebook),
        _ => Err(Problem::UnsupportedKind { value: shown(text) }),
    }
}

/// `job.name`: `[A-Za-z0-9][A-Za-z0-9._-]{0,62}`, no job id, no reserved word.
pub(super) fn name(text: &str) -> Result<String, Problem> {
    let value = || shown(text);
    let proper = text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if !proper {
        return Err(Problem::BadName { value: value() });
    }
    let lower = text.to_ascii_lowercase();
    if lower
        .strip_prefix("job-")
        .is_some_and(|id| id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return Err(Problem::NameLikeJobId { value: value() });
    }
    if RESERVED_NAMES.contains(&lower.as_str()) {
        return Err(Problem::NameReserved { value: value() });
    }
    Ok(text.to_owned())
}

/// `job.description`: free text of one or more lines.
pub(super) fn description(text: &str) -> Result<String, Problem> {
    if text.chars().count() > MAX_DESCRIPTION {
        return Err(Problem::TooLong { max: MAX_DESCRIPTION, unit: LengthUnit::Characters });
    }
    no_character(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))?;
    Ok(text.to_owned())
}

/// `job.maxDuration`: `-1`, seconds, or a number with one of `s m h d`.
pub(super) fn max_duration(text: &str) -> Result<MaxDuration, Problem> {
    if text == "-1" {
        return Ok(MaxDuration::Unlimited);
    }
    let (digits, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        Some(b'd') => (&text[..text.len() - 1], DAY),
        _ => (text, 1),
    };
    if !digits.starts_with(|c: char| matches!(c, '1'..='9'))
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(Problem::BadDuration { value: shown(text) });
    }
    digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .filter(|seconds| *seconds <= MAX_DURATION_SECONDS)
        .map(MaxDuration::Seconds)
        .ok_or(Problem::DurationTooLong { max_days: MAX_DURATION_SECONDS / DAY })
}

/// A word of a command, or the value of a variable.
pub(super) fn argument(text: &str) -> Result<String, Problem> {
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(Problem::TooLong { max: MAX_ARGUMENT_BYTES, unit: LengthUnit::Bytes });
    }
    no_character(text, |c| c == '\0')?;
    Ok(text.to_owned())
}

/// The name of an environment variable.
pub(super) fn env_name(text: &str) -> Result<(), Problem> {
    let proper = text.len() <= MAX_ENV_NAME
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !proper {
        return Err(Problem::BadEnvName { name: shown(text) });
    }
    if text.starts_with("RUNWHERE_") || text.starts_with("RUNW_") {
        return Err(Problem::ReservedEnvName { name: shown(text) });
    }
    Ok(())
}

/// `environment.image`: `registry/path:tag` or `…@sha256:…`.
pub(super) fn image(text: &str) -> Result<String, Problem> {
    let proper = text.len() <= MAX_IMAGE_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && !text.contains("//")
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:@+".contains(&b));
    if proper { Ok(text.to_owned()) } else { Err(Problem::BadImage) }
}

/// `environment.conda` and `environment.requirements`: a name or a path, not looked at further here.
pub(super) fn declaration(text: &str) -> Result<String, Problem> {
    if text.len() > MAX_PATH_BYTES {
        return Err(Problem::TooLong { max: MAX_PATH_BYTES, unit: LengthUnit::Bytes });
    }
    no_character(text, char::is_control)?;
    Ok(text.trim().to_owned())
}

/// `resources.gpuType`: any model name; the catalogue knows which exist.
pub(super) fn gpu_type(text: &str) -> Result<String, Problem> {
    if text.chars().count() > MAX_GPU_TYPE {
        return Err(Problem::TooLong { max: MAX_GPU_TYPE, unit: LengthUnit::Characters });
    }
    no_character(text, char::is_control)?;
    Ok(text.trim().to_owned())
}

/// `resources.gpuSkuKey`: an offer's code or key, in the grammar of the model.
pub(super) fn gpu_sku(text: &str) -> Result<GpuSku, Problem> {
    let text = text.trim();
    if let Ok(code) = text.parse() {
        return Ok(GpuSku::OfferCode(code));
    }
    text.parse().map(GpuSku::OfferKey).map_err(|_| Problem::BadSkuKey { value: shown(text) })
}

/// A path below the work directory, normalised; `.` is the directory itself.
pub(super) fn relative_path(text: &str) -> Result<String, Problem> {
    let path = any_path(text)?;
    if path.starts_with('/') { Err(Problem::PathAbsolute) } else { Ok(path) }
}

/// A path below the work directory, or an absolute one that is not the root; normalised.
pub(super) fn any_path(text: &str) -> Result<String, Problem> {
    if text.len() > MAX_PATH_BYTES {
        return Err(Problem::TooLong { max: MAX_PATH_BYTES, unit: LengthUnit::Bytes });
    }
    no_character(text, char::is_control)?;
    if text.contains('\\') {
        return Err(Problem::PathBackslash);
    }
    // A home folder, and a drive of another system, are absolute to whoever writes them.
    let drive = text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
        && text.as_bytes().get(1) == Some(&b':');
    if text.starts_with('~') || drive {
        return Err(Problem::PathAbsolute);
    }
    if text.split('/').any(|part| part == "..") {
        return Err(Problem::PathOutside);
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    match (text.starts_with('/'), parts.is_empty()) {
        (true, true) => Err(Problem::PathRoot),
        (true, false) => Ok(format!("/{}", parts.join("/"))),
        (false, true) => Ok(".".to_owned()),
        (false, false) => Ok(parts.join("/")),
    }
}

/// `storage.models[].source`: hub and `org/model`.
pub(super) fn model_source(text: &str) -> Result<(ModelSource, String), Problem> {
    let schemes = [
        ("huggingface://", ModelSource::HuggingFace),
        ("hf://", ModelSource::HuggingFace),
        ("modelscope://", ModelSource::ModelScope),
    ];
    let text = text.trim();
    let (model, source) = schemes
        .iter()
        .find_map(|(scheme, source)| text.strip_prefix(scheme).map(|model| (model, *source)))
        .ok_or(Problem::ModelScheme)?;
    let is_part = |part: &str| {
        part.len() <= MAX_MODEL_PART
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    match model.split_once('/') {
        Some((org, name)) if is_part(org) && is_part(name) => Ok((source, model.to_owned())),
        _ => Err(Problem::ModelName),
    }
}

fn no_character(text: &str, forbidden: impl Fn(char) -> bool) -> Result<(), Problem> {
    match text.chars().find(|&c| forbidden(c)) {
        Some(c) => Err(Problem::ForbiddenCharacter { code_point: u32::from(c) }),
        None => Ok(()),
    }
}
