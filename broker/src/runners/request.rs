//! What a user asks for, read from JSON and checked for itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::canonical::{canonical, whole};
use super::content::Profile;
use super::refusal::{Code, Refused};
use super::registry::RunnerRef;
use super::strict::parse_strict;
use super::tags;
use crate::api::text::{Words, words};

/// Most trials of one job.
const MOST_TRIALS: usize = 16;
const COMMAND_BYTES: usize = 65_536;
const REQUEST_ID_CHARACTERS: usize = 128;
/// A year: longer is a typing error.
const MOST_SECONDS: i128 = 366 * 24 * 3600;
const MOST_GPUS: i128 = 1024;
const MOST_MIB: i128 = 1 << 30;

/// A whole request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What repeats are known by.
    pub request_id: Option<String>,
    /// One to sixteen.
    pub trials: Vec<TrialRequest>,
}

/// What one trial is to run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRequest {
    /// Its name, unique in the job.
    pub name: String,
    /// What runs.
    pub runner: RunnerRef,
    /// Instead of the runner's image.
    pub image: Option<String>,
    /// The runner's `run_command` parameter.
    pub command: Option<String>,
    /// Instead of the runner's resources, each.
    pub resources: Resources,
    /// Time-out of the program in seconds.
    pub timeout_seconds: Option<u64>,
    /// Labels.
    pub tags: BTreeMap<String, String>,
    /// A fixed profile.
    pub profile: Option<Profile>,
}

/// Named resources of a trial.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resources {
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

fn spec_error(field: &str, message: Words) -> Refused {
    Refused::new(Code::InvalidSpec, message).at(field)
}

fn no_object(field: &str) -> Refused {
    spec_error(field, words!("必须是对象", "must be an object").about(field))
}

impl Request {
    /// Reads a body.
    ///
    /// # Errors
    /// The first thing that is wrong, with its code and field.
    pub fn read(body: &[u8]) -> Result<Self, Refused> {
        let value = parse_strict(body).map_err(|fault| {
            let code = if fault.twice.is_some() { Code::InvalidSpec } else { Code::BadRequest };
            Refused::new(code, fault.words())
        })?;
        let Value::Object(mut root) = value else {
            let why = words!("请求必须是 JSON 对象", "the request must be a JSON object");
            return Err(Refused::new(Code::BadRequest, why));
        };
        match root.remove("type") {
            None => {}
            Some(Value::String(kind)) if kind == "train" => {}
            Some(_) => {
                let why = words!(
                    "这里只提供 type 为 \"train\" 的任务",
                    "only jobs of type \"train\" are served here"
                );
                return Err(Refused::new(Code::InvalidJobType, why).at("type"));
            }
        }
        let request_id = request_id(root.remove("request_id"))?;
        for key in ["metadata", "user_metadata"] {
            if root.contains_key(key) {
                let why = words!(
                    "Runner 任务不支持 {key}，请用 tags",
                    "{key} is not served for runner jobs; use tags"
                );
                return Err(Refused::new(Code::InvalidMetadata, why).at(key));
            }
        }
        let (trials, spec) = (taken(&mut root, "trials"), taken(&mut root, "spec"));
        let trials = match (trials, spec) {
            (Some(_), Some(_)) => {
                let why = words!(
                    "trials 和 spec 只能给出其中之一",
                    "give either trials or spec, not both"
                );
                return Err(Refused::new(Code::InvalidTrials, why).at("trials"));
            }
            (None, None) => {
                let why = words!(
                    "缺少 trials（1 到 16 项，每项有 name 和 spec）或 spec",
                    "trials (1 to 16 entries of name and spec) or spec is needed"
                );
                return Err(Refused::new(Code::InvalidTrials, why).at("trials"));
            }
            (None, Some(spec)) => vec![TrialRequest::read("trial-1".to_owned(), spec, "spec")?],
            (Some(trials), None) => read_trials(trials)?,
        };
        if let Some(key) = root.keys().next() {
            return Err(unknown(key, ""));
        }
        Ok(Self { request_id, trials })
    }

    /// SHA-256 of the canonical form of everything explicit but the request id: key order, number
    /// forms, null members, the single form and the spelling of the time-out do not count.
    pub fn fingerprint(&self) -> String {
        let trials: Vec<Value> = self.trials.iter().map(TrialRequest::explicit).collect();
        hex::encode(Sha256::digest(canonical(&json!({ "trials": trials }))))
    }
}

fn taken(map: &mut Map<String, Value>, key: &str) -> Option<Value> {
    map.remove(key).filter(|value| !value.is_null())
}

fn request_id(value: Option<Value>) -> Result<Option<String>, Refused> {
    let wrong = |why: Words| Refused::new(Code::InvalidRequestId, why).at("request_id");
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => {
            let count = id.chars().count();
            if count == 0 || count > REQUEST_ID_CHARACTERS {
                return Err(wrong(words!(
                    "request_id 必须有 1 到 {REQUEST_ID_CHARACTERS} 个字符",
                    "request_id must have 1 to {REQUEST_ID_CHARACTERS} characters"
                )));
            }
            if id.chars().any(char::is_control) {
                return Err(wrong(words!(
                    "request_id 不能含控制字符",
                    "request_id must not hold control characters"
                )));
            }
            Ok(Some(id))
        }
        Some(_) => Err(wrong(words!("request_id 必须是字符串", "request_id must be a string"))),
    }
}

fn read_trials(value: Value) -> Result<Vec<TrialRequest>, Refused> {
    let wrong = |why: Words| Refused::new(Code::InvalidTrials, why).at("trials");
    let Value::Array(items) = value else {
        return Err(wrong(words!(
            "trials 必须是列表，每项有 name 和 spec",
            "trials must be a list of name and spec"
        )));
    };
    if items.is_empty() || items.len() > MOST_TRIALS {
        let count = items.len();
        return Err(wrong(words!(
            "一个任务有 1 到 {MOST_TRIALS} 个 Trial，而不是 {count} 个",
            "a job has 1 to {MOST_TRIALS} trials, not {count}"
        )));
    }
    let mut names = BTreeSet::new();
    let mut trials = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let place = format!("trials[{index}]").replace(['[', ']'], ".");
        let place = place.trim_end_matches('.').to_owned();
        let Value::Object(mut item) = item else {
            return Err(wrong(words!(
                "{place} 必须是含 name 和 spec 的对象",
                "{place} must be an object with name and spec"
            )));
        };
        let name = match taken(&mut item, "name") {
            None => format!("trial-{}", index + 1),
            Some(Value::String(name)) if name_is_good(&name) => name,
            Some(_) => {
                return Err(wrong(words!(
                    "{place}.name 只能有字母、数字、`.`、`_` 和 `-`，1 到 63 个，以字母或数字开头",
                    "{place}.name must be letters, digits, `.`, `_` and `-`, 1 to 63, beginning \
                     with a letter or digit"
                )));
            }
        };
        if !names.insert(name.clone()) {
            return Err(wrong(words!(
                "{place}.name 与前面的 Trial 重复",
                "{place}.name is that of an earlier trial"
            )));
        }
        let spec = taken(&mut item, "spec");
        let missing = || wrong(words!("缺少 {place}.spec", "{place}.spec is missing"));
        let spec = spec.ok_or_else(missing)?;
        if let Some(key) = item.keys().next() {
            return Err(unknown(key, &place));
        }
        trials.push(TrialRequest::read(name, spec, &format!("{place}.spec"))?);
    }
    Ok(trials)
}

fn name_is_good(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The refusal of a key that a runner's request does not have.
fn unknown(key: &str, place: &str) -> Refused {
    let shown: String =
        key.chars().filter(|c| !c.is_control() && !"[]".contains(*c)).take(64).collect();
    let field = if place.is_empty() { shown.clone() } else { format!("{place}.{shown}") };
    let (code, why) = match key {
        "executor" | "provider" | "backend" | "queue_id" | "cluster" | "region" => {
            let why = words!("任务在哪里执行由服务端选择", "the server chooses where a job runs");
            (Code::BackendSelection, why)
        }
        "dataset" | "dataset_ref" | "task" | "task_id" | "task_ref" | "source" | "config"
        | "split" | "revision" => (
            Code::InvalidSpec,
            words!("Runner 任务不选择数据集或 Task", "runner jobs select no dataset or task"),
        ),
        "files" | "uploads" | "workdir" | "code" => (
            Code::InvalidSpec,
            words!(
                "Runner 任务不上传文件；程序所需的内容由镜像提供",
                "runner jobs upload no files; the image holds what the program needs"
            ),
        ),
        "resolved" | "snapshot" | "runner_snapshot" | "image_digest" | "manifest_sha256" => (
            Code::InvalidSpec,
            words!(
                "解析和冻结由服务端完成；请求只说明想要什么",
                "the server resolves and freezes; requests name only what they want"
            ),
        ),
        "env"
        | "environment"
        | "environment_variables"
        | "parameters"
        | "params"
        | "profile_id" => (
            Code::InvalidSpec,
            words!(
                "Runner 任务不接受环境变量或参数表",
                "runner jobs take neither environment variables nor parameter tables"
            ),
        ),
        "recipe" | "base_model" | "model" | "lora" | "hyperparameters" | "learning_rate" => (
            Code::InvalidSpec,
            words!("不能混合配方和 Runner", "a recipe and a runner cannot be mixed"),
        ),
        "metadata" | "user_metadata" => (Code::InvalidMetadata, words!("请用 tags", "use tags")),
        _ => (Code::InvalidSpec, words!("未知的字段", "the key is not known")),
    };
    Refused::new(code, why.about(&field)).at(field)
}

impl TrialRequest {
    fn read(name: String, value: Value, place: &str) -> Result<Self, Refused> {
        let Value::Object(mut spec) = value else {
            return Err(no_object(place));
        };
        let at = |key: &str| format!("{place}.{key}");
        let runner = match taken(&mut spec, "runner") {
            Some(Value::String(text)) => RunnerRef::parse(&text)?,
            Some(_) => {
                return Err(RunnerRef::malformed().at(at("runner")));
            }
            None => match spec.keys().find(|key| !known(key)) {
                Some(key) => return Err(unknown(key, place)),
                None => {
                    let field = at("runner");
                    return Err(spec_error(&field, words!("缺少 {field}", "{field} is missing")));
                }
            },
        };
        let image = match taken(&mut spec, "image") {
            None => None,
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text),
            Some(_) => {
                let why = words!("image 必须是镜像引用", "image must be an image reference");
                return Err(spec_error(&at("image"), why));
            }
        };
        let command = match taken(&mut spec, "command") {
            None => None,
            Some(Value::String(text)) => Some(command(text, &at("command"))?),
            Some(_) => {
                let why = words!("command 必须是字符串", "command must be a string");
                return Err(Refused::new(Code::InvalidCommand, why).at(at("command")));
            }
        };
        let resources = match taken(&mut spec, "resources") {
            None => Resources::default(),
            Some(value) => Resources::read(value, &at("resources"))?,
        };
        let one = seconds(taken(&mut spec, "timeout_seconds"), &at("timeout_seconds"))?;
        let other = seconds(taken(&mut spec, "timeout_sec"), &at("timeout_sec"))?;
        if one.is_some() && other.is_some() && one != other {
            let why = words!(
                "timeout_seconds 与 timeout_sec 不一致，请只给出一个",
                "timeout_seconds and timeout_sec differ; give one of them"
            );
            return Err(spec_error(&at("timeout_seconds"), why));
        }
        let tags = match taken(&mut spec, "tags") {
            None => BTreeMap::new(),
            Some(value) => tags::read(&value)
                .map_err(|why| Refused::new(Code::InvalidTag, why).at(at("tags")))?,
        };
        let profile = match taken(&mut spec, "profile") {
            None => None,
            Some(value @ Value::Object(_)) => Some(Profile::read(value, &at("profile"))?),
            Some(_) => {
                let why = words!(
                    "Runner 任务不接受命名的 Profile，只接受带 schema 的固定快照",
                    "runner jobs take no named profile, only a fixed snapshot with a schema"
                );
                return Err(spec_error(&at("profile"), why));
            }
        };
        if let Some(key) = spec.keys().next() {
            return Err(unknown(key, place));
        }
        let timeout_seconds = one.or(other);
        Ok(Self { name, runner, image, command, resources, timeout_seconds, tags, profile })
    }

    fn explicit(&self) -> Value {
        let Resources { gpu_type, gpus, cpus, memory_mb, storage_mb, shm_mb } = &self.resources;
        let resources = json!({
            "gpu_type": gpu_type, "gpus": gpus, "cpus": cpus, "memory_mb": memory_mb,
            "storage_mb": storage_mb, "shm_mb": shm_mb,
        });
        json!({
            "name": self.name,
            "runner": self.runner.to_string(),
            "image": self.image,
            "command": self.command,
            "resources": resources,
            "timeout_seconds": self.timeout_seconds,
            "tags": self.tags,
            "profile": self.profile.as_ref().map(Profile::explicit),
        })
    }
}

fn known(key: &str) -> bool {
    ["runner", "image", "command", "resources", "timeout_seconds", "timeout_sec", "tags", "profile"]
        .contains(&key)
}

fn command(text: String, field: &str) -> Result<String, Refused> {
    let wrong = |why: Words| Refused::new(Code::InvalidCommand, why).at(field);
    if text.trim().is_empty() {
        return Err(wrong(words!(
            "command 必须含非空白内容",
            "command must hold something else than white space"
        )));
    }
    if text.contains('\0') {
        return Err(wrong(words!("command 不能含 NUL", "command must not hold a NUL")));
    }
    if text.len() > COMMAND_BYTES {
        return Err(wrong(words!(
            "command 最多 {COMMAND_BYTES} 个 UTF-8 字节",
            "command must have at most {COMMAND_BYTES} bytes in UTF-8"
        )));
    }
    Ok(text)
}

/// A positive whole number up to a bound, in any number form.
fn count(value: Option<Value>, most: i128, field: &str) -> Result<Option<u64>, Refused> {
    let Some(value) = value else { return Ok(None) };
    let number = match &value {
        Value::Number(number) => whole(number),
        _ => None,
    };
    let good = number.filter(|number| (1..=most).contains(number));
    good.and_then(|number| u64::try_from(number).ok()).map(Some).ok_or_else(|| {
        let why = words!(
            "{field} 必须是 1 到 {most} 的整数",
            "{field} must be a whole number from 1 to {most}"
        );
        spec_error(field, why)
    })
}

fn seconds(value: Option<Value>, field: &str) -> Result<Option<u64>, Refused> {
    count(value, MOST_SECONDS, field)
}

impl Resources {
    fn read(value: Value, place: &str) -> Result<Self, Refused> {
        let Value::Object(mut map) = value else {
            return Err(no_object(place));
        };
        let at = |key: &str| format!("{place}.{key}");
        let gpu_type = match taken(&mut map, "gpu_type") {
            None => None,
            Some(Value::String(text)) if !text.trim().is_empty() && text.len() <= 128 => {
                Some(text.trim().to_owned())
            }
            Some(_) => {
                let why = words!("gpu_type 必须是 GPU 型号", "gpu_type must name a GPU model");
                return Err(spec_error(&at("gpu_type"), why));
            }
        };
        let mut number = |key: &str, most| count(taken(&mut map, key), most, &at(key));
        let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        let resources = Self {
            gpu_type,
            gpus: small(number("gpus", MOST_GPUS)?),
            cpus: small(number("cpus", MOST_GPUS)?),
            memory_mb: number("memory_mb", MOST_MIB)?,
            storage_mb: number("storage_mb", MOST_MIB)?,
            shm_mb: number("shm_mb", MOST_MIB)?,
        };
        match map.keys().next() {
            Some(key) => Err(unknown(key, place)),
            None => Ok(resources),
        }
    }
}

#[cfg(test)]
mod tests;
