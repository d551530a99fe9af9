//! What published content declares: `recipe.toml`, `dataset.toml` and `plugin.toml`.

use std::collections::BTreeMap;

use runwhere_engine::SyncedFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::canonical;
use super::reference::{ContentKind, ContentRef, is_digest};
use super::schema::ParameterSchema;
use crate::api::text::{Words, words};
use crate::runners::definition::unreadable;
use crate::runners::parse_strict;

/// The interface between a recipe and the runner that starts it.
pub(crate) const RECIPE_ABI: &str = "envloop.train-recipe/1";
/// The file with the schema of parameters, beside the declaration.
pub(super) const SCHEMA_FILE: &str = "parameters.schema.json";
const MOST_DEPENDENCIES: usize = 32;
const MOST_INPUTS: usize = 32;

/// A source that a recipe is fixed to.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dependency {
    /// `envloop://recipes/namespace/name@<manifest sha256>`.
    pub uri: String,
    /// The same digest.
    pub manifest_sha256: String,
}

/// Whether a recipe works without an input.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Need {
    /// It does not.
    Required,
    /// It does.
    Optional,
}

/// A recipe: sources, their dependencies, the parameters that it takes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Recipe {
    /// For people.
    pub description: Option<String>,
    /// [`RECIPE_ABI`].
    pub abi: String,
    /// The file that the runner starts.
    pub entry: String,
    /// Inputs by name.
    pub inputs: BTreeMap<String, Need>,
    /// Sources of others, by the name of their folder.
    pub dependencies: BTreeMap<String, Dependency>,
    /// JSON Schema of its parameters; without one it takes none.
    pub parameters: Option<Value>,
}

/// A dataset: files by configuration and split.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Dataset {
    /// For people.
    pub description: Option<String>,
    /// Paths by split, by configuration.
    pub configs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// An addition that a runner loads.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Plugin {
    /// For people.
    pub description: Option<String>,
    /// JSON Schema of its parameters; without one it takes none.
    pub parameters: Option<Value>,
}

/// A declaration of any kind.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Declaration {
    /// Of a recipe.
    Recipe(Recipe),
    /// Of a dataset.
    Dataset(Dataset),
    /// Of a plugin.
    Plugin(Plugin),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipeFile {
    recipe: RecipeTable,
    #[serde(default)]
    inputs: BTreeMap<String, Need>,
    #[serde(default)]
    dependencies: BTreeMap<String, Dependency>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipeTable {
    description: Option<String>,
    abi: String,
    entry: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DatasetFile {
    #[serde(default)]
    dataset: About,
    configs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginFile {
    plugin: About,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    description: Option<String>,
}

/// Whether a text can name an input, a dependency, a configuration or a split: it becomes a folder.
pub(super) fn name_is_good(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.as_bytes()[0].is_ascii_alphanumeric()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn names_are_good<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Words> {
    for name in names {
        if !name_is_good(name) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            let why = words!(
                "{shown} 不是由字母、数字、`.`、`_` 和 `-` 组成的名称",
                "{shown} is no name of letters, digits, `.`, `_` and `-`"
            );
            return Err(why.about(what));
        }
    }
    Ok(())
}

impl Declaration {
    /// Reads the declaration, the schema beside it, and holds both against the list of files.
    ///
    /// # Errors
    /// A sentence that names file and field.
    pub(super) fn read(
        kind: ContentKind,
        declared: &[u8],
        schema: Option<&[u8]>,
        files: &[SyncedFile],
    ) -> Result<Self, Words> {
        let file = kind.declared_in();
        let wrong = |why: Words| why.about(file);
        let text = std::str::from_utf8(declared)
            .map_err(|_| wrong(words!("不是 UTF-8", "is not UTF-8")))?;
        let parameters = schema.map(Self::schema).transpose()?;
        let there = |path: &str| files.iter().any(|file| file.path == path);
        match kind {
            ContentKind::Recipe => {
                let RecipeFile { recipe, inputs, dependencies } = toml_of(text).map_err(wrong)?;
                if recipe.abi != RECIPE_ABI {
                    return Err(wrong(words!(
                        "recipe.abi 必须是 {RECIPE_ABI}",
                        "recipe.abi must be {RECIPE_ABI}"
                    )));
                }
                if !there(&recipe.entry) {
                    return Err(wrong(words!(
                        "recipe.entry 不是目录中的文件",
                        "recipe.entry names no file of the folder"
                    )));
                }
                names_are_good("inputs", inputs.keys()).map_err(wrong)?;
                names_are_good("dependencies", dependencies.keys()).map_err(wrong)?;
                if inputs.len() > MOST_INPUTS || dependencies.len() > MOST_DEPENDENCIES {
                    return Err(wrong(words!(
                        "最多 {MOST_INPUTS} 个输入和 {MOST_DEPENDENCIES} 个依赖",
                        "at most {MOST_INPUTS} inputs and {MOST_DEPENDENCIES} dependencies"
                    )));
                }
                for (name, dependency) in &dependencies {
                    let at = |why: Words| wrong(why.about(format_args!("dependencies.{name}")));
                    dependency.pinned().map_err(at)?;
                }
                Ok(Self::Recipe(Recipe {
                    description: recipe.description,
                    abi: recipe.abi,
                    entry: recipe.entry,
                    inputs,
                    dependencies,
                    parameters,
                }))
            }
            ContentKind::Dataset => {
                let DatasetFile { dataset, configs } = toml_of(text).map_err(wrong)?;
                let configs = resolved(configs, files).map_err(wrong)?;
                Ok(Self::Dataset(Dataset { description: dataset.description, configs }))
            }
            ContentKind::Plugin => {
                let PluginFile { plugin } = toml_of(text).map_err(wrong)?;
                Ok(Self::Plugin(Plugin { description: plugin.description, parameters }))
            }
        }
    }

    fn schema(text: &[u8]) -> Result<Value, Words> {
        let value = parse_strict(text).map_err(|fault| fault.words().about(SCHEMA_FILE))?;
        ParameterSchema::read(&value).map_err(|fault| fault.told(SCHEMA_FILE))?;
        Ok(value)
    }

    /// For people.
    pub(crate) fn description(&self) -> Option<&str> {
        match self {
            Self::Recipe(recipe) => recipe.description.as_deref(),
            Self::Dataset(dataset) => dataset.description.as_deref(),
            Self::Plugin(plugin) => plugin.description.as_deref(),
        }
    }
}

impl Dependency {
    /// The address, if it agrees with the digest.
    pub(super) fn pinned(&self) -> Result<ContentRef, Words> {
        let target = ContentRef::parse(&self.uri)?;
        if target.kind != ContentKind::Recipe {
            return Err(words!(
                "依赖的源码位于 envloop://recipes/ 之下",
                "sources are below envloop://recipes/"
            ));
        }
        if !is_digest(&self.manifest_sha256) || target.revision != self.manifest_sha256 {
            return Err(words!(
                "manifest_sha256 必须是 uri 中的摘要",
                "manifest_sha256 must be the digest that uri names"
            ));
        }
        Ok(target)
    }
}

fn toml_of<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Words> {
    toml::from_str(text).map_err(|error| unreadable(&error))
}

/// The paths that the patterns of each split stand for.
fn resolved(
    configs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    files: &[SyncedFile],
) -> Result<BTreeMap<String, BTreeMap<String, Vec<String>>>, Words> {
    if configs.is_empty() || configs.values().any(BTreeMap::is_empty) {
        return Err(words!(
            "至少需要一个带 split 的配置，例如 configs.default.train",
            "a configuration with a split is needed, for example configs.default.train"
        ));
    }
    names_are_good("configs", configs.keys())?;
    let mut found = BTreeMap::new();
    for (config, splits) in configs {
        names_are_good(&format!("configs.{config}"), splits.keys())?;
        let mut paths_of = BTreeMap::new();
        for (split, patterns) in splits {
            let mut paths = Vec::new();
            for pattern in &patterns {
                let fitting = files.iter().map(|file| &file.path).filter(|path| {
                    *path != ContentKind::Dataset.declared_in()
                        && runwhere_agent::glob::matches(pattern, path)
                });
                let before = paths.len();
                paths.extend(fitting.cloned());
                if paths.len() == before {
                    let why = words!("有模式不匹配任何文件", "a pattern fits no file");
                    return Err(why.about(format_args!("configs.{config}.{split}")));
                }
            }
            paths.sort();
            paths.dedup();
            if paths.is_empty() {
                let why = words!("没有文件", "there are no files");
                return Err(why.about(format_args!("configs.{config}.{split}")));
            }
            paths_of.insert(split, paths);
        }
        found.insert(config, paths_of);
    }
    Ok(found)
}

/// The manifest of content: what its digest is of, in canonical form.
pub(crate) fn manifest(
    kind: ContentKind,
    name: &str,
    version: Option<&str>,
    declaration: &Value,
    files: &[SyncedFile],
) -> Value {
    serde_json::json!({
        "schema": "envloop.content-manifest/1",
        "kind": kind.word(),
        "name": name,
        "version": version,
        "declaration": declaration,
        "files": files,
    })
}

/// SHA-256 of a manifest.
pub(crate) fn manifest_sha256(manifest: &Value) -> String {
    hex::encode(Sha256::digest(canonical(manifest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<SyncedFile> {
        let file =
            |path: &&str| SyncedFile { path: (*path).to_owned(), sha256: "ab".repeat(32), size: 1 };
        paths.iter().map(file).collect()
    }

    fn read(kind: ContentKind, text: &str, paths: &[&str]) -> Result<Declaration, String> {
        Declaration::read(kind, text.as_bytes(), None, &files(paths)).map_err(|why| why.en)
    }

    #[test]
    fn a_recipe_names_its_entry_inputs_and_fixed_sources() {
        let digest = "0a".repeat(32);
        let text = format!(
            "[recipe]\nabi = \"envloop.train-recipe/1\"\nentry = \"train.py\"\n[inputs]\ndata = \"required\"\n\
             [dependencies.common]\nuri = \"envloop://recipes/a/b@{digest}\"\nmanifest_sha256 = \"{digest}\"\n"
        );
        let Declaration::Recipe(recipe) =
            read(ContentKind::Recipe, &text, &["recipe.toml", "train.py"]).unwrap()
        else {
            panic!()
        };
        assert_eq!(recipe.inputs["data"], Need::Required);
        assert_eq!(recipe.dependencies["common"].pinned().unwrap().name, "a/b");
        for (from, to, word) in [
            ("train.py", "other.py", "recipe.entry"),
            ("train-recipe/1", "train-recipe/2", "recipe.abi"),
            ("data =", "\"../data\" =", "inputs"),
            ("recipes/a/b", "datasets/a/b", "envloop://recipes/"),
            ("entry", "enrty", "enrty"),
        ] {
            let why =
                read(ContentKind::Recipe, &text.replace(from, to), &["recipe.toml", "train.py"])
                    .unwrap_err();
            assert!(why.contains(word) && why.contains("recipe.toml"), "{why}");
        }
        let other = text.replacen(&digest, &"0b".repeat(32), 1);
        let why = read(ContentKind::Recipe, &other, &["recipe.toml", "train.py"]).unwrap_err();
        assert!(why.contains("manifest_sha256"), "{why}");
    }

    #[test]
    fn a_datasets_patterns_stand_for_files_that_are_there() {
        let paths = ["dataset.toml", "train/1.jsonl", "train/2.jsonl", "test.jsonl"];
        let text = "[configs.default]\ntrain = [\"train/**\", \"train/1.jsonl\"]\ntest = [\"test.jsonl\"]\n";
        let Declaration::Dataset(dataset) = read(ContentKind::Dataset, text, &paths).unwrap()
        else {
            panic!()
        };
        assert_eq!(dataset.configs["default"]["train"], ["train/1.jsonl", "train/2.jsonl"]);
        for (text, word) in [
            ("[configs.default]\ntrain = [\"*.csv\"]", "fits no file"),
            ("[configs.default]\ntrain = [\"dataset.toml\"]", "fits no file"),
            ("[configs.default]\ntrain = []", "no files"),
            ("[configs.\"a/b\"]\ntrain = [\"**\"]", "a/b"),
            ("[configs]", "is needed"),
            ("", "configs"),
        ] {
            let why = read(ContentKind::Dataset, text, &paths).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn the_digest_is_of_everything_and_of_nothing_else() {
        let base = |version: Option<&str>, paths: &[&str]| {
            let declaration = serde_json::json!({ "description": "x" });
            manifest_sha256(&manifest(
                ContentKind::Dataset,
                "a/b",
                version,
                &declaration,
                &files(paths),
            ))
        };
        assert_eq!(base(Some("1"), &["a", "b"]), base(Some("1"), &["a", "b"]));
        assert_ne!(base(Some("1"), &["a", "b"]), base(Some("2"), &["a", "b"]));
        assert_ne!(base(Some("1"), &["a", "b"]), base(Some("1"), &["a"]));
    }
}
