//! Holding a profile against what is published and permitted, and freezing it.

use std::collections::BTreeMap;

use runwhere_agent::protocol::Digest;
use runwhere_engine::{Project, Publication, SyncedFile};
use runwhere_model::ProjectId;
use serde_json::{Map, Value, json};

use super::declaration::{Declaration, Need, RECIPE_ABI, Recipe};
use super::profile::{InputChoice, PluginBinding, Profile, ProfileProgram};
use super::reference::Pinned;
use super::schema::ParameterSchema;
use super::shelf::{MOST_FILES, Reader, address, approval_of, declaration_of, missing};
use crate::accounts::Caller;
use crate::api::text::{Words, words};
use crate::runners::definition::Definition;
use crate::runners::refusal::{Code, Refused};
use crate::runners::registry::{Registry, damaged};

const PLACE: &str = "spec.profile";
/// The configuration of an input that names none.
const DEFAULT_CONFIG: &str = "default";

/// A profile with everything that it stands for. Nothing of it changes any more.
#[derive(Clone, Debug)]
pub(crate) struct FrozenProfile {
    /// What the program reads: references, parameters with defaults, and where the files lie.
    pub(crate) document: Value,
    parts: Vec<(Publication, Vec<SyncedFile>)>,
}

fn wrong(field: &str, why: &Words) -> Refused {
    let field = format!("{PLACE}.{field}");
    Refused::new(Code::InvalidProfile, why.about(&field)).at(field)
}

fn unsupported(why: Words) -> Refused {
    Refused::new(Code::ProfileRunnerUnsupported, why).at(PLACE)
}

/// Holds a profile against runner, registry, permissions and schemas. Nothing is taken.
///
/// # Errors
/// The first thing that does not fit.
pub(crate) async fn freeze(
    registry: &Registry,
    caller: &Caller,
    project: &Project,
    profile: &Profile,
    runner: (&str, &Definition),
) -> Result<FrozenProfile, Refused> {
    understood(profile, runner)?;
    let mut work = Freezing {
        registry,
        reader: Reader { workspace: &caller.workspace, project: &caller.project },
        project,
        parts: Vec::new(),
        count: 0,
    };
    let mut document = Map::new();
    document.insert("schema".to_owned(), profile.schema().into());
    match &profile.program {
        ProfileProgram::Fixed(fixed) => {
            document.insert("recipe".to_owned(), Value::Object(fixed.clone()));
        }
        ProfileProgram::Recipe(pinned, given) => {
            let (recipe, shown) = work.recipe(pinned, runner).await?;
            inputs_fit(&recipe, &profile.inputs)?;
            let filled = parameters(recipe.parameters.as_ref(), given, "parameters")?;
            document.insert("recipe".to_owned(), shown);
            document.insert("parameters".to_owned(), filled);
        }
    }
    let mut inputs = Map::new();
    for (name, input) in &profile.inputs {
        inputs.insert(name.clone(), work.input(name, input).await?);
    }
    let mut plugins = Vec::new();
    for (index, binding) in profile.plugins.iter().enumerate() {
        plugins.push(work.plugin(index, binding).await?);
    }
    document.insert("inputs".to_owned(), inputs.into());
    document.insert("plugins".to_owned(), plugins.into());
    Ok(FrozenProfile { document: document.into(), parts: work.parts })
}

/// Whether the runner says that it understands such profiles.
fn understood(profile: &Profile, (name, definition): (&str, &Definition)) -> Result<(), Refused> {
    let declares = |word: &str| definition.profiles.iter().any(|known| known == word);
    let undeclared = |word: &str| {
        unsupported(words!(
            "Runner {name} 没有声明 {word}",
            "the runner {name} does not declare {word}"
        ))
    };
    match &profile.program {
        ProfileProgram::Fixed(_) if !declares(profile.schema()) => {
            Err(undeclared(profile.schema()))
        }
        ProfileProgram::Recipe(..) if !declares(RECIPE_ABI) => Err(undeclared(RECIPE_ABI)),
        ProfileProgram::Recipe(..) if definition.recipe_entry.is_none() => {
            Err(undeclared("recipe_entry"))
        }
        _ => Ok(()),
    }
}

/// A recipe gets every input that it needs and none that it does not know.
fn inputs_fit(recipe: &Recipe, given: &BTreeMap<String, InputChoice>) -> Result<(), Refused> {
    if let Some(name) = given.keys().find(|name| !recipe.inputs.contains_key(*name)) {
        let why = words!("此 recipe 没有这个输入", "the recipe has no such input");
        return Err(wrong(&format!("inputs.{name}"), &why));
    }
    let needed = recipe.inputs.iter().filter(|(_, need)| **need == Need::Required);
    for (name, _) in needed {
        if !given.contains_key(name) {
            let why = words!("此 recipe 需要这个输入", "the recipe needs it");
            return Err(wrong(&format!("inputs.{name}"), &why));
        }
    }
    Ok(())
}

/// Parameters with the defaults of a schema; without a schema there are none.
fn parameters(
    schema: Option<&Value>,
    given: &Map<String, Value>,
    field: &str,
) -> Result<Value, Refused> {
    let Some(schema) = schema else {
        return match given.keys().next() {
            None => Ok(json!({})),
            Some(_) => {
                let why = words!(
                    "没有声明任何参数，因此不能给出参数",
                    "no parameters are declared, so none can be given"
                );
                Err(wrong(field, &why))
            }
        };
    };
    let schema = ParameterSchema::read(schema).map_err(|fault| Refused::internal(fault.why.en))?;
    schema.apply(&Value::Object(given.clone())).map_err(|fault| {
        let whole = format!("{PLACE}.{field}");
        let at = match fault.path.is_empty() {
            true => whole.clone(),
            false => format!("{whole}.{}", fault.path),
        };
        Refused::new(Code::InvalidProfile, fault.told(&whole)).at(at)
    })
}

struct Freezing<'a> {
    registry: &'a Registry,
    reader: Reader<'a>,
    project: &'a Project,
    parts: Vec<(Publication, Vec<SyncedFile>)>,
    count: usize,
}

impl Freezing<'_> {
    /// The content behind a reference: readable, and with the digest that was named.
    async fn pinned(&self, pinned: &Pinned, field: &str) -> Result<Publication, Refused> {
        let place = format!("{PLACE}.{field}");
        let row = self.registry.found(self.reader, &pinned.target).await?;
        let row = row.ok_or_else(|| missing(&pinned.target, &place))?;
        if row.manifest_sha256 != pinned.manifest_sha256 {
            return Err(Refused::new(
                Code::ProfileHashMismatch,
                words!(
                    "已发布的 {target} 的 manifest 与 manifest_sha256 不符",
                    "{target} is published with another manifest than manifest_sha256 says",
                    target = pinned.target
                )
                .about(&place),
            )
            .at(place));
        }
        Ok(row)
    }

    /// Notes files to be laid below a folder of the profile.
    fn lay(
        &mut self,
        row: Publication,
        folder: &str,
        keep: Option<&[String]>,
    ) -> Result<(), Refused> {
        let wanted = |file: &&SyncedFile| keep.is_none_or(|paths| paths.contains(&file.path));
        let files: Vec<SyncedFile> = row
            .files
            .iter()
            .filter(wanted)
            .map(|file| SyncedFile { path: format!("{folder}/{}", file.path), ..file.clone() })
            .collect();
        self.count += files.len();
        if self.count > MOST_FILES {
            let why = words!(
                "全部内容合计超过 {MOST_FILES} 个文件",
                "all content together has more than {MOST_FILES} files"
            );
            return Err(Refused::new(Code::InvalidProfile, why.about(PLACE)).at(PLACE));
        }
        self.parts.push((row, files));
        Ok(())
    }

    async fn recipe(
        &mut self,
        pinned: &Pinned,
        (runner, definition): (&str, &Definition),
    ) -> Result<(Recipe, Value), Refused> {
        let row = self.pinned(pinned, "recipe").await?;
        let Declaration::Recipe(recipe) = declaration_of(&row)? else {
            return Err(Refused::internal("a recipe's row declares something else"));
        };
        if recipe.abi != RECIPE_ABI {
            let abi = &recipe.abi;
            return Err(unsupported(words!(
                "不支持此 recipe 的 ABI {abi}",
                "the recipe's ABI {abi} is not served"
            )));
        }
        if definition.recipe_entry.as_deref() != Some(recipe.entry.as_str()) {
            let starts = definition.recipe_entry.as_deref().unwrap_or_default();
            return Err(unsupported(words!(
                "Runner {runner} 启动 recipe 的 {starts}，而此 recipe 的入口是 {entry}",
                "the runner {runner} starts {starts} of a recipe, but the entry of this one is {entry}",
                entry = recipe.entry
            )));
        }
        let mut dependencies = Map::new();
        for (name, dependency) in &recipe.dependencies {
            let field = format!("recipe.dependencies.{name}");
            let target = dependency.pinned().map_err(|why| Refused::internal(why.en))?;
            let wanted = Pinned { target, manifest_sha256: dependency.manifest_sha256.clone() };
            let source = self.pinned(&wanted, &field).await?;
            let path = format!("dependencies/{name}");
            let shown = json!({
                "uri": dependency.uri, "manifest_sha256": dependency.manifest_sha256, "path": path,
            });
            self.lay(source, &path, None)?;
            dependencies.insert(name.clone(), shown);
        }
        let shown = json!({
            "uri": address(&row)?.to_string(),
            "manifest_sha256": row.manifest_sha256,
            "entry": recipe.entry,
            "path": "recipe",
            "dependencies": dependencies,
        });
        self.lay(row, "recipe", None)?;
        Ok((recipe, shown))
    }

    async fn input(&mut self, name: &str, input: &InputChoice) -> Result<Value, Refused> {
        let field = format!("inputs.{name}");
        let row = self.pinned(&input.dataset, &field).await?;
        let Declaration::Dataset(dataset) = declaration_of(&row)? else {
            return Err(Refused::internal("a dataset's row declares something else"));
        };
        let config = input.config.as_deref().unwrap_or(DEFAULT_CONFIG);
        let listed = |names: Vec<&String>| {
            names.into_iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let none = |place: &str, name: &str, known: String| {
            let why =
                words!("没有 {name}；现有：{known}", "there is no {name}; there are: {known}");
            wrong(&format!("{field}.{place}"), &why)
        };
        let splits = dataset.configs.get(config);
        let splits = splits
            .ok_or_else(|| none("config", config, listed(dataset.configs.keys().collect())))?;
        let mut paths: Vec<String> = match &input.split {
            None => splits.values().flatten().cloned().collect(),
            Some(split) => splits
                .get(split)
                .cloned()
                .ok_or_else(|| none("split", split, listed(splits.keys().collect())))?,
        };
        paths.sort();
        paths.dedup();
        let folder = format!("inputs/{name}");
        let shown = json!({
            "uri": address(&row)?.to_string(),
            "manifest_sha256": row.manifest_sha256,
            "config": config,
            "split": input.split,
            "path": folder,
            "files": paths,
        });
        self.lay(row, &folder, Some(&paths))?;
        Ok(shown)
    }

    async fn plugin(&mut self, index: usize, binding: &PluginBinding) -> Result<Value, Refused> {
        let field = format!("plugins.{index}");
        let row = self.pinned(&binding.plugin, &field).await?;
        if !self.project.approved_plugins.contains(&approval_of(&row)) {
            let place = format!("{PLACE}.{field}");
            return Err(Refused::new(
                Code::PermissionDenied,
                words!(
                    "{target} 未在此项目中获得批准；管理员可用 `el content approve` 批准",
                    "{target} is not approved in this project; an administrator can with \
                     `el content approve`",
                    target = binding.plugin.target
                )
                .about(&place),
            )
            .at(place));
        }
        let Declaration::Plugin(plugin) = declaration_of(&row)? else {
            return Err(Refused::internal("a plugin's row declares something else"));
        };
        let field = format!("{field}.parameters");
        let filled = parameters(plugin.parameters.as_ref(), &binding.parameters, &field)?;
        let folder = format!("plugins/{}", row.name);
        let shown = json!({
            "uri": address(&row)?.to_string(),
            "manifest_sha256": row.manifest_sha256,
            "parameters": filled,
            "path": folder,
        });
        self.lay(row, &folder, None)?;
        Ok(shown)
    }
}

impl FrozenProfile {
    /// Makes the files readable for nodes of a project, and lists them by their place in the
    /// profile's folder.
    ///
    /// # Errors
    /// `PROFILE_HASH_MISMATCH` where stored files are no longer what was published.
    pub(crate) async fn share(
        &self,
        registry: &Registry,
        project: &ProjectId,
    ) -> Result<Vec<SyncedFile>, Refused> {
        let mut all = Vec::new();
        for (row, files) in &self.parts {
            for file in files {
                let sha256: Digest = file.sha256.parse().map_err(Refused::internal)?;
                if !registry.blobs.share(&row.project, project, &sha256, file.size).await? {
                    return Err(damaged(Code::ProfileHashMismatch, &file.path, row).at(PLACE));
                }
                all.push(file.clone());
            }
        }
        Ok(all)
    }
}
