//! From the tree to a task file, with every problem on the way.

use std::collections::{BTreeMap, HashMap};

use super::command::{Command, takes_arguments};
use super::file::MaxDuration;
use super::file::{
    Environment, JobSection, ModelMount, Resources, Setting, Storage, TaskFile, TaskKind,
};
use super::node::{Body, Node};
use super::place::{FieldPath, Position};
use super::problem::{Found, Problem, Problems, Wanted};
use super::reader::{
    CHECKPOINT, ENVIRONMENT, Field, JOB, MODEL, RESOURCES, STORAGE, Section, TOP, WORKDIR,
};
use super::rules;
use super::scalar;
use super::shown::shown;

/// Builds the file; `None` only where problems were reported.
pub(super) fn build(root: &Node, problems: &mut Problems) -> Option<TaskFile> {
    if !matches!(root.body, Body::Map(_)) {
        problems.report(&FieldPath::root(), root.at, Problem::TopLevel { found: root.found() });
        return None;
    }
    let top = Field { path: FieldPath::root(), key_at: Position::START, node: root }
        .section(TOP, problems)?;

    // A `kind` that is null counts as not given, as in the published client.
    let kind = top
        .get("kind")
        .filter(|field| !field.is_null())
        .and_then(|field| checked(field, rules::kind, problems));
    if let Some(version) = top.get("version") {
        checked(
            version,
            |text| {
                if text == "v1" {
                    Ok(())
                } else {
                    Err(Problem::UnsupportedVersion { value: shown(text) })
                }
            },
            problems,
        );
    }
    let job = job(&top, problems);
    let environment = environment(&top, problems);
    let resources = resources(&top, problems);
    let storage = storage(&top, problems);
    Some(TaskFile {
        kind: Setting::or_default(kind, TaskKind::Training),
        job: job?,
        environment,
        resources,
        storage,
    })
}

/// A non-empty string that keeps `rule`.
fn checked<T>(
    field: &Field<'_>,
    rule: impl Fn(&str) -> Result<T, Problem>,
    problems: &mut Problems,
) -> Option<T> {
    let text = field.string(Wanted::Text, problems)?;
    accepted(field, rule(text), problems)
}

fn accepted<T>(
    field: &Field<'_>,
    result: Result<T, Problem>,
    problems: &mut Problems,
) -> Option<T> {
    result.map_err(|problem| field.report(problems, problem)).ok()
}

/// An optional non-empty string of `section` that keeps `rule`.
fn optional<T>(
    section: &Section<'_>,
    name: &str,
    rule: impl Fn(&str) -> Result<T, Problem>,
    problems: &mut Problems,
) -> Option<T> {
    checked(section.get(name)?, rule, problems)
}

fn job(top: &Section<'_>, problems: &mut Problems) -> Option<JobSection> {
    let field = top.get("job");
    let section = match field {
        Some(field) if !field.is_null() => field.section(JOB, problems)?,
        _ => {
            // Names what is needed, not the section that would hold it.
            let at = field.map_or(Position::START, |field| field.key_at);
            problems.report(&FieldPath::root().key("job").key("name"), at, Problem::Required);
            return None;
        }
    };
    let name = section
        .required("name", problems)
        .cloned()
        .and_then(|field| checked(&field, rules::name, problems));
    let description = optional(&section, "description", rules::description, problems);
    let max_duration = section.get("maxDuration").and_then(|field| max_duration(field, problems));
    let max_duration = Setting::or_default(max_duration, MaxDuration::Unlimited);
    Some(JobSection { name: name?, description, max_duration })
}

/// A duration may be a number or a string.
fn max_duration(field: &Field<'_>, problems: &mut Problems) -> Option<MaxDuration> {
    match &field.node.body {
        Body::Scalar { text, .. } if text.trim().is_empty() => {
            field.report(problems, Problem::Empty);
            None
        }
        Body::Scalar { text, .. } => accepted(field, rules::max_duration(text), problems),
        Body::List(_) | Body::Map(_) => {
            field.report(
                problems,
                Problem::WrongType { wanted: Wanted::Text, found: field.node.found() },
            );
            None
        }
    }
}

fn environment(top: &Section<'_>, problems: &mut Problems) -> Environment {
    let mut environment = Environment {
        image: None,
        conda: None,
        requirements: None,
        command: None,
        args: Vec::new(),
        env: BTreeMap::new(),
        wandb_external: false,
    };
    let Some(section) =
        top.get("environment").and_then(|field| field.section(ENVIRONMENT, problems))
    else {
        return environment;
    };
    environment.image = optional(&section, "image", rules::image, problems);
    environment.conda = optional(&section, "conda", rules::declaration, problems);
    environment.requirements = optional(&section, "requirements", rules::declaration, problems);
    if let (Some(conda), Some(requirements)) = (section.get("conda"), section.get("requirements")) {
        let later = conda.key_at.max(requirements.key_at);
        problems.report(
            &FieldPath::root().key("environment"),
            later,
            Problem::CondaAndRequirements,
        );
    }
    environment.command = section.get("command").and_then(|field| command(field, problems));
    environment.args =
        section.get("args").and_then(|field| arguments(field, problems)).unwrap_or_default();
    if let (Some(Command::Shell(line)), Some(field)) = (&environment.command, section.get("args"))
        && !environment.args.is_empty()
        && !takes_arguments(line)
    {
        field.report(problems, Problem::ArgsAfterScript);
    }
    environment.env = section.get("env").and_then(|field| env(field, problems)).unwrap_or_default();
    environment.wandb_external = section
        .get("wandb_external")
        .and_then(|field| boolean(field, problems))
        .unwrap_or_default();
    environment
}

fn command(field: &Field<'_>, problems: &mut Problems) -> Option<Command> {
    if !matches!(field.node.body, Body::List(_)) {
        let text = field.string(Wanted::TextOrList, problems)?;
        return accepted(field, rules::argument(text), problems).map(Command::Shell);
    }
    let argv = arguments(field, problems)?;
    if argv.is_empty() {
        // Elements that were refused are reported already.
        if matches!(&field.node.body, Body::List(items) if items.is_empty()) {
            field.report(problems, Problem::EmptyList);
        }
        return None;
    }
    if let Some(program) = field.list(problems)?.first()
        && program.node.text().is_some_and(|text| text.trim().is_empty())
    {
        program.report(problems, Problem::Empty);
    }
    Some(Command::Argv(argv))
}

/// A list of strings, which may be empty.
fn arguments(field: &Field<'_>, problems: &mut Problems) -> Option<Vec<String>> {
    let mut arguments = Vec::new();
    for item in field.list(problems)? {
        if let Some(text) = item.any_string(Wanted::Text, problems) {
            arguments.extend(accepted(&item, rules::argument(text), problems));
        }
    }
    Some(arguments)
}

fn env(field: &Field<'_>, problems: &mut Problems) -> Option<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for (name, field) in field.entries(problems)? {
        if let Err(problem) = rules::env_name(name) {
            problems.report(&field.path, field.key_at, problem);
        }
        if let Some(text) = field.any_string(Wanted::Text, problems)
            && let Some(value) = accepted(&field, rules::argument(text), problems)
        {
            env.insert(name.to_owned(), value);
        }
    }
    Some(env)
}

fn boolean(field: &Field<'_>, problems: &mut Problems) -> Option<bool> {
    let value = match &field.node.body {
        Body::Scalar { text, quoted: false } => scalar::boolean(text),
        _ => None,
    };
    if value.is_none() {
        field.report(
            problems,
            Problem::WrongType { wanted: Wanted::Bool, found: field.node.found() },
        );
    }
    value
}

fn resources(top: &Section<'_>, problems: &mut Problems) -> Resources {
    let section = top.get("resources").and_then(|field| field.section(RESOURCES, problems));
    let get = |name| section.as_ref().and_then(|section| section.get(name));
    let gpu_num = get("gpuNum").and_then(|field| gpu_num(field, problems));
    Resources {
        gpu_num: Setting::or_default(gpu_num, 1),
        gpu_type: get("gpuType").and_then(|field| checked(field, rules::gpu_type, problems)),
        gpu_sku_key: get("gpuSkuKey").and_then(|field| checked(field, rules::gpu_sku, problems)),
    }
}

fn gpu_num(field: &Field<'_>, problems: &mut Problems) -> Option<u32> {
    let found = field.node.found();
    let Body::Scalar { text, .. } = &field.node.body else {
        field.report(problems, Problem::WrongType { wanted: Wanted::Integer, found });
        return None;
    };
    if found != Found::Integer {
        let problem = if text.is_empty() {
            Problem::Empty
        } else {
            Problem::WrongType { wanted: Wanted::Integer, found }
        };
        field.report(problems, problem);
        return None;
    }
    // Only the plain notation: `010` is eight to some readers and ten to others.
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    let number =
        text.parse().ok().filter(|number| canonical && (1..=rules::MAX_GPUS).contains(number));
    if number.is_none() {
        field.report(problems, Problem::OutOfRange { min: 1, max: u64::from(rules::MAX_GPUS) });
    }
    number
}

fn storage(top: &Section<'_>, problems: &mut Problems) -> Storage {
    let mut storage = Storage { workdirs: Vec::new(), models: Vec::new(), checkpoint: None };
    let Some(section) = top.get("storage").and_then(|field| field.section(STORAGE, problems))
    else {
        return storage;
    };
    for item in section.get("workdirs").and_then(|field| field.list(problems)).unwrap_or_default() {
        if let Some(workdir) = item.required_section(WORKDIR, problems)
            && let Some(path) = workdir.required("path", problems)
        {
            storage.workdirs.extend(checked(path, rules::relative_path, problems));
        }
    }
    let mut model_paths = HashMap::new();
    let models = section.get("models").and_then(|field| field.list(problems)).unwrap_or_default();
    for (index, item) in models.iter().enumerate() {
        if let Some(model) = item.required_section(MODEL, problems) {
            storage.models.extend(model_mount(&model, index, &mut model_paths, problems));
        }
    }
    let checkpoint =
        section.get("checkpoint").and_then(|field| field.section(CHECKPOINT, problems));
    if let Some(path) =
        checkpoint.as_ref().and_then(|checkpoint| checkpoint.required("path", problems))
    {
        storage.checkpoint = checked(path, rules::any_path, problems);
    }
    storage
}

fn model_mount(
    model: &Section<'_>,
    index: usize,
    paths: &mut HashMap<String, usize>,
    problems: &mut Problems,
) -> Option<ModelMount> {
    let source = model.get("source").and_then(|field| {
        let text = field.string(Wanted::Text, problems)?;
        accepted(field, rules::model_source(text), problems)
            .map(|parsed| (text.trim().to_owned(), parsed))
    });
    let field = model.required("path", problems)?;
    // A model takes a folder of its own: never the whole work directory.
    let own_folder = |text: &str| {
        rules::any_path(text)
            .and_then(|path| if path == "." { Err(Problem::PathRoot) } else { Ok(path) })
    };
    let path = checked(field, own_folder, problems)?;
    if let Some(&first_index) = paths.get(&path) {
        field.report(problems, Problem::PathTwice { first_index });
        return None;
    }
    paths.insert(path.clone(), index);
    let (source, parsed) = source.unzip();
    Some(ModelMount { source, model: parsed, path })
}
