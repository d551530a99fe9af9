//! What a runner's two files declare.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::canonical::canonical;
use crate::api::text::{Words, words};

/// Bound of each of the two files.
const FILE_BYTES: usize = 1 << 20;
const MOST_OUTPUTS: usize = 64;
/// The parameter that a job's command is handed over as.
pub(super) const RUN_COMMAND: &str = "run_command";

/// What is filled in where a job does not say it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    /// GPU model.
    pub gpu_type: Option<String>,
    /// GPUs.
    pub gpus: Option<u32>,
    /// CPUs.
    pub cpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Disk in MiB.
    pub storage_mb: Option<u64>,
    /// Shared memory in MiB.
    pub shm_mb: Option<u64>,
}

/// A runner as its files declare it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Definition {
    /// `main.sh` or `main.py`.
    pub entrypoint: String,
    /// Image of jobs that name none.
    pub image: Option<String>,
    /// Parameters that jobs may give; only `run_command` is known.
    pub parameters: Vec<String>,
    /// Patterns of files that are collected.
    pub outputs: Vec<String>,
    /// Time-out of jobs that name none, in seconds.
    pub timeout_seconds: Option<u64>,
    /// Profile schemas and ABIs that it understands.
    pub profiles: Vec<String>,
    /// The file that it starts of a recipe.
    #[serde(default)]
    pub recipe_entry: Option<String>,
    /// It can run on CPUs only.
    pub gpu: bool,
    /// Resources of jobs that name none.
    pub resources: Defaults,
    /// For people.
    pub description: Option<String>,
}

#[derive(Deserialize)]
struct File {
    execution: Execution,
    #[serde(default)]
    resources: Defaults,
    #[serde(default)]
    runner: About,
}

#[derive(Default, Deserialize)]
struct About {
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Execution {
    entrypoint: String,
    image: Option<String>,
    #[serde(default)]
    parameters: Vec<String>,
    #[serde(default)]
    outputs: Vec<String>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    profiles: Vec<String>,
    recipe_entry: Option<String>,
    #[serde(default = "yes")]
    gpu: bool,
}

fn yes() -> bool {
    true
}

impl Definition {
    /// Reads a runner's files, by name.
    ///
    /// # Errors
    /// The first thing that is wrong, with file and field.
    pub fn read(files: &[(String, Vec<u8>)]) -> Result<Self, Words> {
        let named = |name: &str| files.iter().find(|(known, _)| known == name);
        let (config_name, config) = match (named("runner.toml"), named("task.toml")) {
            (Some(_), Some(_)) => {
                return Err(not_two(&words!(
                    "runner.toml 和 task.toml 不能同时存在",
                    "runner.toml and task.toml cannot be there together"
                )));
            }
            (Some((name, content)), None) | (None, Some((name, content))) => (name, content),
            (None, None) => {
                return Err(not_two(&words!("没有 runner.toml", "there is no runner.toml")));
            }
        };
        for (name, content) in files {
            if content.len() > FILE_BYTES || std::str::from_utf8(content).is_err() {
                let shown: String = name.chars().take(100).collect();
                return Err(words!(
                    "`{shown}` 必须是 UTF-8 文本，最大 1 MiB",
                    "`{shown}` must be UTF-8 text of at most 1 MiB"
                ));
            }
        }
        let wrong = |why: Words| why.about(config_name);
        let text = String::from_utf8_lossy(config);
        let file: File = toml::from_str(&text).map_err(|error| wrong(unreadable(&error)))?;
        let execution = file.execution;
        if !matches!(execution.entrypoint.as_str(), "main.sh" | "main.py") {
            return Err(wrong(words!(
                "execution.entrypoint 必须是 main.sh 或 main.py",
                "execution.entrypoint must be main.sh or main.py"
            )));
        }
        if files.len() != 2 || named(&execution.entrypoint).is_none() {
            let entry = &execution.entrypoint;
            return Err(not_two(&words!("入口是 {entry}", "the entry is {entry}")));
        }
        if let Some(other) = execution.parameters.iter().find(|name| *name != RUN_COMMAND) {
            return Err(wrong(words!(
                "execution.parameters：未知的 `{other}`；只支持 run_command",
                "execution.parameters: `{other}` is not known; run_command is"
            )));
        }
        if execution.outputs.len() > MOST_OUTPUTS {
            return Err(wrong(words!(
                "execution.outputs：最多 {MOST_OUTPUTS} 个模式",
                "execution.outputs: at most {MOST_OUTPUTS} patterns"
            )));
        }
        for pattern in &execution.outputs {
            pattern_is_safe(pattern).map_err(|why| wrong(why.about("execution.outputs")))?;
        }
        let unique: BTreeSet<&String> = execution.profiles.iter().collect();
        if unique.len() != execution.profiles.len() {
            return Err(wrong(words!(
                "execution.profiles 有重复项",
                "execution.profiles names one twice"
            )));
        }
        if let Some(entry) = &execution.recipe_entry {
            pattern_is_safe(entry).map_err(|why| wrong(why.about("execution.recipe_entry")))?;
        }
        if execution.timeout_seconds == Some(0) || file.resources.gpus == Some(0) {
            return Err(wrong(words!(
                "timeout_seconds 和 gpus 必须是正数",
                "timeout_seconds and gpus must be positive"
            )));
        }
        Ok(Self {
            entrypoint: execution.entrypoint,
            image: execution.image,
            parameters: execution.parameters,
            outputs: execution.outputs,
            timeout_seconds: execution.timeout_seconds,
            profiles: execution.profiles,
            recipe_entry: execution.recipe_entry,
            gpu: execution.gpu,
            resources: file.resources,
            description: file.runner.description,
        })
    }

    /// Whether jobs may give it a command.
    pub fn takes_command(&self) -> bool {
        self.parameters.iter().any(|name| name == RUN_COMMAND)
    }
}

fn not_two(why: &Words) -> Words {
    let rule = words!(
        "Runner 恰好由两个文件组成：runner.toml（或 task.toml）和 main.sh 或 main.py；",
        "a runner is exactly two files: runner.toml (or task.toml) and main.sh or main.py; "
    );
    rule.then(why)
}

/// The parser's own text shows the line that it is about.
pub(super) fn unreadable(error: &toml::de::Error) -> Words {
    let error = error.to_string();
    let error = error.trim_end();
    words!("无法读取这个 TOML 文件：{error}", "the TOML cannot be read: {error}")
}

fn pattern_is_safe(pattern: &str) -> Result<(), Words> {
    let bad = pattern.is_empty()
        || pattern.len() > 512
        || pattern.starts_with('/')
        || pattern.contains('\\')
        || pattern.chars().any(char::is_control)
        || pattern.split('/').any(|part| matches!(part, "." | ".."));
    if bad {
        let shown: String = pattern.chars().filter(|c| !c.is_control()).take(100).collect();
        return Err(words!(
            "`{shown}` 不是工作目录之下的模式",
            "`{shown}` is no pattern below the work folder"
        ));
    }
    Ok(())
}

/// SHA-256 of a revision's manifest: the canonical JSON of its name, revision and files.
pub(super) fn manifest_sha256(name: &str, revision: &str, files: &[(String, Vec<u8>)]) -> String {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let files: Vec<_> = sorted
        .into_iter()
        .map(|(path, content)| {
            serde_json::json!({
                "path": path, "sha256": hex::encode(Sha256::digest(content)), "size": content.len(),
            })
        })
        .collect();
    let manifest = serde_json::json!({
        "schema": "envloop.runner-manifest/1", "name": name, "revision": revision, "files": files,
    });
    hex::encode(Sha256::digest(canonical(&manifest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Definition, String> {
        let files: Vec<_> =
            files.iter().map(|(n, c)| ((*n).to_owned(), c.as_bytes().to_vec())).collect();
        Definition::read(&files).map_err(|why| why.en)
    }

    #[test]
    fn exactly_two_files_make_a_runner() {
        let config = "[execution]\nentrypoint = \"main.sh\"\n";
        for name in ["runner.toml", "task.toml"] {
            let definition = read(&[(name, config), ("main.sh", "")]).unwrap();
            assert_eq!((definition.entrypoint.as_str(), definition.gpu), ("main.sh", true));
            assert!(!definition.takes_command());
        }
        for (files, word) in [
            (&[("runner.toml", config)][..], "exactly two"),
            (&[("runner.toml", config), ("main.py", "")][..], "entry is main.sh"),
            (&[("runner.toml", config), ("main.sh", ""), ("x", "")][..], "exactly two"),
            (&[("runner.toml", config), ("task.toml", config)][..], "together"),
            (&[("main.sh", "")][..], "no runner.toml"),
        ] {
            let error = read(files).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        for (line, word) in [
            ("entrypoint = \"run.sh\"", "main.sh or main.py"),
            ("entrypoint = \"main.sh\"\nparameters = [\"lr\"]", "lr"),
            ("entrypoint = \"main.sh\"\noutputs = [\"../x\"]", "execution.outputs"),
            ("entrypoint = \"main.sh\"\noutputs = [\"/x\"]", "execution.outputs"),
            ("entrypoint = \"main.sh\"\nrecipe_entry = \"../x\"", "execution.recipe_entry"),
            ("entrypoint = \"main.sh\"\nprovider = \"aws\"", "provider"),
            ("entrypoint = \"main.sh\"\ntimeout_seconds = 0", "positive"),
        ] {
            let config = format!("[execution]\n{line}\n");
            let error = read(&[("runner.toml", &config), ("main.sh", "")]).unwrap_err();
            assert!(error.contains(word) && error.contains("runner.toml"), "{error}");
        }
    }
}
